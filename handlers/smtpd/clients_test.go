package smtpd

import (
	"net/netip"
	"testing"
	"time"
)

func TestClientLimits(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := Limits{Conns: 10, ConnsPerAddress: 2, ConnsPerNetwork: 3, MessagesPerMinute: 2, RecipientsPerMinute: 2, ErrorsPerMinute: 2}
	c := newClients(l, func() time.Time { return now })
	one, neighbour, far := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("198.51.100.1")
	leave, ok := c.enter(one)
	c.enter(one)
	if _, again := c.enter(one); !ok || again {
		t.Error("the bound of an address does not hold")
	}
	c.enter(neighbour)
	if _, ok := c.enter(neighbour); ok {
		t.Error("the bound of a network does not hold")
	}
	if _, ok := c.enter(far); !ok {
		t.Error("another network pays for it")
	}
	leave()
	if _, ok := c.enter(neighbour); !ok {
		t.Error("who has left still counts")
	}
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
	stays, _ := c.enter(netip.MustParseAddr("192.0.2.1"))
	for i := range 20_000 {
		c.may(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}), mistake)
	}
	now = now.Add(2 * window)
	leave, ok := c.enter(netip.MustParseAddr("198.51.100.1"))
	if !ok || len(c.by) > 10 {
		t.Errorf("%d clients are remembered", len(c.by))
	}
	leave()
	stays()
	if c.total != 0 {
		t.Errorf("%d connections are counted", c.total)
	}
}
