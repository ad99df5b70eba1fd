package imapd

import (
	"bufio"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
)

const (
	email    = "ann@example.test"
	password = "correct horse"
)

// A host is a server on loopback over a real store, with the mailbox ann@example.test.
type host struct {
	*servicetest.Sandbox
	server *Server
	addr   string
	user   core.MailboxUser
	stop   func() error
}

// serve starts a host; change may be nil and sees the server before it runs.
func serve(t testing.TB, change func(*Server)) *host {
	t.Helper()
	box := servicetest.New(t, nil)
	box.Domain(t, box.Owner.AccountID, "example.test", "manual", "complete")
	h := &host{Sandbox: box, server: New(box.Service)}
	h.user = h.mailbox(t, "ann")
	h.server.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	if change != nil {
		change(h.server)
	}
	h.addr, h.stop = h.run(t, false)
	return h
}

func (h *host) mailbox(t testing.TB, name string) core.MailboxUser {
	t.Helper()
	who := core.Actor{AccountID: h.Owner.AccountID, UserID: h.Owner.UserID, Role: "owner", Permissions: []string{"admin"}}
	secret := password
	if _, err := h.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Username: name, Domain: "example.test", Password: &secret}); err != nil {
		t.Fatal(err)
	}
	user, err := h.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: "imap", Username: name + "@example.test", Password: password, IP: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return user
}

// run runs the server on one more listener; stop ends it and returns the result of Run.
func (h *host) run(t testing.TB, implicit bool) (addr string, stop func() error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server := h.server
	go func() { ended <- server.Run(ctx, ln, implicit) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Second):
			return errors.New("Run does not end")
		}
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return ln.Addr().String(), stop
}

// put appends a message to a folder over IMAP, and returns its UID.
func (h *host) put(t testing.TB, folder, message string, flags inbox.Flags) uint32 {
	t.Helper()
	body := h.Core.NewSpool(AppendLimit)
	defer body.Close()
	if _, err := io.WriteString(body, strings.ReplaceAll(message, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	_, uids, err := h.Inbox.AppendMessages(context.Background(), h.user, folder, inbox.Append{Flags: flags, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	return uids[0]
}

func letter(subject string) string {
	return "From: Bob <bob@example.org>\nTo: ann@example.test\nSubject: " + subject + "\nMessage-ID: <" + subject + "@example.org>\n\nHello " + subject + "\n"
}

// A talker speaks IMAP word for word.
type talker struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
	n    int
}

func dial(t testing.TB, addr string) *talker {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return talk(t, conn)
}

func talk(t testing.TB, conn net.Conn) *talker {
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	return &talker{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// login is dial, the greeting, and a log-in as ann.
func (h *host) login(t testing.TB) *talker {
	t.Helper()
	c := dial(t, h.addr)
	c.line()
	c.ok("LOGIN %s %q", email, password)
	return c
}

func (c *talker) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatalf("send %.80q: %v", text, err)
	}
}

func (c *talker) line() string {
	c.t.Helper()
	text, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatalf("read: %v after %q", err, text)
	}
	return strings.TrimSuffix(text, "\r\n")
}

// do sends a command and returns every line of the reply, the tagged one last.
func (c *talker) do(format string, args ...any) []string {
	c.t.Helper()
	c.n++
	tag := fmt.Sprintf("a%d", c.n)
	c.send(tag + " " + fmt.Sprintf(format, args...) + "\r\n")
	return c.until(tag)
}

func (c *talker) until(tag string) []string {
	c.t.Helper()
	var lines []string
	for {
		lines = append(lines, c.line())
		if rest, ok := strings.CutPrefix(lines[len(lines)-1], tag+" "); ok {
			lines[len(lines)-1] = rest
			return lines
		}
	}
}

func (c *talker) expect(status, format string, args ...any) []string {
	c.t.Helper()
	lines := c.do(format, args...)
	if got := lines[len(lines)-1]; !strings.HasPrefix(got, status) {
		c.t.Fatalf("%s: answered %q, want %s", fmt.Sprintf(format, args...), lines, status)
	}
	return lines[:len(lines)-1]
}

func (c *talker) ok(format string, args ...any) []string {
	c.t.Helper()
	return c.expect("OK", format, args...)
}

// has fails unless one of the lines is the wanted one.
func (c *talker) has(lines []string, want string) {
	c.t.Helper()
	for _, l := range lines {
		if l == want {
			return
		}
	}
	c.t.Fatalf("no %q in\n%s", want, strings.Join(lines, "\n"))
}

// bye reads to the end of the connection and returns the BYE, which must be there.
func (c *talker) bye() string {
	c.t.Helper()
	rest, err := io.ReadAll(c.in)
	if err != nil {
		c.t.Fatal(err)
	}
	i := strings.LastIndex(string(rest), "* BYE ")
	if i < 0 {
		c.t.Fatalf("no BYE in %q", rest)
	}
	return strings.TrimSpace(string(rest[i:]))
}

// flateConn compresses what is written to it.
type flateConn struct {
	net.Conn
	zips *flate.Writer
}

func (c flateConn) Write(p []byte) (int, error) {
	n, err := c.zips.Write(p)
	if err != nil {
		return n, err
	}
	return n, c.zips.Flush()
}
