package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/health"
)

func (p *Program) callCommand() *cli.Command {
	cmd := p.command("call", "call any operation of the API as the owner", "OPERATION [key=value | key:=JSON …]", func(c *cli.Context, e *env) error {
		operation := c.Args().First()
		switch {
		case c.Bool("help") && operation != "":
			return showOperation(e.stdout, operation)
		case c.Bool("help"):
			return showHelp(e.stdout, c.Command, nil)
		case c.Bool("list"):
			return runCallList(e)
		case operation == "":
			return config.Mistake(errors.New("name the operation: mailstead call OPERATION [key=value …]; `mailstead call --list` lists the operations"))
		}
		args, err := callArguments(operation, c.Args().Tail(), os.Stdin)
		if err != nil {
			return config.Mistake(err)
		}
		o := callOptions{operation: operation, args: args, account: c.String("account")}
		if c.Bool("wait") {
			return runCallAndWait(c.Context, e, o, c.Duration("timeout"))
		}
		return runCall(c.Context, e, o)
	},
		&cli.BoolFlag{Name: "list", Usage: "list the operations"},
		accountFlag(), jsonFlag(),
		&cli.BoolFlag{Name: "csv", Usage: "print the list of --list as CSV"},
		&cli.BoolFlag{Name: "wait", Usage: "wait until the job that the operation begins has ended, or the domains are complete; exit with 1 if it failed"},
		timeoutFlag())
	cmd.HideHelp = true // the action shows the help of operations
	return cmd
}

func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Usage: "how long --wait waits, such as 10m; without an end if left out"}
}

// callArguments returns the JSON object of arguments that the words after an operation give: one
// JSON object, "-" for an object on standard input, or words as handlers.Arguments takes them.
func callArguments(operation string, words []string, stdin io.Reader) (string, error) {
	switch {
	case len(words) == 0:
		return "", nil
	case len(words) == 1 && words[0] == "-":
		text, err := io.ReadAll(stdin)
		return string(text), err
	case operation == advanceClock, strings.HasPrefix(strings.TrimSpace(words[0]), "{"):
		if len(words) > 1 {
			return "", fmt.Errorf("%q is not expected: mailstead call OPERATION [JSON]; the JSON is one argument, best in single quotes", words[1])
		}
		return words[0], nil
	}
	return handlers.Arguments(operation, words)
}

type callOptions struct {
	operation string
	args      string // a JSON object; "" means no arguments
	account   string // account ID or owner's address; "" means the only account
}

// advanceClock is the operation that moves the clock of the sandbox forward. The API does not have
// it; only `mailstead call` does.
const advanceClock = "advance_clock"

// runCallList prints the operations of the API.
func runCallList(e *env) error {
	list := handlers.Operations()
	if s, err := e.settings(); err == nil && s.Sandbox() {
		list = append(list, handlers.Operation{Name: advanceClock, Method: http.MethodPost, Path: operator.AdvancePath, Summary: "Move the clock of the sandbox forward"})
	}
	t := &table{heads: []string{"Operation", "Method", "Path", "Does"}, wide: []int{3}}
	for _, o := range list {
		t.add(o.Name, o.Method, o.Path, o.Summary)
	}
	return e.printTable(map[string]any{"data": list, "count": len(list)}, t)
}

// runCall calls one operation of the API and prints the response.
func runCall(ctx context.Context, e *env, o callOptions) error {
	r, err := newCallRequest(ctx, e, o)
	if err != nil {
		return config.Mistake(err)
	}
	a := &apiCaller{ctx: ctx, account: o.account, send: e.send}
	body, err := a.roundTrip(r)
	if err != nil {
		return e.printAPIError(err)
	}
	return e.printJSON(body)
}

// runCallAndWait calls one operation, waits for what it begins, and prints that.
func runCallAndWait(ctx context.Context, e *env, o callOptions, timeout time.Duration) error {
	r, err := newCallRequest(ctx, e, o)
	if err != nil {
		return config.Mistake(err)
	}
	w, end := e.newWaiter(ctx, o.account, timeout)
	defer end()
	body, err := w.roundTrip(r)
	if err != nil {
		return e.printAPIError(err)
	}
	var answer, args jsonObject
	if err := json.Unmarshal(body, &answer); err != nil {
		return e.printJSON(body) // a file, or a list: it names nothing that goes on
	}
	if o.args != "" {
		if err := json.Unmarshal([]byte(o.args), &args); err != nil {
			return err
		}
	}
	result, failed := w.wait(o.operation, args, answer)
	w.line.end()
	if result != nil {
		body = result
	}
	return errors.Join(e.printJSON(body), failed)
}

// printJSON prints the JSON of the API, indented. It prints other answers as they are.
func (e *env) printJSON(body []byte) error {
	var pretty bytes.Buffer
	if json.Indent(&pretty, bytes.TrimSpace(body), "", "  ") == nil {
		body = append(pretty.Bytes(), '\n')
	}
	_, err := e.stdout.Write(body)
	return err
}

// printAPIError prints the body of an error of the API with --json. It returns err.
func (e *env) printAPIError(err error) error {
	var refused *apiError
	if !e.json || !errors.As(err, &refused) {
		return err
	}
	return errors.Join(err, e.printJSON(refused.body))
}

// newCallRequest returns the HTTP request that calls the operation of o.
func newCallRequest(ctx context.Context, e *env, o callOptions) (*http.Request, error) {
	if o.operation == advanceClock {
		s, err := e.settings()
		if err != nil {
			return nil, err
		}
		if !s.Sandbox() {
			return nil, fmt.Errorf("%s is for the sandbox: the clock of a server with a hostname cannot be advanced", o.operation)
		}
		return http.NewRequestWithContext(ctx, http.MethodPost, operator.AdvancePath, strings.NewReader(o.args))
	}
	return handlers.NewRequest(ctx, o.operation, o.args)
}

// showOperation prints what an operation does, its fields and an example.
func showOperation(w io.Writer, name string) error {
	if name == advanceClock {
		_, err := fmt.Fprintf(w, "%s - Move the clock of the sandbox forward\n\nExample\n  mailstead call %[1]s '{\"seconds\":86400}'\n", name)
		return err
	}
	o, err := handlers.HelpOf(name)
	if err != nil {
		return config.Mistake(err)
	}
	p := newPrinter(w)
	fmt.Fprintf(w, "%s - %s\n\n%s\n  %s %s\n", o.Name, o.Summary, p.bold("Request"), o.Method, o.Path)
	if o.Text != "" {
		fmt.Fprintf(w, "\n%s\n", o.Text)
	}
	fmt.Fprintf(w, "\n%s\n", o.Permissions)
	if len(o.Fields) > 0 {
		fmt.Fprintf(w, "\n%s\n", p.bold("Fields"))
		var names, texts []string
		for _, f := range o.Fields {
			text := f.Type
			if len(f.Values) > 0 {
				text = strings.Join(f.Values, " | ")
			}
			if f.Required {
				text += ", required"
			}
			if f.Text != "" {
				text += ". " + f.Text
			}
			names, texts = append(names, f.Name), append(texts, text)
		}
		writeColumns(w, names, texts)
	}
	line := "mailstead call " + o.Name
	for _, word := range o.Example {
		line += " " + exampleShellWord(word)
	}
	if o.Waits {
		line += " --wait"
	}
	fmt.Fprintf(w, "\n%s\n  %s\n", p.bold("Example"), line)
	return nil
}

// exampleShellWord quotes the value in key=value or key:=JSON for a shell.
func exampleShellWord(word string) string {
	key, value, _ := strings.Cut(word, "=")
	return key + "=" + health.ShellWord(value)
}
