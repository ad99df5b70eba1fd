// Package lookup makes DNS lookups for the whole program. Its client caches answers, sends a
// question that several callers have at the same time only once, and reuses sockets.
//
// It does not know what the answers are for.
package lookup

import (
	"container/list"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	resolvConf   = "/etc/resolv.conf"
	maxPositive  = time.Hour        // maximum time that an answer is cached
	maxNegative  = 15 * time.Minute // maximum time that a negative answer is cached (RFC 2308 section 5)
	maxQuestions = 1024             // maximum number of questions without an answer yet
	entryBytes   = 300              // approximate memory of a cached answer without its records
)

// Options configure a Client. The zero value uses the system's resolvers.
type Options struct {
	Servers  []string         // resolvers, as HOST:PORT or HOST; empty means the system's
	MaxBytes int              // approximate size of the cache; 0 means 8 MiB, negative means no cache
	Now      func() time.Time // clock for the expiry of answers; nil means time.Now
}

// A Client makes DNS lookups. Its methods have the names and results of those of net.Resolver. All
// names are absolute, with or without a final dot; it uses no search list. It is safe for
// concurrent use.
type Client struct {
	system   *resolvFile // resolvers of the system; nil if Options.Servers is set
	hosts    *hostsFile  // hosts file of the system; nil if Options.Servers is set
	now      func() time.Time
	maxBytes int
	slots    chan struct{} // has an element for each question without an answer yet

	mu      sync.Mutex
	servers []*server
	answers map[question]*list.Element // elements of order
	order   *list.List                 // cached answers (*answer), the most recently used first
	bytes   int                        // approximate size of the cached answers
	pending map[question]*pendingLookup

	asked, kept, shared, failed atomic.Int64 // the counts of Stats
}

// Stats counts a client's lookups.
type Stats struct {
	Asked  int64 // questions that were sent to resolvers
	Cached int64 // questions that were answered from the cache
	Shared int64 // questions that another caller had at the same time
	Failed int64 // questions that no resolver answered
	Bytes  int   // approximate size of the cached answers
}

// A question is a DNS question. It is the key of cached answers.
type question struct {
	name   string // in lower case, with the final dot, escaped as in a zone file
	kind   uint16 // record type
	secure bool   // whether to ask for DNSSEC records and validation
}

// An answer is a cached answer. Callers must not change msg.
type answer struct {
	q     question
	msg   *dns.Msg
	until time.Time // when it expires
	bytes int       // approximate size
}

// A pendingLookup is a question that was sent and has no answer yet. done is closed when msg or err
// is set.
type pendingLookup struct {
	done chan struct{}
	msg  *dns.Msg
	err  error
}

// New returns a Client without sending a question.
func New(o Options) *Client {
	c := &Client{
		now: o.Now, maxBytes: o.MaxBytes, slots: make(chan struct{}, maxQuestions),
		answers: map[question]*list.Element{}, order: list.New(), pending: map[question]*pendingLookup{},
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.maxBytes == 0 {
		c.maxBytes = 8 << 20
	}
	if len(o.Servers) == 0 {
		c.system, c.hosts = &resolvFile{path: resolvConf}, &hostsFile{path: "/etc/hosts"}
		return c
	}
	for _, addr := range o.Servers {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			addr = net.JoinHostPort(addr, "53")
		}
		c.servers = append(c.servers, &server{addr: addr})
	}
	return c
}

// resolvers returns the resolvers to ask, with their sockets. It reads those of the system again if
// they have changed.
func (c *Client) resolvers() []*server {
	if c.system == nil {
		return c.servers
	}
	addrs := c.system.resolvers()
	c.mu.Lock()
	defer c.mu.Unlock()
	same := slices.EqualFunc(c.servers, addrs, func(s *server, addr string) bool { return s.addr == addr })
	if !same {
		for _, s := range c.servers {
			s.close()
		}
		c.servers = nil
		for _, addr := range addrs {
			c.servers = append(c.servers, &server{addr: addr})
		}
	}
	return c.servers
}

// freshKey is the context key of Fresh.
type freshKey struct{}

// Fresh returns a context with which lookups bypass the cache. Their answers are still cached.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

// Stats returns the counts so far.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{c.asked.Load(), c.kept.Load(), c.shared.Load(), c.failed.Load(), c.bytes}
}

// Close closes the idle sockets. The client can still be used.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		s.close()
	}
}

// Ask returns the answer to a question, which may be that the name or the records do not exist.
// name is escaped as in a zone file. secure also asks for DNSSEC records, and whether the resolver
// has validated them. The caller must not change the message. Errors are *net.DNSError: no resolver
// answered, or all answered with a failure.
func (c *Client) Ask(ctx context.Context, name string, kind uint16, secure bool) (*dns.Msg, error) {
	q := question{strings.ToLower(dns.Fqdn(name)), kind, secure}
	f, msg := c.joinOrStart(q, ctx.Value(freshKey{}) != nil)
	if f == nil {
		return msg, nil
	}
	return f.wait(ctx, q)
}

// wait waits for the answer. It returns an error if ctx ends first.
func (f *pendingLookup) wait(ctx context.Context, q question) (*dns.Msg, error) {
	select {
	case <-f.done:
		return f.msg, f.err
	case <-ctx.Done():
		err := context.Cause(ctx)
		return nil, &net.DNSError{Err: err.Error(), Name: q.name, IsTimeout: errors.Is(err, context.DeadlineExceeded), IsTemporary: true}
	}
}

// joinOrStart returns the cached answer to a question. If there is none, it returns a pending
// lookup: that of another caller with the same question, or a new one.
func (c *Client) joinOrStart(q question, fresh bool) (running *pendingLookup, cached *dns.Msg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.answers[q]; e != nil && !fresh {
		if a := e.Value.(*answer); c.now().Before(a.until) {
			c.order.MoveToFront(e)
			c.kept.Add(1)
			return nil, a.msg
		}
		c.evict(e)
	}
	if f := c.pending[q]; f != nil && !fresh {
		c.shared.Add(1)
		return f, nil
	}
	f := &pendingLookup{done: make(chan struct{})}
	if !fresh { // callers of Fresh need an answer that is newer than their call
		c.pending[q] = f
	}
	go c.resolve(q, f)
	return f, nil
}

// resolve sends a question to the resolvers, caches the answer, and ends the pending lookup. It
// does not stop if all callers have given up.
func (c *Client) resolve(q question, f *pendingLookup) {
	select {
	case c.slots <- struct{}{}:
		c.asked.Add(1)
		f.msg, f.err = c.exchange(q)
		<-c.slots
	default:
		f.err = &net.DNSError{Err: "too many DNS questions wait for answers", Name: q.name, IsTemporary: true}
	}
	if f.err != nil {
		c.failed.Add(1)
	}
	c.mu.Lock()
	if c.pending[q] == f {
		delete(c.pending, q)
	}
	if f.err == nil {
		c.addToCache(q, f.msg)
	}
	c.mu.Unlock()
	close(f.done)
}

// addToCache adds an answer to the cache for its lifetime. If the cache is full, it removes the
// least recently used answers.
func (c *Client) addToCache(q question, m *dns.Msg) {
	if e := c.answers[q]; e != nil {
		c.evict(e)
	}
	ttl := cacheLifetime(m, q.kind)
	size := m.Len() + len(q.name) + entryBytes
	if ttl <= 0 || size > c.maxBytes {
		return
	}
	c.answers[q] = c.order.PushFront(&answer{q, m, c.now().Add(ttl), size})
	for c.bytes += size; c.bytes > c.maxBytes; {
		c.evict(c.order.Back())
	}
}

// evict removes an answer from the cache.
func (c *Client) evict(e *list.Element) {
	a := c.order.Remove(e).(*answer)
	delete(c.answers, a.q)
	c.bytes -= a.bytes
}

// cacheLifetime returns how long an answer may be cached: the minimum TTL of its records. If there
// are no records of the type kind, it returns the TTL for negative answers in the zone's SOA, or 0
// without an SOA (RFC 2308 section 5).
func cacheLifetime(m *dns.Msg, kind uint16) time.Duration {
	least, found := uint32(maxPositive/time.Second), false
	for _, rr := range m.Answer {
		least = min(least, rr.Header().Ttl)
		found = found || rr.Header().Rrtype == kind
	}
	if found {
		return time.Duration(least) * time.Second
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			least = min(least, soa.Hdr.Ttl, soa.Minttl, uint32(maxNegative/time.Second))
			return time.Duration(least) * time.Second
		}
	}
	return 0
}
