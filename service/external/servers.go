package external

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Servers connects to the servers of external mailboxes, changes messages there, and plans the
// syncs. It knows no other room, so that rooms which a sync needs can be made with it.
type Servers struct {
	*core.Core
	client      *pull.Client
	plain       *pull.Client             // of servers without TLS
	changeLocks limit.KeyedMutex[string] // a sync's comparison and a change by the API come one after the other
	changeSlots *limit.Semaphore[string] // one for each change on a server
	hosts       hosts
	idles       idlePool
	refreshes   *limit.Counter[string] // of all mailboxes of an account, by account
}

const (
	changesMost = 64 // changes by the API that are made on servers at a time
	changesEach = 8  // of one account
)

// NewServers makes what connects to servers.
func NewServers(c *core.Core) *Servers {
	s := &Servers{
		Core: c, client: &pull.Client{Dial: c.Guard.Dialer(c.Resolver), RootCAs: c.Config.RootCAs}, changeSlots: limit.NewSemaphore[string](changesMost, changesEach),
		hosts: hosts{down: map[string]outage{}}, idles: newIdlePool(), refreshes: limit.NewSlidingCounter[string](refreshPause, core.AttemptKeys),
	}
	s.plain = &pull.Client{Dial: s.PlainGuard().Dialer(s.Resolver)}
	return s
}

// hosts remembers which servers do not answer, so that the mailboxes on one wait together rather
// than each in turn.
type hosts struct {
	mu   sync.Mutex
	down map[string]outage // by listenerOf
}

// listenerOf is what all mailboxes that fail together have in common: a wrong port or security is
// one's own fault.
func listenerOf(at store.Server) string {
	return fmt.Sprintf("%s:%d %s", at.Host, at.Port, at.Security)
}

type outage struct {
	fails int
	until time.Time
}

// hostLatest is how long mailboxes wait at most for a server that did not answer; one of them then
// tries.
const hostLatest = 10 * time.Minute

const hostsKept = 4096

// until says up to when a server is left alone; zero: it is not. Who is let through keeps the
// others waiting.
func (h *hosts) until(host string, now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.down[host]
	if !ok {
		return time.Time{}
	}
	if now.Before(o.until) {
		return o.until
	}
	o.until = now.Add(time.Minute)
	h.down[host] = o
	return time.Time{}
}

// retry lets a server be tried at once, since somebody asks for it.
func (h *hosts) retry(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, ok := h.down[host]; ok {
		o.until = time.Time{}
		h.down[host] = o
	}
}

// record keeps whether a server answered.
func (h *hosts) record(host string, answered bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if answered {
		delete(h.down, host)
		return
	}
	if len(h.down) >= hostsKept {
		maps.DeleteFunc(h.down, func(_ string, o outage) bool { return o.until.Before(now) })
	}
	o := h.down[host]
	o.fails++
	wait := min(15*time.Second<<min(o.fails, 6), hostLatest)
	o.until = now.Add(jobs.Jitter(wait, rand.Float64()))
	h.down[host] = o
}

// Client is what logs in to a server that a tenant has named.
func (s *Servers) Client(server pull.Server) *pull.Client {
	if server.Security == "none" {
		return s.plain
	}
	return s.client
}

// loginOf opens the sealed password of the mailbox's server.
func (s *Servers) loginOf(mb *store.Mailbox) (pull.Server, error) {
	at := mb.External.IMAP
	password, err := s.Keys.Open(store.ServerPlace(mb.ID, "imap"), at.PasswordSealed)
	if err != nil {
		return pull.Server{}, fmt.Errorf("password of %s: %w", mb.Email, err)
	}
	return pull.Server{Host: at.Host, Port: at.Port, Security: at.Security, Username: at.Username, Password: string(password)}, nil
}

// Connect opens a session with the mailbox's server and notes whether that answers. Errors of the
// server are pullFailures.
func (s *Servers) Connect(ctx context.Context, mb *store.Mailbox) (*pull.Session, error) {
	server, err := s.loginOf(mb)
	if err != nil {
		return nil, err
	}
	session, err := s.Client(server).Connect(ctx, server)
	if ctx.Err() == nil {
		answered := err == nil || errors.Is(err, pull.ErrGreeted)
		s.hosts.record(listenerOf(mb.External.IMAP), answered, s.Now())
	}
	if errors.Is(err, netguard.ErrBlocked) && server.Security == "none" {
		return nil, &pullFailure{server.Host + " is not asked for mail: imap.security " + PlainRefused + ".", err}
	}
	if err != nil {
		return nil, explainPull(server.Host, err)
	}
	return session, nil
}

// A pullFailure is what went wrong with a remote server, in words for the mailbox's owner.
type pullFailure struct {
	text  string
	cause error
}

func (f *pullFailure) Error() string { return f.text + " (" + f.cause.Error() + ")" }

// Unwrap gives the cause.
func (f *pullFailure) Unwrap() error { return f.cause }

// explainPull says what a person can do about a remote server's failure.
func explainPull(host string, err error) *pullFailure {
	say := func(format string, args ...any) *pullFailure {
		return &pullFailure{fmt.Sprintf(format, args...), err}
	}
	var login *pull.LoginError
	switch {
	case errors.As(err, &login):
		return say("%s refused the username or password. Set the mailbox's new password, or refresh it once the server accepts the old one. It said: %q", host, login.Text)
	case errors.Is(err, netguard.ErrBlocked):
		return say("%s is at an address that this server does not connect to.", host)
	case errors.Is(err, netguard.ErrResolve):
		return say("%s has no address in the DNS.", host)
	case errors.Is(err, pull.ErrTLS):
		return say("The TLS connection to %s is not trusted. Check its port, security and certificate.", host)
	case errors.Is(err, pull.ErrStalled), errors.Is(err, context.DeadlineExceeded):
		return say("%s does not answer in time.", host)
	case errors.Is(err, pull.ErrTooMuch), errors.Is(err, pull.ErrProtocol):
		return say("%s does not answer as an IMAP server should.", host)
	case errors.Is(err, pull.ErrRefused):
		_, text, _ := strings.Cut(err.Error(), pull.ErrRefused.Error()+": ")
		return say("%s refused the request. It said: %q", host, text)
	case errors.Is(err, pull.ErrClosed):
		return say("%s ended the connection.", host)
	}
	return say("%s cannot be reached.", host)
}

// Reason says what a person can do about a remote server's failure.
func Reason(host string, err error) string { return explainPull(host, err).text }

// PlainRefused is why a password is not sent without TLS.
const PlainRefused = "must be tls or starttls: with none the password would cross the internet as plain text. " +
	"TLS is optional only for servers at private addresses, and only where the operator sets allow_private_destinations"

// PlainGuard decides which servers of tenants may be logged in to without TLS: in production those
// at private addresses that the operator allows, in a sandbox all that may be dialled.
func (s *Servers) PlainGuard() *netguard.Guard {
	return &netguard.Guard{AllowPrivate: s.Config.AllowPrivate, OnlyPrivate: !s.Config.Sandbox}
}

// PlainAllowed reports whether there are any such servers. Those with a name are judged when they
// are dialled.
func (s *Servers) PlainAllowed() bool { return s.Config.Sandbox || s.Config.AllowPrivate }
