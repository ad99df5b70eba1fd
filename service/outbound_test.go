package service

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// An installation is a real store, queue and service, with an account that may send.
type installation struct {
	t       testing.TB
	dir     string
	st      *store.Store
	q       *jobs.Queue
	svc     *Service
	account *AccountCreated
	dns     *fakeDNS
	stop    func() // of the queue

	maxWrites int                                         // of a transaction, from the next open on; 0: as ever
	room      func(string) (free, total int64, err error) // of the disk; nil: as it is
	cut       bool                                        // work was left undone: what it held is not released
}

// install opens an installation with one account in a fresh directory. Its queue does not run yet.
func install(t testing.TB, c Config) *installation {
	t.Helper()
	i := &installation{t: t, dir: t.TempDir(), dns: newFakeDNS()}
	c.Hostname = "mail.mailstead.test"
	c.Resolver, c.AllowPrivate = i.dns, true
	c.Log = slog.New(slog.DiscardHandler)
	i.open(c)
	t.Cleanup(i.close)
	i.account = i.addAccount("owner@elsewhere.test")
	return i
}

func (i *installation) open(c Config) {
	i.t.Helper()
	var err error
	if i.st, err = store.Open(i.dir, store.Options{Log: c.Log, MaxWrites: i.maxWrites, Room: i.room}); err != nil {
		i.t.Fatal(err)
	}
	keys, err := OpenKeys(i.st)
	if err != nil {
		i.t.Fatal(err)
	}
	i.q = jobs.NewQueue(i.st)
	i.q.Log = c.Log
	i.svc = New(i.st, i.q, keys, c)
	i.stop, i.cut = func() {}, false
}

// run starts the queue; it ends with the test or with stop.
func (i *installation) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- i.q.Run(ctx) }()
	i.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			i.t.Errorf("queue: %v", err)
		}
	})
}

// close checks the whole store, as every test does.
func (i *installation) close() {
	i.stop()
	i.svc.Close()
	if n := i.st.Leased(); n != 0 && !i.cut {
		i.t.Errorf("%d messages are held that nobody filed or released", n)
	}
	if err := i.st.Check(); err != nil {
		i.t.Errorf("check: %v", err)
	}
	if err := i.st.Close(); err != nil {
		i.t.Errorf("close: %v", err)
	}
}

// reopen is what a crash and a restart are to the store; c is the configuration after it.
func (i *installation) reopen() {
	i.t.Helper()
	c := i.svc.Config
	i.close()
	i.open(c)
}

func (i *installation) update(fn func(tx *store.Tx) error) {
	i.t.Helper()
	if err := i.st.Update(fn); err != nil {
		i.t.Fatal(err)
	}
}

func (i *installation) addAccount(email string) *AccountCreated {
	i.t.Helper()
	a, err := i.svc.CreateAccount(context.Background(), NewAccount{OwnerEmail: email, Plan: "startup"})
	if err != nil {
		i.t.Fatal(err)
	}
	return a
}

// dkimKeys are made once, since an RSA key takes its time.
var dkimKeys = sync.OnceValues(func() (rsa, ed []byte) {
	rsa, _, err := auth.GenerateRSA()
	ed, _, err2 := auth.GenerateEd25519()
	if err = errors.Join(err, err2); err != nil {
		panic(err)
	}
	return rsa, ed
})

// addDomain makes a complete domain of the account, with keys that the fake DNS publishes.
func (i *installation) addDomain(a *AccountCreated, name string, change func(*store.Domain)) *store.Domain {
	i.t.Helper()
	d := &store.Domain{ID: i.st.NewID("dom"), AccountID: a.AccountID, Name: name, Status: "complete", DNSProvider: "builtin", CreatedAt: i.st.Now()}
	rsa, ed := dkimKeys()
	for selector, text := range map[string][]byte{"r1": rsa, "e1": ed} {
		key, err := auth.ParseKey(text)
		if err != nil {
			i.t.Fatal(err)
		}
		record := auth.KeyRecord(key)
		i.dns.txt[selector+"._domainkey."+name] = record
		d.DKIM = append(d.DKIM, store.DKIMKey{Selector: selector, Sealed: i.svc.keys.Seal("dkim "+d.ID, text), Record: record})
	}
	if change != nil {
		change(d)
	}
	i.update(func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	return d
}

func (i *installation) addMailbox(d *store.Domain, local string, change func(*store.Mailbox)) *store.Mailbox {
	i.t.Helper()
	mb := &store.Mailbox{ID: i.st.NewID("eu"), AccountID: d.AccountID, DomainID: d.ID, Email: local + "@" + d.Name, Status: "active", Type: "hosted", CreatedAt: i.st.Now()}
	if change != nil {
		change(mb)
	}
	i.update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, d.AccountID)
		if err != nil {
			return err
		}
		if mb.Num, err = tx.NextMailboxNum(); err != nil {
			return err
		}
		mb.AccountNum = a.Num
		if err := tx.CreateFolder(&store.Folder{Mailbox: mb.Num, Name: "INBOX"}); err != nil {
			return err
		}
		return store.Mailboxes.Put(tx, mb)
	})
	return mb
}

func actor(a *AccountCreated) Actor {
	return Actor{AccountID: a.AccountID, UserID: a.UserID, Role: "owner", Permissions: []string{"admin"}}
}

func (i *installation) send(mb *store.Mailbox, in SendEmailIn) (*EmailQueued, error) {
	in.UserID = mb.ID
	return i.svc.SendEmail(context.Background(), Actor{AccountID: mb.AccountID}, in)
}

func (i *installation) mustSend(mb *store.Mailbox, in SendEmailIn) *EmailQueued {
	i.t.Helper()
	out, err := i.send(mb, in)
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

func (i *installation) spool(text string) *store.Spool {
	i.t.Helper()
	sp := i.st.NewSpool(64 << 20)
	if _, err := io.WriteString(sp, text); err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { sp.Close() })
	return sp
}

func (i *installation) submit(mb *store.Mailbox, text string, to ...string) (*Submitted, error) {
	in := Submission{From: mb.Email, Body: i.spool(text)}
	for _, r := range to {
		in.To = append(in.To, Rcpt{Address: r})
	}
	return i.svc.Submit(context.Background(), MailboxUser{AccountID: mb.AccountID, MailboxID: mb.ID, Email: mb.Email}, in)
}

func (i *installation) mustSubmit(mb *store.Mailbox, text string, to ...string) *Submitted {
	i.t.Helper()
	out, err := i.submit(mb, text, to...)
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

// row is the sending log's only row for a recipient.
func (i *installation) row(recipient string) *store.Outgoing {
	i.t.Helper()
	var found *store.Outgoing
	err := i.st.View(func(tx *store.Tx) error {
		for o := range store.Outgoings.All(tx) {
			if o.Recipient != recipient {
				continue
			}
			if found != nil {
				return fmt.Errorf("%s has more than one row", recipient)
			}
			found = o
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	if found == nil {
		return &store.Outgoing{}
	}
	return found
}

// becomes waits until the row of a recipient has the status.
func (i *installation) becomes(recipient, status string) *store.Outgoing {
	i.t.Helper()
	end := time.Now().Add(20 * time.Second)
	for {
		o := i.row(recipient)
		if o.Status == status {
			return o
		}
		if time.Now().After(end) {
			i.t.Fatalf("%s is %q (%s), want %q", recipient, o.Status, o.LastResponse, status)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A filed message is one in a mailbox, with its bytes.
type filed struct {
	store.Message
	meta *store.Meta
	raw  []byte
}

// folder reads a whole folder, oldest first.
func (i *installation) folder(mb *store.Mailbox, name string) []filed {
	i.t.Helper()
	var out []filed
	err := i.st.View(func(tx *store.Tx) error {
		f, err := tx.FolderByName(mb.Num, name)
		if err != nil {
			return err
		}
		for m := range tx.Messages(mb.Num, f.ID, 1, 1<<32-1) {
			meta, err := tx.Meta(mb.Num, f.ID, m.UID)
			if err != nil {
				return err
			}
			out = append(out, filed{Message: m, meta: meta})
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	for n := range out {
		blob, err := i.st.OpenBlob(out[n].Blob)
		if err != nil {
			i.t.Fatal(err)
		}
		if out[n].raw, err = io.ReadAll(whole(blob)); err != nil {
			i.t.Fatal(err)
		}
		blob.Close()
	}
	return out
}

// events are the data of all events of a type, oldest first.
func (i *installation) events(kind string) []map[string]any {
	i.t.Helper()
	var out []map[string]any
	err := i.st.View(func(tx *store.Tx) error {
		for e := range store.Events.All(tx) {
			if e.Type != kind {
				continue
			}
			data := map[string]any{}
			if err := json.Unmarshal(e.Data, &data); err != nil {
				return err
			}
			out = append(out, data)
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

// left counts what an installation with nothing to send must not have: submissions, and delivery
// jobs.
func (i *installation) left() (submissions, deliveries int) {
	i.t.Helper()
	err := i.st.View(func(tx *store.Tx) error {
		for range store.Submissions.All(tx) {
			submissions++
		}
		for j := range store.Jobs.All(tx) {
			if j.Kind == kindDeliver || j.Kind == kindDirect || j.Kind == kindRelay {
				deliveries++
			}
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return submissions, deliveries
}

// verify judges a message by its DKIM signatures, with the keys of the fake DNS.
func (i *installation) verify(message []byte) *auth.Verdict {
	i.t.Helper()
	v := auth.Verifier{Resolver: i.dns}
	verdict, err := v.Verify(context.Background(), auth.Request{
		IP: netip.MustParseAddr("127.0.0.1"), Helo: "x.test", AuthservID: "mx.test", Message: bytes.NewReader(message), Size: int64(len(message)),
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return verdict
}

// report reads a delivery report.
func (i *installation) report(raw []byte) *msg.Report {
	i.t.Helper()
	root, err := msg.Scan(bytes.NewReader(raw))
	if err != nil {
		i.t.Fatal(err)
	}
	r, ok := msg.ParseReport(bytes.NewReader(raw), root)
	if !ok {
		i.t.Fatalf("not a report:\n%s", raw)
	}
	return r
}

// fakeDNS knows what a test tells it; every host has the address 127.0.0.1.
type fakeDNS struct {
	txt map[string]string
	mx  map[string]string // host by domain
	ip  map[string]string // address by host; 127.0.0.1 for those of mx that are not in it
}

func newFakeDNS() *fakeDNS { return &fakeDNS{txt: map[string]string{}, mx: map[string]string{}} }

func noSuchName(name string) error {
	return &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (f *fakeDNS) LookupTXT(_ context.Context, name string) ([]string, error) {
	if v, ok := f.txt[strings.TrimSuffix(name, ".")]; ok {
		return []string{v}, nil
	}
	return nil, noSuchName(name)
}

func (f *fakeDNS) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	if host, ok := f.mx[strings.TrimSuffix(name, ".")]; ok {
		return []*net.MX{{Host: host + ".", Pref: 10}}, nil
	}
	return nil, noSuchName(name)
}

func (f *fakeDNS) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if ip := f.ip[strings.TrimSuffix(host, ".")]; ip != "" {
		return []netip.Addr{netip.MustParseAddr(ip)}, nil
	}
	for _, h := range f.mx {
		if h+"." == host {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	}
	return nil, noSuchName(host)
}

func (f *fakeDNS) LookupNS(_ context.Context, name string) ([]*net.NS, error) {
	return nil, noSuchName(name)
}
func (f *fakeDNS) LookupCNAME(_ context.Context, name string) (string, error) {
	return "", noSuchName(name)
}
func (f *fakeDNS) LookupIPAddr(_ context.Context, name string) ([]net.IPAddr, error) {
	return nil, noSuchName(name)
}
func (f *fakeDNS) LookupSRV(_ context.Context, _, _, name string) (string, []*net.SRV, error) {
	return "", nil, noSuchName(name)
}
func (f *fakeDNS) LookupAddr(_ context.Context, addr string) ([]string, error) {
	return nil, noSuchName(addr)
}

// A host is a strict SMTP server: one recipient in a transaction, CRLF at the end of every line. It
// misbehaves as told.
type host struct {
	t    testing.TB
	port int
	// answer is what the final dot of the n-th message (from 1) gets; a nil answer is "250 Ok
	// id-n".
	answer func(n int, m taken) string
	rcpt   func(address string) string // what RCPT gets; nil is 250
	// during may take over the connection once DATA has begun; it returns false to end it.
	during func(c net.Conn) bool
	noDSN  bool // it does not offer DSN
	no8Bit bool // nor 8BITMIME and SMTPUTF8

	mu    sync.Mutex
	took  []taken
	login string // what came with AUTH
	n     int
}

type taken struct{ from, to, data string }

func (h *host) start(t testing.TB) *host {
	t.Helper()
	h.t = t
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.port = ln.Addr().(*net.TCPAddr).Port
	var wg sync.WaitGroup
	var conns sync.Map
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Store(c, true)
			wg.Go(func() { h.serve(c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return h
}

// relay is the configuration of a relay at the host.
func (h *host) relay(kind string) Relay {
	return Relay{Name: "r1", Kind: kind, Host: "127.0.0.1", Port: h.port, TLS: "none", Region: "us-east-1"}
}

func (h *host) mails() []taken {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.took)
}

func (h *host) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	say := func(text string) { fmt.Fprintf(c, "%s\r\n", text) }
	say("220 fake ESMTP")
	var m taken
	for {
		line, err := r.ReadString('\n')
		if err != nil || !strings.HasSuffix(line, "\r\n") {
			return
		}
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		path, _, _ := strings.Cut(rest[strings.IndexByte(rest, '<')+1:], ">")
		switch verb {
		case "AUTH":
			say("334 ")
			if line, err = r.ReadString('\n'); err != nil {
				return
			}
			h.mu.Lock()
			h.login = strings.TrimSpace(line)
			h.mu.Unlock()
			say("235 welcome")
		case "EHLO":
			dsn := "250-DSN\r\n"
			if h.noDSN {
				dsn = ""
			}
			if h.no8Bit {
				say("250-fake\r\n250-AUTH PLAIN\r\n" + dsn + "250 PIPELINING")
				break
			}
			say("250-fake\r\n250-AUTH PLAIN\r\n250-8BITMIME\r\n" + dsn + "250-PIPELINING\r\n250 SMTPUTF8")
		case "MAIL":
			m = taken{from: path}
			say("250 ok")
		case "RCPT":
			say(h.recipient(&m, path))
		case "DATA":
			if m.to == "" {
				say("503 no recipient")
				continue
			}
			say("354 go on")
			if h.during != nil && !h.during(c) {
				return
			}
			if m.data, err = readDotted(r); err != nil {
				return
			}
			say(h.take(m))
		case "RSET":
			m = taken{}
			say("250 ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("502 no such command")
		}
	}
}

func (h *host) recipient(m *taken, path string) string {
	if m.to != "" {
		h.t.Errorf("a second recipient, %s, in the transaction for %s", path, m.to)
		return "452 one at a time"
	}
	if h.rcpt != nil {
		if answer := h.rcpt(path); answer[0] != '2' {
			return answer
		}
	}
	m.to = path
	return "250 ok"
}

func (h *host) take(m taken) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
	answer := fmt.Sprintf("250 Ok id-%d", h.n)
	if h.answer != nil {
		answer = h.answer(h.n, m)
	}
	if answer[0] == '2' {
		h.took = append(h.took, m)
	}
	return answer
}

func readDotted(r *bufio.Reader) (string, error) {
	var out strings.Builder
	for {
		line, err := r.ReadString('\n')
		switch {
		case err != nil:
			return "", err
		case !strings.HasSuffix(line, "\r\n") || strings.Count(line, "\r") != 1:
			return "", fmt.Errorf("a line without CRLF: %q", line)
		case line == ".\r\n":
			return out.String(), nil
		}
		out.WriteString(strings.TrimPrefix(line, "."))
	}
}
