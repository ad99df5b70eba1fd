package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/internal/nearest"
)

// runCommand finds the command that args name, parses its flags and runs it. It replaces
// (*cli.App).RunContext, which accepts flags only before arguments, and which calls os.Exit with
// its own code if a command does not exist.
func runCommand(ctx context.Context, app *cli.App, args []string) error {
	cmd := rootCommand(app)
	if len(args) > 1 && args[1] == completeCommand {
		return printCandidates(app.Writer, cmd, args[2:])
	}
	c := cli.NewContext(app, nil, &cli.Context{Context: ctx})
	directory := "" // value of --data before the name of the command
	for depth := 0; ; depth++ {
		isLeaf := len(cmd.Subcommands) == 0
		set, err := parseFlags(cmd, args[1:], isLeaf)
		if err != nil {
			return err
		}
		next := subcommand(cmd, set.Arg(0))
		if next == nil && !isLeaf && cmd.Action != nil && set.NArg() > 0 && !isHelp(set.Arg(0)) {
			// The command has arguments of its own beside subcommands, as `backup DIR` has.
			set, err = parseFlags(cmd, args[1:], true)
			if err != nil {
				return err
			}
		}
		c = cli.NewContext(app, set, c)
		c.Command = cmd
		switch given := set.Lookup("data"); {
		case given == nil:
		case isSet(set, "data"):
			directory = given.Value.String()
		case directory != "":
			if err := c.Set("data", directory); err != nil {
				return config.Mistake(err)
			}
		}

		args = set.Args()
		switch {
		case depth == 0 && c.Bool("version"):
			return showVersion(app.Writer, app.Version)
		case c.Bool("help") && !cmd.HideHelp:
			if isLeaf && cmd.ArgsUsage != "" {
				args = nil // the arguments belong to the command itself
			}
			return showHelp(app.Writer, cmd, args)
		case isHelp(set.Arg(0)):
			return showHelp(app.Writer, cmd, args[1:])
		case next != nil:
			cmd = next
		case cmd.Action != nil:
			return cmd.Action(c)
		default:
			return showHelp(app.Writer, cmd, args)
		}
	}
}

// rootCommand returns the program itself as a command.
func rootCommand(app *cli.App) *cli.Command {
	return &cli.Command{Name: app.Name, HelpName: app.Name, Usage: app.Usage, Subcommands: app.Commands, Flags: []cli.Flag{
		&cli.BoolFlag{Name: "version", Aliases: []string{"v"}, Usage: "print the version", DisableDefaultText: true},
	}}
}

func isHelp(word string) bool { return word == "help" || word == "h" }

// isSet reports whether a flag was given on the command line.
func isSet(set *flag.FlagSet, name string) (found bool) {
	set.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// parseFlags parses the flags of a command. If interspersed is set, flags may also stand between
// and after the arguments, up to "--". Otherwise they end at the first argument.
func parseFlags(cmd *cli.Command, args []string, interspersed bool) (*flag.FlagSet, error) {
	set := flag.NewFlagSet(cmd.Name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range flagsOf(cmd) {
		if err := f.Apply(set); err != nil {
			return nil, config.Mistake(err)
		}
	}
	words := []string{"--"}
	for interspersed && len(args) > 0 {
		if err := set.Parse(args); err != nil {
			return nil, config.Mistake(explainFlagError(err, cmd))
		}
		rest := set.Args()
		if n := len(args) - len(rest); len(rest) == 0 || n > 0 && args[n-1] == "--" {
			words, args = append(words, rest...), nil
		} else {
			words, args = append(words, rest[0]), rest[1:]
		}
	}
	if interspersed {
		args = words
	}
	if err := set.Parse(args); err != nil {
		return nil, config.Mistake(explainFlagError(err, cmd))
	}
	return set, nil
}

// badFlagValue matches the errors of package flag about the value of a flag.
var badFlagValue = regexp.MustCompile(`(?s)^invalid (boolean )?value "(.*)" for (?:flag )?-([a-z0-9-]+): (.*)$`)

// explainFlagError rewrites an error of package flag: the new text names the flag and says how to
// list the flags of cmd.
func explainFlagError(err error, cmd *cli.Command) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return fmt.Errorf("--%s needs a value; run `%s --help`", strings.TrimPrefix(name, "-"), cmd.HelpName)
	}
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		name = strings.TrimPrefix(name, "-")
		if len(name) == 1 {
			return fmt.Errorf("there is no option -%s; run `%s --help`", name, cmd.HelpName)
		}
		var names []string
		for _, f := range flagsOf(cmd) {
			names = append(names, f.Names()...)
		}
		switch near := nearest.Name(name, names); {
		case near != "":
			return fmt.Errorf("there is no option --%s: did you mean --%s? Run `%s --help` for all options", name, near, cmd.HelpName)
		case slices.ContainsFunc(cmd.Subcommands, func(s *cli.Command) bool { return offersFlag(s, name) }):
			return fmt.Errorf("--%s belongs after the command: %s COMMAND --%[1]s", name, cmd.HelpName)
		case slices.Contains(remoteWords, name):
			return fmt.Errorf("there is no option --%s: %s", name, onlyHere)
		}
		return fmt.Errorf("there is no option --%s; run `%s --help`", name, cmd.HelpName)
	}
	if m := badFlagValue.FindStringSubmatch(text); m != nil {
		switch {
		case m[1] != "":
			return fmt.Errorf("--%[1]s is %[2]q; write --%[1]s, or --%[1]s=false", m[3], m[2])
		case isDuration(cmd, m[3]):
			return fmt.Errorf("--%s is %q, which is not a time span; write, for example, 90s, 10m or 2h", m[3], m[2])
		case m[4] == "parse error":
			return fmt.Errorf("--%s is %q, which is not a whole number", m[3], m[2])
		}
		return fmt.Errorf("--%s is %q: %s", m[3], m[2], m[4])
	}
	return err
}

// remoteWords are commands and options by which people look for a way to reach another server.
var remoteWords = []string{"server", "url", "remote", "endpoint", "token", "api-key", "login", "logout", "auth", "connect"}

const onlyHere = "commands work on the data directory of this host, which --data names. For another server, run the command there over ssh, or use the API with a token"

// isDuration reports whether the value of a flag is a time span.
func isDuration(cmd *cli.Command, name string) bool {
	_, ok := findFlag(cmd, name).(*cli.DurationFlag)
	return ok
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

// otherNames are words by which people look for commands that are named in another way.
var otherNames = map[string]string{
	"start": "serve", "run": "serve", "server": "serve", "daemon": "serve", "health": "doctor", "info": "status",
	"install": "setup", "configure": "setup", "email": "mailbox", "user": "mailbox", "users": "mailbox", "messages": "log", "sent": "log", "config": "settings", "check": "show", "dns": "show", "records": "show",
	"api": "call", "completions": "completion", "add": "create", "new": "create", "create": "add", "remove": "delete", "rm": "delete", "ls": "list", "get": "show",
}

// unknownCommand returns the error for a word that is no subcommand of cmd. It names the nearest
// one.
func unknownCommand(cmd *cli.Command, word string) error {
	var names []string
	for _, s := range cmd.Subcommands {
		if !s.Hidden {
			names = append(names, s.Name)
		}
	}
	near := nearest.Name(word, names)
	if other := otherNames[strings.ToLower(word)]; near == "" && slices.Contains(names, other) {
		near = other
	}
	if near == "" && slices.Contains(remoteWords, word) {
		return config.Mistake(fmt.Errorf("there is no command %q: %s", word, onlyHere))
	}
	if near == "" {
		words := append(strings.Fields(cmd.HelpName)[1:], word)
		found := handlers.Operations(words...)
		if len(word) < 3 || len(found) == 0 {
			return config.Mistake(fmt.Errorf("there is no command %q; run `%s help`", word, cmd.HelpName))
		}
		if len(found) == 1 {
			return config.Mistake(fmt.Errorf("there is no command %q; the API has it: `mailstead call %s`", word, found[0].Name))
		}
		var names []string
		for _, o := range found[:min(3, len(found))] {
			names = append(names, o.Name)
		}
		return config.Mistake(fmt.Errorf("there is no command %q; the API has %s: see `mailstead call --list %s`", word, strings.Join(names, ", "), strings.Join(words, " ")))
	}
	return config.Mistake(fmt.Errorf("there is no command %q: did you mean `%s %s`? Run `%[2]s help` for all commands", word, cmd.HelpName, near))
}
