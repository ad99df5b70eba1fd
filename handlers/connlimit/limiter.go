// Package connlimit limits the connections of a server: in all, and from one address or network.
// When all slots are taken, networks with many connections make room for those with few, and idle
// connections for new ones. It does not know what is spoken on a connection.
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

// Limits are how many connections there may be at once; 0 is any number.
type Limits struct {
	All        int
	PerAddress int // of these from one IPv4 address or IPv6 /64
	PerNetwork int // of these from one IPv4 /24 or IPv6 /48

	Exempt []netip.Prefix // addresses that stand for many, such as proxies: only All holds for them
}

// idleGrace is how long a connection may be idle before it makes room for any other.
const idleGrace = 10 * time.Second

// reportEvery is how often the log counts the connections that were refused or evicted.
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
	evicted   int // the same
	timer     *time.Timer
}

// New returns a limiter without connections. The name is the server's in the log.
func New(name string, b Limits, log *slog.Logger) *Limiter {
	return &Limiter{
		name: name, limits: b, log: log,
		addresses: map[netip.Prefix]int{}, networks: map[netip.Prefix]map[*Slot]struct{}{},
	}
}

// A Slot is what one connection holds. At first the connection is idle.
type Slot struct {
	limiter          *Limiter
	address, network netip.Prefix
	evict            func()
	idleSince        atomic.Int64 // in Unix nanoseconds; 0: it is busy
	released         bool         // guarded by Limiter.mu
}

// Acquire takes a slot for a connection from an address; it returns nil if there is none. evict
// ends the connection. It is called at most once, in a goroutine of its own, when the connection is
// idle and its slot has gone to another.
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

// evictable finds the connection that makes room for a new one, whose network has n connections. It
// is of the largest network that has at least two more, or as many if it is idle for longer than
// idleGrace. In that network it is the one that is idle for longest.
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

// Idle says that the connection waits for its client from now on.
func (s *Slot) Idle() { s.idleSince.Store(time.Now().UnixNano()) }

// Busy says that the connection waits no more: it is not evicted.
func (s *Slot) Busy() { s.idleSince.Store(0) }

// Release gives the slot back. Only the first call counts.
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

// count counts a connection that was refused or evicted. The first is logged at once, the next ones
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

// Close logs what is not logged yet.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// clientPrefix returns what an address counts as. Exempt addresses count in all only.
func (l *Limiter) clientPrefix(a net.Addr) (address, network netip.Prefix, exempt bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, netip.Prefix{}, true // a socket in the file system, say
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	return limit.Host(ip), limit.Site(ip), limit.Within(l.limits.Exempt, ip)
}
