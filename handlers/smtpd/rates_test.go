package smtpd

import (
	"net/netip"
	"testing"
	"time"
)

func TestClientLimits(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := Limits{MessagesPerMinute: 2, RecipientsPerMinute: 2, ErrorsPerMinute: 2, Exempt: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	c := newClientRates(l, func() time.Time { return now })
	one, far := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	for _, a := range []eventKind{messageEvent, recipientEvent, failureEvent} {
		for i := range 3 {
			if got := c.allow(one, "", a); got != (i < 2) {
				t.Errorf("event %d, time %d: %v", a, i, got)
			}
		}
		for i := range 8 { // the network's limit is 8, and 3 are spent
			if got := c.allow(netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}), "", a); got != (i < 5) {
				t.Errorf("event %d of a neighbour, time %d: %v", a, i, got)
			}
		}
		if !c.allow(far, "", a) {
			t.Error("another network pays for it")
		}
	}
	now = now.Add(rateWindow)
	if !c.allow(one, "", messageEvent) {
		t.Error("the window does not end")
	}
	for range 20 {
		if !c.allow(netip.MustParseAddr("10.9.8.7"), "", messageEvent) || !c.allow(netip.MustParseAddr("::ffff:10.9.8.7"), "", messageEvent) {
			t.Fatal("an exempt address is limited")
		}
	}
	for i := range 3 {
		if got := c.allow(netip.MustParseAddr("127.0.0.1"), "", messageEvent); got != (i < 2) {
			t.Errorf("event %d from loopback: %v", i, got)
		}
	}
}

// TestLimitsOfMailboxes: after log-in the mailbox has the limit of an address, and the address
// none.
func TestLimitsOfMailboxes(t *testing.T) {
	l := Limits{MessagesPerMinute: 2, Exempt: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	c := newClientRates(l, func() time.Time { return time.Unix(1e9, 0) })
	one, far := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	for _, mailbox := range []string{"usr_1", "usr_2", "usr_3", "usr_4", "usr_5"} {
		for i := range 3 {
			if got := c.allow(one, mailbox, messageEvent); got != (i < 2) {
				t.Errorf("%s, time %d: %v", mailbox, i, got)
			}
		}
	}
	if c.allow(far, "usr_1", messageEvent) {
		t.Error("another address has a limit of its own")
	}
	if !c.allow(netip.MustParseAddr("10.9.8.7"), "usr_1", messageEvent) {
		t.Error("an exempt address is limited")
	}
	if !c.allow(one, "", messageEvent) {
		t.Error("the address pays for its mailboxes")
	}
}
