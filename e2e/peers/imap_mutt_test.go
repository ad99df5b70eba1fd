package peers

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestIMAPWithMutt has mutt and neomutt do what their keys do, in a terminal that `script` makes
// for them.
func TestIMAPWithMutt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mutt", "neomutt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMutt(t, name)
			m.Put("INBOX", "one", "two", "three", "four")
			m.walk()
		})
	}
}

// A mutt is mutt or neomutt with its configuration.
type mutt struct {
	*rig.MailClient
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
	r.addr = rig.Serve(t, func(client net.Conn) { r.carry(client, server) })
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
	return newMuttWith(t, name, newMailClient, "")
}

// newMuttWith is newMutt with more configuration.
func newMuttWith(t *testing.T, name string, start func(*testing.T, string) *rig.MailClient, more string) *mutt {
	t.Helper()
	m := &mutt{program: rig.Peer(t, name), script: rig.Peer(t, "script"), home: t.TempDir()}
	m.MailClient = start(t, name)
	m.spoken = newRecorder(t, m.Ready.IMAP)
	config := fmt.Sprintf("set folder = \"imap://ann%%40example.test@%s/\"\nset spoolfile = \"+INBOX\"\nset imap_pass = %q\n"+
		"set record = \"\"\nset ssl_starttls = no\nset ssl_force_tls = no\nset confirmappend = no\nset confirmcreate = no\n"+
		"set delete = yes\nset mark_old = no\nset move = no\nset auto_tag = yes\nset imap_check_subscribed = yes\nset mail_check = 1\nset wait_key = no\n"+
		"set imap_authenticators = \"login\"\nset editor = \"true\"\nset abort_unmodified = no\nset imap_deflate = no\nset header_cache = %q\n",
		m.spoken.addr, rig.AnnsPassword, filepath.Join(m.home, "cache"))
	if err := os.WriteFile(filepath.Join(m.home, "rc"), []byte(config+more), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// keys opens INBOX, presses keys and ends.
func (m *mutt) keys(keys ...string) {
	m.T.Helper()
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	push := `push "` + strings.ReplaceAll(strings.Join(keys, ""), `"`, `\"`) + `<quit>"`
	command := strings.Join([]string{m.program, "-n", "-F", quote(filepath.Join(m.home, "rc")), "-e", quote(push)}, " ")
	runTool(m.MailClient, m.home, m.script, "--quiet", "--return", "--command", command, "/dev/null")
}

func (m *mutt) walk() {
	m.keys("<tag-pattern>~s one<enter><tag-prefix><copy-message>=Archive<enter>")
	holds(m.MailClient, "Archive", "one")
	m.NoteDone("log in", "select", "fetch", "copy")

	m.keys("<limit>~s two<enter><flag-message><limit>all<enter>",
		"<limit>~s three<enter><save-message>=Work<enter><limit>all<enter>", "<sync-mailbox>")
	holds(m.MailClient, "Work", "three")
	holds(m.MailClient, "INBOX", "one", `two \Flagged`, "four")
	m.NoteDone("flags", "expunge", "folders")

	m.keys("<limit>=b four<enter><delete-pattern>~A<enter><limit>all<enter><sync-mailbox>")
	holds(m.MailClient, "INBOX", "one", `two \Flagged`)
	if !m.spoken.has(" UID SEARCH BODY ") {
		m.T.Errorf("%s did not let the server search", m.Name)
	}
	m.NoteDone("search")

	m.keys("<limit>~s one<enter><display-message><exit><limit>all<enter>")
	holds(m.MailClient, "INBOX", `one \Seen`, `two \Flagged`)
}

// TestMuttHeaderCache: mutt opens a folder of 200 messages that it has seen before, which others
// have changed. It fetches the header of the new one alone, reads and deletes, and syncs; with what
// QRESYNC offers, where the server has it, and without.
func TestMuttHeaderCache(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mutt", "neomutt"} {
		for _, qresync := range []string{"no", "yes"} {
			t.Run(name+", imap_qresync="+qresync, func(t *testing.T) {
				t.Parallel()
				m := newMuttWith(t, name, startMailClient, "set imap_qresync = "+qresync+"\nset imap_condstore = yes\n")
				var subjects []string
				for i := range 200 {
					subjects = append(subjects, fmt.Sprintf("m%03d", i))
				}
				m.Put("INBOX", subjects...)
				m.keys()
				const headers = "BODY.PEEK[HEADER.FIELDS"
				if !m.spoken.has(headers) {
					t.Fatal("no headers are fetched at first")
				}
				m.spoken.forget()
				m.Change("INBOX", `UID STORE 1:2 +FLAGS (\Deleted)`, "EXPUNGE", `UID STORE 3 +FLAGS (\Flagged)`)
				m.Put("INBOX", "new")
				want := append([]string{`m002 \Flagged \Seen`}, subjects[4:]...)
				m.keys("<limit>~s m002<enter><display-message><exit><limit>all<enter>", "<delete-pattern>~s m003<enter>", "<sync-mailbox>")
				holds(m.MailClient, "INBOX", append(want, "new")...)
				lines := m.spoken.lines(headers)
				if name == "neomutt" && qresync == "yes" {
					// It asks once more for as many headers as messages have vanished.
					lines = regexp.MustCompile(`(?m)^.* FETCH 1:2 .*\n`).ReplaceAllString(lines, "")
				}
				if strings.Count(lines, headers) != 1 {
					t.Errorf("these fetch headers:\n%s", lines)
				}
				m.spoken.forget()
				m.keys("<sync-mailbox>")
				holds(m.MailClient, "INBOX", append(want, "new")...)
				if lines := m.spoken.lines(headers); lines != "" {
					t.Errorf("with nothing new, headers are fetched: %s", lines)
				}
			})
		}
	}
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Reset()
}

// lines are the commands that have a text in them.
func (r *recorder) lines(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	for line := range strings.Lines(r.text.String()) {
		if strings.Contains(line, text) {
			out.WriteString(line)
		}
	}
	return out.String()
}
