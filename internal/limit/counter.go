package limit

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A Counter counts events by key in time windows. Use NewCounter or NewSlidingCounter to make one.
type Counter[K comparable] struct {
	period  time.Duration // length of a generation
	sliding bool          // whether events of the older generation count too
	maxKeys int           // maximum number of keys in a generation; 0 for no limit

	mu    sync.Mutex
	since time.Time // start of the newer generation
	newer map[K]int // counts of the newer generation
	older map[K]int // counts of the older generation
}

// NewCounter returns a counter with fixed windows. All counts become 0 when a window ends. The next
// window starts with the next call, so a caller that passes rounded times gets windows at round
// times.
func NewCounter[K comparable](window time.Duration) *Counter[K] {
	return &Counter[K]{period: window, newer: map[K]int{}}
}

// NewSlidingCounter returns a counter with a sliding window. It counts in generations of half a
// window, and keeps the current one and the one before. So an event counts for between half a
// window and a whole one. A generation also ends when it has maxKeys keys, so the counter has at
// most 2*maxKeys keys.
func NewSlidingCounter[K comparable](window time.Duration, maxKeys int) *Counter[K] {
	return &Counter[K]{period: window / 2, sliding: true, maxKeys: maxKeys, newer: map[K]int{}}
}

// Add counts one event of a key, and returns the new count of the key.
func (c *Counter[K]) Add(key K, now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rotate(now)
	c.newer[key]++
	return c.newer[key] + c.older[key]
}

// Count returns the count of a key.
func (c *Counter[K]) Count(key K, now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rotate(now)
	return c.newer[key] + c.older[key]
}

// Remove reduces the count of a key by one, unless it is 0.
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

// Delete sets the count of a key to 0.
func (c *Counter[K]) Delete(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.newer, key)
	delete(c.older, key)
}

// rotate starts a new generation if the newer one has ended or is full. The caller must hold c.mu.
func (c *Counter[K]) rotate(now time.Time) {
	age := now.Sub(c.since)
	if age >= 0 && age < c.period && (c.maxKeys == 0 || len(c.newer) < c.maxKeys) {
		return
	}
	c.older = nil // if the clock was set back, all counts become 0
	if c.sliding && age >= 0 && age < 2*c.period {
		c.older = c.newer
	}
	c.newer, c.since = map[K]int{}, now
}

// Prefix returns the network that contains an address. Its prefix length is bits4 for IPv4 and
// bits6 for IPv6. Prefix treats IPv4-mapped IPv6 addresses as IPv4, and ignores zones. It returns
// the zero Prefix for the zero address.
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

// HostNetwork returns the network that usually belongs to one host: a single IPv4 address, or an
// IPv6 /64.
func HostNetwork(ip netip.Addr) netip.Prefix { return Prefix(ip, 32, 64) }

// SiteNetwork returns the network that usually belongs to one site: an IPv4 /24, or an IPv6 /48.
func SiteNetwork(ip netip.Addr) netip.Prefix { return Prefix(ip, 24, 48) }
