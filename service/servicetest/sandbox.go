// Package servicetest makes services for tests: a store in a temporary directory, a running queue,
// an account, domains and mail. It does not know what is tested.
package servicetest

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A Sandbox is a service with one account. It is checked and closed when the test ends.
type Sandbox struct {
	*service.Service
	Owner *accounts.AccountCreated
}

// New returns a sandbox with a running queue. change, if not nil, changes the configuration before
// the service is made.
func New(t testing.TB, change func(*core.Config)) *Sandbox {
	t.Helper()
	b := new(Sandbox)
	t.Cleanup(b.open(t, t.TempDir(), store.Options{}, change))
	b.Owner = b.Account(t, "owner@example.test")
	return b
}

// WithoutKeys returns another service on the same store, which panics if it needs a key.
func (b *Sandbox) WithoutKeys() *service.Service {
	return service.New(b.Core.Store, jobs.NewQueue(b.Core.Store), nil, ConfigOf(b.Core))
}

// ConfigOf returns the configuration of a service, with its settings of now.
func ConfigOf(c *core.Core) core.Config {
	out := c.Config
	out.Settings = *c.Settings()
	return out
}

// NewRestarting returns a sandbox whose store keeps up to `expunged` UIDs of messages that have
// left a folder. restart closes its service and store, and opens them again. change is as for New.
func NewRestarting(t testing.TB, expunged int, change func(*core.Config)) (b *Sandbox, restart func()) {
	t.Helper()
	b = new(Sandbox)
	dir, o := t.TempDir(), store.Options{MaxExpunged: expunged}
	end := b.open(t, dir, o, change)
	t.Cleanup(func() { end() })
	b.Owner = b.Account(t, "owner@example.test")
	return b, func() {
		end()
		end = b.open(t, dir, o, change)
	}
}

// NewIn is New over the store in dir, with options. A store that another sandbox has left there is
// used as it is; then the sandbox has no Owner. end closes the service and the store.
func NewIn(t testing.TB, dir string, o store.Options, change func(*core.Config)) (b *Sandbox, end func()) {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, store.DatabaseFile))
	b = new(Sandbox)
	end = b.open(t, dir, o, change)
	if err != nil {
		b.Owner = b.Account(t, "owner@example.test")
	}
	return b, end
}

// open opens the service over a store in dir, and returns a function that closes both.
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
		Hostname: "mail.example.test", Sandbox: true, BaseURL: "http://127.0.0.1", Settings: core.Settings{
			Outbound: "capture", Limits: core.Limits{Plan: "startup", Domains: 500, TeamUsers: 25, MailboxesPerDomain: 100, RatePerMinute: 1 << 30, BurstPerMinute: 1 << 30},
			Retention: core.Retention{Requests: 7 * 24 * time.Hour},
		}, AllowPrivate: true, Version: "test",
		Nameservers: []string{"ns1.example.test", "ns2.example.test"}, PublicIPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		WaitForRows: true, SubmissionPort: 2587, IMAPPort: 2143, SMTPSecurity: "none", IMAPSecurity: "none", Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	q := jobs.NewQueue(st)
	q.Log = c.Log
	b.Service = service.New(st, q, keys, c)
	file := settingsFile{b.Core.Settings()}
	joined, err := file.Join(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Settings.Begin(file, nil, joined)
	CheapSecrets(b.Core)
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

// Account adds an account with its owner and an admin token.
func (b *Sandbox) Account(t testing.TB, owner string) *accounts.AccountCreated {
	t.Helper()
	a, err := b.Accounts.CreateAccount(context.Background(), accounts.NewAccount{OwnerEmail: owner, OwnerPassword: "correct horse"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Token adds a team user with the role to the account, and returns a token of that user with the
// permissions. These may exceed the role, as after the user has lost a higher role.
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

// ExpireTokens makes every token of the account expire now.
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

// AgeExports moves the times of the account's exports into the past.
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

// FlushUses writes the remembered uses of tokens, as the service does when it ends.
func (b *Sandbox) FlushUses(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// IndexMail indexes all mail for searches, as the running service does.
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

// Domain writes a domain of the account with this status.
func (b *Sandbox) Domain(t testing.TB, accountID, name, provider, status string) *store.Domain {
	t.Helper()
	d := &store.Domain{
		ID: b.Core.Store.NewID("dom"), AccountID: accountID, Name: name, Status: status, DNSProvider: provider, Source: "connected",
		NSStatus: "verified", DNSStatus: "complete", CreatedAt: b.Core.Store.Now(), UpdatedAt: b.Core.Store.Now(), CompletedAt: b.Core.Store.Now(),
	}
	b.update(t, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	return d
}

// Template writes a template of the account and returns its id.
func (b *Sandbox) Template(t testing.TB, accountID, name string, usernames ...string) string {
	t.Helper()
	tpl := &store.Template{ID: b.Core.Store.NewID("tpl"), AccountID: accountID, Name: name, Usernames: usernames, CreatedAt: b.Core.Store.Now(), UpdatedAt: b.Core.Store.Now()}
	b.update(t, func(tx *store.Tx) error { return store.Templates.Put(tx, tpl) })
	return tpl.ID
}

// A Mail describes a message in INBOX.
type Mail struct {
	Received time.Time // zero: now
	Seen     bool
	Warmup   bool
	SPF      string
}

// Put adds a message to the INBOX of the address, without an event, and returns its UID.
func (b *Sandbox) Put(t testing.TB, email, message string, how Mail) uint32 {
	t.Helper()
	return b.PutCopies(t, 1, email, message, how)
}

// PutCopies adds a message n times, and returns the last UID.
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
