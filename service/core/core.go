// Package core has what every room of the service needs: the store, the job queue, the keys and the
// configuration. It also has the actor of a request, the errors that people read, functions that
// find records, and the limits on wrong passwords. It does not know any operation of the API, nor
// any other room.
//
// Where things are:
//   - core.go, config.go: [Core] and [Config], which every room has, and the settings that can
//     change while the service runs ([Core.Settings]).
//   - errors.go: [Error], its codes, and how an error becomes an SMTP reply ([OverSMTP]).
//     sizes.go: how large messages and requests can be.
//   - records.go: functions that find a record of one account only ([MailboxOf], [DomainOf]), and
//     whether an address is suppressed ([IsSuppressed]).
//   - actor.go: who makes a request ([Actor]). values.go: values of the API ([Time], [Opt]).
//     confirm.go: calls that must be confirmed. Long lists are package page, idempotent requests
//     package once.
//   - audit.go: rows of the audit log ([Audit]).
//   - logins.go: password hashes (those of other servers are package password), and how many
//     passwords are hashed at a time. guesses.go: how long the next attempt waits after a wrong
//     password (loginAttempts.delay).
//   - keys.go, rotate.go: how a secret is sealed ([Keys.Seal]), and the master key and its change.
//   - jobs.go: a job as the API shows it.
//   - log.go: what the log and traces contain of requests, messages and jobs ([Core.LogOf],
//     [Core.LogMessage]).
//   - attempts.go: jobs that wait while an account is suspended ([Core.WhileActive]), and
//     cancelling those that run when it is suspended ([Core.StopAttempts]).
package core

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// A Core holds what every room of the service needs. Each room embeds it.
type Core struct {
	Store    *store.Store
	Queue    *jobs.Queue
	Config   Config
	Resolver Resolver
	Guard    *netguard.Guard // refuses addresses that tenants must not make us connect to
	Log      *slog.Logger
	Rand     func() float64 // in [0,1), for jitter
	// GenerateRSA generates an RSA key of 2048 bits; text is the key as PKCS#8 PEM. It takes some
	// tenths of a second.
	GenerateRSA   func() (text []byte, key crypto.Signer, err error)
	Keys          *Keys
	Logins        *logins
	LoginAttempts *loginAttempts
	Hub           jobs.Watchers[uint32] // by mailbox number, or AllLogins; notified when something in the mailbox, or a login, has changed
	Metrics       *Metrics
	Tracer        *otlp.Tracer // nil: no traces
	Clients       Clients      // connections from other servers to the SMTP listener
	// IPv6Named reports whether this host's IPv6 source addresses have reverse DNS; without it many
	// receivers refuse mail. The checks of the host set it.
	IPv6Named atomic.Bool

	settings             settings
	dnsHealth            *auth.ResolverHealth
	heldBytes, workBytes *limit.ByteLimit // reserved by HoldLarge and WorkOnLarge
	confirmations        *confirmations
	attempts             *attempts
	keyChange            sync.Mutex // held while the master key is being changed
}

// New returns a core with these parts, and defaults for those that the configuration leaves out.
func New(st *store.Store, q *jobs.Queue, keys *Keys, c Config) *Core {
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &Core{
		Store: st, Queue: q, Config: c, Resolver: c.Resolver, Guard: &netguard.Guard{AllowPrivate: c.AllowPrivate}, Log: c.Log,
		Rand: rand.Float64, GenerateRSA: auth.GenerateRSA, Keys: keys, Logins: newLogins(), LoginAttempts: newLoginAttempts(), confirmations: newConfirmations(),
		attempts: newAttempts(), heldBytes: limit.NewByteLimit(maxHeldBytes, smallSize), workBytes: limit.NewByteLimit(maxWorkBytes, smallSize), Metrics: cmp.Or(c.Metrics, NewMetrics()), Tracer: c.Tracer,
	}
	s.settings.now.Store(&c.Settings)
	s.Config.Settings = Settings{}
	s.dnsHealth = &auth.ResolverHealth{Probe: func(ctx context.Context) error { return probeResolver(ctx, c.Resolver) }}
	s.traceJobs()
	return s
}

// settings has the settings that hold now, and who must be told of a change.
type settings struct {
	now      atomic.Pointer[Settings]
	changing sync.Mutex // held while a change is made
	told     []func()
}

// OperatorGuard returns the guard for an address that the operator has chosen. One that was set by
// API must be one that tenants may choose too; one in the settings file may be private.
func (s *Core) OperatorGuard(setByAPI bool) *netguard.Guard {
	if setByAPI {
		return s.Guard
	}
	return &netguard.Guard{AllowPrivate: true}
}

// Settings returns the settings that hold now. The value never changes: a change of the settings
// replaces it. Work that needs several of them calls Settings once, so that they belong together.
func (s *Core) Settings() *Settings { return s.settings.now.Load() }

// OnSettings calls apply after each change of the settings, for what is made of them in advance.
// apply is never called twice at a time.
func (s *Core) OnSettings(apply func()) {
	s.settings.changing.Lock()
	defer s.settings.changing.Unlock()
	s.settings.told = append(s.settings.told, apply)
}

// ChangeSettings changes the settings: change gets a copy of those that hold now. When
// ChangeSettings returns, the new ones hold for all work that begins.
func (s *Core) ChangeSettings(change func(*Settings)) {
	s.settings.changing.Lock()
	defer s.settings.changing.Unlock()
	next := *s.Settings()
	change(&next)
	s.settings.now.Store(&next)
	for _, apply := range s.settings.told {
		apply()
	}
}

// AuthTimeout is the longest time that all DNS lookups for the authentication of one message take.
const AuthTimeout = 15 * time.Second

// Verifier returns a verifier of message authentication (SPF, DKIM, DMARC, ARC).
func (s *Core) Verifier() *auth.Verifier {
	return &auth.Verifier{Resolver: s.Resolver, Now: s.Now, Timeout: AuthTimeout, Health: s.dnsHealth}
}

// probeResolver checks whether the resolver works: it asks for the nameservers of the root, which
// no sender controls. The resolver also works if it answers with an error code such as NXDOMAIN or
// SERVFAIL.
func probeResolver(ctx context.Context, r Resolver) error {
	_, err := r.LookupNS(lookup.Fresh(ctx), ".") // a cached answer says nothing about the resolver
	var dns *net.DNSError
	if errors.As(err, &dns) && (dns.IsNotFound || strings.HasPrefix(dns.Err, lookup.MisbehavesText)) && ctx.Err() == nil {
		return nil
	}
	return err
}

// AllLogins is the number with which Hub is notified if a password or credential of any mailbox or
// domain was changed or revoked. Sessions that watch it then check their logins.
const AllLogins uint32 = 0

// RecheckLogins makes sessions check whether their login is still valid: those of the mailbox, and
// those that watch AllLogins. For a domain, mailbox is AllLogins.
func (s *Core) RecheckLogins(mailbox uint32) {
	s.Hub.Changed(mailbox)
	s.Hub.Changed(AllLogins)
}

// Now returns the time by the store's clock.
func (s *Core) Now() time.Time { return s.Store.Now() }

// StoreFailure returns the error that stopped all writes to the store; nil if it takes writes.
func (s *Core) StoreFailure() error { return s.Store.Failed() }

// NewRequestID returns a new request id.
func (s *Core) NewRequestID() string { return s.Store.NewID("req") }

// SendingIPs returns the addresses from which mail is sent, as other hosts see them.
func (s *Core) SendingIPs() (out []netip.Addr) {
	from := s.Settings().Sending
	for _, ip := range s.Config.PublicIPs {
		ip = ip.Unmap()
		if ip.Is4() && !from.IPv4.IsValid() || ip.Is6() && !from.IPv6.IsValid() {
			out = append(out, ip)
		}
	}
	return append(out, from.Addresses()...)
}

// AvoidsAddress reports whether the server sends no mail to an address. That is so if it is a
// public IPv6 address, this host's own IPv6 addresses have no reverse DNS, and this host can send
// by IPv4.
func (s *Core) AvoidsAddress(to netip.Addr) bool {
	to = to.Unmap()
	if to.Is4() || !to.IsGlobalUnicast() || to.IsPrivate() || s.Config.Sandbox || s.IPv6Named.Load() {
		return false
	}
	return slices.ContainsFunc(s.SendingIPs(), netip.Addr.Is4)
}

// Hostname returns this host's name for greetings and header fields.
func (s *Core) Hostname() string {
	if s.Config.Hostname == "" {
		return "localhost"
	}
	return s.Config.Hostname
}

// SimulatorDomain returns the domain whose addresses simulate recipients while the simulator is on.
func (s *Core) SimulatorDomain() string { return "simulator." + strings.ToLower(s.Hostname()) }

// IsSimulator reports whether a name is the simulator's domain or below it. No account can connect
// such a domain, even if the simulator is off.
func (s *Core) IsSimulator(name string) bool {
	return strings.HasSuffix("."+strings.ToLower(name), "."+s.SimulatorDomain())
}

// Simulates reports whether the simulator is on and stands in for the recipient with this address.
func (s *Core) Simulates(address string) bool {
	return s.Settings().Simulator && strings.EqualFold(DomainOfAddress(address), s.SimulatorDomain())
}

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// A Spool holds a message while it is being received.
type Spool = store.Spool

// NewSpool returns a spool for a message of at most limit bytes. The caller closes it.
func (s *Core) NewSpool(limit int64) *Spool { return s.Store.NewSpool(limit) }

// WithoutFields copies a message without the header fields whose names begin with one of prefixes.
// It returns nil if the message has no such field. The caller closes the copy.
func (s *Core) WithoutFields(message *io.SectionReader, prefixes []string) (*Spool, error) {
	found, err := msg.HasFields(msg.Again(message), prefixes)
	if !found || err != nil {
		return nil, err
	}
	spool := s.Store.NewSpool(message.Size())
	if _, err := msg.StripFields(spool, msg.Again(message), prefixes); err != nil {
		return nil, errors.Join(fmt.Errorf("copy message: %w", err), spool.Close())
	}
	return spool, nil
}

// Limits on the memory for large requests, drafts and batches, and for the messages made from them,
// in bytes. Processing a message takes several times its size.
const (
	smallSize     = 1 << 20     // anything smaller never waits
	maxMemoryWait = time.Minute // longest time that a request waits
	maxHeldBytes  = MaxRequest
	maxWorkBytes  = MaxRequest
)

// HoldLarge waits until there is memory to hold a request, draft or batch of this size, as received
// and decoded, and reserves the memory until leave is called. A second call with the context within
// reserves nothing. The error is rate_limited if the wait was too long.
func (s *Core) HoldLarge(ctx context.Context, size int64) (within context.Context, leave func(), err error) {
	return waitForMemory(ctx, s.heldBytes, size)
}

// WorkOnLarge waits until there is memory to decode this many bytes or to make a message from them,
// and reserves the memory until leave is called. The caller must not call HoldLarge before that,
// because it could deadlock. The error is rate_limited if the wait was too long.
func (s *Core) WorkOnLarge(ctx context.Context, size int64) (within context.Context, leave func(), err error) {
	return waitForMemory(ctx, s.workBytes, size)
}

type unlimitedWaitKey struct{}

// WithUnlimitedWait returns a context for a job that waits for memory without a time limit.
func WithUnlimitedWait(ctx context.Context) context.Context {
	return context.WithValue(ctx, unlimitedWaitKey{}, true)
}

func waitForMemory(ctx context.Context, l *limit.ByteLimit, size int64) (within context.Context, leave func(), err error) {
	wait := maxMemoryWait
	if ctx.Value(unlimitedWaitKey{}) != nil {
		wait = 0
	}
	within, leave, err = l.Acquire(ctx, size, wait)
	if err != nil && ctx.Err() == nil {
		tooMany := Errorf("rate_limited", "Too many large messages are being received. Try again in a moment.")
		tooMany.RetryAfter = 10 * time.Second
		err = tooMany
	}
	return within, leave, err
}

const (
	DropsAtATime = 200 // custom DNS records or reports that one transaction deletes
)

const (
	SendingLogTTL = 90 * 24 * time.Hour // how long rows of the sending log are kept, and the Message-IDs that relays gave to sent messages
	PruneAtATime  = 500
)

// DeleteExpired deletes records whose time in the index byTime has passed, at most PruneAtATime of
// them. It returns how many it deleted.
func DeleteExpired[T any](tx *store.Tx, table *store.Table[T], byTime *store.Index[T]) (deleted int, err error) {
	var ids []string
	for key, id := range byTime.Keys(tx, "", "") {
		if len(ids) == PruneAtATime || store.KeyTime(key).After(tx.Now()) {
			break
		}
		ids = append(ids, id)
	}
	return len(ids), DeleteAll(tx, table, ids)
}

// DeleteAll deletes the records with these ids.
func DeleteAll[T any](tx *store.Tx, table *store.Table[T], ids []string) error {
	for _, id := range ids {
		if err := table.Delete(tx, id); err != nil {
			return err
		}
	}
	return nil
}

// A Quota is the storage limit and usage of a mailbox.
type Quota struct {
	Used  int64  // bytes of all messages
	Limit *int64 // bytes; nil: no limit
}

// MailboxQuota returns the quota of the logged-in user's mailbox.
func (s *Core) MailboxQuota(_ context.Context, u MailboxUser) (q Quota, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := OpenMailbox(tx, u)
		if err != nil {
			return err
		}
		used, err := tx.MailboxUsage(mb.Num)
		q = Quota{Used: used.Bytes, Limit: mb.QuotaBytes}
		return err
	})
	return q, err
}

// TextHash returns the SHA-256 of a text, in hex.
func TextHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
