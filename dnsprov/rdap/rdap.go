// Package rdap queries the registries' RDAP servers about domains (RFC 7480 to 7484, 9082, 9083,
// 9224). It does not know who wants the data, nor whether an unregistered name can be bought.
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

// IANABootstrap is IANA's list of the registries' RDAP servers.
const IANABootstrap = "https://data.iana.org/rdap/dns.json"

// Errors of Domain with a meaning; after any other error nothing is known about the domain.
var (
	// ErrNotFound is returned when the registry's server answers that the domain does not exist
	// (404): it is probably free.
	ErrNotFound = errors.New("the registry knows no such domain")
	// ErrNoServer is returned for names whose registry has no known RDAP server.
	ErrNoServer = errors.New("no RDAP server is known for names with this ending")
	// ErrBusy is returned when the registry's server was not queried: too many queries are waiting
	// for it, it asked for a pause, or it failed several times lately.
	ErrBusy = errors.New("the RDAP server is left alone for now")
)

const (
	answerFor = 8 * time.Second // for one query with all its redirects
	maxAnswer = 1 << 20
	maxTries  = 2 // servers that are queried for one name
	maxName   = 253
)

// Config configures a Client.
type Config struct {
	// BootstrapURL is the URL of the list of servers, in the format of RFC 9224; "" is
	// IANABootstrap.
	BootstrapURL string
	// NoCopy makes BootstrapURL the only source. Otherwise a built-in copy of IANA's list, of June
	// 2026, is used until the list has been fetched.
	NoCopy bool
	// HTTP makes the connections. Others choose the servers and their redirects, so its dialer must
	// refuse internal addresses. Its CheckRedirect and Jar are not used.
	HTTP *http.Client
	Log  *slog.Logger     // nil: slog.Default
	Now  func() time.Time // nil: time.Now
}

// A Client queries RDAP servers, at a pace that does not overload them. Any number of goroutines
// may use it. Make it with New.
type Client struct {
	config Config
	http   http.Client
	log    *slog.Logger
	now    func() time.Time

	registries registries
	mu         sync.Mutex
	servers    map[string]*server // by host and port
}

// New returns a client. It sends no request before the first call of Domain.
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

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Domain queries the registry about a domain, given in ASCII; case and a trailing dot do not
// matter. It returns within half a minute, or when ctx ends. Errors wrap ErrNotFound, ErrNoServer
// or ErrBusy, or mean that nothing is known.
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

// plausible reports whether a name is safe in the path of a query: letters, digits and hyphens,
// with dots between.
func plausible(name string) bool {
	return len(name) <= maxName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" &&
		strings.Contains(name, ".") && !strings.HasPrefix(name, ".") && !strings.Contains(name, "..")
}

// ask queries one server, when it is its turn.
func (c *Client) ask(ctx context.Context, base, name string) (*Domain, error) {
	s, err := c.server(base)
	if err != nil {
		return nil, err
	}
	if err := s.acquireTurn(ctx, c.now); err != nil {
		return nil, fmt.Errorf("ask %s about %s: %w", s.host, name, err)
	}
	defer s.releaseTurn()
	limited, cancel := context.WithTimeout(ctx, answerFor)
	defer cancel()
	put := c.now()
	d, err := c.question(limited, base, name)
	if err != nil {
		err = fmt.Errorf("ask %s about %s: %w", s.host, name, err)
	}
	if ctx.Err() == nil { // otherwise the error is our own cancellation
		s.recordResult(err, put, c.now())
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
		// A server that has moved often leaves a web page with status 404 behind; that says nothing
		// about a domain.
		return nil, &statusError{a.status, a.page}
	}
}
