package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run runs a client to its end within a minute and gives what it printed.
func (c *mailClient) run(dir string, command ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "TERM=xterm")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("%s: %v\n%s\n%s", strings.Join(command, " "), err, out, errs.String())
	}
	return string(out)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestIMAPWithImaplib walks through everything that Python's own client has a method for.
func TestIMAPWithImaplib(t *testing.T) {
	t.Parallel()
	python := peer(t, "python3")
	c := newMailClient(t, "imaplib")
	c.put("INBOX", "one", "two", "three")
	out := c.run(t.TempDir(), python, absolute(t, "testdata/imap/with_imaplib.py"), c.host, c.port, annsAddress, annsPassword)
	c.did(strings.Split(strings.TrimSpace(out), "\n")...)
	c.holds("INBOX", `one \Seen`)
	c.holds("Archive", `one \Seen`)
	c.holds("Work/Done", `two Later \Flagged`)
	c.holds("Drafts", `draft \Draft`)
}

// TestIMAPWithImapflow is the same with imapflow, which npm installs from the lock file in
// testdata/imap.
func TestIMAPWithImapflow(t *testing.T) {
	t.Parallel()
	node, npm := peer(t, "node"), peer(t, "npm")
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "imapflow.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata/imap", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("npm ci: %v\n%s", err, out)
	} else if err != nil {
		t.Skipf("npm cannot install imapflow: %v", err)
	}
	c := newMailClient(t, "imapflow")
	c.put("INBOX", "one", "two", "three")
	c.want(200, "PATCH", "/v1/email-users/"+c.box, map[string]any{"quota_bytes": 10 << 20}, nil)
	out := c.run(dir, node, "imapflow.mjs", c.host, c.port, annsAddress, annsPassword)
	c.did(strings.Split(strings.TrimSpace(out), "\n")...)
	c.holds("INBOX", `one \Answered`, "new")
	c.holds("Archive", `one \Answered`)
	c.holds("Work/Done", `two $Later \Flagged`)
}

// TestIMAPWithCurl has what people do from a shell.
func TestIMAPWithCurl(t *testing.T) {
	t.Parallel()
	curl := peer(t, "curl")
	c := newMailClient(t, "curl")
	c.put("INBOX", "one", "two", "three")
	dir := t.TempDir()
	ask := func(want, path string, args ...string) {
		t.Helper()
		url := "imap://" + c.ready.IMAP + "/" + path
		out := c.run(dir, append([]string{curl, "--silent", "--show-error", "--user", annsAddress + ":" + annsPassword, url}, args...)...)
		if !strings.Contains(out, want) {
			t.Errorf("curl %s %v: %q, want %q", path, args, out, want)
		}
	}
	ask(`"Sent"`, "")
	c.did("log in", "list")
	ask("Hello two", "INBOX;UID=2")
	ask("FLAGS", "INBOX", "-X", "FETCH 1:* (FLAGS)")
	c.did("select", "fetch")
	ask("Subject: two", "INBOX;UID=2;SECTION=HEADER.FIELDS%20(SUBJECT)")
	ask("lo two", "INBOX;UID=2;SECTION=TEXT;PARTIAL=3.20")
	c.did("parts")
	ask("* SEARCH 3", "INBOX?SUBJECT%20three")
	c.did("search")
	letter := filepath.Join(dir, "letter")
	if err := os.WriteFile(letter, []byte(imapLetter("sent")), 0o600); err != nil {
		t.Fatal(err)
	}
	ask("", "Sent", "--upload-file", letter)
	c.holds("Sent", `sent \Seen`)
	c.did("append")
	ask("", "INBOX", "-X", "UID STORE 3 +FLAGS.SILENT (\\Deleted)")
	ask("* 3 EXPUNGE", "INBOX", "-X", "EXPUNGE")
	c.did("flags", "expunge")
	ask("", "INBOX", "-X", "UID COPY 1 Archive")
	ask("", "INBOX", "-X", "UID MOVE 2 Archive")
	c.did("copy", "move")
	ask("", "", "-X", "CREATE Work")
	ask("", "", "-X", "RENAME Work Done")
	ask("", "", "-X", "SUBSCRIBE Done")
	ask("Done", "", "-X", `LSUB "" *`)
	ask("", "", "-X", "DELETE Done")
	c.did("folders", "subscribe")
	ask("QUOTAROOT", "", "-X", "GETQUOTAROOT INBOX")
	c.did("quota")
	c.holds("INBOX", "one")
	c.holds("Archive", "one", `two \Seen`)
}
