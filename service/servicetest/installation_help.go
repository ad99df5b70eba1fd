package servicetest

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
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// An Installation is a real store, queue and service, with an account that may send.
type Installation struct {
	AckFirst bool // mail is acknowledged before its rows are written; set before Open
	T        testing.TB
	dir      string
	St       *store.Store
	Q        *jobs.Queue
	Svc      *service.Service
	Account  *accounts.AccountCreated
	DNS      *FakeDNS
	Stop     func() // stops the queue

	Options   store.Options                               // further options of its store
	MaxWrites int                                         // maximum number of writes per transaction, from the next Open on; 0: the default
	Room      func(string) (free, total int64, err error) // returns the space on the disk; nil: the real space
	Cut       bool                                        // the test interrupts work, so Close does not check that all leases are released
}

// Install opens an installation with one account in a new directory. Its queue does not run yet.
func Install(t testing.TB, c core.Config) *Installation {
	t.Helper()
	return InstallWith(t, c, store.Options{})
}

// InstallWith is Install with options of the store.
func InstallWith(t testing.TB, c core.Config, o store.Options) *Installation {
	t.Helper()
	i := &Installation{T: t, dir: t.TempDir(), DNS: NewFakeDNS(), Options: o}
	c.Hostname = "mail.mailstead.test"
	c.Resolver, c.AllowPrivate = i.DNS, true
	c.Log = slog.New(slog.DiscardHandler)
	i.Open(c)
	t.Cleanup(i.Close)
	i.Account = i.AddAccount("owner@elsewhere.test")
	return i
}

func (i *Installation) Open(c core.Config) {
	i.T.Helper()
	var err error
	o := i.Options
	o.Log, o.MaxWrites, o.Room = c.Log, i.MaxWrites, i.Room
	i.St, err = store.Open(i.dir, o)
	if err != nil {
		i.T.Fatal(err)
	}
	keys, err := core.OpenKeys(i.St)
	if err != nil {
		i.T.Fatal(err)
	}
	i.Q = jobs.NewQueue(i.St)
	i.Q.Log = c.Log
	c.WaitForRows = !i.AckFirst
	i.Svc = service.New(i.St, i.Q, keys, c)
	CheapSecrets(i.Svc.Core)
	i.Stop, i.Cut = func() {}, false
}

// Run starts the queue. The queue stops when the test ends or Stop is called.
func (i *Installation) Run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- i.Q.Run(ctx) }()
	i.Stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			i.T.Errorf("queue: %v", err)
		}
	})
}

// Close stops the installation, and checks the whole store before it closes it.
func (i *Installation) Close() {
	i.Stop()
	i.Svc.Close()
	if n := i.St.LeaseCount(); n != 0 && !i.Cut {
		i.T.Errorf("%d messages are held that nobody filed or released", n)
	}
	if err := i.St.Check(); err != nil {
		i.T.Errorf("check: %v", err)
	}
	if err := i.St.Close(); err != nil {
		i.T.Errorf("close: %v", err)
	}
}

// Reopen closes the store and opens it again with the same configuration.
func (i *Installation) Reopen() {
	i.T.Helper()
	c := ConfigOf(i.Svc.Core)
	i.Close()
	i.Open(c)
}

// Stall keeps the store from committing anything until release is called.
func (i *Installation) Stall() (release func()) {
	i.T.Helper()
	stalled, end, done := make(chan struct{}, 2), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- i.St.Update(func(*store.Tx) error {
			stalled <- struct{}{}
			<-end
			return nil
		})
	}()
	<-stalled
	return sync.OnceFunc(func() {
		close(end)
		if err := <-done; err != nil {
			i.T.Error(err)
		}
	})
}

// Crash opens the installation again with a copy of the store as it is on disk now, while commits
// are stalled. release is the function that Stall returned.
func (i *Installation) Crash(release func()) {
	i.T.Helper()
	dir := i.T.TempDir()
	if err := os.CopyFS(dir, os.DirFS(i.dir)); err != nil {
		i.T.Fatal(err)
	}
	release()
	c := ConfigOf(i.Svc.Core)
	i.Close()
	i.dir = dir
	i.Open(c)
}

func (i *Installation) Update(fn func(tx *store.Tx) error) {
	i.T.Helper()
	if err := i.St.Update(fn); err != nil {
		i.T.Fatal(err)
	}
}

func (i *Installation) AddAccount(email string) *accounts.AccountCreated {
	i.T.Helper()
	a, err := i.Svc.Accounts.CreateAccount(context.Background(), accounts.NewAccount{OwnerEmail: email, Plan: "startup"})
	if err != nil {
		i.T.Fatal(err)
	}
	return a
}

// DKIMKeys returns an RSA and an Ed25519 key. They are generated only once, since an RSA key takes
// long.
var DKIMKeys = sync.OnceValues(func() (rsa, ed []byte) {
	rsa, _, err := auth.GenerateRSA()
	ed, _, err2 := auth.GenerateEd25519()
	if err = errors.Join(err, err2); err != nil {
		panic(err)
	}
	return rsa, ed
})

// AddDomain adds a complete domain to the account, with keys that the fake DNS publishes.
func (i *Installation) AddDomain(a *accounts.AccountCreated, name string, change func(*store.Domain)) *store.Domain {
	i.T.Helper()
	d := &store.Domain{ID: i.St.NewID("dom"), AccountID: a.AccountID, Name: name, Status: "complete", DNSProvider: "builtin", CreatedAt: i.St.Now()}
	rsa, ed := DKIMKeys()
	for selector, text := range map[string][]byte{"r1": rsa, "e1": ed} {
		key, err := auth.ParseKey(text)
		if err != nil {
			i.T.Fatal(err)
		}
		record := auth.KeyRecord(key)
		i.DNS.Txt[selector+"._domainkey."+name] = record
		d.DKIM = append(d.DKIM, store.DKIMKey{Selector: selector, Sealed: i.Svc.Core.Keys.Seal(store.DKIMBinding(d.ID), text), Record: record})
	}
	if change != nil {
		change(d)
	}
	i.Update(func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	return d
}

func (i *Installation) AddMailbox(d *store.Domain, local string, change func(*store.Mailbox)) *store.Mailbox {
	i.T.Helper()
	mb := &store.Mailbox{ID: i.St.NewID("eu"), AccountID: d.AccountID, DomainID: d.ID, Email: local + "@" + d.Name, Status: "active", Type: "hosted", CreatedAt: i.St.Now()}
	if change != nil {
		change(mb)
	}
	i.Update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, d.AccountID)
		if err != nil {
			return err
		}
		mb.Num, err = tx.NextMailboxNum()
		if err != nil {
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

func Actor(a *accounts.AccountCreated) core.Actor {
	return core.Actor{AccountID: a.AccountID, UserID: a.UserID, Role: "owner", Permissions: []string{"admin"}}
}

// Send sends a message as a person who is signed in, and who is neither owner nor admin.
func (i *Installation) Send(mb *store.Mailbox, in submit.SendEmailIn) (*submit.EmailQueued, error) {
	in.UserID = mb.ID
	return i.Svc.Submit.SendEmail(context.Background(), core.Actor{AccountID: mb.AccountID, TokenKind: core.SessionKind, Role: store.UserRoleMember}, in)
}

func (i *Installation) MustSend(mb *store.Mailbox, in submit.SendEmailIn) *submit.EmailQueued {
	i.T.Helper()
	out, err := i.Send(mb, in)
	if err != nil {
		i.T.Fatal(err)
	}
	return out
}

func (i *Installation) Spool(text string) *store.Spool {
	i.T.Helper()
	sp := i.St.NewSpool(64 << 20)
	if _, err := io.WriteString(sp, text); err != nil {
		i.T.Fatal(err)
	}
	i.T.Cleanup(func() { sp.Close() })
	return sp
}

func (i *Installation) Submit(mb *store.Mailbox, text string, to ...string) (*submit.Submitted, error) {
	in := submit.Submission{From: mb.Email, Body: i.Spool(text)}
	for _, r := range to {
		in.To = append(in.To, outbound.Rcpt{Address: r})
	}
	return i.Svc.Submit.Submit(context.Background(), core.MailboxUser{AccountID: mb.AccountID, MailboxID: mb.ID, Email: mb.Email}, in)
}

func (i *Installation) MustSubmit(mb *store.Mailbox, text string, to ...string) *submit.Submitted {
	i.T.Helper()
	out, err := i.Submit(mb, text, to...)
	if err != nil {
		i.T.Fatal(err)
	}
	return out
}

// Row returns the only row of the sending log for a recipient; an empty one if there is none.
func (i *Installation) Row(recipient string) *store.Outgoing {
	i.T.Helper()
	var found *store.Outgoing
	err := i.St.View(func(tx *store.Tx) error {
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
		i.T.Fatal(err)
	}
	if found == nil {
		return &store.Outgoing{}
	}
	return found
}

// Becomes waits until the row of a recipient has one of the statuses.
func (i *Installation) Becomes(recipient string, statuses ...string) *store.Outgoing {
	i.T.Helper()
	end := time.Now().Add(20 * time.Second)
	for {
		o := i.Row(recipient)
		if slices.Contains(statuses, o.Status) {
			return o
		}
		if time.Now().After(end) {
			i.T.Fatalf("%s is %q (%s), want one of %q", recipient, o.Status, o.LastResponse, statuses)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A filed is a message in a mailbox, with its bytes.
type filed struct {
	store.Message
	Meta *store.Meta
	Raw  []byte
}

// Folder returns all messages of a folder, oldest first.
func (i *Installation) Folder(mb *store.Mailbox, name string) []filed {
	i.T.Helper()
	var out []filed
	err := i.St.View(func(tx *store.Tx) error {
		f, err := tx.FolderByName(mb.Num, name)
		if err != nil {
			return err
		}
		for m := range tx.Messages(mb.Num, f.ID, 1, 1<<32-1) {
			meta, err := tx.Meta(mb.Num, f.ID, m.UID)
			if err != nil {
				return err
			}
			out = append(out, filed{Message: m, Meta: meta})
		}
		return nil
	})
	if err != nil {
		i.T.Fatal(err)
	}
	for n := range out {
		blob, err := i.St.OpenBlob(out[n].Blob)
		if err != nil {
			i.T.Fatal(err)
		}
		out[n].Raw, err = io.ReadAll(msg.Whole(blob))
		if err != nil {
			i.T.Fatal(err)
		}
		blob.Close()
	}
	return out
}

// Events returns the data of all events of a type, oldest first.
func (i *Installation) Events(kind string) []map[string]any {
	i.T.Helper()
	var out []map[string]any
	err := i.St.View(func(tx *store.Tx) error {
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
		i.T.Fatal(err)
	}
	return out
}

// Left counts the submissions and delivery jobs. An installation with nothing to send has none.
func (i *Installation) Left() (submissions, deliveries int) {
	i.T.Helper()
	err := i.St.View(func(tx *store.Tx) error {
		for range store.Submissions.All(tx) {
			submissions++
		}
		for j := range store.Jobs.All(tx) {
			if j.Kind == outbound.KindDeliver || j.Kind == outbound.KindDirect || j.Kind == outbound.KindRelay {
				deliveries++
			}
		}
		return nil
	})
	if err != nil {
		i.T.Fatal(err)
	}
	return submissions, deliveries
}

// Verify checks the DKIM signatures of a message, with the keys of the fake DNS.
func (i *Installation) Verify(message []byte) *auth.Verdict {
	i.T.Helper()
	v := auth.Verifier{Resolver: i.DNS}
	verdict, err := v.Verify(context.Background(), auth.Request{
		IP: netip.MustParseAddr("127.0.0.1"), Helo: "x.test", AuthservID: "mx.test", Message: bytes.NewReader(message), Size: int64(len(message)),
	})
	if err != nil {
		i.T.Fatal(err)
	}
	return verdict
}

// Report parses a delivery report.
func (i *Installation) Report(raw []byte) *msg.Report {
	i.T.Helper()
	root, err := msg.Scan(bytes.NewReader(raw))
	if err != nil {
		i.T.Fatal(err)
	}
	r, ok := msg.ParseReport(bytes.NewReader(raw), root)
	if !ok {
		i.T.Fatalf("not a report:\n%s", raw)
	}
	return r
}

// FakeDNS answers with what a test has set. Every MX host has the address 127.0.0.1 unless IP has
// one.
type FakeDNS struct {
	Txt map[string]string
	MX  map[string]string // host by domain
	IP  map[string]string // address by host; hosts in MX that are missing here have 127.0.0.1
}

func NewFakeDNS() *FakeDNS { return &FakeDNS{Txt: map[string]string{}, MX: map[string]string{}} }

func NoSuchName(name string) error {
	return &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (f *FakeDNS) LookupTXT(_ context.Context, name string) ([]string, error) {
	if v, ok := f.Txt[strings.TrimSuffix(name, ".")]; ok {
		return []string{v}, nil
	}
	return nil, NoSuchName(name)
}

func (f *FakeDNS) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	if host, ok := f.MX[strings.TrimSuffix(name, ".")]; ok {
		return []*net.MX{{Host: host + ".", Pref: 10}}, nil
	}
	return nil, NoSuchName(name)
}

func (f *FakeDNS) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if ip := f.IP[strings.TrimSuffix(host, ".")]; ip != "" {
		return []netip.Addr{netip.MustParseAddr(ip)}, nil
	}
	for _, h := range f.MX {
		if h+"." == host {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	}
	return nil, NoSuchName(host)
}

func (f *FakeDNS) LookupNS(_ context.Context, name string) ([]*net.NS, error) {
	return nil, NoSuchName(name)
}
func (f *FakeDNS) LookupCNAME(_ context.Context, name string) (string, error) {
	return "", NoSuchName(name)
}
func (f *FakeDNS) LookupIPAddr(_ context.Context, name string) ([]net.IPAddr, error) {
	return nil, NoSuchName(name)
}
func (f *FakeDNS) LookupSRV(_ context.Context, _, _, name string) (string, []*net.SRV, error) {
	return "", nil, NoSuchName(name)
}
func (f *FakeDNS) LookupAddr(_ context.Context, addr string) ([]string, error) {
	return nil, NoSuchName(addr)
}

// A Host is a strict SMTP server: it requires one recipient per transaction, and CRLF at the end of
// every line. It misbehaves as its fields say.
type Host struct {
	T    testing.TB
	Port int
	// Answer returns the reply to the final dot of the n-th message (from 1). If Answer is nil it
	// is "250 Ok id-n".
	Answer func(n int, m Taken) string
	Rcpt   func(address string) string // reply to RCPT; nil: 250
	// During may take over the connection after DATA; it returns false to close it.
	During func(c net.Conn) bool
	NoDSN  bool // does not offer DSN
	No8Bit bool // does not offer 8BITMIME and SMTPUTF8

	Mu    sync.Mutex
	took  []Taken
	Login string // credentials given with AUTH
	n     int
}

type Taken struct{ From, To, Data string }

func (h *Host) Start(t testing.TB) *Host {
	t.Helper()
	h.T = t
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.Port = ln.Addr().(*net.TCPAddr).Port
	var wg sync.WaitGroup
	var conns sync.Map
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Store(c, true)
			wg.Go(func() { h.Serve(c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return h
}

// Relay returns the configuration of a relay at the host.
func (h *Host) Relay(kind string) core.Relay {
	return core.Relay{Name: "r1", Kind: kind, Host: "127.0.0.1", Port: h.Port, TLS: "none", Region: "us-east-1"}
}

func (h *Host) Mails() []Taken {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	return slices.Clone(h.took)
}

func (h *Host) Serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	say := func(text string) { fmt.Fprintf(c, "%s\r\n", text) }
	say("220 fake ESMTP")
	var m Taken
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
			line, err = r.ReadString('\n')
			if err != nil {
				return
			}
			h.Mu.Lock()
			h.Login = strings.TrimSpace(line)
			h.Mu.Unlock()
			say("235 welcome")
		case "EHLO":
			dsn := "250-DSN\r\n"
			if h.NoDSN {
				dsn = ""
			}
			if h.No8Bit {
				say("250-fake\r\n250-AUTH PLAIN\r\n" + dsn + "250 PIPELINING")
				break
			}
			say("250-fake\r\n250-AUTH PLAIN\r\n250-8BITMIME\r\n" + dsn + "250-PIPELINING\r\n250 SMTPUTF8")
		case "MAIL":
			m = Taken{From: path}
			say("250 ok")
		case "RCPT":
			say(h.recipient(&m, path))
		case "DATA":
			if m.To == "" {
				say("503 no recipient")
				continue
			}
			say("354 go on")
			if h.During != nil && !h.During(c) {
				return
			}
			m.Data, err = readDotted(r)
			if err != nil {
				return
			}
			say(h.take(m))
		case "RSET":
			m = Taken{}
			say("250 ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("502 no such command")
		}
	}
}

func (h *Host) recipient(m *Taken, path string) string {
	if m.To != "" {
		h.T.Errorf("a second recipient, %s, in the transaction for %s", path, m.To)
		return "452 one at a time"
	}
	if h.Rcpt != nil {
		if answer := h.Rcpt(path); answer[0] != '2' {
			return answer
		}
	}
	m.To = path
	return "250 ok"
}

func (h *Host) take(m Taken) string {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.n++
	answer := fmt.Sprintf("250 Ok id-%d", h.n)
	if h.Answer != nil {
		answer = h.Answer(h.n, m)
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
