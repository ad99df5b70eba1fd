package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
)

// runCommand finds the command that args name, parses its flags and runs it. It replaces
// (*cli.App).RunContext, which accepts flags only before arguments, and which calls os.Exit with
// its own code if a command does not exist.
func runCommand(ctx context.Context, app *cli.App, args []string) error {
	cmd := &cli.Command{Name: app.Name, HelpName: app.Name, Usage: app.Usage, Subcommands: app.Commands}
	c := cli.NewContext(app, nil, &cli.Context{Context: ctx})
	for depth := 0; ; depth++ {
		set := flag.NewFlagSet(cmd.Name, flag.ContinueOnError)
		set.SetOutput(io.Discard)
		for _, f := range addHelpFlag(cmd.Flags) {
			if err := f.Apply(set); err != nil {
				return config.Mistake(err)
			}
		}
		if err := parseFlags(set, args[1:], len(cmd.Subcommands) == 0); err != nil {
			return config.Mistake(explainFlagError(err, cmd))
		}
		c = cli.NewContext(app, set, c)
		c.Command = cmd

		args = set.Args()
		word := set.Arg(0)
		next := subcommand(cmd, word)
		switch {
		case c.Bool("help"):
			if len(cmd.Subcommands) == 0 && cmd.ArgsUsage != "" {
				args = nil // the arguments belong to the command itself
			}
			return showHelp(app.Writer, cmd, depth == 0, args)
		case word == "help" || word == "h":
			return showHelp(app.Writer, cmd, depth == 0, args[1:])
		case next != nil:
			cmd = next
		case cmd.Action != nil:
			return cmd.Action(c)
		default:
			return showHelp(app.Writer, cmd, depth == 0, args)
		}
	}
}

// parseFlags parses the flags before the arguments. If interspersed is set, it also parses flags
// between and after the arguments, up to "--".
func parseFlags(set *flag.FlagSet, args []string, interspersed bool) error {
	if !interspersed {
		return set.Parse(args)
	}
	words := []string{"--"}
	for len(args) > 0 {
		if err := set.Parse(args); err != nil {
			return err
		}
		rest := set.Args()
		if n := len(args) - len(rest); len(rest) == 0 || n > 0 && args[n-1] == "--" {
			words, args = append(words, rest...), nil
		} else {
			words, args = append(words, rest[0]), rest[1:]
		}
	}
	return set.Parse(words)
}

// explainFlagError rewrites an error of package flag: the new text names the flag and says how to
// list the flags of cmd.
func explainFlagError(err error, cmd *cli.Command) error {
	if name, ok := strings.CutPrefix(err.Error(), "flag needs an argument: -"); ok {
		return fmt.Errorf("--%s needs a value; run `%s --help`", strings.TrimPrefix(name, "-"), cmd.HelpName)
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		return fmt.Errorf("there is no option --%s; run `%s --help`", strings.TrimPrefix(name, "-"), cmd.HelpName)
	}
	return err
}

func addHelpFlag(flags []cli.Flag) []cli.Flag {
	return append(slices.Clip(flags), &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help", DisableDefaultText: true})
}

// subcommand returns the named subcommand of cmd, or nil if there is none. It sets the full name
// that help shows.
func subcommand(cmd *cli.Command, name string) *cli.Command {
	next := cmd.Command(name)
	if next != nil {
		next.HelpName = cmd.HelpName + " " + next.Name
	}
	return next
}

// showHelp writes the help of cmd, or of the subcommand that topic names, in the layout of
// urfave/cli. isRoot says whether cmd is the program itself.
func showHelp(w io.Writer, cmd *cli.Command, isRoot bool, topic []string) error {
	for _, word := range topic {
		next := subcommand(cmd, word)
		if next == nil {
			return config.Mistake(fmt.Errorf("there is no command %q; run `%s help`", word, cmd.HelpName))
		}
		cmd, isRoot = next, false
	}
	form, options := " [command options]", "OPTIONS"
	if isRoot {
		form, options = " [global options] command [command options]", "GLOBAL OPTIONS"
	}
	if cmd.ArgsUsage != "" {
		form += " " + cmd.ArgsUsage
	}
	out := tabwriter.NewWriter(w, 1, 8, 2, ' ', 0)
	fmt.Fprintf(out, "NAME:\n   %s - %s\n\nUSAGE:\n   %s%s\n", cmd.HelpName, cmd.Usage, cmd.HelpName, form)
	if len(cmd.Subcommands) > 0 {
		fmt.Fprint(out, "\nCOMMANDS:\n")
		for _, s := range cmd.Subcommands {
			fmt.Fprintf(out, "   %s\t%s\n", s.Name, s.Usage)
		}
		fmt.Fprint(out, "   help, h\tShows a list of commands or help for one command\n")
	}
	fmt.Fprintf(out, "\n%s:\n", options)
	for _, f := range addHelpFlag(cmd.Flags) {
		fmt.Fprintf(out, "   %s\n", f)
	}
	return out.Flush()
}
