package smtpd

import (
	"net/netip"
	"sync"
	"time"
)

const (
	window        = time.Minute
	networkFactor = 4    // what a network may, measured by what an address may
	sweepAt       = 8192 // clients known before old ones are looked for
)

// clients counts what every address and network does. Loopback is not bounded: a proxy, a test or a
// mail program on this host stands for many.
type clients struct {
	limits Limits
	now    func() time.Time

	mu    sync.Mutex
	swept time.Time
	by    map[netip.Prefix]*client
}

// client is one address or network.
type client struct {
	since                        time.Time // the window that the counts are of
	messages, recipients, errors int
}

func newClients(l Limits, now func() time.Time) *clients {
	return &clients{limits: l, now: now, by: map[netip.Prefix]*client{}}
}

// An act is something that is counted within a window.
type act int

const (
	message act = iota
	recipient
	mistake
)

// may counts an act, and tells whether the client is within its bounds.
func (c *clients) may(ip netip.Addr, a act) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep()
	address, network := c.find(ip)
	var one, all int
	var most int
	switch a {
	case message:
		address.messages++
		network.messages++
		one, all, most = address.messages, network.messages, c.limits.MessagesPerMinute
	case recipient:
		address.recipients++
		network.recipients++
		one, all, most = address.recipients, network.recipients, c.limits.RecipientsPerMinute
	case mistake:
		address.errors++
		network.errors++
		one, all, most = address.errors, network.errors, c.limits.ErrorsPerMinute
	}
	return ip.IsLoopback() || one <= most && all <= networkFactor*most
}

// find gives the counts of an address and its network, new ones where their window is over.
func (c *clients) find(ip netip.Addr) (address, network *client) {
	one, many := 64, 48
	if ip.Is4() {
		one, many = 32, 24
	}
	return c.get(ip, one), c.get(ip, many)
}

func (c *clients) get(ip netip.Addr, bits int) *client {
	key, err := ip.Prefix(bits)
	if err != nil {
		key = netip.Prefix{} // no address at all
	}
	k := c.by[key]
	if k == nil {
		k = &client{}
		c.by[key] = k
	}
	if now := c.now(); now.Sub(k.since) >= window {
		k.since, k.messages, k.recipients, k.errors = now, 0, 0, 0
	}
	return k
}

// sweep forgets who has done nothing in this window.
func (c *clients) sweep() {
	now := c.now()
	if len(c.by) < sweepAt || now.Sub(c.swept) < time.Second {
		return
	}
	c.swept = now
	for key, k := range c.by {
		if now.Sub(k.since) >= window {
			delete(c.by, key)
		}
	}
}
