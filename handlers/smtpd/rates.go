package smtpd

import (
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
)

const (
	rateWindow    = time.Minute
	networkFactor = 4 // what a network may do, in multiples of what an address may
)

// clientRates counts what every address and network does in a minute. Loopback is counted but not
// limited: a proxy, a test or a mail program on this host stands for many.
type clientRates struct {
	limits Limits
	now    func() time.Time
	counts *limit.Counter[rateKey]
}

type rateKey struct {
	from netip.Prefix
	what event
}

// An event is something that is counted.
type event int

const (
	message event = iota
	recipient
	failure // an unknown recipient, or a log-in that fails
)

func newClientRates(l Limits, now func() time.Time) *clientRates {
	return &clientRates{limits: l, now: now, counts: limit.NewCounter[rateKey](rateWindow)}
}

// allow counts an event, and tells whether the client is within its limits.
func (c *clientRates) allow(ip netip.Addr, what event) bool {
	most := map[event]int{
		message: c.limits.MessagesPerMinute, recipient: c.limits.RecipientsPerMinute, failure: c.limits.ErrorsPerMinute,
	}[what]
	now := c.now()
	address := c.counts.Add(rateKey{limit.Host(ip), what}, now)
	network := c.counts.Add(rateKey{limit.Site(ip), what}, now)
	return ip.IsLoopback() || address <= most && network <= networkFactor*most
}
