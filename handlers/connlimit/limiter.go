// Package connlimit limits the connections of a server: in total, and per address and network. When
// all slots are taken, a new connection evicts an idle one, first from networks with many
// connections. It does not know which protocol a connection has.
package connlimit

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
)

// Limits are how many connections there may be at once; 0 means no limit.
type Limits struct {
	All        int
	PerAddress int // of these, from one IPv4 address or IPv6 /64
	PerNetwork int // of these, from one IPv4 /24 or IPv6 /48

	Exempt []netip.Prefix // addresses of many clients, such as proxies: only All applies
}

// idleGrace is how long a connection may be idle before any new connection may evict it.
const idleGrace = 10 * time.Second

// reportEvery is the interval at which refused and evicted connections are logged.
const reportEvery = time.Minute

// A Limiter has a slot for each connection of one server. Make it with New.
type Limiter struct {
	name   string
	limits Limits
	log    *slog.Logger

	mu        sync.Mutex
	all       int
	addresses map[netip.Prefix]int
	networks  map[netip.Prefix]map[*Slot]struct{}
	refused   int // since the last report
	evicted   int // since the last report
	timer     *time.Timer
}

// New returns a limiter without connections. name identifies the server in the log.
func New(name string, b Limits, log *slog.Logger) *Limiter {
	return &Limiter{
		name: name, limits: b, log: log,
		addresses: map[netip.Prefix]int{}, networks: map[netip.Prefix]map[*Slot]struct{}{},
	}
}

// A Slot is the place of one connection in a Limiter. At first the connection is idle.
type Slot struct {
	limiter          *Limiter
	address, network netip.Prefix
	evict            func()
	idleSince        atomic.Int64 // in Unix nanoseconds; 0: busy
	released         bool         // guarded by Limiter.mu
}

// Acquire takes a slot for a connection from an address; it returns nil if there is none. evict
// must close the connection. It is called at most once, in its own goroutine, if the connection is
// idle and its slot goes to another one.
func (l *Limiter) Acquire(from net.Addr, evict func()) *Slot {
	s := &Slot{limiter: l, evict: evict}
	var exempt bool
	s.address, s.network, exempt = l.clientPrefix(from)
	s.Idle()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !exempt && (full(l.addresses[s.address], l.limits.PerAddress) || full(len(l.networks[s.network]), l.limits.PerNetwork)) {
		l.count(&l.refused)
		return nil
	}
	if full(l.all, l.limits.All) {
		other := l.evictable(len(l.networks[s.network]))
		if other == nil {
			l.count(&l.refused)
			return nil
		}
		l.count(&l.evicted)
		l.remove(other)
		go other.evict()
	}
	l.all++
	l.addresses[s.address]++
	if l.networks[s.network] == nil {
		l.networks[s.network] = map[*Slot]struct{}{}
	}
	l.networks[s.network][s] = struct{}{}
	return s
}

func full(n, most int) bool { return most > 0 && n >= most }

// evictable returns the connection to evict for a new one whose network has n connections; nil if
// there is none. It chooses the largest network that has at least two more connections than n, or
// at least n if its connection has been idle for longer than idleGrace. In that network it chooses
// the connection that has been idle the longest.
func (l *Limiter) evictable(n int) *Slot {
	var found *Slot
	most, since, now := 0, int64(0), time.Now()
	for _, slots := range l.networks {
		if len(slots) < max(n, most) {
			continue
		}
		latest := now.UnixNano()
		if len(slots) < n+2 {
			latest = now.Add(-idleGrace).UnixNano()
		}
		for s := range slots {
			idle := s.idleSince.Load()
			if idle == 0 || idle > latest || len(slots) == most && idle >= since {
				continue
			}
			found, most, since = s, len(slots), idle
		}
	}
	return found
}

// Idle marks the connection as waiting for its client; it may be evicted.
func (s *Slot) Idle() { s.idleSince.Store(time.Now().UnixNano()) }

// Busy marks the connection as not waiting; it is not evicted.
func (s *Slot) Busy() { s.idleSince.Store(0) }

// Release frees the slot; further calls do nothing.
func (s *Slot) Release() {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	s.limiter.remove(s)
}

func (l *Limiter) remove(s *Slot) {
	if s.released {
		return
	}
	s.released = true
	l.all--
	if l.addresses[s.address]--; l.addresses[s.address] == 0 {
		delete(l.addresses, s.address)
	}
	if delete(l.networks[s.network], s); len(l.networks[s.network]) == 0 {
		delete(l.networks, s.network)
	}
}

// count counts a refused or evicted connection. It logs the first one at once, and later ones
// together.
func (l *Limiter) count(n *int) {
	*n++
	if l.timer == nil {
		l.report()
		l.timer = time.AfterFunc(reportEvery, l.tick)
	}
}

func (l *Limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.timer == nil:
	case l.refused+l.evicted == 0:
		l.timer = nil
	default:
		l.report()
		l.timer.Reset(reportEvery)
	}
}

func (l *Limiter) report() {
	if l.refused+l.evicted == 0 {
		return
	}
	l.log.Warn("too many connections", "server", l.name, "refused", l.refused, "sent_away", l.evicted, "open", l.all, "networks", len(l.networks))
	l.refused, l.evicted = 0, 0
}

// Close logs the counts since the last report.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// clientPrefix returns the prefixes by which an address is counted. Exempt addresses are limited
// only in total.
func (l *Limiter) clientPrefix(a net.Addr) (address, network netip.Prefix, exempt bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, netip.Prefix{}, true // for example a Unix socket
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	return limit.Host(ip), limit.Site(ip), limit.Within(l.limits.Exempt, ip)
}
