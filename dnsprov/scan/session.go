package scan

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
)

const (
	maxPatience = 3 // servers that do not answer a question and are asked it again
	maxUnheard  = 3 // questions of one type that nobody answers, after which the type is left out
)

// A session is the questions about one zone.
type session struct {
	*Client
	zone    string    // canonical; empty if it is not known yet
	servers []*server // those with the newest zone first
	newest  int       // number of those
	turn    atomic.Uint32

	mu    sync.Mutex
	heard map[uint16]int // by type: how many questions nobody answered; below 0 if one was answered
}

func (c *Client) session(zone string, addrs []netip.AddrPort) *session {
	z := &session{Client: c, zone: zone, newest: len(addrs), heard: map[uint16]int{}}
	for _, addr := range addrs {
		z.servers = append(z.servers, &server{addr: addr})
	}
	return z
}

// ask asks the servers until one answers. Those with the newest zone take turns, the others are
// asked if none of them answers. The errors are errLame if servers answered, but not for the zone;
// errSilent if none answered, though other questions may be answered; ErrNoServer if all servers
// are left aside; and that of ctx.
func (z *session) ask(ctx context.Context, name string, typ uint16, secure bool) (*reply, error) {
	q := dns.Question{Name: name, Qtype: typ, Qclass: dns.ClassINET}
	turn := 0
	if z.newest > 0 {
		turn = int((z.turn.Add(1) - 1) % uint32(z.newest))
	}
	order := slices.Concat(z.servers[turn:z.newest], z.servers[:turn], z.servers[z.newest:])
	order = slices.DeleteFunc(order, (*server).aside)
	if len(order) == 0 {
		return nil, ErrNoServer
	}
	if z.unheard(typ) {
		return nil, errSilent
	}
	failure, silent := errSilent, map[*server]bool{}
	defer func() {
		for s := range silent {
			s.silences.Add(1)
		}
	}()
	for i, how := range tries {
		if i > 0 {
			order = order[:min(len(order), maxPatience)]
		}
		for _, s := range slices.Clone(order) {
			in, err := z.try(ctx, s, q, secure, how)
			if err == errSilent {
				silent[s] = true
				continue
			}
			if ctx.Err() != nil {
				clear(silent)
				return nil, ctx.Err()
			}
			s.silences.Store(0)
			delete(silent, s)
			if err == nil {
				if r := readReply(in, q, z.zone); r != nil {
					z.hear(typ, true)
					return r, nil
				}
			}
			failure = errLame
			order = slices.DeleteFunc(order, func(o *server) bool { return o == s })
		}
	}
	if failure == errSilent {
		z.hear(typ, false)
	}
	return nil, failure
}

// hear counts the questions of a type that nobody answers: some servers drop all questions of types
// that they do not know.
func (z *session) hear(typ uint16, answered bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	switch {
	case answered:
		z.heard[typ] = -1
	case z.heard[typ] >= 0:
		z.heard[typ]++
	}
}

func (z *session) unheard(typ uint16) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.heard[typ] >= maxUnheard
}

// survey asks all servers for the SOA of the zone that a domain is in. It returns a session with
// those that answer, or ErrNoServer, or the error of ctx.
func (c *Client) survey(ctx context.Context, s *Servers, domain string) (*session, error) {
	type found struct {
		server *server
		zone   string
	}
	all := make([]found, len(s.Addrs))
	var g errgroup.Group
	for i, addr := range s.Addrs {
		g.Go(func() error {
			one := c.session("", []netip.AddrPort{addr})
			r, err := one.ask(ctx, domain, dns.TypeSOA, false)
			if err != nil {
				return nil
			}
			all[i] = found{one.servers[0], domain}
			if r.soa != nil {
				all[i].zone, all[i].server.serial = r.soa.Hdr.Name, r.soa.Serial
			}
			return nil
		})
	}
	_ = g.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	all = slices.DeleteFunc(all, func(f found) bool { return f.server == nil })
	if len(all) == 0 {
		return nil, ErrNoServer
	}
	z := &session{Client: c, heard: map[uint16]int{}}
	for _, f := range all {
		if len(f.zone) > len(z.zone) {
			z.zone = f.zone
		}
	}
	for _, f := range all {
		if f.zone == z.zone {
			z.servers = append(z.servers, f.server)
		}
	}
	slices.SortStableFunc(z.servers, func(a, b *server) int {
		return cmp.Compare(int32(b.serial-a.serial), 0) // RFC 1982
	})
	for z.newest < len(z.servers) && z.servers[z.newest].serial == z.servers[0].serial {
		z.newest++
	}
	return z, nil
}
