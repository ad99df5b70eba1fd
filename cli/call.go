package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/handlers/operator"
)

func (p *Program) callCommand() *cli.Command {
	return p.command("call", "call any operation of the API as the owner", "OPERATION [JSON]", func(c *cli.Context, e *env) error {
		if c.Bool("list") {
			return runCallList(e)
		}
		switch {
		case c.NArg() < 1:
			return config.Mistake(errors.New("name the operation: mailstead call OPERATION [JSON]; `mailstead call --list` lists the operations"))
		case c.NArg() > 2:
			return config.Mistake(fmt.Errorf("%q is not expected: mailstead call OPERATION [JSON]; the JSON is one argument, best in single quotes", c.Args().Get(2)))
		}
		return runCall(c.Context, e, callOptions{operation: c.Args().Get(0), args: c.Args().Get(1), account: c.String("account")})
	},
		&cli.BoolFlag{Name: "list", Usage: "list the operations"},
		&cli.StringFlag{Name: "account", Usage: "the account, by id or owner's address, if there are several"})
}

type callOptions struct {
	operation string
	args      string // a JSON object; "" means no arguments
	account   string // account ID or owner's address; "" means the only account
}

// advanceClock is the operation that moves the clock of the sandbox forward. The API does not have
// it; only `mailstead call` does.
const advanceClock = "advance_clock"

func runCallList(e *env) error {
	list := handlers.Operations()
	if s, err := e.settings(); err == nil && s.Sandbox() {
		list = append(list, handlers.Operation{Name: advanceClock, Method: http.MethodPost, Path: operator.AdvancePath})
	}
	for _, o := range list {
		if _, err := fmt.Fprintf(e.stdout, "%-28s %-6s %s\n", o.Name, o.Method, o.Path); err != nil {
			return err
		}
	}
	return nil
}

// runCall calls one operation of the API and prints the response.
func runCall(ctx context.Context, e *env, o callOptions) error {
	r, err := newCallRequest(ctx, e, o)
	if err != nil {
		return config.Mistake(err)
	}
	r.Header.Set("X-Mailstead-Account", o.account)
	resp, err := e.send(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 400 {
		return fmt.Errorf("operation %s answered %s: %s", o.operation, resp.Status, bytes.TrimSpace(body))
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "", "  ") == nil {
		body = pretty.Bytes()
	}
	_, err = e.stdout.Write(body)
	return err
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
