package smtpd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

const password = "correct horse"

// A house is a server with mailboxes behind it.
type house struct {
	*servicetest.Sandbox
	server *smtpd.Server
	zone   *zone
	addr   map[smtpd.Mode]string
	log    *logBook
}

// open makes a house whose listeners run until the test ends. change may be nil; it sees the server before Run.
func open(t testing.TB, change func(*service.Config, *smtpd.Server)) *house {
	t.Helper()
	h := &house{zone: &zone{txt: map[string]string{}}, addr: map[smtpd.Mode]string{}, log: &logBook{}}
	settings := &smtpd.Server{Limits: smtpd.DefaultLimits()}
	h.Sandbox = servicetest.New(t, func(c *service.Config) {
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

// listen runs the server on a port of its own and gives what stops it.
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

// people puts the domains and mailboxes of the tests into the store.
func (h *house) people(t testing.TB) {
	t.Helper()
	owner := service.Actor{AccountID: h.Owner.AccountID, Role: "owner", Permissions: []string{"admin"}}
	h.Domain(t, owner.AccountID, "example.test", "builtin", "complete")
	h.Domain(t, owner.AccountID, "pending.test", "builtin", "pending_ns")
	h.Domain(t, owner.AccountID, "bücher.test", "builtin", "complete")
	for name, change := range map[string]func(*store.Domain){
		"catch.test":   func(d *store.Domain) { d.CatchAll = "ana@example.test" },
		"forward.test": func(d *store.Domain) { d.Forward = "far@away.test" },
	} {
		d := h.Domain(t, owner.AccountID, name, "builtin", "complete")
		change(d)
		h.put(t, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	}
	for _, email := range []string{"ana@example.test", "ben@example.test", "full@example.test", "sue@example.test", "fwd@example.test", "müller@example.test"} {
		h.mailbox(t, owner, email)
	}
	h.change(t, "full@example.test", func(m *store.Mailbox) { m.QuotaBytes = new(int64) })
	h.change(t, "sue@example.test", func(m *store.Mailbox) { m.Status = "suspended" })
	h.change(t, "fwd@example.test", func(m *store.Mailbox) { m.ForwardTo = "far@away.test" })
	other := h.Account(t, "owner@other.test")
	stranger := service.Actor{AccountID: other.AccountID, Role: "owner", Permissions: []string{"admin"}}
	h.Domain(t, stranger.AccountID, "other.test", "builtin", "complete")
	h.mailbox(t, stranger, "eve@other.test")
}

// mailbox puts a mailbox into the store with its folders, as its creation does.
func (h *house) mailbox(t testing.TB, who service.Actor, email string) {
	t.Helper()
	pw := password
	if strings.HasPrefix(email, "müller") { // names like it come from elsewhere, not from the API
		h.mailbox(t, who, "mueller@example.test")
		h.change(t, "mueller@example.test", func(m *store.Mailbox) { m.Email = email })
		return
	}
	if _, err := h.CreateEmailUser(t.Context(), who, service.CreateEmailUserIn{Email: email, Password: &pw}); err != nil {
		t.Fatal(err)
	}
}

func (h *house) put(t testing.TB, fn func(*store.Tx) error) {
	t.Helper()
	if err := h.Store.Update(fn); err != nil {
		t.Fatal(err)
	}
}

func (h *house) change(t testing.TB, email string, fn func(*store.Mailbox)) {
	t.Helper()
	h.put(t, func(tx *store.Tx) error {
		mb, err := store.MailboxByEmail.Get(tx, email)
		if err != nil {
			return err
		}
		fn(mb)
		return store.Mailboxes.Put(tx, mb)
	})
}

// inbox gives the messages of a folder of a mailbox, as they are stored.
func (h *house) inbox(t testing.TB, email, folder string) []string {
	t.Helper()
	var refs []store.BlobRef
	err := h.Store.View(func(tx *store.Tx) error {
		mb, err := store.MailboxByEmail.Get(tx, email)
		if err != nil {
			return err
		}
		f, err := tx.FolderByName(mb.Num, folder)
		if err != nil {
			return err
		}
		for m := range tx.Messages(mb.Num, f.ID, 1, 1<<32-1) {
			refs = append(refs, m.Blob)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, ref := range refs {
		blob, err := h.Store.OpenBlob(ref)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(io.NewSectionReader(blob, 0, blob.Size()))
		if err != nil {
			t.Fatal(err)
		}
		blob.Close()
		out = append(out, string(text))
	}
	return out
}

// count gives how many messages of an address's INBOX are stored.
func (h *house) count(t testing.TB, email string) int { return len(h.inbox(t, email, "INBOX")) }

// events gives how often something was told.
func (h *house) events(t testing.TB, kind string) int {
	t.Helper()
	n := 0
	err := h.Store.View(func(tx *store.Tx) error {
		for e := range store.Events.All(tx) {
			if e.Type == kind {
				n++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
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

func (z *zone) LookupAddr(ctx context.Context, name string) ([]string, error) {
	_, err := z.ask(ctx, "ptr:"+name)
	return nil, err
}

// logBook keeps what was logged.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// certificate makes a TLS configuration for our name.
func certificate(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"mail.example.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func production(t testing.TB) func(*service.Config, *smtpd.Server) {
	return func(c *service.Config, s *smtpd.Server) {
		c.Sandbox = false
		s.TLS = certificate(t)
	}
}

// mail is a small message.
func mail(subject string) string {
	return fmt.Sprintf("From: Pat <pat@sender.test>\r\nTo: ana@example.test\r\nSubject: %s\r\nMessage-ID: <%s@sender.test>\r\n\r\nHello.\r\n",
		subject, strings.ReplaceAll(subject, " ", "."))
}
