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

// Servers connects to the servers of external mailboxes, changes messages there, and schedules
// syncs. It needs only the core, so that it can be created before the services that a sync needs.
type Servers struct {
	*core.Core
	client      *pull.Client
	plainClient *pull.Client             // the client for servers without TLS
	changeLocks limit.KeyedMutex[string] // by mailbox ID; held while a sync compares messages, or an API request changes them
	changeSlots *limit.Semaphore[string] // by account ID; held while an API request changes messages on a server
	outages     serverOutages
	idles       idlePool
	refreshes   *limit.Counter[string] // counts refreshes of all mailboxes of an account, by account ID
}

const (
	maxChanges           = 64 // changes that API requests make on servers at the same time
	maxChangesPerAccount = 8  // such changes of one account
)

// NewServers returns a Servers.
func NewServers(c *core.Core) *Servers {
	s := &Servers{
		Core: c, client: &pull.Client{Dial: c.Guard.Dialer(c.Resolver), RootCAs: c.Config.RootCAs}, changeSlots: limit.NewSemaphore[string](maxChanges, maxChangesPerAccount),
		outages: serverOutages{byServer: map[string]outage{}}, idles: newIdlePool(), refreshes: limit.NewSlidingCounter[string](refreshPause, core.MaxAttemptKeys),
	}
	s.plainClient = &pull.Client{Dial: s.PlainGuard().Dialer(s.Resolver)}
	return s
}

// serverOutages remembers which servers do not answer. All mailboxes on such a server wait, so that
// not each of them tries to connect.
type serverOutages struct {
	mu       sync.Mutex
	byServer map[string]outage // by serverKey
}

// serverKey returns a key for a server, which all mailboxes on it share. The key includes the port
// and the security, so that a wrong setting of one mailbox does not affect others.
func serverKey(at store.Server) string {
	return fmt.Sprintf("%s:%d %s", at.Host, at.Port, at.Security)
}

// An outage is the state of a server that does not answer.
type outage struct {
	fails int       // failures in a row
	until time.Time // the server is not contacted before this time
}

// maxHostWait is the longest time for which a server that does not answer is not contacted.
const maxHostWait = 10 * time.Minute

const maxHosts = 4096 // outages that are remembered, before old ones are dropped

// downUntil returns the time until which a server is not contacted. If it returns zero, the caller
// may contact the server. If the server has not answered before, all other callers are then told to
// wait a minute, until recordAnswer has the result.
func (h *serverOutages) downUntil(host string, now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.byServer[host]
	if !ok {
		return time.Time{}
	}
	if now.Before(o.until) {
		return o.until
	}
	o.until = now.Add(time.Minute)
	h.byServer[host] = o
	return time.Time{}
}

// allowRetry allows the next caller to contact a server immediately.
func (h *serverOutages) allowRetry(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, ok := h.byServer[host]; ok {
		o.until = time.Time{}
		h.byServer[host] = o
	}
}

// recordAnswer records whether a server has answered.
func (h *serverOutages) recordAnswer(host string, answered bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if answered {
		delete(h.byServer, host)
		return
	}
	if len(h.byServer) >= maxHosts {
		maps.DeleteFunc(h.byServer, func(_ string, o outage) bool { return o.until.Before(now) })
	}
	o := h.byServer[host]
	o.fails++
	wait := min(15*time.Second<<min(o.fails, 6), maxHostWait)
	o.until = now.Add(jobs.Jitter(wait, rand.Float64()))
	h.byServer[host] = o
}

// Client returns the IMAP client for a server that a user has named.
func (s *Servers) Client(server pull.Server) *pull.Client {
	if server.Security == "none" {
		return s.plainClient
	}
	return s.client
}

// serverWithPassword returns a mailbox's server with the unsealed password.
func (s *Servers) serverWithPassword(mb *store.Mailbox) (pull.Server, error) {
	at := mb.External.IMAP
	password, err := s.Keys.Open(store.ServerBinding(mb.ID, "imap"), at.PasswordSealed)
	if err != nil {
		return pull.Server{}, fmt.Errorf("unseal the IMAP password of mailbox %s: %w", mb.Email, err)
	}
	return pull.Server{Host: at.Host, Port: at.Port, Security: at.Security, Username: at.Username, Password: string(password)}, nil
}

// Connect opens a session on the mailbox's server, and records whether the server answers. An error
// of the server is a *serverError.
func (s *Servers) Connect(ctx context.Context, mb *store.Mailbox) (*pull.Session, error) {
	server, err := s.serverWithPassword(mb)
	if err != nil {
		return nil, err
	}
	session, err := s.Client(server).Connect(ctx, server)
	if ctx.Err() == nil {
		answered := err == nil || errors.Is(err, pull.ErrGreeted)
		s.outages.recordAnswer(serverKey(mb.External.IMAP), answered, s.Now())
	}
	if errors.Is(err, netguard.ErrBlocked) && server.Security == "none" {
		return nil, &serverError{server.Host + " is not asked for mail: imap.security " + PlainRefused + ".", err}
	}
	if err != nil {
		return nil, explainServerError(server.Host, err)
	}
	return session, nil
}

// A serverError is an error of a remote server, with a text for the mailbox's owner.
type serverError struct {
	text  string
	cause error
}

func (f *serverError) Error() string { return f.text + " (" + f.cause.Error() + ")" }

// Unwrap returns the cause.
func (f *serverError) Unwrap() error { return f.cause }

// explainServerError converts an error to a serverError, with a text that says what a person can do
// about it.
func explainServerError(host string, err error) *serverError {
	say := func(format string, args ...any) *serverError {
		return &serverError{fmt.Sprintf(format, args...), err}
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

// ErrorText returns a text that says what a person can do about an error of a remote server.
func ErrorText(host string, err error) string { return explainServerError(host, err).text }

// PlainRefused says why a password is not sent without TLS.
const PlainRefused = "must be tls or starttls: with none the password would cross the internet as plain text. " +
	"TLS is optional only for servers at private addresses, and only where the operator sets allow_private_destinations"

// PlainGuard decides which servers that users have named may be used without TLS. In production
// these are servers at private IP addresses, if the operator allows them. In a sandbox these are
// all servers that it may connect to.
func (s *Servers) PlainGuard() *netguard.Guard {
	return &netguard.Guard{AllowPrivate: s.Config.AllowPrivate, OnlyPrivate: !s.Config.Sandbox}
}

// PlainAllowed reports whether PlainGuard can allow any server at all. The IP address of a host
// name is checked when the connection is made.
func (s *Servers) PlainAllowed() bool { return s.Config.Sandbox || s.Config.AllowPrivate }
