package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// A mailClient is somebody else's IMAP client at work, and what it has been seen to do.
type mailClient struct {
	*instance
	name string
	box  string // id of ann@example.test
	host string
	port string
	done []string
}

const (
	annsAddress  = "ann@example.test"
	annsPassword = "correct horse"
)

// newMailClient starts a server with the mailbox ann@example.test, and holds at the test's end what
// the client has done against its row in docs/imap.md.
func newMailClient(t *testing.T, name string) *mailClient {
	t.Helper()
	c := &mailClient{instance: newInstance(t, generousLimits), name: name}
	c.addDomain("example.test")
	c.box = c.addMailbox(annsAddress, annsPassword)
	c.host, c.port, _ = net.SplitHostPort(c.ready.IMAP)
	t.Cleanup(func() {
		if !t.Failed() && !t.Skipped() {
			c.compareRow(t)
		}
	})
	return c
}

// did notes operations that the test has seen to have worked.
func (c *mailClient) did(operations ...string) { c.done = append(c.done, operations...) }

// compareRow demands that the table in docs/imap.md says of the client what it has done, no more
// and no less.
func (c *mailClient) compareRow(t *testing.T) {
	text, err := os.ReadFile("../docs/imap.md")
	if err != nil {
		t.Fatal(err)
	}
	var header []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == "client" {
			header = cells
		}
		if cells[0] != c.name || header == nil {
			continue
		}
		for i, operation := range header[1:] {
			if said, is := cells[i+1] == "✓", slices.Contains(c.done, operation); said != is {
				t.Errorf("docs/imap.md says of %s and %s %v, the test %v", c.name, operation, said, is)
			}
		}
		for _, operation := range c.done {
			if !slices.Contains(header, operation) {
				t.Errorf("docs/imap.md has no column %s", operation)
			}
		}
		return
	}
	t.Errorf("docs/imap.md has no row for %s", c.name)
}

// far logs in with go-imap's client.
func (c *mailClient) far() *imapclient.Client {
	c.t.Helper()
	far, err := imapclient.DialInsecure(c.ready.IMAP, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := far.Login(annsAddress, annsPassword).Wait(); err != nil {
		c.t.Fatal(err)
	}
	return far
}

func imapLetter(subject string) string {
	return "From: Bob <bob@elsewhere.test>\r\nTo: ann@example.test\r\nSubject: " + subject +
		"\r\nMessage-ID: <" + subject + "@elsewhere.test>\r\nDate: Mon, 5 Jan 2026 10:00:00 +0000\r\n\r\nHello " + subject + "\r\n"
}

// put appends letters with these subjects to a folder, which is made if it is missing.
func (c *mailClient) put(folder string, subjects ...string) {
	c.t.Helper()
	far := c.far()
	defer far.Close()
	_ = far.Create(folder, nil).Wait() // it may be there
	for _, s := range subjects {
		text := imapLetter(s)
		a := far.Append(folder, int64(len(text)), nil)
		_, _ = a.Write([]byte(text))
		_ = a.Close()
		if _, err := a.Wait(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// mail gives what each folder that is not empty holds: subjects, each with its flags.
func (c *mailClient) mail() map[string][]string {
	c.t.Helper()
	far := c.far()
	defer far.Close()
	lists, err := far.List("", "*", nil).Collect()
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string][]string{}
	for _, l := range lists {
		if _, err := far.Select(l.Mailbox, &imap.SelectOptions{ReadOnly: true}).Wait(); err != nil {
			c.t.Fatal(err)
		}
		messages, err := far.Fetch(imap.SeqSet{{Start: 1}}, &imap.FetchOptions{Envelope: true, Flags: true}).Collect()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, m := range messages {
			text := m.Envelope.Subject
			slices.Sort(m.Flags)
			for _, f := range m.Flags {
				text += " " + string(f)
			}
			out[l.Mailbox] = append(out[l.Mailbox], text)
		}
		slices.Sort(out[l.Mailbox])
	}
	return out
}

// holds demands what a folder has.
func (c *mailClient) holds(folder string, want ...string) {
	c.t.Helper()
	slices.Sort(want)
	if got := c.mail()[folder]; !slices.Equal(got, want) {
		c.t.Fatalf("%s has %q, want %q", folder, got, want)
	}
}

// TestIMAPTranscripts plays sessions in the manner of clients that no test can run. A line "C: " is
// sent, several in one go if no "S: " comes between; a line "S: " is a pattern that a line of the
// answer must fit, others before it are passed over.
func TestIMAPTranscripts(t *testing.T) {
	for file, name := range map[string]string{"thunderbird.txt": "Thunderbird (transcript)", "applemail.txt": "Apple Mail (transcript)"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			c := newMailClient(t, name)
			c.put("INBOX", "one", "two", "three")
			text, err := os.ReadFile(filepath.Join("testdata/imap", file))
			if err != nil {
				t.Fatal(err)
			}
			c.play(string(text))
		})
	}
}

// play plays a transcript. "# did: a, b" notes operations; "# new: subject" puts a message into
// INBOX from elsewhere.
func (c *mailClient) play(script string) {
	c.t.Helper()
	conn, err := net.Dial("tcp", c.ready.IMAP)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	in := bufio.NewReader(conn)
	pending := ""
	for n, line := range strings.Split(script, "\n") {
		kind, rest, _ := strings.Cut(line, ": ")
		switch kind {
		case "C":
			pending += rest + "\r\n"
		case "S":
			if _, err := conn.Write([]byte(pending)); err != nil {
				c.t.Fatal(err)
			}
			pending = ""
			c.await(in, n+1, rest)
		case "# did":
			c.did(strings.Split(rest, ", ")...)
		case "# new":
			c.put("INBOX", rest)
		}
	}
}

// await reads up to a line that fits the pattern; a tagged NO or BAD that is not asked for ends the
// test.
func (c *mailClient) await(in *bufio.Reader, n int, pattern string) {
	c.t.Helper()
	want := regexp.MustCompile("^" + pattern + "$")
	var seen []string
	for {
		line, err := in.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		if err != nil {
			c.t.Fatalf("line %d, waiting for %s: %v after %q", n, pattern, err, seen)
		}
		if want.MatchString(line) {
			return
		}
		seen = append(seen, line)
		if _, rest, _ := strings.Cut(line, " "); !strings.HasPrefix(line, "*") && (strings.HasPrefix(rest, "NO ") || strings.HasPrefix(rest, "BAD ")) {
			c.t.Fatalf("line %d, waiting for %s: %q", n, pattern, seen)
		}
	}
}

// TestIMAPTableIsWhole demands a test for every row of the table, whose names are told here.
func TestIMAPTableIsWhole(t *testing.T) {
	text, err := os.ReadFile("../docs/imap.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mbsync", "offlineimap", "mutt", "neomutt", "curl", "imaplib", "imapflow", "Thunderbird (transcript)", "Apple Mail (transcript)"} {
		if !strings.Contains(string(text), fmt.Sprintf("\n| %s |", name)) {
			t.Errorf("docs/imap.md has no row for %s", name)
		}
	}
}
