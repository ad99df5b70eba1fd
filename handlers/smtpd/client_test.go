package smtpd_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A client speaks SMTP by hand. It is strict: a reply that is not well formed ends the test.
type client struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

// dial connects and takes the greeting.
func dial(t testing.TB, addr string) *client {
	t.Helper()
	c := connect(t, addr)
	c.want("220 mail.example.test ESMTP")
	return c
}

func connect(t testing.TB, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return newClient(t, conn)
}

func newClient(t testing.TB, conn net.Conn) *client {
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return &client{t: t, conn: conn, r: bufio.NewReader(conn)}
}

// send writes bytes as they are. A server that has hung up is seen by what it says, or by its
// silence.
func (c *client) send(text string) {
	_, _ = io.WriteString(c.conn, text)
}

// reply reads a whole reply.
func (c *client) reply() (string, error) {
	var out strings.Builder
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return out.String() + line, err
		}
		if len(line) < 6 || !strings.HasSuffix(line, "\r\n") || line[3] != ' ' && line[3] != '-' {
			return "", fmt.Errorf("reply is not well formed: %q", line)
		}
		out.WriteString(line)
		if line[3] == ' ' {
			return out.String(), nil
		}
	}
}

// want reads a reply, which must begin like this, and gives it.
func (c *client) want(prefix string) string {
	c.t.Helper()
	got, err := c.reply()
	if err != nil || !strings.HasPrefix(got, prefix) {
		c.t.Fatalf("reply %q, %v; want %q", got, err, prefix)
	}
	return got
}

// ask sends a command and wants a reply.
func (c *client) ask(command, prefix string) string {
	c.t.Helper()
	c.send(command + "\r\n")
	return c.want(prefix)
}

// ended wants the connection to be closed without another word.
func (c *client) ended() {
	c.t.Helper()
	if b, err := c.r.ReadByte(); err == nil {
		rest, _ := c.r.ReadString('\n')
		c.t.Fatalf("the connection lives: %q", string(b)+rest)
	} else if e, ok := err.(net.Error); ok && e.Timeout() {
		c.t.Fatal("the connection hangs")
	}
}

// rcpt names sender and recipient.
func (c *client) rcpt(to ...string) {
	c.t.Helper()
	c.ask("MAIL FROM:<pat@sender.test>", "250 2.0.0")
	for _, one := range to {
		c.ask("RCPT TO:<"+one+">", "250 2.0.0")
	}
}

// data sends a message after all else is said.
func (c *client) data(message, prefix string) {
	c.t.Helper()
	c.ask("DATA", "354")
	c.send(message + ".\r\n")
	c.want(prefix)
}

func (c *client) startTLS() {
	c.t.Helper()
	c.ask("STARTTLS", "220 2.0.0")
	c.shake()
}

func (c *client) shake() {
	c.t.Helper()
	conn := tls.Client(c.conn, &tls.Config{InsecureSkipVerify: true})
	if err := conn.Handshake(); err != nil {
		c.t.Fatal(err)
	}
	c.conn, c.r = conn, bufio.NewReader(conn)
}
