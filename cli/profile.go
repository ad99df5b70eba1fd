package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
)

// profileKinds are the kinds of profiles. Each is a subcommand; help lists them in this order.
var profileKinds = []struct{ name, usage string }{
	{"cpu", "where the server spends processor time"},
	{"heap", "what is in the server's memory"},
	{"goroutine", "what the server's goroutines do"},
	{"trace", "an execution trace, for go tool trace"},
}

func (p *Program) profileCommands() (list []*cli.Command) {
	for _, kind := range profileKinds {
		list = append(list, p.command(kind.name, kind.usage, "", func(c *cli.Context, e *env) error {
			if err := requireFlag(c, "to"); err != nil {
				return err
			}
			in := operator.ProfileIn{Kind: kind.name, Seconds: c.Int("seconds")}
			if in.Seconds < 1 || in.Seconds > int(operator.LongestProfile.Seconds()) {
				return config.Mistake(fmt.Errorf("--seconds must be from 1 to %d", int(operator.LongestProfile.Seconds())))
			}
			return runProfile(c.Context, e, in, c.String("to"))
		},
			&cli.StringFlag{Name: "to", Usage: "the file to write"},
			&cli.IntFlag{Name: "seconds", Usage: "how long cpu and trace measure; the others show one moment", Value: 30}))
	}
	return list
}

// runProfile writes a profile of the running server to a file.
func runProfile(ctx context.Context, e *env, in operator.ProfileIn, to string) error {
	answer, err := postCommand(ctx, e.sendOverSocket, operator.ProfilePath, in)
	if err != nil {
		return err
	}
	defer answer.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = io.Copy(f, answer); err != nil {
		err = fmt.Errorf("read the profile: %w", err)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	tool := "pprof"
	if in.Kind == "trace" {
		tool = "trace"
	}
	return e.print(nil, fmt.Sprintf("%s is written. `go tool %s %[1]s` shows it.\n", to, tool))
}
