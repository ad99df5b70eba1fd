package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/store"
)

// A mention is a command line of this program in a text that people read.
type mention struct {
	place string
	words []string // what follows "mailstead"
}

// namesCommand finds "mailstead" with what follows it, up to the end of a code span, a line or a
// text. A backslash at the end of a line continues it.
var namesCommand = regexp.MustCompile("(?:^|[ \t`\"'(=/$])mailstead((?:[ \t]+(?:\\\\\n[ \t]*)?[^\\s`\"'(){}#;&]+|[ \t]+'[^']*'|[ \t]+\"[^\"]*\")+)")

// noCommands are what keys are derived by, and words of a shell after a user's or a place's name.
var noCommands = []string{"seal 1", "mac 1", "fingerprint 1", "ses /etc/mailstead/ses"}

// begins is the form of a command: what else follows the name is a path, an argument of another
// program, or known only when the program runs.
var begins = regexp.MustCompile(`^[a-z][a-z-]+$`)

// mentionsIn lists the command lines in a text.
func mentionsIn(place, text string) (out []mention) {
	for _, found := range namesCommand.FindAllStringSubmatch(text, -1) {
		words := strings.Fields(strings.ReplaceAll(found[1], "\\\n", " "))
		for i, w := range words {
			if strings.HasPrefix(w, "#") || strings.HasPrefix(w, "--") && strings.ContainsAny(w[2:], "<>$") {
				words = words[:i]
				break
			}
			words[i] = strings.TrimRight(w, ".,:!?…")
		}
		if len(words) > 0 && begins.MatchString(words[0]) && !slices.Contains(noCommands, strings.Join(words, " ")) {
			out = append(out, mention{place, words})
		}
	}
	return out
}

// goTexts returns the string literals of a Go file, and the usage texts in the tags of its fields.
func goTexts(t *testing.T, path string) (texts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, err := strconv.Unquote(l.Value)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
		return true
	})
	return texts
}

// allMentions reads everything of the repository that tells people what to run.
func allMentions(t *testing.T) (out []mention) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() {
			if slices.Contains([]string{".git", "node_modules", "dist", "testdata", "bench", "e2e", "screenshots"}, name) {
				return filepath.SkipDir
			}
			return nil
		}
		switch {
		case strings.HasSuffix(name, "_test.go"):
		case strings.HasSuffix(name, ".go"):
			for _, text := range goTexts(t, path) {
				out = append(out, mentionsIn(path, text)...)
			}
		case slices.Contains([]string{".md", ".sh", ".service", ".socket", ".yaml", ".yml", ".html", ".json", ".ts", ".tsx", ".vue", ".svelte", ".js"}, filepath.Ext(name)) ||
			strings.HasPrefix(name, "Dockerfile"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out = append(out, mentionsIn(path, string(text))...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// wrongIn says what of a command line the program does not have; "" if it has all of it.
func wrongIn(words []string, operations []string) string {
	cmd := &cli.Command{Name: "mailstead", Subcommands: testProgram().app(io.Discard, io.Discard).Commands}
	for i, word := range words {
		flag, isFlag := strings.CutPrefix(word, "--")
		flag, _, _ = strings.Cut(flag, "=")
		next := subcommand(cmd, strings.Split(word, "|")[0])
		switch {
		case isFlag && !hasFlag(cmd, flag):
			return "the flag --" + flag + " of " + cmd.Name
		case word == "help" || word == "": // a topic, or what is left out
			return ""
		case isFlag:
		case next != nil:
			for other := range strings.SplitSeq(word, "|") {
				if subcommand(cmd, other) == nil {
					return "the command " + other
				}
			}
			cmd = next
		case cmd.Action == nil:
			return "the command " + word + " of " + cmd.Name
		case cmd.Name == "call" && operation.MatchString(word) && !strings.HasPrefix(words[i-1], "--") && !slices.Contains(operations, word):
			return "the operation " + word
		}
	}
	return ""
}

// operation is the form of an operation's name.
var operation = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)

func hasFlag(cmd *cli.Command, name string) bool {
	return slices.ContainsFunc(flagsOf(cmd), func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}

// TestCommandsThatAreNamedExist: every command line that a message, the help or a page of the
// documentation names is one of this program, with flags and operations that it has.
func TestCommandsThatAreNamedExist(t *testing.T) {
	operations := []string{advanceClock}
	for _, o := range handlers.Operations() {
		operations = append(operations, o.Name)
	}
	all := allMentions(t)
	if len(all) < 150 {
		t.Errorf("only %d command lines were found", len(all))
	}
	for _, m := range all {
		if what := wrongIn(m.words, operations); what != "" {
			t.Errorf("%s names `mailstead %s`, but there is not %s", m.place, strings.Join(m.words, " "), what)
		}
	}
	for line, wrong := range map[string]bool{
		"serve --data DIR": false, "import maildir|mbox|imap": false, "backup list --from X": false, "profile": false, "call get_account {}": false,
		"start": true, "account show": true, "import maildir|pst": true, "serve --datadir X": true, "call get_accounts": true, "backup list --to X": true,
	} {
		if what := wrongIn(strings.Fields(line), operations); (what != "") != wrong {
			t.Errorf("%s: %q", line, what)
		}
	}
}

// TestErrorsNameTheFirstCommandThatFits: where there is no store, or no account in it, `setup` is
// what a production server lacks and `init` what a sandbox lacks. Elsewhere neither is named.
func TestErrorsNameTheFirstCommandThatFits(t *testing.T) {
	csv := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(csv, []byte("email,password_hash,name\na@example.com,$2a$04$u,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, file := range map[string]string{"setup": "hostname = 'mail.example.com'\npublic_ip = ['192.0.2.1']\n", "init": ""} {
		other := map[string]string{"setup": "init", "init": "setup"}[mode]
		for _, empty := range []bool{true, false} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, settingsFile), []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			if !empty {
				st, err := store.Open(dir, store.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if err := st.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for line, wanted := range map[string]bool{ // whether the store without an account lacks it too
				"call get_account": true, "call --account ann@example.com get_account": false, "account list": false, "account suspend --account ann@example.com": false,
				"account delete --yes --account ann@example.com": false, "token create --user ann@example.com": false, "user reset-password --user ann@example.com": false,
				"domain claim --account ann@example.com example.com": false, "backup --to " + t.TempDir() + "/": false, "rotate-key": false, "job parked": false,
				"export maildir --all --to " + t.TempDir(): true, "import accounts --from " + csv: false, "import maildir --from " + dir + " --to ann@example.com": false,
			} {
				_, err := mailsteadCommand(t, append(strings.Fields(line), "--data", dir)...)
				if strings.HasPrefix(line, "call") || strings.HasPrefix(line, "domain") { // flags come before arguments
					words := strings.Fields(line)
					at := map[string]int{"call": 1, "domain": 2}[words[0]]
					_, err = mailsteadCommand(t, slices.Insert(words, at, "--data", dir)...)
				}
				said := ""
				if err != nil {
					said = err.Error()
				}
				if strings.Contains(said, "mailstead "+other) || (empty || wanted) != strings.Contains(said, "mailstead "+mode) {
					t.Errorf("%s, %s, no store: %t: %s", mode, line, empty, said)
				}
			}
		}
	}
}
