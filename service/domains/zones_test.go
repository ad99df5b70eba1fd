package domains_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// soaSerial is the serial that our server answers with; 0 if the zone is not served.
func soaSerial(s *service.Service, name string) uint32 {
	zone, ok := s.Zone(name)
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

// Every zone is there after a restart, over more than one page, with custom records.
func TestZonesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	s := servicetest.ZoneService(t, dir, core.Config{}, nil)
	for i := range 2*domains.ZonesAtATime + 1 {
		err := s.Store.Update(func(tx *store.Tx) error {
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
			return s.PutZone(tx, d)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	again := service.New(s.Store, jobs.NewQueue(s.Store), s.Keys, s.Config)
	defer again.Close()
	for name, want := range map[string]bool{
		"z0.test": true, "z6.test": true, "z7.test": false, fmt.Sprintf("z%d.test", 2*domains.ZonesAtATime): true, "deep.in.z9.test.": true, "test": false, "": false,
		"mail.mailstead.test": false,
	} {
		if got := again.HostsName(name); got != want {
			t.Errorf("%q is hosted: %v, want %v", name, got, want)
		}
	}
	zone, _ := again.Zone("www.z0.test")
	if m := zone.Answer(new(dns.Msg).SetQuestion("www.z0.test.", dns.TypeA)); len(m.Answer) != 1 {
		t.Errorf("the custom record is not served: %v", m)
	}
}

// Whoever asks after a commit gets what it wrote, whatever others ask and write meanwhile.
func TestAChangeShowsInTheNextAnswer(t *testing.T) {
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{}, nil)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			d := &store.Domain{ID: fmt.Sprintf("dom_%d", i), AccountID: "acc_1", Name: fmt.Sprintf("n%d.test", i), DNSProvider: "builtin"}
			for range 50 {
				err := s.Store.Update(func(tx *store.Tx) error { return s.PutZone(tx, d) })
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
		zone, ok := s.Zone(name)
		if !ok {
			t.Fatalf("%s is not served", name)
		}
		if m := zone.Answer(new(dns.Msg).SetQuestion(name+".", dns.TypeA)); len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "127.0.0.1" {
			t.Errorf("%s: %v", name, m)
		}
	}
	d := &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "mailstead.test", DNSProvider: "builtin"}
	servicetest.PutTestDomain(t, s, d)
	zone, _ := s.Zone("mail.mailstead.test")
	if m := zone.Answer(new(dns.Msg).SetQuestion("mailstead.test.", dns.TypeMX)); len(m.Answer) != 1 {
		t.Errorf("the domain that was connected does not answer: %v", m)
	}
	if m := zone.Answer(new(dns.Msg).SetQuestion("mail.mailstead.test.", dns.TypeA)); len(m.Answer) != 1 {
		t.Errorf("the host has no address any more: %v", m)
	}
	servicetest.Update(t, s, func(tx *store.Tx) error { return store.Domains.Delete(tx, "dom_1") })
	s.Zones().Note("mailstead.test")
	if !s.HostsName("ns1.mailstead.test") {
		t.Error("the host's own zone did not come back")
	}
}

func TestNoHostZoneInProduction(t *testing.T) {
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{PublicIPs: servicetest.TestIPs}, nil)
	if s.HostsName("mail.mailstead.test") {
		t.Error("the host's own name is served")
	}
}

// A query costs no transaction.
func BenchmarkZone(b *testing.B) {
	s := servicetest.ZoneService(b, b.TempDir(), core.Config{}, nil)
	servicetest.PutTestDomain(b, s, &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "a.test", DNSProvider: "builtin"})
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := s.Zone("www.a.test"); !ok {
			b.Fatal("not served")
		}
	}
}
