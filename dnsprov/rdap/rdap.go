// Package rdap queries the RDAP servers of registries about domains (RFC 7480 to 7484, 9082, 9083,
// 9224). It does not know who wants the data, or whether an unregistered name can be bought.
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

// IANABootstrap is the URL of IANA's list of RDAP servers.
const IANABootstrap = "https://data.iana.org/rdap/dns.json"

// Errors of Client.Domain. After any other error nothing is known about the domain.
var (
	// ErrNotFound means that the registry's server answered 404: the domain does not exist.
	ErrNotFound = errors.New("the registry does not have the domain")
	// ErrNoServer means that no RDAP server is known for the suffix of the name.
	ErrNoServer = errors.New("no RDAP server is known for names with this suffix")
	// ErrBusy means that the registry's server was not queried: too many queries are waiting, the
	// server asked for a pause, or it has failed several times.
	ErrBusy = errors.New("the RDAP server must not be queried at the moment")
)

const (
	queryTimeout = 8 * time.Second // for one query with all redirects
	maxAnswer    = 1 << 20         // maximum size of an answer in bytes
	maxTries     = 2               // maximum number of servers to query for one name
	maxName      = 253             // maximum length of a domain name in characters
)

// Config configures a Client.
type Config struct {
	// BootstrapURL is the URL of the list of servers, in the format of RFC 9224. "" means
	// IANABootstrap.
	BootstrapURL string
	// NoCopy turns off the built-in copy of IANA's list, which is otherwise used until the list has
	// been fetched.
	NoCopy bool
	// HTTP sends the requests. Its dialer must refuse internal addresses, because other people
	// choose the servers. Its CheckRedirect and Jar are not used. nil means http.DefaultClient.
	HTTP *http.Client
	Log  *slog.Logger     // nil means slog.Default
	Now  func() time.Time // nil means time.Now
}

// A Client queries RDAP servers. It limits the rate of queries to each server. It is safe for
// concurrent use. Use New to make one.
type Client struct {
	config Config
	http   http.Client
	log    *slog.Logger
	now    func() time.Time

	registries registryCache
	mu         sync.Mutex
	servers    map[string]*server // by host and port
}

// New returns a client without sending a request.
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

// Domain queries the registry of a domain about it. The name must be ASCII; its letter case and a
// trailing dot do not matter. Domain returns within half a minute, or when ctx ends. If its error
// wraps none of ErrNotFound, ErrNoServer and ErrBusy, the query failed.
func (c *Client) Domain(ctx context.Context, name string) (*Domain, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if !isDomainName(name) {
		return nil, fmt.Errorf("query RDAP about %.80q: it is not a domain name in ASCII", name)
	}
	registry, err := c.loadRegistry(ctx)
	if err != nil {
		return nil, fmt.Errorf("query RDAP about %s: %w", name, err)
	}
	bases := registry.serversFor(name)
	if len(bases) == 0 {
		return nil, fmt.Errorf("query RDAP about %s: %w", name, ErrNoServer)
	}
	var failures []error
	for _, base := range bases[:min(len(bases), maxTries)] {
		d, err := c.query(ctx, base, name)
		if err == nil || errors.Is(err, ErrNotFound) {
			return d, err
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// isDomainName reports whether a name has the form of a domain name in ASCII, with at least one
// dot, so that it is safe in the path of a query.
func isDomainName(name string) bool {
	return len(name) <= maxName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" &&
		strings.Contains(name, ".") && !strings.HasPrefix(name, ".") && !strings.Contains(name, "..")
}

// query waits until the server with a base URL may be queried, queries it about a domain, and
// records the result for later queries.
func (c *Client) query(ctx context.Context, base, name string) (*Domain, error) {
	s, err := c.serverAt(base)
	if err != nil {
		return nil, err
	}
	if err := s.acquireTurn(ctx, c.now); err != nil {
		return nil, fmt.Errorf("query %s about %s: %w", s.host, name, err)
	}
	defer s.releaseTurn()
	limited, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	sent := c.now()
	d, err := c.sendQuery(limited, base, name)
	if err != nil {
		err = fmt.Errorf("query %s about %s: %w", s.host, name, err)
	}
	if ctx.Err() == nil { // otherwise the caller has canceled the query
		s.recordResult(err, sent, c.now())
	}
	return d, err
}

// sendQuery sends one query about a domain and parses the answer.
func (c *Client) sendQuery(ctx context.Context, base, name string) (*Domain, error) {
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
		return nil, &pauseError{a.status, parseRetryAfter(a.retryAfter, c.now())}
	default:
		// A web page with status 404 does not mean that the domain does not exist: the server may
		// have moved.
		return nil, &statusError{a.status, a.page}
	}
}
