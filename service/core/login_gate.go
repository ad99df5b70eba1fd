package core

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/store"
)

// Bounds on passwords that are hashed or wait for it. Strangers are those who have not logged in
// lately from where they are: a slot is kept from them, so that a flood of theirs holds nobody else
// up.
const (
	hashSlots     = 3
	strangerSlots = 2
	waitersEach   = 64               // of one network
	waitersAll    = 4096             // of strangers, and as many of the others
	loginPatience = 10 * time.Second // how long one waits
	busyFor       = 10 * time.Second // when to come again
	ownWork       = "here"           // the network of passwords that are set here
)

// A hashGate gives slots to hash passwords in. Networks take turns, one each, so that who sends
// many waits for the own ones.
type hashGate struct {
	mu        sync.Mutex
	running   int
	strangers int // of the running
	known     fairQueue
	strange   fairQueue
}

// A hashWaiter waits for a slot.
type hashWaiter struct {
	granted chan struct{} // closed when the slot is given
	network string
}

// A fairQueue holds waiters by network.
type fairQueue struct {
	waiting map[string][]*hashWaiter
	order   []string // networks that have some, the next first
	size    int
}

func newHashGate() *hashGate {
	return &hashGate{known: fairQueue{waiting: map[string][]*hashWaiter{}}, strange: fairQueue{waiting: map[string][]*hashWaiter{}}}
}

// acquire waits for a slot, a log-in no longer than loginPatience; release gives it back. The error
// is busy, or of ctx.
func (g *hashGate) acquire(ctx context.Context, network string, known bool) (release func(), err error) {
	g.mu.Lock()
	q := &g.strange
	if known {
		q = &g.known
	}
	own := network == ownWork
	if !own && (q.size >= waitersAll || len(q.waiting[network]) >= waitersEach) {
		g.mu.Unlock()
		return nil, tooBusy()
	}
	w := &hashWaiter{make(chan struct{}), network}
	q.add(w)
	g.grant()
	g.mu.Unlock()
	release = func() { g.release(known) }
	var over <-chan time.Time
	if !own {
		t := time.NewTimer(loginPatience)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-w.granted:
		return release, nil
	case <-over:
		err = tooBusy()
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !q.remove(w) { // its turn came at the last moment
		return release, nil
	}
	return nil, err
}

func tooBusy() *Error {
	e := Errorf("busy", "Too many log-ins wait just now. Try again in a moment.")
	e.RetryAfter = busyFor
	return e
}

func (g *hashGate) release(known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if !known {
		g.strangers--
	}
	g.grant()
}

// grant gives free slots away. One is never a stranger's, and the known, however many they are,
// leave one to strangers.
func (g *hashGate) grant() {
	for g.running < hashSlots {
		strange := g.strange.size > 0 && g.strangers < strangerSlots
		switch {
		case g.known.size > 0 && !(strange && g.strangers == 0 && g.running > 0):
			close(g.known.next().granted)
		case strange:
			close(g.strange.next().granted)
			g.strangers++
		default:
			return
		}
		g.running++
	}
}

func (q *fairQueue) add(w *hashWaiter) {
	if len(q.waiting[w.network]) == 0 {
		q.order = append(q.order, w.network)
	}
	q.waiting[w.network] = append(q.waiting[w.network], w)
	q.size++
}

// next takes the first waiter of the next network, which goes to the end of the order if it has
// more.
func (q *fairQueue) next() *hashWaiter {
	network := q.order[0]
	q.order = q.order[1:]
	list := q.waiting[network]
	w := list[0]
	q.size--
	if len(list) == 1 {
		delete(q.waiting, network)
		return w
	}
	q.waiting[network] = list[1:]
	q.order = append(q.order, network)
	return w
}

// remove tells whether the waiter still waited.
func (q *fairQueue) remove(w *hashWaiter) bool {
	list := q.waiting[w.network]
	i := slices.Index(list, w)
	if i < 0 {
		return false
	}
	q.size--
	if len(list) > 1 {
		q.waiting[w.network] = slices.Delete(list, i, i+1)
		return true
	}
	delete(q.waiting, w.network)
	q.order = slices.DeleteFunc(q.order, func(n string) bool { return n == w.network })
	return true
}

// Network is the part of an address that one party has to itself: an IPv4 address, an IPv6 /64.
func Network(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	p := limit.Host(a)
	if p.Addr().Is4() {
		return p.Addr().String()
	}
	return p.String()
}

// widerNetworks are the networks around an IPv6 /64 that one party may have as well: a /56, a /48.
func widerNetworks(network string) (out []string) {
	p, err := netip.ParsePrefix(network)
	if err != nil || !p.Addr().Is6() {
		return nil
	}
	for _, bits := range []int{56, 48} {
		out = append(out, limit.Prefix(p.Addr(), 0, bits).String())
	}
	return out
}

// fairNetwork is the network that takes turns with others for a slot: an IPv6 /48, an IPv4 /24.
func fairNetwork(network string) string {
	if w := widerNetworks(network); w != nil {
		return w[len(w)-1]
	}
	if a, err := netip.ParseAddr(network); err == nil && a.Is4() {
		return limit.Site(a).String()
	}
	return network
}

// Bounds on the networks that a mailbox or a team user is known at.
const (
	knownFor  = 30 * 24 * time.Hour
	knownMost = 8
	noteAfter = 24 * time.Hour // how old a note may be before it is made anew
)

// IsKnown tells whether somebody has logged in from the network lately.
func IsKnown(seen []store.SeenNetwork, network string, now time.Time) bool {
	return slices.ContainsFunc(seen, func(s store.SeenNetwork) bool { return s.Network == network && now.Sub(s.At) < knownFor })
}

// RecordNetwork notes a log-in from the network, newest first; changed says whether there is
// something to keep.
func RecordNetwork(seen []store.SeenNetwork, network string, now time.Time) (out []store.SeenNetwork, changed bool) {
	for _, s := range seen {
		if s.Network == network && now.Sub(s.At) < noteAfter {
			return seen, false
		}
	}
	out = []store.SeenNetwork{{Network: network, At: now}}
	for _, s := range seen {
		if s.Network != network && now.Sub(s.At) < knownFor && len(out) < knownMost {
			out = append(out, s)
		}
	}
	return out, true
}
