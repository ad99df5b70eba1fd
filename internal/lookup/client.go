// Package lookup makes DNS lookups for the whole program. A client caches answers for their
// lifetime, sends the same question of several callers only once, and reuses its sockets.
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
	maxPositive  = time.Hour        // longest time that an answer is cached
	maxNegative  = 15 * time.Minute // the same for a negative answer (RFC 2308 section 5)
	maxQuestions = 1024             // outstanding at the same time
	entryBytes   = 300              // approximate memory of an answer besides its records
)

// Options configure a client. The zero value uses the system's resolvers.
type Options struct {
	Servers  []string         // each host:port, or a host for port 53; none: the system's resolvers
	MaxBytes int              // approximate size of the cache; 0: 8 MiB; negative: no cache
	Now      func() time.Time // the clock by which answers expire; time.Now if nil
}

// A Client looks up names. Its methods have the names and results of those of net.Resolver; all
// names are absolute, with or without a final dot, since no search list applies. It is safe for
// concurrent use.
type Client struct {
	system   *resolvFile // nil: fixed resolvers are used
	hosts    *hostsFile  // nil: no hosts file is used
	now      func() time.Time
	maxBytes int
	slots    chan struct{}

	mu      sync.Mutex
	servers []*server
	answers map[question]*list.Element
	order   *list.List // of *answer, the most recently used first
	bytes   int
	flights map[question]*flight

	asked, kept, shared, failed atomic.Int64
}

// Stats counts a client's lookups.
type Stats struct {
	Asked  int64 // questions that were sent to a resolver
	Kept   int64 // questions that were answered from the cache
	Shared int64 // questions that waited for the same question of another caller
	Failed int64 // questions that no resolver answered
	Bytes  int   // approximate size of the cached answers
}

// A question is the key of a cached answer.
type question struct {
	name   string // in lower case, with the final dot, escaped as in a zone file
	kind   uint16
	secure bool // with DNSSEC records, and whether they were validated
}

// An answer is shared by all callers, which must not change it.
type answer struct {
	q     question
	msg   *dns.Msg
	until time.Time
	bytes int
}

// A flight is a question that was sent to the resolvers and is not answered yet.
type flight struct {
	done chan struct{}
	msg  *dns.Msg
	err  error
}

// New returns a client.
func New(o Options) *Client {
	c := &Client{
		now: o.Now, maxBytes: o.MaxBytes, slots: make(chan struct{}, maxQuestions),
		answers: map[question]*list.Element{}, order: list.New(), flights: map[question]*flight{},
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

// resolvers returns the resolvers in use, with their sockets. Those of the system may change.
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

type freshKey struct{}

// Fresh makes lookups with the returned context bypass the cache. Their answers are still cached.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

// Stats returns the counts so far.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{c.asked.Load(), c.kept.Load(), c.shared.Load(), c.failed.Load(), c.bytes}
}

// Close closes the idle sockets. The client remains usable.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		s.close()
	}
}

// Ask returns the answer to a question: that the name or the records exist, or that they do not.
// name is as in a zone file. secure also requests DNSSEC records, and whether a resolver has
// validated the answer. The message is shared and must not be changed. Every error is a
// *net.DNSError: no resolver answered, or all reported failures.
func (c *Client) Ask(ctx context.Context, name string, kind uint16, secure bool) (*dns.Msg, error) {
	q := question{strings.ToLower(dns.Fqdn(name)), kind, secure}
	f, msg := c.begin(q, ctx.Value(freshKey{}) != nil)
	if f == nil {
		return msg, nil
	}
	return f.wait(ctx, q)
}

func (f *flight) wait(ctx context.Context, q question) (*dns.Msg, error) {
	select {
	case <-f.done:
		return f.msg, f.err
	case <-ctx.Done():
		err := context.Cause(ctx)
		return nil, &net.DNSError{Err: err.Error(), Name: q.name, IsTimeout: errors.Is(err, context.DeadlineExceeded), IsTemporary: true}
	}
}

// begin returns the cached answer, or the flight that will bring the answer.
func (c *Client) begin(q question, fresh bool) (*flight, *dns.Msg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.answers[q]; e != nil && !fresh {
		if a := e.Value.(*answer); c.now().Before(a.until) {
			c.order.MoveToFront(e)
			c.kept.Add(1)
			return nil, a.msg
		}
		c.drop(e)
	}
	if f := c.flights[q]; f != nil && !fresh {
		c.shared.Add(1)
		return f, nil
	}
	f := &flight{done: make(chan struct{})}
	if !fresh { // a fresh question is not shared, since one that is outstanding may be older
		c.flights[q] = f
	}
	go c.fly(q, f)
	return f, nil
}

// fly sends the question to the resolvers. It runs to its end even if no caller waits any more.
func (c *Client) fly(q question, f *flight) {
	select {
	case c.slots <- struct{}{}:
		c.asked.Add(1)
		f.msg, f.err = c.exchange(q)
		<-c.slots
	default:
		f.err = &net.DNSError{Err: "too many questions are under way", Name: q.name, IsTemporary: true}
	}
	if f.err != nil {
		c.failed.Add(1)
	}
	c.mu.Lock()
	if c.flights[q] == f {
		delete(c.flights, q)
	}
	if f.err == nil {
		c.cache(q, f.msg)
	}
	c.mu.Unlock()
	close(f.done)
}

// cache caches an answer for its lifetime, and evicts the least recently used answers if the cache
// is full.
func (c *Client) cache(q question, m *dns.Msg) {
	if e := c.answers[q]; e != nil {
		c.drop(e)
	}
	ttl := lifetime(m, q.kind)
	size := m.Len() + len(q.name) + entryBytes
	if ttl <= 0 || size > c.maxBytes {
		return
	}
	c.answers[q] = c.order.PushFront(&answer{q, m, c.now().Add(ttl), size})
	for c.bytes += size; c.bytes > c.maxBytes; {
		c.drop(c.order.Back())
	}
}

func (c *Client) drop(e *list.Element) {
	a := c.order.Remove(e).(*answer)
	delete(c.answers, a.q)
	c.bytes -= a.bytes
}

// lifetime returns how long an answer may be used: the shortest TTL of its records. Without records
// of the requested kind it is the time that the zone's SOA gives for negative answers, or 0 without
// an SOA (RFC 2308 section 5).
func lifetime(m *dns.Msg, kind uint16) time.Duration {
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
