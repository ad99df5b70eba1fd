package limit

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A Counter counts events by key in time windows. Make it with NewCounter or NewSlidingCounter.
type Counter[K comparable] struct {
	period  time.Duration // of one generation
	sliding bool          // the older generation counts too
	maxKeys int           // of one generation; 0: no limit

	mu    sync.Mutex
	since time.Time // when the newer generation began
	newer map[K]int
	older map[K]int
}

// NewCounter returns a counter with fixed windows: all counts become zero together when a window
// ends. The next window begins with the time of the next call, so a caller that passes rounded
// times gets windows at round times.
func NewCounter[K comparable](window time.Duration) *Counter[K] {
	return &Counter[K]{period: window, newer: map[K]int{}}
}

// NewSlidingCounter returns a counter that forgets an event half a window to one and a half windows
// after it. It keeps two generations of half a window each. When a generation has maxKeys keys, the
// next one begins, so that memory holds at most twice as many.
func NewSlidingCounter[K comparable](window time.Duration, maxKeys int) *Counter[K] {
	return &Counter[K]{period: window / 2, sliding: true, maxKeys: maxKeys, newer: map[K]int{}}
}

// Add counts one event of the key, and returns the new count.
func (c *Counter[K]) Add(key K, now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rotate(now)
	c.newer[key]++
	return c.newer[key] + c.older[key]
}

// Count returns how many events of the key there were.
func (c *Counter[K]) Count(key K, now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rotate(now)
	return c.newer[key] + c.older[key]
}

// Remove uncounts one event of the key, which was counted by mistake.
func (c *Counter[K]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, counts := range []map[K]int{c.newer, c.older} {
		switch n := counts[key]; {
		case n > 1:
			counts[key]--
			return
		case n == 1:
			delete(counts, key)
			return
		}
	}
}

// Delete deletes all events of the key.
func (c *Counter[K]) Delete(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.newer, key)
	delete(c.older, key)
}

// rotate begins a new generation when the newer one is old or full. The caller holds the lock.
func (c *Counter[K]) rotate(now time.Time) {
	age := now.Sub(c.since)
	if age >= 0 && age < c.period && (c.maxKeys == 0 || len(c.newer) < c.maxKeys) {
		return
	}
	c.older = nil // also if the clock was set back, so that nobody is limited until it catches up
	if c.sliding && age >= 0 && age < 2*c.period {
		c.older = c.newer
	}
	c.newer, c.since = map[K]int{}, now
}

// Prefix returns the network of an address, with a prefix of bits4 for IPv4 or bits6 for IPv6; it
// counts as one client. An IPv4 address in IPv6 form counts as IPv4, and a zone is ignored. The
// zero address has the zero Prefix.
func Prefix(ip netip.Addr, bits4, bits6 int) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := bits6
	if ip.Is4() {
		bits = bits4
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// Within reports whether an address is in one of the networks.
func Within(networks []netip.Prefix, ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// Host returns the network that belongs to one host: an IPv4 address, or an IPv6 /64.
func Host(ip netip.Addr) netip.Prefix { return Prefix(ip, 32, 64) }

// Site returns the network that belongs to one site or small provider: an IPv4 /24, or an IPv6 /48.
func Site(ip netip.Addr) netip.Prefix { return Prefix(ip, 24, 48) }
