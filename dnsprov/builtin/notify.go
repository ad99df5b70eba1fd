package builtin

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Secondary is a name server elsewhere that copies our zones. It is known by its key or, if it has
// none, by its address.
type Secondary struct {
	Name       string         // as its operator calls it, for the log
	Addr       netip.AddrPort // where it takes notices
	Nameserver string         // its name in the NS records of zones; "": it is not shown to the world
	Key        *TSIGKey       // nil: nothing between it and us is signed
}

// Copied is a zone that secondaries copy.
type Copied interface {
	// Transfer lists every record, the SOA first and last.
	Transfer() iter.Seq[dns.RR]
}

// Notifier tells secondaries that zones have changed (RFC 1996), each at its own pace: one that is
// dead does not delay the others. It holds the set of zones whose change a secondary has not
// confirmed.
type Notifier struct {
	senders []*notifySender
}

// NewNotifier makes a Notifier that looks zones up with find, by their origin, at the moment at
// which it tells about them. A zone that is gone is not told about: in DNS a secondary is not told
// to forget one.
func NewNotifier(all []Secondary, find func(origin string) (Copied, bool), log *slog.Logger) *Notifier {
	n := &Notifier{}
	for _, one := range all {
		n.senders = append(n.senders, newNotifySender(one, find, log))
	}
	return n
}

// Changed notes that zones have changed. It never waits, and may be called from any goroutine, also
// before Run.
func (n *Notifier) Changed(origins ...string) {
	now := time.Now()
	for _, s := range n.senders {
		s.noteChanged(origins, now)
	}
}

// Run tells every secondary about what has changed until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range n.senders {
		wg.Go(func() { s.run(ctx) })
	}
	wg.Wait()
}

// dialUDP opens a socket to a secondary.
func dialUDP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "udp", to.String())
}
