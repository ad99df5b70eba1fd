// Package cli is the command line. Each command has one file, with its flags and a function run…
// that does the work. A command calls the running server over its socket (package
// handlers/operator), or opens the data directory itself if no server runs.
//
// It does not know how the parts of the program are put together: the functions that run the server
// and open a data directory are fields of Program.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/core"
)

// A Program runs commands. Its fields are the functions of the server that commands call.
type Program struct {
	Version string

	// Serve runs the server on the data directory dir until ctx ends. It calls load to read the
	// settings, and calls it again to reload them.
	Serve func(ctx context.Context, dir string, load func() (*config.Settings, error), stdout, stderr io.Writer) error

	// Open opens the data directory of a stopped server, calls do and closes the directory. If
	// mayCreate is set, it creates a missing store.
	Open func(dir string, s *config.Settings, mayCreate bool, do func(*operator.Operator) error) error
}

// command returns a command with its own flags and --data, which all commands have.
func (p *Program) command(name, usage, args string, run func(c *cli.Context, e *env) error, flags ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: args, Flags: append([]cli.Flag{dataFlag()}, flags...),
		Action: func(c *cli.Context) error {
			switch {
			case c.Bool("json") && c.Bool("csv"):
				return config.Mistake(errors.New("give --json or --csv, not both"))
			case c.IsSet("timeout") && !c.Bool("wait"):
				return config.Mistake(errors.New("--timeout goes with --wait"))
			}
			return run(c, p.env(c))
		},
	}
}

func dataFlag() cli.Flag {
	return &cli.StringFlag{Name: "data", Usage: "the data directory", Value: "data", EnvVars: []string{"MAILSTEAD_DATA"}}
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print JSON"} }

// listFlags returns the flags of commands that print a list.
func listFlags() []cli.Flag {
	return []cli.Flag{jsonFlag(), &cli.BoolFlag{Name: "csv", Usage: "print CSV, with the names of the columns in the first line"}}
}

// accountFlag returns the flag of commands that act as the owner of an account.
func accountFlag() cli.Flag {
	return &cli.StringFlag{Name: "account", Usage: "the account, by id or owner's address, if there are several"}
}

// An env is what a command needs to run: the common flags, the output and the settings.
type env struct {
	*Program
	name           string // the name of the command
	dir            string // the data directory, as given with --data
	json, csv      bool   // whether to print JSON, or CSV
	stdout, stderr io.Writer
	settings       func() (*config.Settings, error) // reads the settings file, environment and flags
}

func (p *Program) env(c *cli.Context) *env {
	return &env{
		Program: p, name: c.Command.Name, dir: c.String("data"), json: c.Bool("json"), csv: c.Bool("csv"), stdout: c.App.Writer, stderr: c.App.ErrWriter,
		settings: func() (*config.Settings, error) { return config.Load(c) },
	}
}

// offlineSettings returns the settings for commands that open the store themselves. They need no
// public address.
func (e *env) offlineSettings() (*config.Settings, error) {
	s, err := e.settings()
	if err != nil {
		return nil, err
	}
	if len(s.PublicIP) == 0 && !s.Sandbox() {
		// The service needs an address. This one is never published, because the command does not
		// listen.
		s.PublicIP = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	return s, nil
}

// print prints v as JSON if --json is set, else the text.
func (e *env) print(v any, text string) error {
	if !e.json {
		_, err := io.WriteString(e.stdout, text)
		return err
	}
	return json.NewEncoder(e.stdout).Encode(v)
}

// open does what Program.Open does. A command of root leaves no file of root in a directory of
// another user, whose server could not read it.
func (e *env) open(dir string, s *config.Settings, mayCreate bool, do func(*operator.Operator) error) error {
	if err := operator.GiveToOwner(dir); err != nil { // files that a command of root has left when it was killed
		return err
	}
	err := e.Open(dir, s, mayCreate, do)
	return errors.Join(err, operator.GiveToOwner(dir))
}

// flagError reduces a service error to its message. flags maps fields of the API to flags. If the
// error is about one of these fields, the new error names its flag, and the exit code will be 2.
func flagError(err error, flags map[string]string) error {
	e, ok := core.AsError(err)
	if !ok {
		return err
	}
	for _, d := range e.Details {
		if flag := flags[d.Field]; flag != "" {
			return config.Mistake(fmt.Errorf("invalid --%s: %s", flag, d.Message))
		}
	}
	return errors.New(e.Message)
}
