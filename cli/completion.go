package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/packaging"
)

// shells are the shells whose completion is known.
var shells = []string{"bash", "zsh", "fish"}

func (p *Program) completionCommand() *cli.Command {
	return p.command("completion", "print a script that completes commands in a shell", strings.Join(shells, "|"), func(c *cli.Context, e *env) error {
		if err := mostArguments(c, 1); err != nil {
			return err
		}
		script := packaging.Completion(c.Args().First())
		switch {
		case c.NArg() == 0:
			return config.Mistake(fmt.Errorf("name the shell: mailstead completion %s", c.Command.ArgsUsage))
		case script == "":
			return config.Mistake(fmt.Errorf("there is no completion for %q; use %s", c.Args().First(), strings.Join(shells, ", ")))
		}
		_, err := io.WriteString(e.stdout, script)
		return err
	})
}

// completeCommand is the hidden command that the scripts of shells call with the words after the
// program's name; the last one, which may be empty, is to be completed. It prints a candidate on
// each line, with a tab before its description, and the line ":files" if the name of a file may
// follow.
const completeCommand = "__complete"

// A candidate is a word that may stand at the place of the last word.
type candidate struct{ word, text string }

// filesFollow is the candidate for the names of files.
var filesFollow = candidate{word: ":files"}

// printCandidates answers completeCommand.
func printCandidates(w io.Writer, root *cli.Command, words []string) error {
	if len(words) == 0 {
		words = []string{""}
	}
	for _, c := range candidates(root, words[:len(words)-1], words[len(words)-1]) {
		line := c.word
		if c.text != "" {
			line += "\t" + c.text
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// flagValues are the values of flags that have only some. Those of the settings have theirs in
// package config.
var flagValues = map[string][]string{
	"security": {"tls", "starttls", "none"}, "tls": {"acme", "files", "proxy"}, "progress": {"json"}, "plan": {"startup", "enterprise"},
	"permissions": {"read", "read,write", "read,write,purchase", "admin"},
}

// listsWithStatus are the operations whose field status is the flag --status of a command.
var listsWithStatus = map[string]string{"mailstead log": "list_messages", "mailstead domain list": "list_domains"}

// fileFlags are the flags whose value is the name of a file or a directory.
var fileFlags = []string{
	"data", "to", "from", "tls-cert", "tls-key", "ca-file", "ready-file", "unit", "password-file", "list", "age-identity", "s3-access-key-file",
}

// candidates returns the words that may stand after the words before, and that begin with current.
func candidates(root *cli.Command, before []string, current string) []candidate {
	cmd, flag := root, "" // flag is the name of the flag whose value comes next
	dir := cmp.Or(os.Getenv("MAILSTEAD_DATA"), "data")
	var arguments []string
	help := false
	for _, word := range before {
		next := subcommand(cmd, word)
		switch {
		case flag != "":
			if flag == "data" {
				dir = word
			}
			flag = ""
		case strings.HasPrefix(word, "-") && word != "-":
			name := strings.TrimLeft(word, "-")
			if f := findFlag(cmd, name); f != nil && takesValue(f) {
				flag = f.Names()[0]
			}
		case cmd == root && isHelp(word):
			help = true
		case next != nil && len(arguments) == 0:
			cmd = next
		default:
			arguments = append(arguments, word)
		}
	}
	var all []candidate
	name, value, hasValue := strings.Cut(strings.TrimLeft(current, "-"), "=")
	switch {
	case flag != "":
		all = append(valuesOfFlag(cmd, flag, ""), namesOnServer(dir, flag, "")...)
	case strings.HasPrefix(current, "-") && hasValue:
		prefix := strings.TrimSuffix(current, value)
		all = append(valuesOfFlag(cmd, name, prefix), namesOnServer(dir, name, prefix)...)
	case strings.HasPrefix(current, "-"):
		for _, f := range flagsOf(cmd) {
			_, text := flagText(f)
			text, _, _ = strings.Cut(text, " [$")
			all = append(all, candidate{"--" + f.Names()[0], text})
		}
	case cmd.Name == "call":
		all = candidatesOfCall(arguments, current, help)
		if key, _, ok := strings.Cut(current, "="); ok && len(arguments) > 0 && !strings.Contains(arguments[0], "team_user") {
			all = append(all, namesOnServer(dir, key, key+"=")...)
		}
	case strings.HasPrefix(cmd.HelpName, "mailstead settings ") && strings.Contains(cmd.ArgsUsage, "KEY") && len(arguments) == 0:
		for _, k := range config.EditableKeys() {
			all = append(all, candidate{k.Key, k.Text})
		}
	case cmd.Name == "completion":
		for _, shell := range shells {
			all = append(all, candidate{word: shell})
		}
	default:
		for _, s := range cmd.Subcommands {
			if !s.Hidden {
				all = append(all, candidate{s.Name, s.Usage})
			}
		}
		if cmd == root {
			all = append(all, candidate{"help", "explain a command"})
		}
		if len(arguments) == 0 && !help && cmd.Name != "create" && cmd.Name != "add" {
			all = append(all, namesOnServer(dir, cmd.ArgsUsage, "")...)
		}
		if len(arguments) == 0 && slices.ContainsFunc([]string{"PLACE", "FILE", "DIR"}, func(kind string) bool { return strings.Contains(cmd.ArgsUsage, kind) }) && !help {
			all = append(all, filesFollow)
		}
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return c != filesFollow && !strings.HasPrefix(c.word, current) })
}

// namesOf are the lists of the API that have the values of flags, arguments and fields of
// operations, with the field of each that is the value.
var namesOf = map[string]struct{ operation, field string }{
	"mailbox": {"list_email_users", "email"}, "ADDRESS": {"list_email_users", "email"}, "user_id": {"list_email_users", "email"},
	"domain": {"list_domains", "domain"}, "DOMAIN": {"list_domains", "domain"}, "domain_id": {"list_domains", "domain"},
	"account": {"list_accounts", "owner_email"}, "ACCOUNT": {"list_accounts", "owner_email"},
}

// namesOnServer returns up to 100 values of a flag, an argument or a field that the running server
// has, each after a prefix. It returns none without a server, and waits for it one second at most.
func namesOnServer(dir, kind, prefix string) (out []candidate) {
	from, ok := namesOf[kind]
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	e := &env{dir: dir}
	a := &apiCaller{ctx: ctx, send: func(r *http.Request) (*http.Response, error) { return roundTripOverSocket(e.socketPath(), r) }}
	list, _, _ := a.page(from.operation, jsonObject{"limit": "100"}) // whoever may not ask gets no candidates
	for _, o := range list {
		out = append(out, candidate{word: prefix + o.stringField(from.field)})
	}
	return out
}

// valuesOfFlag returns the values that a flag of a command may have, each after a prefix.
func valuesOfFlag(cmd *cli.Command, name, prefix string) (out []candidate) {
	if operation := listsWithStatus[cmd.HelpName]; name == "status" && operation != "" {
		for _, c := range candidatesOfCall([]string{operation}, "status=", false) {
			out = append(out, candidate{word: prefix + strings.TrimPrefix(c.word, "status=")})
		}
	}
	for _, value := range append(config.WordsOf(name), flagValues[name]...) {
		out = append(out, candidate{word: prefix + value})
	}
	if slices.Contains(fileFlags, name) {
		out = append(out, filesFollow)
	}
	return out
}

// candidatesOfCall returns operations, or else fields of the operation that was named, and the
// values of such a field.
func candidatesOfCall(arguments []string, current string, help bool) (out []candidate) {
	if len(arguments) == 0 {
		for _, o := range handlers.Operations() {
			out = append(out, candidate{o.Name, o.Summary})
		}
		return out
	}
	o, err := handlers.HelpOf(arguments[0])
	if err != nil || help {
		return nil
	}
	key, _, hasValue := strings.Cut(current, "=")
	for _, f := range o.Fields {
		given := slices.ContainsFunc(arguments[1:], func(word string) bool {
			return strings.HasPrefix(word, f.Name+"=") || strings.HasPrefix(word, f.Name+":=")
		})
		switch {
		case hasValue && f.Name == key:
			for _, value := range f.Values {
				out = append(out, candidate{word: key + "=" + value})
			}
			if f.Type == "true or false" {
				out = append(out, candidate{word: key + "=true"}, candidate{word: key + "=false"})
			}
		case !hasValue && (!given || strings.HasPrefix(f.Type, "list")):
			out = append(out, candidate{f.Name + "=", f.Text})
		}
	}
	return out
}
