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

// Secondary is a secondary nameserver, which copies our zones. It is identified by its key, or by
// its address if it has no key.
type Secondary struct {
	Name       string         // name in the settings and the log
	Addr       netip.AddrPort // address for NOTIFY messages
	Nameserver string         // host name in the NS records of zones; "" if it is not listed
	Key        *TSIGKey       // nil if messages are not signed
}

// CopiedZone is a zone that secondaries can copy.
type CopiedZone interface {
	// Transfer returns every record of the zone. The SOA is the first and the last.
	Transfer() iter.Seq[dns.RR]
}

// Notifier tells secondaries by NOTIFY messages that zones have changed (RFC 1996). For each
// secondary it keeps the changed zones that the secondary has not confirmed yet, so that a
// secondary that is down does not delay the others.
type Notifier struct {
	senders []*notifySender
}

// NewNotifier returns a Notifier for the secondaries. find returns the zone of an origin, or false
// if the zone was deleted. The Notifier sends nothing for deleted zones.
func NewNotifier(all []Secondary, find func(origin string) (CopiedZone, bool), log *slog.Logger) *Notifier {
	n := &Notifier{}
	for _, one := range all {
		n.senders = append(n.senders, newNotifySender(one, find, log))
	}
	return n
}

// Changed records that the zones with these origins have changed. It does not block, is safe for
// concurrent use, and may be called before Run.
func (n *Notifier) Changed(origins ...string) {
	now := time.Now()
	for _, s := range n.senders {
		s.recordChanges(origins, now)
	}
}

// Run sends NOTIFY messages until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range n.senders {
		wg.Go(func() { s.run(ctx) })
	}
	wg.Wait()
}

// dialUDP opens a UDP socket to a secondary.
func dialUDP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "udp", to.String())
}
