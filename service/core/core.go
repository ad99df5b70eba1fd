// Package core has what every room of the service needs: the store, the job queue, the keys and the
// configuration. It also has who makes a request, the errors that people read, paging, repeated
// requests, functions that find records, and the limits on wrong passwords. It does not know any
// operation of the API, nor any other room.
//
// Where things stand:
//   - core.go, config.go: [Core] and [Config], which every room has.
//   - errors.go: [Error], its codes, and how an error becomes an SMTP reply ([OverSMTP]).
//   - records.go: functions that find a record of one account only ([MailboxOf], [DomainOf]), and
//     whether an address is suppressed ([IsSuppressed]).
//   - actor.go: who asks ([Actor]). values.go: values of the API ([Time], [Opt]). confirm.go: calls
//     that are to be confirmed. Long lists are package page, idempotent requests package once.
//   - audit.go: rows of the audit log ([Audit]).
//   - logins.go: password hashes (those of other servers are package password); bounds on how many
//     are hashed at a time. guesses.go: how long the next try waits after a wrong password
//     (loginAttempts.delay).
//   - keys.go, rotate.go: how a secret is sealed ([Keys.Seal]), and the master key and its change.
//   - jobs.go: a job as the API shows it.
//   - log.go: what the log and traces say of requests, messages and jobs ([Core.LogOf],
//     [Core.LogMessage]).
//   - attempts.go: jobs that wait while an account is suspended ([Core.WhileActive]), and the end
//     of what is on its way then ([Core.StopAttempts]).
package core

import (
	"cmp"
	"context"
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

// A Core holds what every rule needs. Each room of the service embeds it.
type Core struct {
	Store         *store.Store
	Queue         *jobs.Queue
	Config        Config
	Resolver      Resolver
	Guard         *netguard.Guard // which addresses tenants may make us dial
	Log           *slog.Logger
	Rand          func() float64 // [0,1), for jitter
	Keys          *Keys
	Logins        *logins
	LoginAttempts *loginAttempts
	Hub           jobs.Watchers[uint32] // of mailboxes; told when something in one has changed
	Metrics       *Metrics
	Tracer        *otlp.Tracer // nil: there are no traces
	Clients       Clients      // of the SMTP listener for other servers
	// IPv6Named tells that the IPv6 addresses that this host sends from have reverse names, without
	// which many receivers refuse mail. The checks of the host find it out.
	IPv6Named atomic.Bool

	dnsHealth     *auth.ResolverHealth
	held, worked  *limit.Bytes // see HoldLarge and WorkOnLarge
	confirmations *confirmations
	attempts      *attempts
	keyChange     sync.Mutex // held while the master key is changed
}

// New puts a core together.
func New(st *store.Store, q *jobs.Queue, keys *Keys, c Config) *Core {
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &Core{
		Store: st, Queue: q, Config: c, Resolver: c.Resolver, Guard: &netguard.Guard{AllowPrivate: c.AllowPrivate}, Log: c.Log,
		Rand: rand.Float64, Keys: keys, Logins: newLogins(), LoginAttempts: newLoginAttempts(), confirmations: newConfirmations(),
		attempts: newAttempts(), held: limit.NewBytes(heldMemory, smallMemory), worked: limit.NewBytes(workedMemory, smallMemory), Metrics: cmp.Or(c.Metrics, NewMetrics()), Tracer: c.Tracer,
	}
	s.dnsHealth = &auth.ResolverHealth{Probe: func(ctx context.Context) error { return probe(ctx, c.Resolver) }}
	s.traceJobs()
	return s
}

// JudgeWithin is all the time that DNS may take to judge one message.
const JudgeWithin = 15 * time.Second

// Verifier verifies who a message is from.
func (s *Core) Verifier() *auth.Verifier {
	return &auth.Verifier{Resolver: s.Resolver, Now: s.Now, Timeout: JudgeWithin, Health: s.dnsHealth}
}

// probe asks the resolver for the servers of the root, which everybody has and no sender has a hand
// in. That it knows of none, or that they do not answer it, is an answer too.
func probe(ctx context.Context, r Resolver) error {
	_, err := r.LookupNS(lookup.Fresh(ctx), ".") // an old answer says nothing about the resolver
	var dns *net.DNSError
	if errors.As(err, &dns) && (dns.IsNotFound || strings.HasPrefix(dns.Err, lookup.Misbehaves)) && ctx.Err() == nil {
		return nil
	}
	return err
}

// AllLogins is what Hub is told of where a password or a credential, of whatever mailbox or domain,
// is no longer what somebody may be logged in with.
const AllLogins uint32 = 0

// LoginsEnded has those who are logged in to a mailbox, or with AllLogins to domains, look whether
// they may go on.
func (s *Core) LoginsEnded(mailbox uint32) {
	s.Hub.Changed(mailbox)
	s.Hub.Changed(AllLogins)
}

// Now is the store's clock.
func (s *Core) Now() time.Time { return s.Store.Now() }

// SendersIPs are the addresses that mail leaves from, as others see them.
func (s *Core) SendersIPs() (out []netip.Addr) {
	from := s.Config.Sending
	for _, ip := range s.Config.PublicIPs {
		ip = ip.Unmap()
		if ip.Is4() && !from.IPv4.IsValid() || ip.Is6() && !from.IPv6.IsValid() {
			out = append(out, ip)
		}
	}
	return append(out, from.Addresses()...)
}

// AvoidsAddress reports whether no mail is sent to an address: it is an IPv6 address on the
// internet, this host's own ones have no reverse names, and it has IPv4 to send with.
func (s *Core) AvoidsAddress(to netip.Addr) bool {
	to = to.Unmap()
	if to.Is4() || !to.IsGlobalUnicast() || to.IsPrivate() || s.Config.Sandbox || s.IPv6Named.Load() {
		return false
	}
	return slices.ContainsFunc(s.SendersIPs(), netip.Addr.Is4)
}

// Hostname is our name where we introduce ourselves, and in header fields.
func (s *Core) Hostname() string {
	if s.Config.Hostname == "" {
		return "localhost"
	}
	return s.Config.Hostname
}

// SimulatorDomain is the domain whose addresses play recipients, if the simulator is on.
func (s *Core) SimulatorDomain() string { return "simulator." + strings.ToLower(s.Hostname()) }

// IsSimulator reports whether a name is that domain or below it, where no domain may be connected,
// whether the simulator is on or not.
func (s *Core) IsSimulator(name string) bool {
	return strings.HasSuffix("."+strings.ToLower(name), "."+s.SimulatorDomain())
}

// Simulates reports whether mail to an address is for a recipient that this server plays.
func (s *Core) Simulates(address string) bool {
	return s.Config.Simulator && strings.EqualFold(DomainOfAddress(address), s.SimulatorDomain())
}

// Sleep waits, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// A Spool holds a message while it arrives.
type Spool = store.Spool

// NewSpool returns a place for a message of at most limit bytes while it arrives. Whoever makes one
// closes it.
func (s *Core) NewSpool(limit int64) *Spool { return s.Store.NewSpool(limit) }

// WithoutFields copies a message without the fields whose names begin with one of prefixes; nil if
// the message has no such field. The caller closes the copy.
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

// MaxMessage is the most bytes of one message, in and out.
const MaxMessage = 36 << 20

// MaxContent is the most bytes of text and decoded attachments of a message that the API makes.
const MaxContent = 25 << 20

// What of large requests, drafts and batches, and of the messages that are made of them, is in
// memory at a time. Each takes several times its size while something is made of it.
const (
	// MaxRequest is the most bytes of a request, in which files are in base64.
	MaxRequest = 35 << 20

	smallMemory  = 1 << 20     // up to here nothing waits
	largeWait    = time.Minute // of a request
	heldMemory   = MaxRequest
	workedMemory = MaxRequest
)

// HoldLarge waits until there is memory for a request, a draft or a batch of so many bytes, which
// is held in it, as it came and then decoded, until leave is called. The error is rate_limited.
func (s *Core) HoldLarge(ctx context.Context, size int64) (within context.Context, leave func(), err error) {
	return waitForMemory(ctx, s.held, size)
}

// WorkOnLarge waits until so many bytes may be decoded, or made a message, until leave is called.
// Whoever has called it does not call HoldLarge before that, whose callers wait for this one. The
// error is rate_limited.
func (s *Core) WorkOnLarge(ctx context.Context, size int64) (within context.Context, leave func(), err error) {
	return waitForMemory(ctx, s.worked, size)
}

type patient struct{}

// Patiently gives the context of a job, which waits for memory as long as that takes.
func Patiently(ctx context.Context) context.Context { return context.WithValue(ctx, patient{}, true) }

func waitForMemory(ctx context.Context, l *limit.Bytes, size int64) (within context.Context, leave func(), err error) {
	wait := largeWait
	if ctx.Value(patient{}) != nil {
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

// ContentTooLarge is the error for a message with more than MaxContent.
func ContentTooLarge() error {
	return Errorf("payload_too_large", "A message can have at most %d MiB of text and attachments. Send a link to large files.", MaxContent>>20)
}

const (
	DropsAtATime = 200 // custom records
)

const (
	MappingKept  = 90 * 24 * time.Hour
	PruneAtATime = 500
)

// DeleteExpired deletes records whose time, by which the index has them, is over: at most
// PruneAtATime. It gives how many.
func DeleteExpired[T any](tx *store.Tx, table *store.Table[T], byTime *store.Index[T]) (int, error) {
	var ids []string
	for key, id := range byTime.Keys(tx, "", "") {
		if len(ids) == PruneAtATime || store.KeyTime(key).After(tx.Now()) {
			break
		}
		ids = append(ids, id)
	}
	return len(ids), DeleteAll(tx, table, ids)
}

func DeleteAll[T any](tx *store.Tx, table *store.Table[T], ids []string) error {
	for _, id := range ids {
		if err := table.Delete(tx, id); err != nil {
			return err
		}
	}
	return nil
}

// A Quota is how much a mailbox may hold and does.
type Quota struct {
	Used  int64  // bytes of all its messages
	Limit *int64 // bytes; nil: no limit
}

// MailboxQuota gives the quota of whoever is logged in.
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

// TextHash is the SHA-256 of a text, in hex.
func TextHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
