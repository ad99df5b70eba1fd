package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// commandPaths lists the words of every command, beginning with the program's name.
func commandPaths(t *testing.T) (paths [][]string) {
	t.Helper()
	var walk func(path []string, commands []*cli.Command)
	walk = func(path []string, commands []*cli.Command) {
		paths = append(paths, path)
		for _, c := range commands {
			walk(append(path[:len(path):len(path)], c.Name), c.Subcommands)
		}
	}
	walk([]string{"mailstead"}, testProgram().app(nil, nil).Commands)
	if len(paths) < 50 {
		t.Fatalf("there are %d commands", len(paths))
	}
	return paths
}

// TestEveryCommandHasHelp asks for the help of every command in all ways. It names the command, and
// has an example of those that do something, which the command line takes.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Setenv("MAILSTEAD_DATA", "/srv/mail") // is not the default that help shows
	for _, path := range commandPaths(t) {
		asked := append(path[:len(path):len(path)], "--help")
		want, err := mailsteadCommand(t, asked[1:]...)
		if err != nil || !strings.HasPrefix(want, strings.Join(path, " ")+" - ") || strings.Contains(want, "/srv/mail") {
			t.Errorf("%v: %v, %s", asked, err, want)
		}
		for _, args := range [][]string{
			append(path[:len(path):len(path)], "-h"),
			append(path[:len(path):len(path)], "help"),
			append([]string{"mailstead", "help"}, path[1:]...),
			append([]string{"mailstead", "--help"}, path[1:]...),
		} {
			if got, err := mailsteadCommand(t, args[1:]...); err != nil || got != want {
				t.Errorf("%v: %v, %s\nwant %s", args, err, got, want)
			}
		}
		cmd := rootCommand(testProgram().app(nil, nil))
		for _, word := range path[1:] {
			cmd = subcommand(cmd, word)
		}
		example := commandExamples[strings.Join(path[1:], " ")]
		switch {
		case cmd.Action == nil:
		case example == "" || !strings.Contains(want, "\n  "+example+"\n"):
			t.Errorf("%v has no example, or does not show it: add one to commandExamples", path)
		}
	}
	for name, example := range commandExamples {
		line := strings.TrimSuffix(strings.TrimPrefix(example, "source <("), ")")
		line, _, _ = strings.Cut(line, " > ")
		words := shellWords(line)
		if words[0] != "mailstead" || !strings.HasPrefix(strings.Join(words[1:], " "), name) {
			t.Errorf("the example of %s is %s", name, example)
			continue
		}
		takes(t, words[1:])
	}
	for _, group := range commandGroups {
		takes(t, shellWords(groupExamples[group])[1:])
	}
	for _, cmd := range rootCommand(testProgram().app(nil, nil)).Subcommands {
		if !slices.Contains(commandGroups, cmd.Category) {
			t.Errorf("%s is in no group of help", cmd.Name)
		}
	}
}

// shellWords splits a line at blanks outside of double quotes.
func shellWords(line string) (words []string) {
	for i, part := range strings.Split(line, "\"") {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

// takes has the command line read a command, without doing anything.
func takes(t *testing.T, words []string) {
	t.Helper()
	app := testProgram().app(io.Discard, io.Discard)
	var c *cli.Context
	quiet(app.Commands, &c)
	if err := runCommand(t.Context(), app, append([]string{"mailstead"}, words...)); err != nil || c == nil {
		t.Errorf("mailstead %s: %v", strings.Join(words, " "), err)
	}
}

// TestFlagsOfServeAreInGroups: none is left over at the top.
func TestFlagsOfServeAreInGroups(t *testing.T) {
	help, err := mailsteadCommand(t, "serve", "--help")
	if err != nil {
		t.Fatal(err)
	}
	own := help[strings.Index(help, "\nOptions\n"):strings.Index(help, "\nCommon options\n")]
	if strings.Count(own, "--") != 1 || !strings.Contains(own, "--help") {
		t.Errorf("these flags of serve are in no group; add them to flagGroups:\n%s", own)
	}
	for _, want := range []string{"\nCommon options\n  --data value", "\nListeners\n  --http value", "\nCertificates\n", "\nNetwork\n", "\nProcess\n"} {
		if !strings.Contains(help, want) {
			t.Errorf("the help of serve lacks %q: %s", want, help)
		}
	}
}

// TestFlagsAnywhere: flags are the command's before, between and behind arguments, up to "--".
func TestFlagsAnywhere(t *testing.T) {
	flags := func() *cli.Command {
		return &cli.Command{Name: "call", HelpName: "mailstead call", Flags: []cli.Flag{&cli.StringFlag{Name: "data"}, &cli.StringFlag{Name: "account"}}, Action: func(*cli.Context) error { return nil }}
	}
	for _, args := range [][]string{
		{"--data", "/d", "--account", "a", "op", "{}"}, {"op", "--data", "/d", "{}", "--account=a"}, {"op", "{}", "--account", "a", "--data=/d"},
		{"--account", "a", "--data", "/d", "--", "op", "{}"}, {"--account=a", "--data=/d", "op", "--", "{}"},
	} {
		set, err := parseFlags(flags(), args, true)
		if err != nil || set.Lookup("data").Value.String() != "/d" || set.Lookup("account").Value.String() != "a" || !slices.Equal(set.Args(), []string{"op", "{}"}) {
			t.Errorf("%q: %v, %v", args, set, err)
		}
	}
	if set, err := parseFlags(flags(), []string{"op", "--", "--data"}, true); err != nil || !slices.Equal(set.Args(), []string{"op", "--data"}) {
		t.Errorf("%v, %v", set, err)
	}
	var seen string
	for _, line := range []string{
		"--data /d backup list --from x", "backup --data /d list --from x", "backup list --data /d --from x", "backup list --from x --data /d",
		"backup list x --data /d", "backup list --data /d x", "--data /other backup list --data /d x", "--data /other backup --data /d list x",
	} {
		app := testProgram().app(io.Discard, io.Discard)
		var c *cli.Context
		quiet(app.Commands, &c)
		err := runCommand(t.Context(), app, append([]string{"mailstead"}, strings.Fields(line)...))
		if err != nil || c == nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if seen = c.String("data"); seen != "/d" || c.String("from")+c.Args().First() != "x" {
			t.Errorf("%s: --data is %q, %q %q", line, seen, c.String("from"), c.Args().Slice())
		}
	}
}

// TestPlaceAsArgument: a place may be given as an argument in the place of its flag, but not both.
func TestPlaceAsArgument(t *testing.T) {
	for line, want := range map[string]string{
		"backup /x": "to=/x", "backup --to /x": "to=/x", "backup /x --full": "to=/x", "backup list /x": "from=/x", "backup verify /x": "from=/x",
		"restore /x --data /d": "from=/x", "import mbox /x --to a@b.c": "from=/x", "import maildir --to a@b.c /x": "from=/x", "import accounts /x": "from=/x",
		"export maildir /x --all": "to=/x", "export mbox --all /x": "to=/x", "backup ./list": "to=./list",
	} {
		app := testProgram().app(io.Discard, io.Discard)
		var c *cli.Context
		quiet(app.Commands, &c)
		if err := runCommand(t.Context(), app, append([]string{"mailstead"}, strings.Fields(line)...)); err != nil || c == nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		flag, place, _ := strings.Cut(want, "=")
		if err := argumentAsFlag(c, flag); c.NArg() > 0 && err != nil || c.String(flag) != place {
			t.Errorf("%s: --%s is %q, %v", line, flag, c.String(flag), err)
		}
	}
}

// TestFlagsReachCommands: commands see the flags and words that they see with urfave/cli's own run.
func TestFlagsReachCommands(t *testing.T) {
	t.Setenv("TEST_LEVEL", "7")
	var seen string
	tree := func() *cli.App {
		act := func(c *cli.Context) error {
			seen = fmt.Sprint(c.Command.HelpName, c.Args().Slice(), c.Context == t.Context())
			for _, name := range []string{"name", "list", "yes", "level"} {
				seen += fmt.Sprintf(" %s=%v,%t", name, c.Value(name), c.IsSet(name))
			}
			return nil
		}
		flags := func() []cli.Flag {
			return []cli.Flag{
				&cli.StringFlag{Name: "name", Value: "none"}, &cli.StringSliceFlag{Name: "list"},
				&cli.BoolFlag{Name: "yes"}, &cli.IntFlag{Name: "level", EnvVars: []string{"TEST_LEVEL"}},
			}
		}
		return &cli.App{Name: "app", Commands: []*cli.Command{
			{Name: "one", Flags: flags(), Action: act},
			{Name: "group", Flags: flags(), Action: act, Subcommands: []*cli.Command{{Name: "own", Flags: flags(), Action: act}, {Name: "none", Action: act}}},
		}}
	}
	for _, line := range []string{
		"one --name a --list x --list y two words", "one -name=a --yes two", "one -- --name", "one --yes=false --name  a --level 8",
		"group --name a own", "group own --name b", "group --name a --yes own --name b word", "group --name a none word", "group word own", "one own",
	} {
		args := append([]string{"app"}, strings.Fields(line)...)
		if err := tree().RunContext(t.Context(), args); err != nil {
			t.Fatal(err)
		}
		want := seen
		seen = ""
		if err := runCommand(t.Context(), tree(), args); err != nil || seen != want {
			t.Errorf("%s: %v\n%s, want\n%s", line, err, seen, want)
		}
	}
}
