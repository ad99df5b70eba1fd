// Package crowd bounds the connections of a server: in all, and from one address or network. When
// there are as many as there may be, networks that have many make room for those that have few, and
// who idles for who comes. It does not know what is spoken on a connection.
package crowd

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds are how many connections there may be at once; 0 bounds nothing.
type Bounds struct {
	All        int
	PerAddress int  // of these from one IPv4 address or IPv6 /64
	PerNetwork int  // of these from one IPv4 /24 or IPv6 /48
	Loopback   bool // hold PerAddress and PerNetwork for this host too, where a proxy may stand for everybody

	Proxies []netip.Prefix // addresses that stand for many: only All bounds them
}

// Patience is how long a connection may idle while others are refused for want of room.
const Patience = 10 * time.Second

// reportEvery is how often the log tells of connections that were refused, however many they are.
const reportEvery = time.Minute

// A Crowd is the connections of one server. Use New.
type Crowd struct {
	name   string
	bounds Bounds
	log    *slog.Logger

	mu        sync.Mutex
	all       int
	addresses map[netip.Prefix]int
	networks  map[netip.Prefix]map[*Place]struct{}
	refused   int // since the last report
	sentAway  int // the same
	timer     *time.Timer
}

// New makes a crowd without anybody; name is the server's in the log.
func New(name string, b Bounds, log *slog.Logger) *Crowd {
	return &Crowd{
		name: name, bounds: b, log: log,
		addresses: map[netip.Prefix]int{}, networks: map[netip.Prefix]map[*Place]struct{}{},
	}
}

// A Place is what one connection has in a crowd. At first it waits.
type Place struct {
	crowd            *Crowd
	address, network netip.Prefix
	away             func()
	waits            atomic.Int64 // since this time in Unix nanoseconds; 0: it does not
	left             bool         // under the crowd's mutex
}

// Enter gives a connection from an address its place, or nil if there is none. away ends the
// connection; it is called at most once, in a goroutine of its own, when the connection idles and
// its place has gone to another.
func (c *Crowd) Enter(from net.Addr, away func()) *Place {
	p := &Place{crowd: c, away: away}
	var exempt bool
	p.address, p.network, exempt = c.whence(from)
	p.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !exempt && (full(c.addresses[p.address], c.bounds.PerAddress) || full(len(c.networks[p.network]), c.bounds.PerNetwork)) {
		c.count(&c.refused)
		return nil
	}
	if full(c.all, c.bounds.All) {
		other := c.idler(len(c.networks[p.network]))
		if other == nil {
			c.count(&c.refused)
			return nil
		}
		c.count(&c.sentAway)
		c.remove(other)
		go other.away()
	}
	c.all++
	c.addresses[p.address]++
	if c.networks[p.network] == nil {
		c.networks[p.network] = map[*Place]struct{}{}
	}
	c.networks[p.network][p] = struct{}{}
	return p
}

func full(n, most int) bool { return most > 0 && n >= most }

// idler finds who makes room for a newcomer whose network has n connections: of the largest network
// that has at least two more, or as many where Patience is at its end, who has waited longest.
func (c *Crowd) idler(n int) *Place {
	var found *Place
	most, since, now := 0, int64(0), time.Now()
	for _, places := range c.networks {
		if len(places) < max(n, most) {
			continue
		}
		latest := now.UnixNano()
		if len(places) < n+2 {
			latest = now.Add(-Patience).UnixNano()
		}
		for p := range places {
			waits := p.waits.Load()
			if waits == 0 || waits > latest || len(places) == most && waits >= since {
				continue
			}
			found, most, since = p, len(places), waits
		}
	}
	return found
}

// Wait says that the connection waits for its client, from now on.
func (p *Place) Wait() { p.waits.Store(time.Now().UnixNano()) }

// Work says that the connection does not wait any more: it is not sent away.
func (p *Place) Work() { p.waits.Store(0) }

// Leave gives the place back. Only the first call counts.
func (p *Place) Leave() {
	p.crowd.mu.Lock()
	defer p.crowd.mu.Unlock()
	p.crowd.remove(p)
}

func (c *Crowd) remove(p *Place) {
	if p.left {
		return
	}
	p.left = true
	c.all--
	if c.addresses[p.address]--; c.addresses[p.address] == 0 {
		delete(c.addresses, p.address)
	}
	if delete(c.networks[p.network], p); len(c.networks[p.network]) == 0 {
		delete(c.networks, p.network)
	}
}

// count counts one that was refused or sent away. The first is told at once, what follows together.
func (c *Crowd) count(n *int) {
	*n++
	if c.timer == nil {
		c.report()
		c.timer = time.AfterFunc(reportEvery, c.tick)
	}
}

func (c *Crowd) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.timer == nil:
	case c.refused+c.sentAway == 0:
		c.timer = nil
	default:
		c.report()
		c.timer.Reset(reportEvery)
	}
}

func (c *Crowd) report() {
	if c.refused+c.sentAway == 0 {
		return
	}
	c.log.Warn("too many connections", "server", c.name, "refused", c.refused, "sent_away", c.sentAway, "open", c.all, "networks", len(c.networks))
	c.refused, c.sentAway = 0, 0
}

// Close tells the log what it has not been told yet.
func (c *Crowd) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// whence gives what an address counts as; exempt ones count in all only.
func (c *Crowd) whence(a net.Addr) (address, network netip.Prefix, exempt bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, netip.Prefix{}, !c.bounds.Loopback // a socket in the file system, say
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	one, many := 64, 48
	if ip.Is4() {
		one, many = 32, 24
	}
	address, _ = ip.Prefix(one)
	network, _ = ip.Prefix(many)
	proxy := slices.ContainsFunc(c.bounds.Proxies, func(p netip.Prefix) bool { return p.Contains(ip) })
	return address, network, proxy || ip.IsLoopback() && !c.bounds.Loopback
}
