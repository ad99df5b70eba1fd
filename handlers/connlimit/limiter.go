// Package connlimit limits the connections of a server: in total, before log-in for each address
// and network, and after log-in for each mailbox and account. When the total is reached, an idle
// connection of the network with the most connections is closed, and a new connection takes its
// slot. The package does not know which protocol a connection has, nor who may log in.
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

// Limits are how many connections may be open at once. 0 means no limit.
type Limits struct {
	All        int
	PerAddress int // before log-in, on one listener, from one IPv4 address or IPv6 /64
	PerNetwork int // before log-in, from one IPv4 /24 or IPv6 /48
	PerMailbox int // after log-in, of one mailbox, see Slot.LogIn

	// Changing, if not nil, returns PerAddress and PerMailbox, which may change while connections
	// are open. Connections that are open stay open.
	Changing func() (perAddress, perMailbox int)

	Exempt []netip.Prefix // networks to which PerAddress and PerNetwork do not apply, such as those of proxies
}

// changing returns the limits that may change.
func (b *Limits) changing() (perAddress, perMailbox int) {
	if b.Changing == nil {
		return b.PerAddress, b.PerMailbox
	}
	return b.Changing()
}

// idleGrace is how long a connection may be idle before it can be evicted for any new connection,
// see slotToEvict.
const idleGrace = 10 * time.Second

// reportInterval is the time between two log lines about refused and evicted connections.
const reportInterval = time.Minute

// A Limiter has a slot for each connection of one server. Make it with New.
type Limiter struct {
	name   string
	limits Limits
	log    *slog.Logger

	mu            sync.Mutex
	all           int                                 // connections
	addresses     map[client]int                      // connections of each address before log-in
	networks      map[netip.Prefix]map[*Slot]struct{} // connections of each network before log-in
	loggedIn      int                                 // connections after log-in
	accounts      map[string]int                      // connections of each account after log-in
	refused       int                                 // since the last report
	evicted       int                                 // since the last report
	refusedLogins int                                 // since the last report
	timer         *time.Timer                         // of the next report; nil: nothing was refused or evicted lately
}

// A client is the address of a client and the listener that it connected to.
type client struct {
	listener string
	address  netip.Prefix
}

// New returns a Limiter without connections. name is the name of the server in the log.
func New(name string, b Limits, log *slog.Logger) *Limiter {
	return &Limiter{
		name: name, limits: b, log: log,
		addresses: map[client]int{}, networks: map[netip.Prefix]map[*Slot]struct{}{}, accounts: map[string]int{},
	}
}

// A Slot stands for one connection in a Limiter. At first the connection is idle.
type Slot struct {
	limiter   *Limiter
	client    client
	network   netip.Prefix
	evict     func()
	idleSince atomic.Int64 // in Unix nanoseconds; 0: busy

	// Limiter.mu guards these fields.
	released bool
	logins   *Logins // nil before log-in
	login    Login
}

// Acquire takes a slot for a connection from an address, on the only listener of the server. See
// AcquireOn.
func (l *Limiter) Acquire(from net.Addr, evict func()) *Slot { return l.AcquireOn("", from, evict) }

// AcquireOn takes a slot for a connection from an address. listener names the listener that
// accepted it. AcquireOn returns nil if no slot is free. If another connection takes the slot while
// this one is idle, evict is called once, in its own goroutine. It must close the connection.
func (l *Limiter) AcquireOn(listener string, from net.Addr, evict func()) *Slot {
	s := &Slot{limiter: l, evict: evict}
	address, network, exempt := l.clientPrefixes(from)
	s.client, s.network = client{listener, address}, network
	s.Idle()
	perAddress, _ := l.limits.changing()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !exempt && (isFull(l.addresses[s.client], perAddress) || isFull(len(l.networks[s.network]), l.limits.PerNetwork)) {
		l.countEvent(&l.refused)
		return nil
	}
	if isFull(l.all, l.limits.All) {
		other := l.slotToEvict(len(l.networks[s.network]))
		if other == nil {
			l.countEvent(&l.refused)
			return nil
		}
		l.countEvent(&l.evicted)
		l.remove(other)
		go other.evict()
	}
	l.all++
	l.countClient(s)
	return s
}

// countClient counts a connection before log-in for its address and network. l.mu is held.
func (l *Limiter) countClient(s *Slot) {
	l.addresses[s.client]++
	if l.networks[s.network] == nil {
		l.networks[s.network] = map[*Slot]struct{}{}
	}
	l.networks[s.network][s] = struct{}{}
}

// uncountClient takes back what countClient counted. l.mu is held.
func (l *Limiter) uncountClient(s *Slot) {
	if l.addresses[s.client]--; l.addresses[s.client] == 0 {
		delete(l.addresses, s.client)
	}
	if delete(l.networks[s.network], s); len(l.networks[s.network]) == 0 {
		delete(l.networks, s.network)
	}
}

// isFull reports whether n has reached the limit most, where 0 means no limit.
func isFull(n, most int) bool { return most > 0 && n >= most }

// slotToEvict returns the connection to evict for a new one, nil if there is none. Connections that
// are logged in are not evicted, and not counted for their networks. n is how many connections the
// network of the new one has. A network with at least n+2 connections can lose any
// idle connection. One with n or n+1 can lose only a connection that has been idle for longer than
// idleGrace. Of these, slotToEvict chooses the network with the most connections, and in it the
// connection that has been idle the longest.
func (l *Limiter) slotToEvict(n int) *Slot {
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

// Idle marks the connection as waiting for its client. It may be evicted.
func (s *Slot) Idle() { s.idleSince.Store(time.Now().UnixNano()) }

// Busy marks the connection as in use. It is not evicted.
func (s *Slot) Busy() { s.idleSince.Store(0) }

// Release frees the slot. Further calls do nothing.
func (s *Slot) Release() {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	s.limiter.remove(s)
}

// remove frees a slot. The caller holds l.mu.
func (l *Limiter) remove(s *Slot) {
	if s.released {
		return
	}
	s.released = true
	l.all--
	if s.logins != nil {
		l.uncountLogin(s)
	} else {
		l.uncountClient(s)
	}
}

// countEvent counts a refused or evicted connection, or a refused log-in. The first event is logged
// at once, later ones together.
func (l *Limiter) countEvent(n *int) {
	*n++
	if l.timer == nil {
		l.report()
		l.timer = time.AfterFunc(reportInterval, l.reportRegularly)
	}
}

// reportRegularly logs the counts once in reportInterval. It ends when there is nothing to log.
func (l *Limiter) reportRegularly() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.timer == nil:
	case l.refused+l.evicted+l.refusedLogins == 0:
		l.timer = nil
	default:
		l.report()
		l.timer.Reset(reportInterval)
	}
}

// report logs the counts since the last report, and resets them.
func (l *Limiter) report() {
	if l.refused+l.evicted+l.refusedLogins == 0 {
		return
	}
	l.log.Warn("too many connections", "server", l.name, "refused", l.refused, "sent_away", l.evicted, "refused_logins", l.refusedLogins,
		"open", l.all, "logged_in", l.loggedIn, "networks", len(l.networks))
	l.refused, l.evicted, l.refusedLogins = 0, 0, 0
}

// Close logs the counts since the last report, and ends further reports.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// clientPrefixes returns the address and the network under which a client is counted. The limits of
// addresses and networks do not apply to exempt clients.
func (l *Limiter) clientPrefixes(a net.Addr) (address, network netip.Prefix, exempt bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, netip.Prefix{}, true // a Unix socket, for example
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	return limit.HostNetwork(ip), limit.SiteNetwork(ip), limit.Within(l.limits.Exempt, ip)
}
