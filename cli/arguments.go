package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/internal/nearest"
)

// requireArgument returns the only argument of a command. what names it, such as ADDRESS.
func requireArgument(c *cli.Context, what string) (string, error) {
	switch {
	case c.Args().First() == "":
		return "", config.Mistake(fmt.Errorf("name the %s: %s", strings.ToLower(what), usageLine(c.Command)))
	case c.NArg() > 1:
		return "", config.Mistake(fmt.Errorf("%q is not expected: %s", c.Args().Get(1), usageLine(c.Command)))
	}
	return c.Args().First(), nil
}

// noArguments returns an error if the command line has arguments. The command would ignore them.
func noArguments(c *cli.Context) error {
	word := c.Args().First()
	switch {
	case !c.Args().Present():
		return nil
	case strings.Contains(word, "@") && offersFlag(c.Command, "mailbox"):
		return config.Mistake(fmt.Errorf("%q is not expected: did you mean --mailbox %[1]s?", word))
	case strings.Contains(word, ".") && offersFlag(c.Command, "domain"):
		return config.Mistake(fmt.Errorf("%q is not expected: did you mean --domain %[1]s?", word))
	}
	return mostArguments(c, 0)
}

// mostArguments returns an error if the command line has more than n arguments.
func mostArguments(c *cli.Context, n int) error {
	if c.NArg() > n {
		return config.Mistake(fmt.Errorf("%q is not expected; run `%s --help`", c.Args().Get(n), c.Command.HelpName))
	}
	return nil
}

// requireFlag returns an error if the flag is missing, or if the command line has arguments. If the
// command takes an argument, that may stand for the flag.
func requireFlag(c *cli.Context, flag string) error {
	takesArgument := c.Command.ArgsUsage != ""
	var err error
	if takesArgument {
		err = argumentAsFlag(c, flag)
	}
	switch {
	case err != nil:
		return err
	case c.String(flag) != "" && takesArgument:
		return nil
	case c.String(flag) != "":
		return noArguments(c)
	case takesArgument:
		return config.Mistake(fmt.Errorf("name the %s: %s", strings.ToLower(c.Command.ArgsUsage), usageLine(c.Command)))
	}
	usage, _ := findFlag(c.Command, flag).(cli.DocGenerationFlag)
	return config.Mistake(fmt.Errorf("--%s is required: %s", flag, usage.GetUsage()))
}

// argumentAsFlag sets a flag, such as --to of a backup, to the argument of the command, if there is
// one. It returns an error if there are both, or several arguments.
func argumentAsFlag(c *cli.Context, name string) error {
	if err := mostArguments(c, 1); err != nil {
		return err
	}
	word := c.Args().First()
	switch {
	case c.NArg() == 0:
		return nil
	case word == "":
		return config.Mistake(fmt.Errorf("the argument is empty: %s", usageLine(c.Command)))
	case c.String(name) != "":
		return config.Mistake(fmt.Errorf("give %s or --%s %s, not both", word, name, c.String(name)))
	}
	var names []string
	for _, s := range c.Command.Subcommands {
		names = append(names, s.Name)
	}
	if near := nearest.Name(word, names); near != "" && !strings.ContainsAny(word, "./") {
		return config.Mistake(fmt.Errorf("there is no command %q: did you mean `%s %s`? A file or directory of that name is ./%[1]s", word, c.Command.HelpName, near))
	}
	return c.Set(name, word)
}

// usageLine returns the form of a command's line.
func usageLine(cmd *cli.Command) string {
	line := cmd.HelpName
	switch {
	case !strings.Contains(line, " ") && len(cmd.Subcommands) > 0:
		return line + " COMMAND [options]"
	case len(cmd.Subcommands) > 0 && cmd.Action == nil:
		return line + " COMMAND [options]"
	}
	if cmd.ArgsUsage != "" {
		line += " " + cmd.ArgsUsage
	}
	return line + " [options]"
}

// flagsOf returns all flags of a command. The program and groups of commands take --data too, for
// the command that follows.
func flagsOf(cmd *cli.Command) []cli.Flag {
	flags := slices.Clip(cmd.Flags)
	if cmd.Action == nil {
		flags = append(flags, &cli.StringFlag{Name: "data", Usage: "the data directory", DefaultText: `"data"`})
	}
	return append(flags, &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help", DisableDefaultText: true})
}

// findFlag returns the flag of a command with a name; nil if it has none.
func findFlag(cmd *cli.Command, name string) cli.Flag {
	for _, f := range flagsOf(cmd) {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// offersFlag reports whether a command or one of its subcommands has a flag of its own with a name.
func offersFlag(cmd *cli.Command, name string) bool {
	return slices.ContainsFunc(cmd.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }) ||
		slices.ContainsFunc(cmd.Subcommands, func(s *cli.Command) bool { return offersFlag(s, name) })
}
