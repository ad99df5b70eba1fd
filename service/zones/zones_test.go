package zones_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
	"github.com/miekg/dns"
)

// soaSerial returns the serial in our server's answer; 0 if the zone is not served.
func soaSerial(s *service.Service, name string) uint32 {
	zone, ok := s.Zones.Zone(name)
	if !ok || zone.Origin != name {
		return 0
	}
	return zone.Answer(new(dns.Msg).SetQuestion(name+".", dns.TypeSOA)).Answer[0].(*dns.SOA).Serial
}

func TestSerialRisesWithEachChange(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{}, func() time.Time { return now })
	d := &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "a.test", DNSProvider: "builtin"}
	for i, step := range []time.Duration{0, 0, 100 * time.Millisecond, -time.Hour, 0, 2 * time.Hour} {
		now = now.Add(step)
		before := soaSerial(s, "a.test")
		servicetest.PutTestDomain(t, s, d)
		if after := soaSerial(s, "a.test"); after <= before {
			t.Errorf("change %d: serial %d after %d", i, after, before)
		}
	}
	if got, want := soaSerial(s, "a.test"), uint32(now.Unix()); got != want {
		t.Errorf("serial %d, want the time %d again", got, want)
	}
}

// Every zone is served after a restart, over more than one page, with custom records.
func TestZonesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	s := servicetest.ZoneService(t, dir, core.Config{}, nil)
	for i := range 2*zones.ZonesAtATime + 1 {
		err := s.Core.Store.Update(func(tx *store.Tx) error {
			d := &store.Domain{ID: tx.NewID("dom"), AccountID: "acc_1", Name: fmt.Sprintf("z%d.test", i), DNSProvider: "builtin"}
			if i == 0 {
				err := store.CustomRecords.Put(tx, &store.CustomRecord{ID: "rec_1", DomainID: d.ID, Name: "www.z0.test", Type: "A", Value: "192.0.2.1", TTL: 60})
				if err != nil {
					return err
				}
			}
			if i == 7 {
				d.DNSProvider = "manual"
			}
			return s.Zones.PutZone(tx, d)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	again := service.New(s.Core.Store, jobs.NewQueue(s.Core.Store), s.Core.Keys, servicetest.ConfigOf(s.Core))
	defer again.Close()
	for name, want := range map[string]bool{
		"z0.test": true, "z6.test": true, "z7.test": false, fmt.Sprintf("z%d.test", 2*zones.ZonesAtATime): true, "deep.in.z9.test.": true, "test": false, "": false,
		"mail.mailstead.test": false,
	} {
		if got := again.Zones.HostsName(name); got != want {
			t.Errorf("%q is hosted: %v, want %v", name, got, want)
		}
	}
	zone, _ := again.Zones.Zone("www.z0.test")
	if m := zone.Answer(new(dns.Msg).SetQuestion("www.z0.test.", dns.TypeA)); len(m.Answer) != 1 {
		t.Errorf("the custom record is not served: %v", m)
	}
}

// Once the zones are made, a query sees what a commit wrote, whatever other queries and writes
// happen at the time.
func TestAChangeShowsInTheNextAnswer(t *testing.T) {
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{}, nil)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			d := &store.Domain{ID: fmt.Sprintf("dom_%d", i), AccountID: "acc_1", Name: fmt.Sprintf("n%d.test", i), DNSProvider: "builtin"}
			for range 50 {
				err := s.Core.Store.Update(func(tx *store.Tx) error { return s.Zones.PutZone(tx, d) })
				s.Zones.MakeZones()
				if got, want := soaSerial(s, d.Name), uint32(d.ZoneChangedAt.Unix()); err != nil || got != want {
					t.Errorf("serial %d, want %d; %v", got, want, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestHostZoneOfTheSandbox(t *testing.T) {
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{Sandbox: true, PublicIPs: servicetest.TestIPs}, nil)
	for _, name := range []string{"mail.mailstead.test", "ns1.mailstead.test", "ns2.mailstead.test"} {
		zone, ok := s.Zones.Zone(name)
		if !ok {
			t.Fatalf("%s is not served", name)
		}
		if m := zone.Answer(new(dns.Msg).SetQuestion(name+".", dns.TypeA)); len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "127.0.0.1" {
			t.Errorf("%s: %v", name, m)
		}
	}
	d := &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "mailstead.test", DNSProvider: "builtin"}
	servicetest.PutTestDomain(t, s, d)
	zone, _ := s.Zones.Zone("mail.mailstead.test")
	if m := zone.Answer(new(dns.Msg).SetQuestion("mailstead.test.", dns.TypeMX)); len(m.Answer) != 1 {
		t.Errorf("the domain that was connected does not answer: %v", m)
	}
	if m := zone.Answer(new(dns.Msg).SetQuestion("mail.mailstead.test.", dns.TypeA)); len(m.Answer) != 1 {
		t.Errorf("the host has no address any more: %v", m)
	}
	servicetest.Update(t, s, func(tx *store.Tx) error { return store.Domains.Delete(tx, "dom_1") })
	s.Zones.Note("mailstead.test")
	if !s.Zones.HostsName("ns1.mailstead.test") {
		t.Error("the host's own zone did not come back")
	}
}

func TestNoHostZoneInProduction(t *testing.T) {
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{PublicIPs: servicetest.TestIPs}, nil)
	if s.Zones.HostsName("mail.mailstead.test") {
		t.Error("the host's own name is served")
	}
}

// A query needs no transaction.
func BenchmarkZone(b *testing.B) {
	s := servicetest.ZoneService(b, b.TempDir(), core.Config{}, nil)
	servicetest.PutTestDomain(b, s, &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "a.test", DNSProvider: "builtin"})
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := s.Zones.Zone("www.a.test"); !ok {
			b.Fatal("not served")
		}
	}
}

// signedDomain writes a builtin domain with its own key.
func signedDomain(t *testing.T, s *service.Service, id, name string) *store.Domain {
	t.Helper()
	d := &store.Domain{ID: id, AccountID: "acc_1", Name: name, DNSProvider: "builtin"}
	if err := s.Zones.GenerateZoneKey(d); err != nil {
		t.Fatal(err)
	}
	servicetest.PutTestDomain(t, s, d)
	return d
}

// zoneAnswer returns the answer of the zone that encloses name to a query with the DO bit.
func zoneAnswer(t *testing.T, s *service.Service, zone, name string, typ uint16) *dns.Msg {
	t.Helper()
	z, ok := s.Zones.Zone(zone)
	if !ok {
		t.Fatalf("%s is not served", zone)
	}
	m := z.Answer(new(dns.Msg).SetQuestion(name+".", typ).SetEdns0(1232, true))
	if m == nil {
		t.Fatalf("%s has no answer", name)
	}
	return m
}

func TestADomainsZoneIsSignedWithItsKey(t *testing.T) {
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{}, nil)
	d := signedDomain(t, s, "dom_1", "a.test")
	sealed := string(d.DNSSEC.Sealed)
	if err := s.Zones.GenerateZoneKey(d); err != nil || string(d.DNSSEC.Sealed) != sealed {
		t.Errorf("a key was replaced: %v", err)
	}
	key, ok := zoneAnswer(t, s, "a.test", "a.test", dns.TypeDNSKEY).Answer[0].(*dns.DNSKEY)
	if !ok {
		t.Fatal("no DNSKEY")
	}
	shown := zones.DNSSECOf(d)
	if ds := key.ToDS(dns.SHA256); shown.DS[0].Digest != ds.Digest || shown.DS[0].KeyTag != int(key.KeyTag()) || shown.Status != "unknown" {
		t.Errorf("shown %+v, served %v", shown, ds)
	}
	m := zoneAnswer(t, s, "a.test", "a.test", dns.TypeMX)
	if err := m.Answer[1].(*dns.RRSIG).Verify(key, m.Answer[:1]); err != nil {
		t.Error(err)
	}
	d.DNSSEC = nil
	servicetest.PutTestDomain(t, s, d)
	if m := zoneAnswer(t, s, "a.test", "a.test", dns.TypeMX); len(m.Answer) != 1 || zones.DNSSECOf(d) != nil {
		t.Errorf("without a key: %v", m)
	}
	for _, provider := range []string{"manual", "external", "cloudflare"} {
		d := &store.Domain{ID: "dom_2", Name: "b.test", DNSProvider: provider}
		if err := s.Zones.GenerateZoneKey(d); err != nil || d.DNSSEC != nil {
			t.Errorf("%s: got a key, %v", provider, err)
		}
	}
}

// The zone above delegates the zones right below that are here too, not those further below, with
// DS records of their keys.
func TestZonesBelowAreDelegated(t *testing.T) {
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{}, nil)
	deep := signedDomain(t, s, "dom_1", "x.sub.a.test")
	above := signedDomain(t, s, "dom_2", "a.test")
	ds := func(name string) string {
		m := zoneAnswer(t, s, "a.test", name, dns.TypeDS)
		if len(m.Answer) == 0 {
			return dns.RcodeToString[m.Rcode]
		}
		rr := m.Answer[0].(*dns.DS)
		return fmt.Sprintf("%d", rr.KeyTag)
	}
	tag := func(d *store.Domain) string { return fmt.Sprint(builtin.PublicKey(d.DNSSEC.Public).Tag()) }
	if got := ds("x.sub.a.test"); got != tag(deep) {
		t.Errorf("DS of the zone below: %s, want %s", got, tag(deep))
	}
	before := soaSerial(s, "a.test")
	sub := &store.Domain{ID: "dom_3", AccountID: "acc_1", Name: "sub.a.test", DNSProvider: "builtin"}
	servicetest.PutTestDomain(t, s, sub)
	if got := ds("sub.a.test"); got != "NOERROR" || soaSerial(s, "a.test") <= before {
		t.Errorf("DS of an unsigned zone below: %s, serial %d after %d", got, soaSerial(s, "a.test"), before)
	}
	if m := zoneAnswer(t, s, "a.test", "sub.a.test", dns.TypeA); m.Authoritative || len(m.Ns) == 0 || m.Ns[0].Header().Rrtype != dns.TypeNS {
		t.Errorf("no delegation: %v", m)
	}
	if m := zoneAnswer(t, s, "sub.a.test", "x.sub.a.test", dns.TypeDS); len(m.Answer) == 0 {
		t.Errorf("the zone between does not know the one below: %v", m)
	}
	if err := s.Zones.GenerateZoneKey(sub); err != nil {
		t.Fatal(err)
	}
	servicetest.PutTestDomain(t, s, sub)
	if got := ds("sub.a.test"); got != tag(sub) {
		t.Errorf("DS after the zone was signed: %s, want %s", got, tag(sub))
	}
	serial := soaSerial(s, "a.test")
	servicetest.PutTestDomain(t, s, sub) // other changes below do not affect the zone above
	if got := soaSerial(s, "a.test"); got != serial {
		t.Errorf("serial %d after %d", got, serial)
	}
	sub.Status = store.DomainDeleting
	servicetest.PutTestDomain(t, s, sub)
	servicetest.Update(t, s, func(tx *store.Tx) error { return s.Zones.Republish(tx, []string{sub.Name}, nil) })
	if got := ds("sub.a.test"); got != "NOERROR" { // a delegation to the zone below
		t.Errorf("DS of a zone that is gone: %s", got)
	}
	if got := ds("x.sub.a.test"); got != tag(deep) {
		t.Errorf("DS below a zone that is gone: %s, want %s", got, tag(deep))
	}
	servicetest.Update(t, s, func(tx *store.Tx) error { return s.Zones.Republish(tx, []string{"z.other.test"}, nil) })
	if above.DNSSEC == nil {
		t.Error("no key")
	}
}

// Secondaries get new signatures by a new serial, in time but not constantly. The owner sees no
// change.
func TestZonesAreSignedAgain(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{}, func() time.Time { return now })
	d := signedDomain(t, s, "dom_1", "a.test")
	plain := &store.Domain{ID: "dom_2", AccountID: "acc_1", Name: "b.test", DNSProvider: "builtin"}
	servicetest.PutTestDomain(t, s, plain)
	serials := map[uint32]time.Time{soaSerial(s, "a.test"): now}
	last := now
	for range 24 * 20 {
		now = now.Add(time.Hour)
		if _, err := s.Zones.Resign(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		serial := soaSerial(s, "a.test")
		if _, known := serials[serial]; !known {
			serials[serial], last = now, now
		}
		if now.Sub(last) > 61*time.Hour {
			t.Fatalf("the serial is %v old", now.Sub(last))
		}
	}
	if n := len(serials); n < 8 || n > 11 {
		t.Errorf("%d serials in 20 days", n)
	}
	if got, want := soaSerial(s, "b.test"), uint32(plain.ZoneChangedAt.Unix()); got != want {
		t.Errorf("an unsigned zone has the serial %d, want %d", got, want)
	}
	err := s.Core.Store.View(func(tx *store.Tx) error {
		kept, err := store.Domains.Get(tx, d.ID)
		if err == nil && !kept.UpdatedAt.Equal(d.UpdatedAt) {
			t.Errorf("updated at %v, was %v", kept.UpdatedAt, d.UpdatedAt)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Zones.Resign(stopped, nil); err == nil {
		t.Error("goes on after it was told to stop")
	}
}

// listedSecondary is a secondary at a loopback address.
func listedSecondary(addr, nameserver string) builtin.Secondary {
	return builtin.Secondary{Name: "s", Addr: netip.MustParseAddrPort(addr), Nameserver: nameserver}
}

// restarted returns another service on the same store with changed settings.
func restarted(t *testing.T, s *service.Service, change func(*core.Config)) *service.Service {
	t.Helper()
	c := servicetest.ConfigOf(s.Core)
	change(&c)
	again := service.New(s.Core.Store, jobs.NewQueue(s.Core.Store), s.Core.Keys, c)
	t.Cleanup(again.Close)
	return again
}

// A change of what all zones have in common raises every serial; otherwise secondaries would keep
// the old zones.
func TestSerialsRiseWithWhatZonesShare(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{PublicIPs: servicetest.TestIPs}, func() time.Time { return now })
	for _, name := range []string{"a.test", "b.test"} {
		for range 5 { // several changes in one second set the serial ahead of the clock
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

// Signatures at secondaries expire: every few days each zone gets a new serial, while the server
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
			if err := s.Zones.RenewZones(); err != nil {
				t.Fatal(err)
			}
			if got := soaSerial(s, "a.test"); got != want {
				t.Errorf("%s, %s: serial %d, want %d", name, what, got, want)
			}
		}
		check("at once", first)
		at = at.Add(zones.RenewCopies - time.Second)
		check("early", first)
		at = at.Add(time.Second)
		check("in time", first+tc.rises)
		check("again", first+tc.rises)
		at = at.Add(zones.RenewCopies)
		s = restarted(t, s, func(*core.Config) {})
		check("after a restart", first+2*tc.rises)
	}
}

// A nameserver that is another host has that host's address, whatever domain its name is in.
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
		zone, _ := s.Zones.Zone(tc.name)
		m := zone.Answer(new(dns.Msg).SetQuestion(tc.name+".", tc.typ))
		if len(m.Answer) != 1 || dns.Field(m.Answer[0], 1) != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, m.Answer, tc.want)
		}
	}
}

// heardNotify waits for a NOTIFY of a zone on a socket, and answers all NOTIFYs.
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

// A secondary is notified of every zone after the start, of each new or changed zone and, by the
// catalog, of each deleted zone.
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
		catalog, _ := s.Zones.Catalog()
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
	s.Zones.Note("b.test")
	heardNotify(t, conn, "catalog.test.")
	for start := time.Now(); members() != 1; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("the catalog lists %d zones, want 1", members())
		}
	}
	if _, ok := s.Zones.Copied("b.test"); ok {
		t.Error("a zone that is gone can be copied")
	}
	if _, ok := s.Zones.Copied("www.a.test"); ok {
		t.Error("a name inside of a zone can be copied")
	}
}
