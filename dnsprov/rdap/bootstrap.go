package rdap

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/mail/idn"
)

// zippedIANA is the gzipped copy of IANA's list of RDAP servers, as published on 2026-06-26.
//
//go:embed dns.json.gz
var zippedIANA []byte

// builtInRegistry returns the unzipped built-in copy of IANA's list.
func builtInRegistry() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(zippedIANA))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

const (
	bootstrapTimeout = 10 * time.Second // for fetching the list with all redirects
	maxBootstrap     = 4 << 20          // maximum size of the list in bytes
	maxBases         = 8                // maximum number of servers for one suffix

	defaultLifetime = 24 * time.Hour     // how long to use a list without caching headers
	minLifetime     = time.Hour          // minimum time before the list is fetched again
	maxLifetime     = 7 * 24 * time.Hour // maximum time before the list is fetched again
	retryFetchAfter = 5 * time.Minute    // how long to wait after a failed fetch
)

// A bootstrapRegistry maps suffixes of domain names, in ASCII and lower case, to the base URLs of
// their RDAP servers, with a final slash (RFC 9224 §4).
type bootstrapRegistry map[string][]string

// serversFor returns the servers for the longest suffix of a name that has servers, or nil.
func (r bootstrapRegistry) serversFor(name string) []string {
	for ending := name; ; {
		if bases := r[ending]; len(bases) > 0 {
			return bases
		}
		_, rest, below := strings.Cut(ending, ".")
		if !below {
			return nil
		}
		ending = rest
	}
}

// registryCache caches the bootstrap registry of a client.
type registryCache struct {
	fetching chan struct{} // has an element while a caller fetches the registry

	mu      sync.Mutex        // protects the following fields
	held    bootstrapRegistry // nil if there is none yet
	staleAt time.Time         // when to fetch the registry again
	err     error             // error of the last fetch, if held is nil
}

// cachedRegistry returns the cached registry. At first that is the built-in copy, unless NoCopy is
// set.
func (c *Client) cachedRegistry() (held bootstrapRegistry, staleAt time.Time, err error) {
	r := &c.registries
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil && !c.config.NoCopy {
		text, err := builtInRegistry()
		r.err = err
		if err == nil {
			r.held, r.err = parseRegistry(text)
		}
	}
	return r.held, r.staleAt, r.err
}

// loadRegistry returns the bootstrap registry. If the cached one is stale, one caller fetches it
// again. Meanwhile the other callers get the old one, or wait if there is none.
func (c *Client) loadRegistry(ctx context.Context) (bootstrapRegistry, error) {
	r := &c.registries
	held, staleAt, err := c.cachedRegistry()
	if c.now().Before(staleAt) {
		return held, err
	}
	if held != nil {
		select {
		case r.fetching <- struct{}{}:
		default:
			return held, nil
		}
	} else {
		select {
		case r.fetching <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-r.fetching }()
	held, staleAt, err = c.cachedRegistry()
	if c.now().Before(staleAt) {
		return held, err // another caller has fetched it meanwhile
	}
	return c.refetchRegistry(ctx)
}

// refetchRegistry fetches and caches the registry. If that fails, it returns the old one, or an
// error if there is none.
func (c *Client) refetchRegistry(ctx context.Context) (bootstrapRegistry, error) {
	// Other callers wait for the result, so do not end if the context of this caller ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bootstrapTimeout)
	defer cancel()
	fetched, lifetime, err := c.fetchRegistry(ctx)
	r := &c.registries
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.held, r.staleAt, r.err = fetched, c.now().Add(lifetime), nil
		return r.held, nil
	}
	err = fmt.Errorf("fetch the list of RDAP servers from %s: %w", c.config.BootstrapURL, err)
	r.staleAt = c.now().Add(retryFetchAfter)
	if r.held == nil {
		r.err = err
		return nil, err
	}
	c.log.Warn("an older list of RDAP servers is used", "error", err)
	return r.held, nil
}

// fetchRegistry fetches the registry, and returns how long it may be cached.
func (c *Client) fetchRegistry(ctx context.Context) (bootstrapRegistry, time.Duration, error) {
	a, err := c.get(ctx, c.config.BootstrapURL, "application/json", maxBootstrap)
	if err != nil {
		return nil, 0, err
	}
	if a.status != http.StatusOK {
		return nil, 0, &statusError{a.status, a.page}
	}
	r, err := parseRegistry(a.body)
	return r, cacheLifetime(a.header, c.now()), err
}

// cacheLifetime returns how long the registry may be cached, by Cache-Control or Expires (RFC 9224
// §8). It is from minLifetime to maxLifetime.
func cacheLifetime(h http.Header, now time.Time) time.Duration {
	for part := range strings.SplitSeq(h.Get("Cache-Control"), ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seconds, err := strconv.ParseUint(value, 10, 31); err == nil && strings.EqualFold(key, "max-age") {
			return clampLifetime(time.Duration(seconds) * time.Second)
		}
	}
	if expires, err := http.ParseTime(h.Get("Expires")); err == nil {
		return clampLifetime(expires.Sub(now))
	}
	return defaultLifetime
}

func clampLifetime(d time.Duration) time.Duration { return min(max(d, minLifetime), maxLifetime) }

// parseRegistry parses a bootstrap file (RFC 9224 §3). It skips malformed parts. It returns an
// error if the file has no servers.
func parseRegistry(body []byte) (bootstrapRegistry, error) {
	var file struct {
		Services listOrOne[listOrOne[listOrOne[text]]] `json:"services"`
	}
	if err := json.Unmarshal(body, &file); err != nil {
		return nil, fmt.Errorf("the answer is not an RDAP bootstrap file: %w", err)
	}
	out := bootstrapRegistry{}
	for _, service := range file.Services {
		if len(service) < 2 {
			continue
		}
		bases := baseURLs(service[1])
		for _, ending := range service[0] {
			name, err := idn.Address(strings.Trim(string(ending), "."))
			if err == nil && len(bases) > 0 {
				out[name] = preferHTTPS(slices.Concat(out[name], bases))
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the RDAP bootstrap file has no servers")
	}
	return out, nil
}

// baseURLs returns the valid URLs of a service, without plain HTTP if there is one with https.
func baseURLs(texts []text) []string {
	var out []string
	for _, t := range texts {
		u, err := url.Parse(string(t))
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			continue
		}
		if base := u.String(); !slices.Contains(out, base) && len(out) < 2*maxBases {
			out = append(out, strings.TrimSuffix(base, "/")+"/")
		}
	}
	return preferHTTPS(out)
}

// preferHTTPS removes the URLs without TLS if there is one with TLS (RFC 9224 §3). It returns at
// most maxBases.
func preferHTTPS(bases []string) []string {
	if secure := slices.DeleteFunc(slices.Clone(bases), isPlainHTTP); len(secure) > 0 {
		bases = secure
	}
	return bases[:min(len(bases), maxBases)]
}

func isPlainHTTP(base string) bool { return !strings.HasPrefix(base, "https:") }
