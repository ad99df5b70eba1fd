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

// zippedIANA is IANA's registry as published on 2026-06-26. It lacks the top-level domains that got
// RDAP later; for servers that have moved since, it has the old address.
//
//go:embed dns.json.gz
var zippedIANA []byte

func builtInRegistry() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(zippedIANA))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

const (
	bootstrapFor = 10 * time.Second // for one fetch with all its redirects
	maxBootstrap = 4 << 20
	maxBases     = 8 // of one suffix

	defaultLifetime = 24 * time.Hour
	minLifetime     = time.Hour
	maxLifetime     = 7 * 24 * time.Hour
	retryFetch      = 5 * time.Minute // after a failed one
)

// A registry maps domain name suffixes to their RDAP servers (RFC 9224 §4).
type registry map[string][]string // ASCII, lower-case: base URLs with a final slash

// find returns the servers for the longest suffix of a name that has any.
func (r registry) find(name string) []string {
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

// registries holds a client's copy of the bootstrap registry.
type registries struct {
	fetching chan struct{} // held by the caller that fetches

	mu    sync.Mutex // guards the fields below
	held  registry   // nil: none yet
	stale time.Time  // when to fetch again
	err   error      // of the last fetch
}

// current returns the registry that is held: at first the built-in copy, unless NoCopy is set.
func (c *Client) current() (held registry, stale time.Time, err error) {
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
	return r.held, r.stale, r.err
}

// registry returns the bootstrap registry. When it is due, one caller at a time fetches it; if
// there is an old copy, the other callers use that meanwhile.
func (c *Client) registry(ctx context.Context) (registry, error) {
	r := &c.registries
	held, stale, err := c.current()
	if c.now().Before(stale) {
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
	held, stale, err = c.current()
	if c.now().Before(stale) {
		return held, err // another caller has fetched it
	}
	return c.refetch(ctx)
}

// refetch fetches the registry. If that fails, the old one stays in use.
func (c *Client) refetch(ctx context.Context) (registry, error) {
	// Other callers wait for this fetch, so it must not end when the request of the first caller
	// does.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bootstrapFor)
	defer cancel()
	fetched, lifetime, err := c.fetch(ctx)
	r := &c.registries
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.held, r.stale, r.err = fetched, c.now().Add(lifetime), nil
		return r.held, nil
	}
	err = fmt.Errorf("fetch the list of RDAP servers from %s: %w", c.config.BootstrapURL, err)
	r.stale = c.now().Add(retryFetch)
	if r.held == nil {
		r.err = err
		return nil, err
	}
	c.log.Warn("an older list of RDAP servers is used", "error", err)
	return r.held, nil
}

func (c *Client) fetch(ctx context.Context) (registry, time.Duration, error) {
	a, err := c.get(ctx, c.config.BootstrapURL, "application/json", maxBootstrap)
	if err != nil {
		return nil, 0, err
	}
	if a.status != http.StatusOK {
		return nil, 0, &statusError{a.status, a.page}
	}
	r, err := parseRegistry(a.body)
	return r, lifetime(a.header, c.now()), err
}

// lifetime returns how long the list may be cached (RFC 9224 §8), within bounds.
func lifetime(h http.Header, now time.Time) time.Duration {
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

// parseRegistry parses a bootstrap file (RFC 9224 §3). Malformed parts are skipped; a file without
// any server is an error.
func parseRegistry(body []byte) (registry, error) {
	var file struct {
		Services listOrOne[listOrOne[listOrOne[text]]] `json:"services"`
	}
	if err := json.Unmarshal(body, &file); err != nil {
		return nil, fmt.Errorf("it is not a bootstrap file: %w", err)
	}
	out := registry{}
	for _, service := range file.Services {
		if len(service) < 2 {
			continue
		}
		bases := baseURLs(service[1])
		for _, ending := range service[0] {
			name, err := idn.Address(strings.Trim(string(ending), "."))
			if err == nil && len(bases) > 0 {
				out[name] = preferred(slices.Concat(out[name], bases))
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("it is not a bootstrap file: it names no server")
	}
	return out, nil
}

// baseURLs returns the usable URLs of a service, the best first.
func baseURLs(given []text) []string {
	var out []string
	for _, t := range given {
		u, err := url.Parse(string(t))
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			continue
		}
		if base := u.String(); !slices.Contains(out, base) && len(out) < 2*maxBases {
			out = append(out, strings.TrimSuffix(base, "/")+"/")
		}
	}
	return preferred(out)
}

// preferred drops the URLs without TLS if there is one with TLS (RFC 9224 §3).
func preferred(bases []string) []string {
	if secure := slices.DeleteFunc(slices.Clone(bases), isPlainHTTP); len(secure) > 0 {
		bases = secure
	}
	return bases[:min(len(bases), maxBases)]
}

func isPlainHTTP(base string) bool { return !strings.HasPrefix(base, "https:") }
