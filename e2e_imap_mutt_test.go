package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIMAPWithMutt has mutt and neomutt do what their keys do, in a terminal that `script` makes for them.
func TestIMAPWithMutt(t *testing.T) {
	for _, name := range []string{"mutt", "neomutt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMutt(t, name)
			m.put("INBOX", "one", "two", "three", "four")
			m.walk()
		})
	}
}

// A mutt is mutt or neomutt with its configuration.
type mutt struct {
	*mailClient
	program, script, home string
}

func newMutt(t *testing.T, name string) *mutt {
	t.Helper()
	m := &mutt{program: peer(t, name), script: peer(t, "script"), home: t.TempDir()}
	m.mailClient = newMailClient(t, name)
	config := fmt.Sprintf("set folder = \"imap://ann%%40example.test@%s/\"\nset spoolfile = \"+INBOX\"\nset imap_pass = %q\n"+
		"set record = \"\"\nset ssl_starttls = no\nset ssl_force_tls = no\nset confirmappend = no\nset confirmcreate = no\n"+
		"set delete = yes\nset mark_old = no\nset move = no\nset auto_tag = yes\nset imap_check_subscribed = yes\nset mail_check = 1\nset wait_key = no\n"+
		"set imap_authenticators = \"login\"\nset editor = \"true\"\nset abort_unmodified = no\nset imap_condstore = yes\nset header_cache = %q\n",
		m.ready.IMAP, annsPassword, filepath.Join(m.home, "cache"))
	if err := os.WriteFile(filepath.Join(m.home, "rc"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// keys opens INBOX, presses keys and ends.
func (m *mutt) keys(keys ...string) {
	m.t.Helper()
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	push := `push "` + strings.ReplaceAll(strings.Join(keys, ""), `"`, `\"`) + `<quit>"`
	command := strings.Join([]string{m.program, "-n", "-F", quote(filepath.Join(m.home, "rc")), "-e", quote(push)}, " ")
	m.run(m.home, m.script, "--quiet", "--return", "--command", command, "/dev/null")
}

func (m *mutt) walk() {
	m.keys("<tag-pattern>~s one<enter><tag-prefix><copy-message>=Archive<enter>")
	m.holds("Archive", "one")
	m.did("log in", "select", "fetch", "copy")

	m.keys("<limit>~s two<enter><flag-message><limit>all<enter>",
		"<limit>~s three<enter><save-message>=Work<enter><limit>all<enter>", "<sync-mailbox>")
	m.holds("Work", "three")
	m.holds("INBOX", "one", `two \Flagged`, "four")
	m.did("flags", "expunge", "folders")

	m.keys("<limit>=b four<enter><delete-pattern>~A<enter><limit>all<enter><sync-mailbox>")
	m.holds("INBOX", "one", `two \Flagged`)
	m.did("search")

	m.keys("<limit>~s one<enter><display-message><exit><limit>all<enter>")
	m.holds("INBOX", `one \Seen`, `two \Flagged`)
}
