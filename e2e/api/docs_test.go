package api

import (
	"bytes"
	"context"
	"encoding/json"
	"go/format"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// A referencePart is what the reference says about one operation.
type referencePart struct {
	examples map[string]string // by their titles
	path     string            // method and path
}

var (
	referencePage = regexp.MustCompile(`\]\((?:https?://[^/]+)?(/docs/api/[^)#]+\.md)\)`)
	referenceHead = regexp.MustCompile("^[^\n]*\n\n`([A-Z]+ /v1/[^`]*)` · `([a-z_]+)`\n")
	referenceCode = regexp.MustCompile("(?s)```\\w+ ([^\n]+)\n(.*?)\n```")
)

// reference reads the reference of a server, by operation.
func reference(i *rig.Instance) map[string]referencePart {
	i.T.Helper()
	read := func(path string) string {
		resp, err := http.Get("http://" + i.Ready.HTTP + path)
		if err != nil {
			i.T.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			i.T.Fatalf("%s: %d %v", path, resp.StatusCode, err)
		}
		return string(body)
	}
	out := map[string]referencePart{}
	for _, page := range referencePage.FindAllStringSubmatch(read("/llms.txt"), -1) {
		for _, part := range strings.Split(read(page[1]), "\n## ") {
			head := referenceHead.FindStringSubmatch(part)
			if head == nil {
				continue
			}
			p := referencePart{map[string]string{}, head[1]}
			for _, code := range referenceCode.FindAllStringSubmatch(part, -1) {
				p.examples[code[1]] = code[2]
			}
			out[head[2]] = p
		}
	}
	if len(out) < 150 {
		i.T.Fatalf("the reference has %d operations", len(out))
	}
	return out
}

// TestExamplesOfTheReferenceAreSound: every example of every operation is a program of its
// language. The shell, Node and Python read them; Go's are formatted and compiled.
func TestExamplesOfTheReferenceAreSound(t *testing.T) {
	t.Parallel()
	sh, node, python := rig.Peer(t, "sh"), rig.Peer(t, "node"), rig.Peer(t, "python3")
	dir := t.TempDir()
	files := map[string]string{"go.mod": "module examples\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n"}
	for name, part := range reference(rig.Start(t, "")) {
		if len(part.examples) != 5 {
			t.Errorf("%s has %d examples", name, len(part.examples))
		}
		for title, ext := range map[string]string{"curl": ".sh", "Command line": "-call.sh", "JavaScript": ".mjs", "Python": ".py"} {
			files[name+ext] = part.examples[title]
		}
		program := part.examples["Go"] + "\n"
		formatted, err := format.Source([]byte(program))
		if err != nil || string(formatted) != program {
			t.Errorf("%s: gofmt changes the example of Go, or cannot read it: %v", name, err)
		}
		// All are compiled as one package.
		files["example_"+name+"_.go"] = strings.Replace(program, "\nfunc main() {", "\nfunc example_"+name+"() {", 1)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// One process for all files of a language, since each takes longer to start than to read them.
	const readModules = `const vm = require("node:vm"), fs = require("node:fs")
for (const f of fs.readdirSync(".").filter((f) => f.endsWith(".mjs"))) new vm.SourceTextModule(fs.readFileSync(f, "utf8"), { identifier: f })`
	for _, words := range [][]string{
		{sh, "-euc", `for f in *.sh; do sh -n "$f"; done`},
		{node, "--experimental-vm-modules", "--no-warnings", "-e", readModules},
		{"go", "build", "-o", os.DevNull, "."},
		{python, "-c", `import glob` + "\n" + `for f in glob.glob("*.py"): compile(open(f).read(), f, "exec")`},
	} {
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// TestExamplesOfTheReferenceWork carries out examples against the server that shows them, as they
// stand but for the ids and names of what is there.
func TestExamplesOfTheReferenceWork(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "node", "python3"} {
		rig.Peer(t, tool)
	}
	i := rig.Start(t, rig.GenerousLimits)
	domain := i.AddDomain("example.com")
	mailbox := i.AddMailbox("ines@example.com", "correct horse")
	all := reference(i)
	here := strings.NewReplacer("dom_01k9a2b3c4d5e6f7g8h9j0k1m2", domain, "eu_01k9a2b3c4d5e6f7g8h9j0k1m2", mailbox)
	run := func(name, title string, words ...string) []byte {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, words[0], append(words[1:], here.Replace(all[name].examples[title]))...)
		cmd.Env = append(os.Environ(), "MAILSTEAD_TOKEN="+i.Token)
		cmd.Dir = t.TempDir()
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s, %s: %v: %s", name, title, err, errs.String())
		}
		return out
	}
	for _, name := range []string{
		"get_account", "list_domains", "get_domain", "get_dns_status", "list_email_users", "create_email_user", "get_email_user", "list_inbox", "list_email_user_inbox", "send_email",
		"list_messages", "create_webhook", "list_webhooks", "list_tokens", "list_jobs", "list_events", "list_folders", "create_rule", "get_me", "get_health", "list_audit", "list_requests",
	} {
		out := run(name, "curl", "sh", "-c")
		var answer map[string]any
		if err := json.Unmarshal(out, &answer); err != nil || answer["error"] != nil {
			t.Errorf("%s: curl printed %s", name, out)
		}
	}
	for title, words := range map[string][]string{"JavaScript": {"node", "--input-type=module", "--eval"}, "Python": {"python3", "-c"}} {
		for _, name := range []string{"get_domain", "send_email"} {
			if out := run(name, title, words...); len(out) < 20 {
				t.Errorf("%s, %s: it printed %q", name, title, out)
			}
		}
	}
	program := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(program, []byte(here.Replace(all["send_email"].examples["Go"])), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", program)
	cmd.Env = append(os.Environ(), "MAILSTEAD_TOKEN="+i.Token)
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte(`"message_id"`)) {
		t.Errorf("send_email, Go: %v: %s", err, out)
	}
}
