// Package cli is the command line: one file a command, with its flags and a function run… that does
// what the flags say. A command asks the running server over its socket (package
// handlers/operator), or opens the data directory itself where no server runs.
//
// It does not know how the program is put together: what serves, and what opens a data directory,
// comes with the Program.
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

// A Program is the program that the command line belongs to.
type Program struct {
	Version string

	// Serve runs the server on a data directory until ctx ends. load reads the settings, also
	// again later.
	Serve func(ctx context.Context, dir string, load func() (*config.Settings, error), stdout, stderr io.Writer) error

	// Open opens the data directory of a stopped server for one command. Where there is no store,
	// it makes one only if mayMake says so.
	Open func(dir string, s *config.Settings, mayMake bool, do func(*operator.Operator) error) error
}

// command is a command with the flag that all of them take.
func (p *Program) command(name, usage, args string, run func(c *cli.Context, e *env) error, flags ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: args, Flags: append([]cli.Flag{dataFlag()}, flags...),
		Action: func(c *cli.Context) error { return run(c, p.env(c)) },
	}
}

func dataFlag() cli.Flag {
	return &cli.StringFlag{Name: "data", Usage: "the data directory", Value: "data", EnvVars: []string{"MAILSTEAD_DATA"}}
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print JSON"} }

// An env is what every command has from the way it was called.
type env struct {
	*Program
	name           string // of the command
	dir            string // the data directory, as it was given
	json           bool   // print JSON
	stdout, stderr io.Writer
	settings       func() (*config.Settings, error) // reads the file, the environment and the flags
}

func (p *Program) env(c *cli.Context) *env {
	return &env{
		Program: p, name: c.Command.Name, dir: c.String("data"), json: c.Bool("json"), stdout: c.App.Writer, stderr: c.App.ErrWriter,
		settings: func() (*config.Settings, error) { return config.Load(c) },
	}
}

// offlineSettings are the settings for commands that open the store themselves.
func (e *env) offlineSettings() (*config.Settings, error) {
	s, err := e.settings()
	if err != nil {
		return nil, err
	}
	if len(s.PublicIP) == 0 && !s.Sandbox() {
		s.PublicIP = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})} // nothing listens, so nothing is published
	}
	return s, nil
}

// print prints v as JSON if asked to, else the text.
func (e *env) print(v any, text string) error {
	if !e.json {
		_, err := io.WriteString(e.stdout, text)
		return err
	}
	return json.NewEncoder(e.stdout).Encode(v)
}

// noArguments refuses arguments, which the command would ignore.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return config.Mistake(fmt.Errorf("%q is not expected; run `%s --help`", c.Args().First(), c.Command.HelpName))
	}
	return nil
}

// requireFlag refuses a command whose flag is missing, and any arguments.
func requireFlag(c *cli.Context, flag string) error {
	if c.String(flag) == "" {
		return config.Mistake(fmt.Errorf("--%s is required", flag))
	}
	return noArguments(c)
}

// flagError gives only the message of an error of the service. Where it is about a field that a
// flag gives, it names the flag, and a wrong value is wrong use.
func flagError(err error, flags map[string]string) error {
	e, ok := core.AsError(err)
	if !ok {
		return err
	}
	for _, d := range e.Details {
		if flag := flags[d.Field]; flag != "" {
			return config.Mistake(fmt.Errorf("--%s: %s", flag, d.Message))
		}
	}
	return errors.New(e.Message)
}
