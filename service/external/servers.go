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

// Servers connects to the servers of external mailboxes, changes messages there, and plans syncs.
// It needs no other service but core, so that services that a sync needs can be made with it.
type Servers struct {
	*core.Core
	client      *pull.Client
	plain       *pull.Client             // for servers without TLS
	changeLocks limit.KeyedMutex[string] // serializes the comparison of a sync and a change by the API, by mailbox
	changeSlots *limit.Semaphore[string] // held during a change on a server, by account
	hosts       hosts
	idles       idlePool
	refreshes   *limit.Counter[string] // refreshes of all mailboxes of an account, by account
}

const (
	maxChanges           = 64 // changes on servers at a time
	maxChangesPerAccount = 8  // for one account
)

// NewServers makes the Servers.
func NewServers(c *core.Core) *Servers {
	s := &Servers{
		Core: c, client: &pull.Client{Dial: c.Guard.Dialer(c.Resolver), RootCAs: c.Config.RootCAs}, changeSlots: limit.NewSemaphore[string](maxChanges, maxChangesPerAccount),
		hosts: hosts{down: map[string]outage{}}, idles: newIdlePool(), refreshes: limit.NewSlidingCounter[string](refreshPause, core.AttemptKeys),
	}
	s.plain = &pull.Client{Dial: s.PlainGuard().Dialer(s.Resolver)}
	return s
}

// hosts remembers which servers do not answer, so that all mailboxes on a server wait instead of
// each trying.
type hosts struct {
	mu   sync.Mutex
	down map[string]outage // by serverKey
}

// serverKey returns the key that mailboxes on the same server share. It includes port and
// security, since a wrong setting of one mailbox must not affect others.
func serverKey(at store.Server) string {
	return fmt.Sprintf("%s:%d %s", at.Host, at.Port, at.Security)
}

type outage struct {
	fails int
	until time.Time
}

// maxHostWait is the maximum time for which a server that did not answer is not contacted; then one
// of its mailboxes tries.
const maxHostWait = 10 * time.Minute

const maxHosts = 4096

// until returns until when a server is not contacted; zero if the caller may contact it now. Other
// callers then wait a minute for its result.
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

// retry allows a server to be tried at once, on request.
func (h *hosts) retry(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, ok := h.down[host]; ok {
		o.until = time.Time{}
		h.down[host] = o
	}
}

// record records whether a server answered.
func (h *hosts) record(host string, answered bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if answered {
		delete(h.down, host)
		return
	}
	if len(h.down) >= maxHosts {
		maps.DeleteFunc(h.down, func(_ string, o outage) bool { return o.until.Before(now) })
	}
	o := h.down[host]
	o.fails++
	wait := min(15*time.Second<<min(o.fails, 6), maxHostWait)
	o.until = now.Add(jobs.Jitter(wait, rand.Float64()))
	h.down[host] = o
}

// Client returns the client for a server that a tenant has named.
func (s *Servers) Client(server pull.Server) *pull.Client {
	if server.Security == "none" {
		return s.plain
	}
	return s.client
}

// loginOf returns the mailbox's server with the unsealed password.
func (s *Servers) loginOf(mb *store.Mailbox) (pull.Server, error) {
	at := mb.External.IMAP
	password, err := s.Keys.Open(store.ServerBinding(mb.ID, "imap"), at.PasswordSealed)
	if err != nil {
		return pull.Server{}, fmt.Errorf("unseal IMAP password of %s: %w", mb.Email, err)
	}
	return pull.Server{Host: at.Host, Port: at.Port, Security: at.Security, Username: at.Username, Password: string(password)}, nil
}

// Connect opens a session with the mailbox's server and records whether the server answers. Errors
// of the server are pullFailures.
func (s *Servers) Connect(ctx context.Context, mb *store.Mailbox) (*pull.Session, error) {
	server, err := s.loginOf(mb)
	if err != nil {
		return nil, err
	}
	session, err := s.Client(server).Connect(ctx, server)
	if ctx.Err() == nil {
		answered := err == nil || errors.Is(err, pull.ErrGreeted)
		s.hosts.record(serverKey(mb.External.IMAP), answered, s.Now())
	}
	if errors.Is(err, netguard.ErrBlocked) && server.Security == "none" {
		return nil, &pullFailure{server.Host + " is not asked for mail: imap.security " + PlainRefused + ".", err}
	}
	if err != nil {
		return nil, explainPull(server.Host, err)
	}
	return session, nil
}

// A pullFailure is an error of a remote server, with a text for the mailbox's owner.
type pullFailure struct {
	text  string
	cause error
}

func (f *pullFailure) Error() string { return f.text + " (" + f.cause.Error() + ")" }

// Unwrap returns the cause.
func (f *pullFailure) Unwrap() error { return f.cause }

// explainPull returns what a person can do about a remote server's error.
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

// Reason returns the text of what a person can do about a remote server's error.
func Reason(host string, err error) string { return explainPull(host, err).text }

// PlainRefused is the reason why a password is not sent without TLS.
const PlainRefused = "must be tls or starttls: with none the password would cross the internet as plain text. " +
	"TLS is optional only for servers at private addresses, and only where the operator sets allow_private_destinations"

// PlainGuard decides which servers of tenants may be used without TLS: in production those at
// private addresses that the operator allows, in a sandbox all that may be dialled.
func (s *Servers) PlainGuard() *netguard.Guard {
	return &netguard.Guard{AllowPrivate: s.Config.AllowPrivate, OnlyPrivate: !s.Config.Sandbox}
}

// PlainAllowed reports whether PlainGuard may allow any server. A host name is checked when it is
// dialled.
func (s *Servers) PlainAllowed() bool { return s.Config.Sandbox || s.Config.AllowPrivate }
