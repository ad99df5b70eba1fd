package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completed returns the words that may stand in the place of the last one of a line.
func completed(t *testing.T, words ...string) (out []string) {
	t.Helper()
	text, err := mailsteadCommand(t, append([]string{completeCommand}, words...)...)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		out = append(out, word)
	}
	return out
}

// TestCandidates: what may follow is commands, options and their values, operations and their
// fields, or files.
func TestCandidates(t *testing.T) {
	for line, want := range map[string]string{
		"mailb": "mailbox", "domain ": "add list show delete claim", "domain s": "show", "completion ": "bash zsh fish", "completion f": "fish",
		"help que": "queue", "serve --outb": "--outbound", "serve --outbound ": "capture direct relay", "serve --outbound d": "direct",
		"serve --outbound=r": "--outbound=relay", "serve --tls-cert ": ":files", "backup ": "list verify :files", "import mbox ": ":files",
		"call connect_d": "connect_domains", "call connect_domains man": "manual_dns=", "call connect_domains manual_dns=": "manual_dns=true manual_dns=false",
		"call --data x connect_domains apex=": "apex=here apex=elsewhere", "call get_domain domain_id=x d": "", "mailbox delete ": "", "nonsense ": "", "log --status de": "delivered deferred", "domain list --status=pending_n": "--status=pending_ns",
		"settings set log": "log.level", "settings get log.l": "log.level", "settings set log.level ": "", "log --fol": "--follow",
		"log --status=x --since 1h --mail": "--mailbox", "": "serve", "-": "--version --data --help",
	} {
		words := strings.Split(line, " ")
		got := completed(t, words...)
		if line == "" {
			got = got[:1]
		}
		if line == "nonsense " { // the words of the program
			continue
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if got := completed(t); !slices.Contains(got, "serve") || !slices.Contains(got, "help") || slices.Contains(got, completeCommand) {
		t.Errorf("without words: %q", got)
	}
	if got := completed(t, "call", ""); len(got) < 150 {
		t.Errorf("only %d operations", len(got))
	}
}

// shell returns the path of a shell. Without it the test is skipped, but not where CI has installed
// it.
func shell(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing; run .ci/peers", name)
	}
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

// programForShells builds a program whose only command is that of the scripts, with a script of a
// shell beside it.
func programForShells(t *testing.T, name string) (dir, script string) {
	t.Helper()
	dir = t.TempDir()
	text, err := mailsteadCommand(t, "completion", name)
	if err != nil {
		t.Fatal(err)
	}
	script = filepath.Join(dir, "completion."+name)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := "#!/bin/sh\nMAILSTEAD_TEST_COMPLETE=1 exec '" + self + "' \"$@\"\n"
	for path, file := range map[string]string{script: text, filepath.Join(dir, "mailstead"): program} {
		if err := os.WriteFile(path, []byte(file), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "archive.mbox"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, script
}

// TestMain lets this test program stand in for mailstead in the shells that it starts.
func TestMain(m *testing.M) {
	if os.Getenv("MAILSTEAD_TEST_COMPLETE") != "" {
		os.Exit(testProgram().Main(context.Background(), append([]string{"mailstead"}, os.Args[1:]...), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// shellCases are lines, and what a shell must offer for their last word.
var shellCases = []struct {
	words []string
	want  string
}{
	{[]string{"mailb"}, "mailbox"}, {[]string{"domain", ""}, "add list show delete claim"}, {[]string{"serve", "--outbound", "d"}, "direct"},
	{[]string{"call", "connect_domains", "manual_dns=t"}, "manual_dns=true"}, {[]string{"import", "mbox", "arch"}, "archive.mbox"},
}

func runShell(t *testing.T, path, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil || said.Len() > 0 {
		t.Errorf("%s %q: %v %s", path, args[len(args)-1], err, &said)
	}
	return out.String()
}

// TestBashCompletes has bash load the script, and complete.
func TestBashCompletes(t *testing.T) {
	bash := shell(t, "bash")
	dir, script := programForShells(t, "bash")
	for _, c := range shellCases {
		// bash splits words at "=", and replaces only what is behind it.
		var words []string
		for _, w := range append([]string{"mailstead"}, c.words...) {
			key, value, ok := strings.Cut(w, "=")
			words = append(words, "'"+key+"'")
			if ok {
				words = append(words, "=", "'"+value+"'")
			}
		}
		want := c.want
		if _, value, ok := strings.Cut(want, "="); ok {
			want = value
		}
		code := `source "$1"; complete -p mailstead >/dev/null || exit 3; COMP_WORDS=(` + strings.Join(words, " ") + `); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); ` +
			`compopt() { :; }; _mailstead; echo "${COMPREPLY[*]}"`
		if got := strings.TrimSpace(runShell(t, bash, dir, "--norc", "-c", code, "bash", script)); got != want {
			t.Errorf("%q: %q, want %q", c.words, got, want)
		}
	}
}

// TestBashCompletesAddresses: bash splits words at "@" too, and replaces the "@" with what follows
// it.
func TestBashCompletesAddresses(t *testing.T) {
	bash := shell(t, "bash")
	dir, script := programForShells(t, "bash")
	program := "#!/bin/sh\nfor last; do :; done\necho \"${last%%@*}@boxes.test\"\n"
	if err := os.WriteFile(filepath.Join(dir, "mailstead"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"mailstead mailbox delete ann @ b": "@boxes.test", "mailstead mailbox delete ann @": "@boxes.test", "mailstead mailbox delete ann": "ann@boxes.test",
		"mailstead call get_email_user user_id = ann @ b": "@boxes.test", "mailstead call get_email_user user_id = ann": "ann@boxes.test",
	} {
		code := `source "$1"; COMP_WORDS=(` + words + `); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); compopt() { :; }; _mailstead; echo "${COMPREPLY[*]}"`
		if got := strings.TrimSpace(runShell(t, bash, dir, "--norc", "-c", code, "bash", script)); got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
		// Without "@" in COMP_WORDBREAKS the word is whole, and replaced as a whole.
		if whole := strings.ReplaceAll(words, " @ ", "@"); !strings.Contains(words, "=") && whole != words {
			code = strings.Replace(code, words, whole, 1)
			code = strings.Replace(code, "COMP_WORDS=", "COMP_WORDBREAKS=' =:'; COMP_WORDS=", 1)
			if got := strings.TrimSpace(runShell(t, bash, dir, "--norc", "-c", code, "bash", script)); got != "ann@boxes.test" {
				t.Errorf("%q, whole: %q", words, got)
			}
		}
	}
}

// TestZshCompletes has zsh load the script, as a script and as a function of its path, and
// complete.
func TestZshCompletes(t *testing.T) {
	zsh := shell(t, "zsh")
	dir, script := programForShells(t, "zsh")
	for _, c := range shellCases {
		var words []string
		for _, w := range append([]string{"mailstead"}, c.words...) {
			words = append(words, "'"+w+"'")
		}
		// compadd only works within the editor of lines, so its words are printed here. Those that
		// it would leave out are left out by the program.
		code := `autoload -Uz compinit; compinit -D -u; source "$1"; [[ $_comps[mailstead] == _mailstead ]] || exit 3
compadd() { local -a list; if [[ $* == *"-a "* ]]; then list=("${(@P)@[-1]}"); else list=("$@[-1]"); fi; print -r -- $list }
_files() { print -r -- ${words[CURRENT]}*(N) }
words=(` + strings.Join(words, " ") + `); CURRENT=${#words}; _mailstead`
		if got := strings.TrimSpace(runShell(t, zsh, dir, "-f", "-c", code, "zsh", script)); got != c.want {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
	if err := os.Rename(script, filepath.Join(dir, "_mailstead")); err != nil {
		t.Fatal(err)
	}
	if got := runShell(t, zsh, dir, "-f", "-c", `fpath=("$1" $fpath); autoload -Uz compinit; compinit -D -u; print $_comps[mailstead]`, "zsh", dir); got != "_mailstead\n" {
		t.Errorf("from the path of functions: %q", got)
	}
}

// TestFishCompletes has fish load the script, and complete.
func TestFishCompletes(t *testing.T) {
	fish := shell(t, "fish")
	dir, script := programForShells(t, "fish")
	for _, c := range shellCases {
		line := strings.Join(append([]string{"mailstead"}, c.words...), " ")
		var got []string
		for out := range strings.Lines(runShell(t, fish, dir, "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", script, line)) {
			word, _, _ := strings.Cut(strings.TrimSpace(out), "\t")
			got = append(got, word)
		}
		want := strings.Fields(c.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
