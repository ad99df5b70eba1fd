package rig

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
)

// A MailClient is an IMAP client of others, and the operations that a test has seen it perform.
type MailClient struct {
	*Instance
	Name string
	Box  string // id of ann@example.test
	Host string
	Port string
	Done []string
}

// The mailbox that most IMAP tests use.
const (
	AnnsAddress  = "ann@example.test"
	AnnsPassword = "correct horse"
)

// NoteDone records operations that the test has seen to work.
func (c *MailClient) NoteDone(operations ...string) { c.Done = append(c.Done, operations...) }

// LogIn logs in to the mailbox with go-imap's client, as another client than the one under test.
func (c *MailClient) LogIn() *imapclient.Client {
	c.T.Helper()
	far, err := imapclient.DialInsecure(c.Ready.IMAP, nil)
	if err != nil {
		c.T.Fatal(err)
	}
	if err := far.Login(AnnsAddress, AnnsPassword).Wait(); err != nil {
		c.T.Fatal(err)
	}
	return far
}

// IMAPLetter returns a message with a subject, a Message-ID and a date.
func IMAPLetter(subject string) string {
	return "From: Bob <bob@elsewhere.test>\r\nTo: ann@example.test\r\nSubject: " + subject +
		"\r\nMessage-ID: <" + subject + "@elsewhere.test>\r\nDate: Mon, 5 Jan 2026 10:00:00 +0000\r\n\r\nHello " + subject + "\r\n"
}

// Put appends messages with these subjects to a folder, which is created if it is missing.
func (c *MailClient) Put(folder string, subjects ...string) {
	c.T.Helper()
	far := c.LogIn()
	defer far.Close()
	_ = far.Create(folder, nil).Wait() // it may be there
	for _, s := range subjects {
		text := IMAPLetter(s)
		a := far.Append(folder, int64(len(text)), nil)
		_, _ = a.Write([]byte(text))
		_ = a.Close()
		if _, err := a.Wait(); err != nil {
			c.T.Fatal(err)
		}
	}
}

// Play plays a transcript: lines with "C: " are sent, lines with "S: " are patterns to wait for.
// "# did: a, b" records operations, "# new: subject" appends a message to INBOX.
func (c *MailClient) Play(script string) {
	c.T.Helper()
	conn, err := net.Dial("tcp", c.Ready.IMAP)
	if err != nil {
		c.T.Fatal(err)
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
				c.T.Fatal(err)
			}
			pending = ""
			c.await(in, n+1, rest)
		case "# did":
			c.NoteDone(strings.Split(rest, ", ")...)
		case "# new":
			c.Put("INBOX", rest)
		}
	}
}

// await reads up to a line that matches the pattern. A tagged NO or BAD before it fails the test; n
// is the line of the transcript.
func (c *MailClient) await(in *bufio.Reader, n int, pattern string) {
	c.T.Helper()
	want := regexp.MustCompile("^" + pattern + "$")
	var seen []string
	for {
		line, err := in.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		if err != nil {
			c.T.Fatalf("line %d, waiting for %s: %v after %q", n, pattern, err, seen)
		}
		if want.MatchString(line) {
			return
		}
		seen = append(seen, line)
		if _, rest, _ := strings.Cut(line, " "); !strings.HasPrefix(line, "*") && (strings.HasPrefix(rest, "NO ") || strings.HasPrefix(rest, "BAD ")) {
			c.T.Fatalf("line %d, waiting for %s: %q", n, pattern, seen)
		}
	}
}

// Change runs commands in a folder over a connection of its own, as another client would.
func (c *MailClient) Change(folder string, commands ...string) {
	c.T.Helper()
	script := "S: .*\nC: l LOGIN " + AnnsAddress + " \"" + AnnsPassword + "\"\nS: l OK .*\nC: s SELECT " + folder + "\nS: s OK .*\n"
	for n, command := range commands {
		script += fmt.Sprintf("C: %d %s\nS: %d OK .*\n", n, command, n)
	}
	c.Play(script)
}

// ReadMail logs in to a mailbox over IMAP.
func (i *Instance) ReadMail(email, password string) *imapclient.Client {
	i.T.Helper()
	c, err := imapclient.DialInsecure(i.Ready.IMAP, nil)
	if err != nil {
		i.T.Fatal(err)
	}
	i.T.Cleanup(func() { c.Close() })
	if err := c.Login(email, password).Wait(); err != nil {
		i.T.Fatal(err)
	}
	return c
}
