package dnsd

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
)

// slots bounds the memory of a limiter (512 KiB). Networks that meet in a slot share its rate;
// which ones do is random.
const slots = 1 << 16

// slipEvery is how many refused queries come to one that is told to use TCP, or its cookie: whoever
// really asks from an address that an attacker forges still gets through.
const slipEvery = 2

// limiter bounds what is sent to one network over UDP, where anybody can ask in the name of another
// (response-rate limiting). Each slot is a leaky bucket in one word: the time at which it would be
// empty, in nanoseconds.
type limiter struct {
	seed    maphash.Seed
	every   int64 // nanoseconds that one answer costs
	burst   int64 // nanoseconds that may be owed
	slots   []atomic.Int64
	refused atomic.Uint64
}

func newLimiter(perSecond int) *limiter {
	return &limiter{
		seed: maphash.MakeSeed(), every: int64(time.Second) / int64(perSecond), burst: int64(time.Second),
		slots: make([]atomic.Int64, slots),
	}
}

// allow counts one answer to a client, and tells whether it may have it.
func (l *limiter) allow(from netip.Addr, now time.Time) bool {
	if from.Unmap().IsLoopback() {
		return true
	}
	slot := &l.slots[maphash.Comparable(l.seed, network(from))%slots]
	at := now.UnixNano()
	for {
		have := slot.Load()
		next := max(have, at) + l.every
		if next-at > l.burst {
			return false
		}
		if slot.CompareAndSwap(have, next) {
			return true
		}
	}
}

// slips tells whether a refused query gets an answer without content; the others get none.
func (l *limiter) slips() bool { return l.refused.Add(1)%slipEvery == 0 }

// network returns what counts as one client: a /24, or a /56, which is what one household gets.
func network(ip netip.Addr) netip.Prefix { return limit.Prefix(ip, 24, 56) }
