// Package servicetest makes services for tests: a store in a temporary directory, a queue that
// runs, an account, domains and mail. It does not know what is tested.
package servicetest

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A Sandbox is a service of one account. Everything in it is checked and closed when the test ends.
type Sandbox struct {
	*service.Service
	Owner *accounts.AccountCreated
}

// New makes a sandbox whose queue runs. change may be nil; it sees the configuration before the
// service does.
func New(t testing.TB, change func(*core.Config)) *Sandbox {
	t.Helper()
	b := new(Sandbox)
	t.Cleanup(b.open(t, t.TempDir(), store.Options{}, change))
	b.Owner = b.Account(t, "owner@example.test")
	return b
}

// WithoutKeys gives another service on the same store, which panics wherever it needs a key.
func (b *Sandbox) WithoutKeys() *service.Service {
	return service.New(b.Core.Store, jobs.NewQueue(b.Core.Store), nil, b.Core.Config)
}

// NewRestarting makes a sandbox whose store keeps so many UIDs of the messages that have left a
// folder. restart closes its service and its store, and opens them again.
func NewRestarting(t testing.TB, expunged int) (b *Sandbox, restart func()) {
	t.Helper()
	b = new(Sandbox)
	dir, o := t.TempDir(), store.Options{Expunged: expunged}
	end := b.open(t, dir, o, nil)
	t.Cleanup(func() { end() })
	b.Owner = b.Account(t, "owner@example.test")
	return b, func() {
		end()
		end = b.open(t, dir, o, nil)
	}
}

// open opens the service over a store in dir, and gives what ends both.
func (b *Sandbox) open(t testing.TB, dir string, o store.Options, change func(*core.Config)) (end func()) {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	st, err := store.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := core.OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	c := core.Config{
		Hostname: "mail.example.test", Sandbox: true, BaseURL: "http://127.0.0.1", Outbound: "capture", AllowPrivate: true, Version: "test",
		Nameservers: []string{"ns1.example.test", "ns2.example.test"}, PublicIPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		WaitForRows: true, SubmissionPort: 2587, IMAPPort: 2143, SMTPSecurity: "none", IMAPSecurity: "none", Log: slog.New(slog.DiscardHandler),
		Limits: core.Limits{Plan: "startup", Domains: 500, TeamUsers: 25, MailboxesPerDomain: 100, RatePerMinute: 1 << 30, BurstPerMinute: 1 << 30},
	}
	if change != nil {
		change(&c)
	}
	q := jobs.NewQueue(st)
	q.Log = c.Log
	b.Service = service.New(st, q, keys, c)
	CheapHashes(b.Core)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	return func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("queue: %v", err)
		}
		b.Close()
		if err := st.Check(); err != nil {
			t.Errorf("check: %v", err)
		}
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// Account makes another account with its owner and an admin token.
func (b *Sandbox) Account(t testing.TB, owner string) *accounts.AccountCreated {
	t.Helper()
	a, err := b.Accounts.CreateAccount(context.Background(), accounts.NewAccount{OwnerEmail: owner, OwnerPassword: "correct horse"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Token makes a team user of the role in the account, and a token of theirs that has the
// permissions, which may be more than the role could give it: so is one whose owner lost a higher
// role.
func (b *Sandbox) Token(t testing.TB, accountID, role string, permissions ...string) string {
	t.Helper()
	id := b.Core.Store.NewID("usr")
	b.update(t, func(tx *store.Tx) error {
		return store.Users.Put(tx, &store.User{
			ID: id, AccountID: accountID, Email: id + "@team.test", Role: role, Status: "active", CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
		})
	})
	who := core.Actor{AccountID: accountID, UserID: id, Role: "owner", Permissions: []string{"admin"}}
	created, err := b.Accounts.CreateToken(context.Background(), who, accounts.CreateTokenIn{Permissions: &permissions})
	if err != nil {
		t.Fatal(err)
	}
	return created.Value
}

// ExpireTokens lets every token of the account run out.
func (b *Sandbox) ExpireTokens(t testing.TB, accountID string) {
	t.Helper()
	b.update(t, func(tx *store.Tx) error {
		var all []*store.Token
		for _, token := range store.TokensByAccount.Asc(tx, accountID, "") {
			all = append(all, token)
		}
		for _, token := range all {
			token.ExpiresAt = tx.Now()
			if err := store.Tokens.Put(tx, token); err != nil {
				return err
			}
		}
		return nil
	})
}

// AgeExports makes the account's exports older than they are, so that their times pass at once.
func (b *Sandbox) AgeExports(t testing.TB, accountID string, by time.Duration) {
	t.Helper()
	b.update(t, func(tx *store.Tx) error {
		var all []*store.Export
		for _, e := range store.ExportsByAccount.Asc(tx, accountID, "") {
			all = append(all, e)
		}
		for _, e := range all {
			e.CreatedAt, e.ExpiresAt = e.CreatedAt.Add(-by), e.ExpiresAt.Add(-by)
			if err := store.Exports.Put(tx, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// FlushUses has the uses of tokens written that were noted, as the service's end does.
func (b *Sandbox) FlushUses(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// IndexMail has all mail indexed for searches, as the service does while it runs.
func (b *Sandbox) IndexMail(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	for todo := 1; todo > 0; time.Sleep(time.Millisecond) {
		err := b.Core.Store.View(func(tx *store.Tx) error {
			todo = 0
			for range tx.TextTodos(0) {
				todo++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// Domain puts a domain of the account into the store as it is once it has come to the status.
func (b *Sandbox) Domain(t testing.TB, accountID, name, provider, status string) *store.Domain {
	t.Helper()
	d := &store.Domain{
		ID: b.Core.Store.NewID("dom"), AccountID: accountID, Name: name, Status: status, DNSProvider: provider, Source: "connected",
		NSStatus: "verified", DNSStatus: "complete", CreatedAt: b.Core.Store.Now(), UpdatedAt: b.Core.Store.Now(), CompletedAt: b.Core.Store.Now(),
	}
	b.update(t, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	return d
}

// Template puts a template of the account into the store, and gives its id.
func (b *Sandbox) Template(t testing.TB, accountID, name string, usernames ...string) string {
	t.Helper()
	tpl := &store.Template{ID: b.Core.Store.NewID("tpl"), AccountID: accountID, Name: name, Usernames: usernames, CreatedAt: b.Core.Store.Now(), UpdatedAt: b.Core.Store.Now()}
	b.update(t, func(tx *store.Tx) error { return store.Templates.Put(tx, tpl) })
	return tpl.ID
}

// A Mail says how a message lies in an INBOX.
type Mail struct {
	Received time.Time // zero: now
	Seen     bool
	Warmup   bool
	SPF      string
}

// Put files a message in the INBOX of the address, without any event, and gives its UID.
func (b *Sandbox) Put(t testing.TB, email, message string, how Mail) uint32 {
	t.Helper()
	return b.PutCopies(t, 1, email, message, how)
}

// PutCopies files a message n times, and gives the UID of the last.
func (b *Sandbox) PutCopies(t testing.TB, n int, email, message string, how Mail) (uid uint32) {
	t.Helper()
	spool := b.Core.Store.NewSpool(64 << 20)
	defer spool.Close()
	if _, err := spool.Write(bytes.ReplaceAll([]byte(message), []byte("\n"), []byte("\r\n"))); err != nil {
		t.Fatal(err)
	}
	root, err := msg.Scan(spool.Reader())
	if err != nil {
		t.Fatal(err)
	}
	sum, err := msg.Summarize(spool, root)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := b.Core.Store.Append(nil, spool)
	if err != nil {
		t.Fatal(err)
	}
	const perWrite = 100
	for from := 0; from < n; from += perWrite {
		b.update(t, func(tx *store.Tx) error {
			mb, err := store.MailboxByEmail.Get(tx, email)
			if err != nil {
				return err
			}
			for range min(n-from, perWrite) {
				m := &store.Message{Account: mb.AccountNum, Mailbox: mb.Num, Folder: store.InboxID, Blob: ref, Received: how.Received, Bits: how.bits(sum)}
				if how.Seen {
					m.Flags = store.FlagSeen
				}
				if err := tx.AddMessage(m, &store.Meta{Structure: root.AppendBinary(nil), Preview: sum.Preview, SPF: how.SPF}); err != nil {
					return err
				}
				uid = m.UID
			}
			return nil
		})
	}
	return uid
}

func (how Mail) bits(sum *msg.Summary) (bits store.Bits) {
	if len(sum.Attachments) > 0 {
		bits |= store.BitAttachments
	}
	if how.Warmup {
		bits |= store.BitWarmup
	}
	return bits
}

func (b *Sandbox) update(t testing.TB, fn func(*store.Tx) error) {
	t.Helper()
	if err := b.Core.Store.Update(fn); err != nil {
		t.Fatal(err)
	}
}
