package cli

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
)

// TestHelpIsThatOfTheLibrary asks for the help of every command, in all ways, and compares it with
// what urfave/cli writes.
func TestHelpIsThatOfTheLibrary(t *testing.T) {
	t.Setenv("MAILSTEAD_DATA", "/srv/mail") // is not the default that help shows
	var paths [][]string
	var walk func(path []string, commands []*cli.Command)
	walk = func(path []string, commands []*cli.Command) {
		paths = append(paths, path)
		for _, c := range commands {
			walk(append(path[:len(path):len(path)], c.Name), c.Subcommands)
		}
	}
	walk([]string{"mailstead"}, testProgram().app(nil, nil).Commands)
	if len(paths) < 30 {
		t.Fatalf("there are %d commands", len(paths))
	}
	for _, path := range paths {
		var want bytes.Buffer
		asked := append(path[:len(path):len(path)], "--help")
		if err := testProgram().app(&want, nil).RunContext(t.Context(), asked); err != nil {
			t.Fatal(err)
		}
		ways := [][]string{
			asked,
			append(path[:len(path):len(path)], "-h"),
			append(path[:len(path):len(path)], "help"),
			append([]string{"mailstead", "help"}, path[1:]...),
			append([]string{"mailstead", "--help"}, path[1:]...),
		}
		for _, args := range ways {
			var got bytes.Buffer
			if err := runCommand(t.Context(), testProgram().app(&got, nil), args); err != nil || got.String() != want.String() {
				t.Errorf("%v: %v, %s\nwant %s", args, err, &got, &want)
			}
		}
	}
}

// TestFlagsBehindArguments: they are the command's, as those before, up to "--".
func TestFlagsBehindArguments(t *testing.T) {
	for _, args := range [][]string{
		{"--data", "/d", "--account", "a", "op", "{}"}, {"op", "--data", "/d", "{}", "--account=a"}, {"op", "{}", "--account", "a", "--data=/d"},
		{"--account", "a", "--data", "/d", "--", "op", "{}"}, {"--account=a", "--data=/d", "op", "--", "{}"},
	} {
		set := flag.NewFlagSet("call", flag.ContinueOnError)
		data, account := set.String("data", "", ""), set.String("account", "", "")
		if err := parseFlags(set, args, true); err != nil || *data != "/d" || *account != "a" || !slices.Equal(set.Args(), []string{"op", "{}"}) {
			t.Errorf("%q: %q %q %q, %v", args, *data, *account, set.Args(), err)
		}
	}
	set := flag.NewFlagSet("call", flag.ContinueOnError)
	if err := parseFlags(set, []string{"op", "--", "--data"}, true); err != nil || !slices.Equal(set.Args(), []string{"op", "--data"}) {
		t.Errorf("%q, %v", set.Args(), err)
	}
	help, err := mailsteadCommand(t, "call", "create_rule", "--help")
	if err != nil || !strings.Contains(help, "mailstead call [command options] OPERATION [JSON]") {
		t.Errorf("help of one operation: %q, %v", help, err)
	}
}

// TestWrongCommandLines: a mistake is told with the code 2, and nothing is written on standard
// output.
func TestWrongCommandLines(t *testing.T) {
	t.Setenv("MAILSTEAD_MIGRATE", "")
	for line, want := range map[string]string{
		"bogus":                    "there is no command \"bogus\"; run `mailstead help`",
		"help bogus":               "there is no command \"bogus\"; run `mailstead help`",
		"account bogus":            "there is no command \"bogus\"; run `mailstead account help`",
		"account create --help x":  "there is no command \"x\"; run `mailstead account create help`",
		"--bogus":                  "there is no option --bogus; run `mailstead --help`",
		"account --bogus":          "there is no option --bogus; run `mailstead account --help`",
		"backup list --full":       "there is no option --full; run `mailstead backup list --help`",
		"call --data":              "--data needs a value; run `mailstead call --help`",
		"call list_domains --data": "--data needs a value; run `mailstead call --help`",
		"call list_domains -bogus": "there is no option --bogus; run `mailstead call --help`",
		"call":                     "name the operation: mailstead call OPERATION [JSON]; `mailstead call --list` lists the operations",
		"call a {} more":           "\"more\" is not expected: mailstead call OPERATION [JSON]; the JSON is one argument, best in single quotes",
		"call list_domains limit":  "the arguments of list_domains are not one JSON object: it must begin with {",
		"doctor --json=perhaps":    `invalid boolean value "perhaps" for -json: parse error`,
		"account list more":        "\"more\" is not expected; run `mailstead account list --help`",
	} {
		var stdout, stderr bytes.Buffer
		err := runCommand(t.Context(), testProgram().app(&stdout, &stderr), append([]string{"mailstead"}, strings.Fields(line)...))
		if err == nil || !errors.As(err, new(config.Error)) || err.Error() != want || stdout.Len() > 0 {
			t.Errorf("%s: %v, %s", line, err, &stdout)
		}
		if code := exitCode(err, &stderr); code != 2 || stderr.String() != "mailstead: "+want+"\n" {
			t.Errorf("%s: code %d, %s", line, code, &stderr)
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
