package domains_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// listedSecondary is a secondary at an address of the loopback.
func listedSecondary(addr, nameserver string) builtin.Secondary {
	return builtin.Secondary{Name: "s", Addr: netip.MustParseAddrPort(addr), Nameserver: nameserver}
}

// restarted is another service on the same store, with its settings changed.
func restarted(t *testing.T, s *service.Service, change func(*core.Config)) *service.Service {
	t.Helper()
	c := s.Config
	change(&c)
	again := service.New(s.Store, jobs.NewQueue(s.Store), s.Keys, c)
	t.Cleanup(again.Close)
	return again
}

// What all zones have in common moves every serial on when it changes, or secondaries would keep
// what was before.
func TestSerialsRiseWithWhatZonesShare(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{PublicIPs: servicetest.TestIPs}, func() time.Time { return now })
	for _, name := range []string{"a.test", "b.test"} {
		for range 5 { // several changes in one second put the serial before the clock
			servicetest.PutTestDomain(t, s, &store.Domain{ID: "dom_" + name, AccountID: "acc_1", Name: name, DNSProvider: "builtin", ZoneChangedAt: now.Add(4 * time.Second)})
		}
	}
	want := soaSerial(s, "a.test")
	for _, tc := range []struct {
		name   string
		change func(*core.Config)
		rises  uint32
	}{
		{"nothing", func(*core.Config) {}, 0},
		{"another address", func(c *core.Config) { c.PublicIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")} }, 1},
		{"nothing again", func(*core.Config) {}, 0},
		{"a nameserver more", func(c *core.Config) { c.Nameservers = append(c.Nameservers, "ns3.elsewhere.test") }, 1},
		{"a secondary without a name", func(c *core.Config) { c.Secondaries = []builtin.Secondary{listedSecondary("192.0.2.53:53", "")} }, 0},
		{"a secondary with a name", func(c *core.Config) {
			c.Secondaries = []builtin.Secondary{listedSecondary("192.0.2.53:53", "ns3.elsewhere.test")}
		}, 1},
		{"another version", func(c *core.Config) { c.Version = "2" }, 1},
		{"back to none", func(c *core.Config) { c.Secondaries = nil }, 1},
	} {
		s = restarted(t, s, tc.change)
		want += tc.rises
		if a, b := soaSerial(s, "a.test"), soaSerial(s, "b.test"); a != want || b != want {
			t.Errorf("%s: serials %d and %d, want %d", tc.name, a, b, want)
		}
	}
	d := &store.Domain{ID: "dom_a.test", AccountID: "acc_1", Name: "a.test", DNSProvider: "builtin", ZoneChangedAt: now.Add(5 * time.Second)}
	servicetest.PutTestDomain(t, s, d)
	if got := soaSerial(s, "a.test"); got <= want {
		t.Errorf("serial %d after a change, %d before", got, want)
	}
}

// Signatures at secondaries run out: each few days every zone gets a new serial, while the server
// runs and over restarts.
func TestCopiesAreRenewed(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	with := core.Config{Secondaries: []builtin.Secondary{listedSecondary("127.0.0.1:9", "")}}
	for name, tc := range map[string]struct {
		c     core.Config
		rises uint32
	}{"with a secondary": {with, 1}, "without": {core.Config{}, 0}} {
		at := now
		s := servicetest.ZoneService(t, t.TempDir(), tc.c, func() time.Time { return at })
		servicetest.PutTestDomain(t, s, &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "a.test", DNSProvider: "builtin"})
		first := soaSerial(s, "a.test")
		check := func(what string, want uint32) {
			t.Helper()
			if err := s.RenewZones(); err != nil {
				t.Fatal(err)
			}
			if got := soaSerial(s, "a.test"); got != want {
				t.Errorf("%s, %s: serial %d, want %d", name, what, got, want)
			}
		}
		check("at once", first)
		at = at.Add(domains.RenewCopies - time.Second)
		check("early", first)
		at = at.Add(time.Second)
		check("in time", first+tc.rises)
		check("again", first+tc.rises)
		at = at.Add(domains.RenewCopies)
		s = restarted(t, s, func(*core.Config) {})
		check("after a restart", first+2*tc.rises)
	}
}

// A nameserver that is another host has that host's address, wherever its name lies.
func TestNameserversElsewhere(t *testing.T) {
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{Sandbox: true, PublicIPs: servicetest.TestIPs, Secondaries: []builtin.Secondary{
		listedSecondary("192.0.2.53:53", "ns3.a.test"), listedSecondary("[2001:db8::53]:53", "ns3.a.test"), listedSecondary("192.0.2.54:53", "ns4.mailstead.test"),
	}}, nil)
	s = restarted(t, s, func(c *core.Config) { c.Nameservers = append(c.Nameservers, "ns3.a.test", "ns4.mailstead.test") })
	servicetest.PutTestDomain(t, s, &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "a.test", DNSProvider: "builtin"})
	for _, tc := range []struct {
		name string
		typ  uint16
		want string
	}{
		{"ns3.a.test", dns.TypeA, "192.0.2.53"}, {"ns3.a.test", dns.TypeAAAA, "2001:db8::53"},
		{"ns4.mailstead.test", dns.TypeA, "192.0.2.54"}, {"ns1.mailstead.test", dns.TypeA, "127.0.0.1"}, {"a.test", dns.TypeA, "127.0.0.1"},
	} {
		zone, _ := s.Zone(tc.name)
		m := zone.Answer(new(dns.Msg).SetQuestion(tc.name+".", tc.typ))
		if len(m.Answer) != 1 || dns.Field(m.Answer[0], 1) != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, m.Answer, tc.want)
		}
	}
}

// heardNotify waits for NOTIFY of a zone on a socket, and accepts it and others.
func heardNotify(t *testing.T, conn net.PacketConn, name string) {
	t.Helper()
	start := time.Now()
	if err := conn.SetDeadline(start.Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 4096); ; {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			t.Fatalf("NOTIFY of %s: %v", name, err)
		}
		q := new(dns.Msg)
		if err := q.Unpack(buf[:n]); err != nil || q.Opcode != dns.OpcodeNotify {
			t.Fatalf("heard %v, %v", q, err)
		}
		wire, err := new(dns.Msg).SetReply(q).Pack()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.WriteTo(wire, from); err != nil {
			t.Fatal(err)
		}
		if q.Question[0].Name == name {
			t.Logf("NOTIFY of %s after %v", name, time.Since(start))
			return
		}
	}
}

// A secondary is told about every zone after the start, and about each that comes, changes or, by
// the catalog, goes.
func TestSecondariesAreTold(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{Catalog: "catalog.test", Secondaries: []builtin.Secondary{listedSecondary(conn.LocalAddr().String(), "")}}, nil)
	d := &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "a.test", DNSProvider: "builtin"}
	servicetest.PutTestDomain(t, s, d)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	heardNotify(t, conn, "a.test.")
	members := func() (n int) {
		catalog, _ := s.Catalog()
		for rr := range catalog.Transfer() {
			if _, ok := rr.(*dns.PTR); ok {
				n++
			}
		}
		return n
	}
	servicetest.PutTestDomain(t, s, d)
	heardNotify(t, conn, "a.test.")
	servicetest.PutTestDomain(t, s, &store.Domain{ID: "dom_2", AccountID: "acc_1", Name: "b.test", DNSProvider: "builtin"})
	heardNotify(t, conn, "b.test.")
	if n := members(); n != 2 {
		t.Errorf("the catalog lists %d zones, want 2", n)
	}
	servicetest.Update(t, s, func(tx *store.Tx) error { return store.Domains.Delete(tx, "dom_2") })
	s.Zones().Note("b.test")
	heardNotify(t, conn, "catalog.test.")
	for start := time.Now(); members() != 1; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("the catalog lists %d zones, want 1", members())
		}
	}
	if _, ok := s.Copied("b.test"); ok {
		t.Error("a zone that is gone can be copied")
	}
	if _, ok := s.Copied("www.a.test"); ok {
		t.Error("a name inside of a zone can be copied")
	}
}
