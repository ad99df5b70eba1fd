package smtpd

import (
	"net/netip"
	"testing"
	"time"
)

func TestClientLimits(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := Limits{MessagesPerMinute: 2, RecipientsPerMinute: 2, ErrorsPerMinute: 2}
	c := newClients(l, func() time.Time { return now })
	one, far := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	for _, a := range []act{message, recipient, mistake} {
		for i := range 3 {
			if got := c.may(one, a); got != (i < 2) {
				t.Errorf("act %d, time %d: %v", a, i, got)
			}
		}
		for i := range 8 { // the network's bound is 8, and 3 are spent
			if got := c.may(netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}), a); got != (i < 5) {
				t.Errorf("act %d of a neighbour, time %d: %v", a, i, got)
			}
		}
		if !c.may(far, a) {
			t.Error("another network pays for it")
		}
	}
	now = now.Add(window)
	if !c.may(one, message) {
		t.Error("the window does not end")
	}
	for range 20 {
		if !c.may(netip.MustParseAddr("127.0.0.1"), message) || !c.may(netip.MustParseAddr("::1"), message) {
			t.Fatal("loopback is bounded")
		}
	}
}

// TestClientsForgotten bounds what is remembered.
func TestClientsForgotten(t *testing.T) {
	now := time.Unix(1e9, 0)
	c := newClients(DefaultLimits(), func() time.Time { return now })
	for i := range 20_000 {
		c.may(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}), mistake)
	}
	now = now.Add(2 * window)
	if !c.may(netip.MustParseAddr("198.51.100.1"), mistake) || len(c.by) > 10 {
		t.Errorf("%d clients are remembered", len(c.by))
	}
}
