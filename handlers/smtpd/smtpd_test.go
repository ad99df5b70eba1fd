package smtpd_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
)

const password = "correct horse"

// A house is an SMTP server with mailboxes.
type house struct {
	*servicetest.Sandbox
	server *smtpd.Server
	zone   *zone
	addr   map[smtpd.Mode]string
	log    *servicetest.Log
}

// open makes a house whose listeners run until the test ends. change may be nil; it sees the server
// before Run.
func open(t testing.TB, change func(*core.Config, *smtpd.Server)) *house {
	t.Helper()
	h := &house{zone: &zone{txt: map[string]string{}}, addr: map[smtpd.Mode]string{}, log: &servicetest.Log{}}
	settings := &smtpd.Server{Limits: smtpd.DefaultLimits()}
	settings.Limits.Exempt = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} // as in the sandbox
	h.Sandbox = servicetest.New(t, func(c *core.Config) {
		c.Resolver = h.zone
		if change != nil {
			change(c, settings)
		}
	})
	h.people(t)
	h.server = smtpd.New(h.Service)
	h.server.Limits, h.server.TLS = settings.Limits, settings.TLS
	h.server.Log = slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	modes := []smtpd.Mode{smtpd.MX, smtpd.Submission}
	if settings.TLS != nil {
		modes = append(modes, smtpd.Submissions)
	}
	for _, m := range modes {
		h.addr[m], _ = h.listen(t, m)
	}
	return h
}

// listen runs the server on its own port and returns a function that stops it.
func (h *house) listen(t testing.TB, m smtpd.Mode) (addr string, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.server.Run(ctx, ln, m) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return ln.Addr().String(), stop
}

// people adds the domains and mailboxes of the tests to the store.
func (h *house) people(t testing.TB) {
	t.Helper()
	owner := core.Actor{AccountID: h.Owner.AccountID, Role: "owner", Permissions: []string{"admin"}}
	h.Domain(t, owner.AccountID, "example.test", "builtin", "complete")
	h.Domain(t, owner.AccountID, "pending.test", "builtin", "pending_ns")
	for name, change := range map[string]func(*servicetest.Domain){
		"xn--bcher-kva.test": func(d *servicetest.Domain) { d.CatchAll = "ben@example.test" },
		"catch.test":         func(d *servicetest.Domain) { d.CatchAll = "ana@example.test" },
		"forward.test":       func(d *servicetest.Domain) { d.Forward = "far@away.test" },
	} {
		h.Domain(t, owner.AccountID, name, "builtin", "complete")
		h.ChangeDomain(t, name, change)
	}
	for _, email := range []string{"ana@example.test", "ben@example.test", "full@example.test", "sue@example.test", "fwd@example.test", "müller@example.test"} {
		h.mailbox(t, owner, email)
	}
	h.ChangeMailbox(t, "full@example.test", func(m *servicetest.Mailbox) { m.QuotaBytes = new(int64) })
	h.ChangeMailbox(t, "sue@example.test", func(m *servicetest.Mailbox) { m.Status = "suspended" })
	h.ChangeMailbox(t, "fwd@example.test", func(m *servicetest.Mailbox) { m.ForwardTo = "far@away.test" })
	other := h.Account(t, "owner@other.test")
	stranger := core.Actor{AccountID: other.AccountID, Role: "owner", Permissions: []string{"admin"}}
	h.Domain(t, stranger.AccountID, "other.test", "builtin", "complete")
	h.mailbox(t, stranger, "eve@other.test")
}

// mailbox adds a mailbox with its folders to the store, as its creation does.
func (h *house) mailbox(t testing.TB, who core.Actor, email string) {
	t.Helper()
	pw := password
	if strings.HasPrefix(email, "müller") { // names like it come from elsewhere, not from the API
		h.mailbox(t, who, "mueller@example.test")
		h.ChangeMailbox(t, "mueller@example.test", func(m *servicetest.Mailbox) { m.Email = email })
		return
	}
	if _, err := h.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Email: email, Password: &pw}); err != nil {
		t.Fatal(err)
	}
}

// inbox returns the messages of a folder of a mailbox, as they are stored.
func (h *house) inbox(t testing.TB, email, folder string) []string {
	t.Helper()
	var out []string
	for _, m := range h.Folder(t, email, folder, 1) {
		out = append(out, h.Text(t, m))
	}
	return out
}

// count returns how many messages of an address's INBOX are stored.
func (h *house) count(t testing.TB, email string) int {
	t.Helper()
	return len(h.Folder(t, email, "INBOX", 1))
}

// zone is a resolver that knows TXT records alone.
type zone struct {
	mu   sync.Mutex
	txt  map[string]string
	dead bool // it never answers
}

func (z *zone) set(name, text string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.txt[name] = text
}

func (z *zone) ask(ctx context.Context, name string) (string, error) {
	z.mu.Lock()
	text, ok := z.txt[strings.TrimSuffix(name, ".")]
	dead := z.dead
	z.mu.Unlock()
	if dead {
		<-ctx.Done()
		return "", &net.DNSError{Err: "timeout", Name: name, IsTimeout: true, IsTemporary: true}
	}
	if !ok {
		return "", &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return text, nil
}

func (z *zone) LookupTXT(ctx context.Context, name string) ([]string, error) {
	text, err := z.ask(ctx, name)
	if err != nil {
		return nil, err
	}
	return []string{text}, nil
}

func (z *zone) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	_, err := z.ask(ctx, "mx:"+name)
	return nil, err
}

func (z *zone) LookupNS(ctx context.Context, name string) ([]*net.NS, error) {
	_, err := z.ask(ctx, "ns:"+name)
	return nil, err
}

func (z *zone) LookupCNAME(ctx context.Context, name string) (string, error) {
	return z.ask(ctx, "cname:"+name)
}

func (z *zone) LookupNetIP(ctx context.Context, _, name string) ([]netip.Addr, error) {
	_, err := z.ask(ctx, "ip:"+name)
	return nil, err
}

func (z *zone) LookupIPAddr(ctx context.Context, name string) ([]net.IPAddr, error) {
	_, err := z.ask(ctx, "ip:"+name)
	return nil, err
}

func (z *zone) LookupSRV(ctx context.Context, _, _, name string) (string, []*net.SRV, error) {
	_, err := z.ask(ctx, "srv:"+name)
	return "", nil, err
}

func (z *zone) LookupAddr(ctx context.Context, name string) ([]string, error) {
	_, err := z.ask(ctx, "ptr:"+name)
	return nil, err
}

func production(t testing.TB) func(*core.Config, *smtpd.Server) {
	return func(c *core.Config, s *smtpd.Server) {
		c.Sandbox = false
		s.TLS = servicetest.Certificate(t, "mail.example.test")
	}
}

// mail is a small message.
func mail(subject string) string {
	return fmt.Sprintf("From: Pat <pat@sender.test>\r\nTo: ana@example.test\r\nSubject: %s\r\nMessage-ID: <%s@sender.test>\r\n\r\nHello.\r\n",
		subject, strings.ReplaceAll(subject, " ", "."))
}

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

// want reads and returns a reply, which must begin with the given text.
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
