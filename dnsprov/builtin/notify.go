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

// Secondary is a name server that copies our zones. It is recognized by its key or, without a key,
// by its address.
type Secondary struct {
	Name       string         // as the operator calls it, for the log
	Addr       netip.AddrPort // the address for NOTIFY messages
	Nameserver string         // its name in the NS records of zones; "": it is not listed there
	Key        *TSIGKey       // nil: messages are not signed
}

// Copied is a zone that secondaries can copy.
type Copied interface {
	// Transfer lists every record, the SOA first and last.
	Transfer() iter.Seq[dns.RR]
}

// Notifier notifies secondaries that zones have changed (RFC 1996), each at its own pace: a dead
// one does not delay the others. For each secondary it remembers the changed zones that the
// secondary has not confirmed yet.
type Notifier struct {
	senders []*notifySender
}

// NewNotifier returns a Notifier. Before it sends the NOTIFY of a zone, it calls find with the
// zone's origin. It skips a zone that was deleted: DNS has no way to tell a secondary to forget a
// zone.
func NewNotifier(all []Secondary, find func(origin string) (Copied, bool), log *slog.Logger) *Notifier {
	n := &Notifier{}
	for _, one := range all {
		n.senders = append(n.senders, newNotifySender(one, find, log))
	}
	return n
}

// Changed records that zones have changed. It does not block, and may be called from any goroutine,
// also before Run.
func (n *Notifier) Changed(origins ...string) {
	now := time.Now()
	for _, s := range n.senders {
		s.noteChanged(origins, now)
	}
}

// Run notifies every secondary of changes until ctx ends.
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
