// Package lookup asks the DNS on behalf of the whole program. One client keeps answers for as long
// as they allow, puts a question that many ask once, and uses its sockets again.
//
// It does not know who asks, or what the answers are for.
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
	maxPositive  = time.Hour        // an answer is kept at most so long
	maxNegative  = 15 * time.Minute // and so, that there is none (RFC 2308 section 5)
	maxQuestions = 1024             // under way at once
	entryBytes   = 300              // that an answer takes beside its records, about
)

// Options say whom a client asks. The zero value asks the system's resolvers.
type Options struct {
	Servers  []string         // each host:port, or a host for port 53; none: what the system is set to
	MaxBytes int              // of the answers that are kept, about; 8 MiB if 0, none if negative
	Now      func() time.Time // the clock by which answers expire; time.Now if nil
}

// A Client looks names up. Its methods have the names and the results of those of net.Resolver; all
// names are whole, whether they end in a dot or not, since no search list applies. It is safe for
// use by many goroutines.
type Client struct {
	system   *resolvFile // nil: one resolver is asked, whatever the system is set to
	hosts    *hostsFile  // nil: there is none to be asked
	now      func() time.Time
	maxBytes int
	slots    chan struct{}

	mu      sync.Mutex
	servers []*server
	answers map[question]*list.Element
	order   *list.List // of *answer, the one that was used last in front
	bytes   int
	flights map[question]*flight

	asked, kept, shared, failed atomic.Int64
}

// Stats counts what a client was asked.
type Stats struct {
	Asked  int64 // questions that were put to a resolver
	Kept   int64 // that were answered from what was kept
	Shared int64 // that waited for the same question of somebody else
	Failed int64 // that no resolver answered
	Bytes  int   // of the answers that are kept, about
}

// A question is what an answer is kept by.
type question struct {
	name   string // in lower case, with the final dot, escaped as in a zone file
	kind   uint16
	secure bool // with the records of DNSSEC, and whether they were validated
}

// An answer is shared by all who ask, who must not change it.
type answer struct {
	q     question
	msg   *dns.Msg
	until time.Time
	bytes int
}

// A flight is a question that was put to the resolvers and is not answered yet.
type flight struct {
	done chan struct{}
	msg  *dns.Msg
	err  error
}

// New makes a client.
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

// resolvers are those that are asked now, with their sockets. Those of the system may change.
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

// Fresh has look-ups with the context ask a resolver, whatever is kept. Their answers are kept.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

// Stats says what was asked so far.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{c.asked.Load(), c.kept.Load(), c.shared.Load(), c.failed.Load(), c.bytes}
}

// Close closes the sockets that wait to be used again. The client may be used after it.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		s.close()
	}
}

// Ask gives the answer to a question: one that says that the name or the records exist, or that
// they do not. name is as in a zone file. secure asks for the records of DNSSEC too, and whether a
// resolver has validated the answer. The message is shared and must not be changed. Every error is
// a *net.DNSError: no resolver has answered, or all said that they failed.
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

// begin gives the answer that is kept, or the flight that will bring one.
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
	if !fresh { // what is asked anew is for whoever asks it, since the other question may be older
		c.flights[q] = f
	}
	go c.fly(q, f)
	return f, nil
}

// fly puts the question to the resolvers. It ends by itself, whoever still waits for it.
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
		c.keep(q, f.msg)
	}
	c.mu.Unlock()
	close(f.done)
}

// keep keeps an answer for as long as it allows, and forgets those that were not used for longest.
func (c *Client) keep(q question, m *dns.Msg) {
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

// lifetime is how long an answer may be used: the shortest of its records; without any that was
// asked for, what the zone says about names that do not exist, and no time if it says nothing (RFC
// 2308 section 5).
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
