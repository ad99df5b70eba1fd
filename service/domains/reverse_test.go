package domains_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/servicetest"
)

// Issues with the reverse DNS of this host's addresses are shown at domains that send from it; no
// domain fails because of them.
func TestReverseDNSIsShownAndFailsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &servicetest.World{}
		b := servicetest.New(t, func(c *core.Config) {
			c.Resolver, c.Sandbox, c.Outbound = w, false, "direct"
			c.Relays = []core.Relay{{Name: "r", Kind: "custom", Host: "relay.test", Port: 587}}
			c.PublicIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.0.0.1")}
		})
		w.Set(func() { w.Ours = b.Service })
		w.Tell("A", "mail.example.test", "192.0.2.1")
		w.Tell("A", "other.test", "192.0.2.9")
		who, err := b.Accounts.Operator(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		id := connect(t, b.Service, who, "reverse.test")
		verify(t, b.Service, who, "reverse.test")
		time.Sleep(time.Second)
		want := func(status, code string) {
			t.Helper()
			d := getDomain(t, b.Service, who, id)
			h := d.DNSHealth
			if h.Status != status || (code == "") != (len(h.Issues) == 0) || d.DNSStatus != "complete" || !h.FailingSince.IsZero() {
				t.Fatalf("%+v, want %s", h, status)
			}
			if code == "" {
				return
			}
			if i := h.Issues[0]; i.Code != code || i.Purpose != "PTR" || i.Host != "192.0.2.1" || !strings.Contains(i.Message, "Ask the hosting provider to set the reverse DNS (PTR) of 192.0.2.1 to mail.example.test.") {
				t.Fatalf("%+v, want %s", i, code)
			}
		}
		want("degraded", "ptr_missing")
		w.Tell("PTR", "192.0.2.1", "other.test.")
		time.Sleep(30 * time.Minute)
		if _, err := b.Domains.GetDNSStatus(t.Context(), who, domains.GetDNSStatusIn{DomainID: id, Refresh: true}); err != nil {
			t.Fatal(err)
		}
		want("degraded", "ptr_missing") // kept for an hour
		time.Sleep(2 * time.Hour)
		want("degraded", "ptr_mismatch")
		w.Tell("PTR", "192.0.2.1", "other.test.", "mail.example.test.")
		time.Sleep(3 * time.Hour)
		want("healthy", "")
		w.Tell("PTR", "192.0.2.1")
		time.Sleep(3 * time.Hour)
		want("degraded", "ptr_missing")
		mode := "relay"
		if _, err := b.Domains.UpdateDomain(t.Context(), who, domains.UpdateDomainIn{DomainID: id, SendingMode: &mode}); err != nil {
			t.Fatal(err)
		}
		want("healthy", "")
		if n := len(eventsOf(t, b.Service, who, events.EventDomainDNSFailed)); n != 0 {
			t.Errorf("%d events", n)
		}
	})
}
