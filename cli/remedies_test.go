package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/handlers"
)

// TestRemediesAreCommands parses every command that a check says to run with the command line
// itself: there is the command, it knows the flags, and it takes the arguments.
func TestRemediesAreCommands(t *testing.T) {
	paths, err := filepath.Glob("../service/health/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, "`mailstead ") &&
				!strings.HasSuffix(l.Value, "`mailstead \"") && !strings.Contains(l.Value, "`mailstead doctor`") {
				t.Errorf("%s: %s is not made by commandLine, which gives it its directory", path, l.Value)
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "commandLine" {
				return true
			}
			var words []string
			for _, arg := range call.Args {
				word := unknownWord
				if l, ok := arg.(*ast.BasicLit); ok {
					word, err = strconv.Unquote(l.Value)
					if err != nil {
						t.Fatal(err)
					}
				}
				words = append(words, word)
			}
			found++
			parses(t, words)
			return true
		})
	}
	if found < 10 {
		t.Errorf("only %d commands were found", found)
	}
}

// unknownWord stands for a word that is only known when the program runs: the id of what an
// operation is about.
const unknownWord = `{"id":"x"}`

// parses has the command line read a command, without doing anything.
func parses(t *testing.T, words []string) {
	t.Helper()
	app := testProgram().app(io.Discard, io.Discard)
	var c *cli.Context
	quiet(app.Commands, &c)
	if err := runCommand(t.Context(), app, append([]string{"mailstead"}, words...)); err != nil || c == nil {
		t.Errorf("mailstead %s: %v", strings.Join(words, " "), err)
		return
	}
	if c.Command.Name != "call" {
		if c.NArg() > 0 && c.Command.ArgsUsage == "" {
			t.Errorf("mailstead %s: %q are arguments", strings.Join(words, " "), c.Args().Slice())
		}
		return
	}
	args := c.Args().Get(1)
	if o, err := handlers.HelpOf(c.Args().Get(0)); err == nil && args == unknownWord {
		args = `{"` + o.Fields[0].Name + `":"x"}` // the parameter of the path
	}
	if _, err := handlers.NewRequest(t.Context(), c.Args().Get(0), args); err != nil || c.NArg() > 2 {
		t.Errorf("mailstead %s: %v", strings.Join(words, " "), err)
	}
}

// quiet has commands note that they were called, and nothing else.
func quiet(list []*cli.Command, called **cli.Context) {
	for _, cmd := range list {
		quiet(cmd.Subcommands, called)
		if cmd.Action != nil {
			cmd.Action = func(c *cli.Context) error { *called = c; return nil }
		}
	}
}
