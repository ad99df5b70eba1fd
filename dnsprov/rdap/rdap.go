// Package rdap asks the registries' RDAP servers about domains (RFC 7480 to 7484, 9082, 9083,
// 9224). It does not know who wants to know, nor whether a name that nobody has registered can be
// bought.
package rdap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// IANABootstrap is where IANA publishes which registry's server answers for which names.
const IANABootstrap = "https://data.iana.org/rdap/dns.json"

// Errors of Domain that say something; after any other nothing is known about the domain.
var (
	// ErrNotFound is returned when the registry's server answered that it has no such domain (404):
	// it is probably free.
	ErrNotFound = errors.New("the registry knows no such domain")
	// ErrNoServer is returned for names whose registry has no RDAP server that is known here.
	ErrNoServer = errors.New("no RDAP server is known for names of this ending")
	// ErrBusy is returned when the registry's server was not asked: too many questions wait for it,
	// it has asked for a pause, or it failed several times just now.
	ErrBusy = errors.New("the RDAP server is left alone for now")
)

const (
	answerFor = 8 * time.Second // one question, all its redirects
	maxAnswer = 1 << 20
	maxTries  = 2 // servers that are asked about one name
	maxName   = 253
)

// Config is how to ask.
type Config struct {
	// BootstrapURL is where the list of servers is fetched, in the form of RFC 9224; "" is
	// IANABootstrap.
	BootstrapURL string
	// NoCopy is for a BootstrapURL that shall be believed alone. Otherwise the copy of IANA's list
	// that is built in, of June 2026, stands in for it until it has been fetched.
	NoCopy bool
	// HTTP makes the connections. Servers, and whom they redirect to, are named by others: its
	// dialer has to keep away from addresses that they have no business with. Its CheckRedirect and
	// Jar are not used.
	HTTP *http.Client
	Log  *slog.Logger     // nil: slog.Default
	Now  func() time.Time // nil: time.Now
}

// A Client asks RDAP servers, each at a pace that does not burden it. Its methods may be called by
// any number of goroutines. Make it with New.
type Client struct {
	config Config
	http   http.Client
	log    *slog.Logger
	now    func() time.Time

	registries registries
	mu         sync.Mutex
	servers    map[string]*server // by host and port
}

// New makes a client. It asks nobody before the first call of Domain.
func New(c Config) *Client {
	if c.BootstrapURL == "" {
		c.BootstrapURL = IANABootstrap
	}
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	out := &Client{config: c, http: *c.HTTP, log: c.Log, now: c.Now, servers: map[string]*server{}}
	out.http.CheckRedirect, out.http.Jar = checkRedirect, nil
	if out.log == nil {
		out.log = slog.Default()
	}
	if out.now == nil {
		out.now = time.Now
	}
	out.registries.fetching = make(chan struct{}, 1)
	return out
}

// Close ends the connections that are kept for later.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Domain asks the registry about a domain, which is given in ASCII; case and a trailing dot do not
// matter. The answer comes within half a minute, or with ctx. Errors wrap ErrNotFound, ErrNoServer
// or ErrBusy, or say that nothing is known.
func (c *Client) Domain(ctx context.Context, name string) (*Domain, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if !plausible(name) {
		return nil, fmt.Errorf("ask RDAP about %.80q: it is not a domain name in ASCII", name)
	}
	registry, err := c.registry(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask RDAP about %s: %w", name, err)
	}
	bases := registry.find(name)
	if len(bases) == 0 {
		return nil, fmt.Errorf("ask RDAP about %s: %w", name, ErrNoServer)
	}
	var failures []error
	for _, base := range bases[:min(len(bases), maxTries)] {
		d, err := c.ask(ctx, base, name)
		if err == nil || errors.Is(err, ErrNotFound) {
			return d, err
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// plausible reports whether a name may stand in the path of a question: hosts' letters, dots
// between.
func plausible(name string) bool {
	return len(name) <= maxName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" &&
		strings.Contains(name, ".") && !strings.HasPrefix(name, ".") && !strings.Contains(name, "..")
}

// ask puts the question to one server, in its turn.
func (c *Client) ask(ctx context.Context, base, name string) (*Domain, error) {
	s, err := c.server(base)
	if err != nil {
		return nil, err
	}
	if err := s.turn(ctx, c.now); err != nil {
		return nil, fmt.Errorf("ask %s about %s: %w", s.host, name, err)
	}
	defer s.leave()
	limited, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	put := c.now()
	d, err := c.question(limited, base, name)
	if err != nil {
		err = fmt.Errorf("ask %s about %s: %w", s.host, name, err)
	}
	if ctx.Err() == nil { // else it is we who hung up
		s.note(err, put, c.now())
	}
	return d, err
}

func (c *Client) question(ctx context.Context, base, name string) (*Domain, error) {
	a, err := c.get(ctx, base+"domain/"+name, "application/rdap+json, application/json;q=0.5", maxAnswer)
	if err != nil {
		return nil, err
	}
	switch {
	case a.status == http.StatusOK:
		return readDomain(a.body, name)
	case a.status == http.StatusNotFound && !a.page:
		return nil, ErrNotFound
	case a.status == http.StatusTooManyRequests, a.status == http.StatusServiceUnavailable && a.retryAfter != "":
		return nil, &pauseError{a.status, pause(a.retryAfter, c.now())}
	default:
		// A web page with status 404 is what stands where a service has moved away from; it says
		// nothing about a domain.
		return nil, &statusError{a.status, a.page}
	}
}
