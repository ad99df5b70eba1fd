package rig

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"testing"
	"time"
)

// A Talk is a connection to an SMTP server on which a test writes each line itself.
type Talk struct {
	net.Conn
	Reader *bufio.Reader
}

// TalkTo connects to an SMTP server and says EHLO.
func TalkTo(t *testing.T, addr string) *Talk {
	t.Helper()
	c := Dial(t, addr)
	if code, text := c.Hear(); code != 220 {
		t.Fatalf("greeting: %d %s", code, text)
	}
	if code, text := c.Say("EHLO client.elsewhere.test"); code != 250 {
		t.Fatalf("EHLO: %d %s", code, text)
	}
	return c
}

// Dial connects to a server; the connection is closed when the test ends.
func Dial(t *testing.T, addr string) *Talk {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return NewTalk(conn)
}

// NewTalk makes a Talk of a connection.
func NewTalk(conn net.Conn) *Talk { return &Talk{conn, bufio.NewReader(conn)} }

// Say sends a line and reads the reply; the code is 0 if the connection has ended.
func (c *Talk) Say(line string) (code int, text string) {
	_, _ = io.WriteString(c, line+"\r\n") // what it comes to shows in the reply
	return c.Hear()
}

// Hear reads one reply of any number of lines; the code is 0 if the connection has ended.
func (c *Talk) Hear() (code int, text string) {
	for {
		line, err := c.Reader.ReadString('\n')
		if err != nil {
			return 0, text + err.Error()
		}
		text += line
		if len(line) > 3 && line[3] != '-' {
			code, _ = strconv.Atoi(line[:3])
			return code, text
		}
	}
}

// Envelope sends MAIL and RCPT, and fails the test if one is refused.
func (c *Talk) Envelope(t *testing.T, to ...string) {
	t.Helper()
	if code, text := c.Say("MAIL FROM:<bob@elsewhere.test>"); code != 250 {
		t.Fatalf("MAIL: %s", text)
	}
	for _, r := range to {
		if code, text := c.Say("RCPT TO:<" + r + ">"); code != 250 {
			t.Fatalf("RCPT %s: %s", r, text)
		}
	}
}
