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
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/health"
)

func (p *Program) callCommand() *cli.Command {
	cmd := p.command("call", "call any operation of the API as the owner", "OPERATION [key=value | key:=JSON | key@FILE …]", func(c *cli.Context, e *env) error {
		operation := c.Args().First()
		switch {
		case c.Bool("help") && operation != "":
			return showOperation(e.stdout, operation)
		case c.Bool("help"):
			return showHelp(e.stdout, c.Command, nil)
		case c.Bool("list"):
			return runCallList(e, c.Args().Slice())
		case e.csv:
			return config.Mistake(errors.New("--csv goes with --list: operations answer JSON"))
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
		&cli.BoolFlag{Name: "list", Usage: "list the operations, or those that have the words given as arguments"},
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
	case operation == advanceClock && strings.HasPrefix(words[0], "seconds="):
		seconds, err := strconv.Atoi(strings.TrimPrefix(words[0], "seconds="))
		if err != nil || len(words) > 1 {
			return "", fmt.Errorf("%s takes one argument, such as seconds=86400", operation)
		}
		return fmt.Sprintf(`{"seconds":%d}`, seconds), nil
	case operation == advanceClock, strings.HasPrefix(strings.TrimSpace(words[0]), "{"):
		if len(words) > 1 {
			return "", fmt.Errorf("%q is not expected: mailstead call OPERATION [JSON]; the JSON is one argument, best in single quotes", words[1])
		}
		return words[0], nil
	}
	return handlers.Arguments(operation, words, func(file string) ([]byte, error) {
		if file == "-" {
			return io.ReadAll(stdin)
		}
		return os.ReadFile(file)
	})
}

type callOptions struct {
	operation string
	args      string // a JSON object; "" means no arguments
	account   string // account ID or owner's address; "" means the only account
}

// advanceClock is the operation that moves the clock of the sandbox forward. The API does not have
// it; only `mailstead call` does.
const advanceClock = "advance_clock"

// runCallList prints the operations of the API that have the words.
func runCallList(e *env, words []string) error {
	list := handlers.Operations(words...)
	if s, err := e.settings(); err == nil && s.Sandbox() && len(words) == 0 {
		list = append(list, handlers.Operation{Name: advanceClock, Method: http.MethodPost, Path: operator.AdvancePath, Summary: "Move the clock of the sandbox forward"})
	}
	t := &table{heads: []string{"Operation", "Method", "Path", "Does"}, wide: []int{3}, empty: "No operation has these words."}
	for _, o := range list {
		t.add(o.Name, o.Method, o.Path, o.Summary)
	}
	return e.printTable(map[string]any{"data": list, "count": len(list)}, t)
}

// runCall calls one operation of the API and prints the response.
func runCall(ctx context.Context, e *env, o callOptions) error {
	a := &apiCaller{ctx: ctx, account: o.account, send: e.send}
	r, err := a.newCallRequest(e, &o)
	if err != nil {
		return err
	}
	body, err := a.roundTrip(r)
	if err != nil {
		return e.printAPIError(err)
	}
	return e.printJSON(body)
}

// runCallAndWait calls one operation, waits for what it begins, and prints that.
func runCallAndWait(ctx context.Context, e *env, o callOptions, timeout time.Duration) error {
	w, end := e.newWaiter(ctx, o.account, timeout)
	defer end()
	r, err := w.newCallRequest(e, &o)
	if err != nil {
		return err
	}
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

// newCallRequest returns the HTTP request that calls the operation of o. In o it replaces the names
// of domains and the addresses of mailboxes and team users by their ids.
func (a *apiCaller) newCallRequest(e *env, o *callOptions) (*http.Request, error) {
	if o.operation == advanceClock {
		s, err := e.settings()
		if err != nil {
			return nil, err
		}
		if !s.Sandbox() {
			return nil, config.Mistake(fmt.Errorf("%s is for the sandbox: the clock of a server with a hostname cannot be advanced", o.operation))
		}
		return http.NewRequestWithContext(a.ctx, http.MethodPost, operator.AdvancePath, strings.NewReader(o.args))
	}
	r, err := handlers.NewRequest(a.ctx, o.operation, o.args)
	if err != nil {
		return nil, config.Mistake(err)
	}
	var fields map[string]json.RawMessage
	if o.args == "" || json.Unmarshal([]byte(o.args), &fields) != nil {
		return r, nil
	}
	find := map[string]func(string) (jsonObject, error){"user_id": a.findMailbox, "domain_id": a.findDomain}
	if strings.HasPrefix(r.URL.Path, "/v1/account/users/") {
		find["user_id"] = a.findTeamUser
	}
	replaced := false
	for field, findOne := range find {
		var name string
		if json.Unmarshal(fields[field], &name) != nil || !strings.ContainsAny(name, "@.") {
			continue // it is an id, or missing
		}
		found, err := findOne(name)
		if err != nil {
			return nil, e.printAPIError(err)
		}
		fields[field], err = json.Marshal(found["id"])
		if err != nil {
			return nil, err
		}
		replaced = true
	}
	if !replaced {
		return r, nil
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	o.args = string(text)
	return handlers.NewRequest(a.ctx, o.operation, o.args)
}

// findTeamUser returns the team user of the account with an address.
func (a *apiCaller) findTeamUser(address string) (jsonObject, error) {
	list, err := a.list("list_team_users", nil)
	if err != nil {
		return nil, err
	}
	for _, u := range list {
		if u.stringField("email") == strings.ToLower(address) {
			return u, nil
		}
	}
	return nil, fmt.Errorf("there is no team user %s; `mailstead call list_team_users` lists them", address)
}

// showOperation prints what an operation does, its fields and an example.
func showOperation(w io.Writer, name string) error {
	if name == advanceClock {
		_, err := fmt.Fprintf(w, "%s - Move the clock of the sandbox forward\n\nFields\n  seconds  whole number, required\n\nExample\n  mailstead call %[1]s seconds=86400\n", name)
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
		names, texts := fieldColumns(o.Fields)
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

// fieldColumns returns the names of fields and what help says of each, with the fields of objects
// after them.
func fieldColumns(fields []handlers.FieldHelp) (names, texts []string) {
	for _, f := range fields {
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
		inner, innerTexts := fieldColumns(f.Inner)
		names, texts = append(append(names, f.Name), inner...), append(append(texts, text), innerTexts...)
	}
	return names, texts
}

// exampleShellWord quotes the value in key=value or key:=JSON for a shell.
func exampleShellWord(word string) string {
	key, value, _ := strings.Cut(word, "=")
	return key + "=" + health.ShellWord(value)
}
