package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestIMAPWithMutt has mutt and neomutt do what their keys do, in a terminal that `script` makes
// for them.
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
	spoken                *recorder
}

// A recorder stands between a client and the server and keeps what the client says.
type recorder struct {
	addr string
	mu   sync.Mutex
	text bytes.Buffer
}

func newRecorder(t *testing.T, server string) *recorder {
	t.Helper()
	r := &recorder{}
	r.addr = answering(t, func(client net.Conn) { r.carry(client, server) })
	return r
}

func (r *recorder) carry(client net.Conn, server string) {
	defer client.Close()
	far, err := net.Dial("tcp", server)
	if err != nil {
		return // the client fails, and with it the test
	}
	go func() {
		_, _ = io.Copy(far, io.TeeReader(client, r))
		far.Close()
	}()
	_, _ = io.Copy(client, far) // until either has had enough
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recorder) has(command string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.text.String(), command)
}

func newMutt(t *testing.T, name string) *mutt {
	t.Helper()
	m := &mutt{program: peer(t, name), script: peer(t, "script"), home: t.TempDir()}
	m.mailClient = newMailClient(t, name)
	m.spoken = newRecorder(t, m.ready.IMAP)
	config := fmt.Sprintf("set folder = \"imap://ann%%40example.test@%s/\"\nset spoolfile = \"+INBOX\"\nset imap_pass = %q\n"+
		"set record = \"\"\nset ssl_starttls = no\nset ssl_force_tls = no\nset confirmappend = no\nset confirmcreate = no\n"+
		"set delete = yes\nset mark_old = no\nset move = no\nset auto_tag = yes\nset imap_check_subscribed = yes\nset mail_check = 1\nset wait_key = no\n"+
		"set imap_authenticators = \"login\"\nset editor = \"true\"\nset abort_unmodified = no\nset imap_deflate = no\nset header_cache = %q\n",
		m.spoken.addr, annsPassword, filepath.Join(m.home, "cache"))
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
	if !m.spoken.has(" UID SEARCH BODY ") {
		m.t.Errorf("%s did not let the server search", m.name)
	}
	m.did("search")

	m.keys("<limit>~s one<enter><display-message><exit><limit>all<enter>")
	m.holds("INBOX", `one \Seen`, `two \Flagged`)
}
