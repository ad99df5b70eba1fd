package domains_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// signedDomain writes a builtin domain with a key of its own.
func signedDomain(t *testing.T, s *service.Service, id, name string) *store.Domain {
	t.Helper()
	d := &store.Domain{ID: id, AccountID: "acc_1", Name: name, DNSProvider: "builtin"}
	if err := s.GiveZoneKey(d); err != nil {
		t.Fatal(err)
	}
	servicetest.PutTestDomain(t, s, d)
	return d
}

// zoneAnswer is what the zone that encloses name answers to a query with the DO bit.
func zoneAnswer(t *testing.T, s *service.Service, zone, name string, typ uint16) *dns.Msg {
	t.Helper()
	z, ok := s.Zone(zone)
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
	if err := s.GiveZoneKey(d); err != nil || string(d.DNSSEC.Sealed) != sealed {
		t.Errorf("a key was replaced: %v", err)
	}
	key, ok := zoneAnswer(t, s, "a.test", "a.test", dns.TypeDNSKEY).Answer[0].(*dns.DNSKEY)
	if !ok {
		t.Fatal("no DNSKEY")
	}
	shown := domains.DNSSECOf(d)
	if ds := key.ToDS(dns.SHA256); shown.DS[0].Digest != ds.Digest || shown.DS[0].KeyTag != int(key.KeyTag()) || shown.Status != "unknown" {
		t.Errorf("shown %+v, served %v", shown, ds)
	}
	m := zoneAnswer(t, s, "a.test", "a.test", dns.TypeMX)
	if err := m.Answer[1].(*dns.RRSIG).Verify(key, m.Answer[:1]); err != nil {
		t.Error(err)
	}
	d.DNSSEC = nil
	servicetest.PutTestDomain(t, s, d)
	if m := zoneAnswer(t, s, "a.test", "a.test", dns.TypeMX); len(m.Answer) != 1 || domains.DNSSECOf(d) != nil {
		t.Errorf("without a key: %v", m)
	}
	for _, provider := range []string{"manual", "external", "cloudflare"} {
		d := &store.Domain{ID: "dom_2", Name: "b.test", DNSProvider: provider}
		if err := s.GiveZoneKey(d); err != nil || d.DNSSEC != nil {
			t.Errorf("%s: got a key, %v", provider, err)
		}
	}
}

// A domain from before there were keys gets one when it is set up again, and keeps what it has.
func TestTheKeysStepMakesWhatIsMissing(t *testing.T) {
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{}, nil)
	had := []store.DKIMKey{{Selector: "old", Record: "v=DKIM1; p=AA"}}
	d := &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "a.test", DNSProvider: "builtin", DKIM: had}
	servicetest.PutTestDomain(t, s, d)
	var err error
	for range 2 {
		if d, err = s.MakeKeys(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if d.DNSSEC == nil || len(d.DKIM) != 1 || d.DKIM[0].Selector != "old" {
		t.Errorf("keys %+v, %+v", d.DKIM, d.DNSSEC)
	}
	first := d.DNSSEC.Public
	if d, err = s.MakeKeys(t.Context(), d); err != nil || string(d.DNSSEC.Public) != string(first) {
		t.Errorf("the key changed: %v", err)
	}
	if m := zoneAnswer(t, s, "a.test", "a.test", dns.TypeMX); len(m.Answer) != 2 {
		t.Errorf("not signed: %v", m)
	}
}

// The zone above knows of those below that are here too, of none further below, and of their keys.
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
	if err := s.GiveZoneKey(sub); err != nil {
		t.Fatal(err)
	}
	servicetest.PutTestDomain(t, s, sub)
	if got := ds("sub.a.test"); got != tag(sub) {
		t.Errorf("DS after the zone was signed: %s, want %s", got, tag(sub))
	}
	serial := soaSerial(s, "a.test")
	servicetest.PutTestDomain(t, s, sub) // any other change below is nothing to the zone above
	if got := soaSerial(s, "a.test"); got != serial {
		t.Errorf("serial %d after %d", got, serial)
	}
	sub.Status = core.DomainDeleting
	servicetest.PutTestDomain(t, s, sub)
	if err := s.DropZone(sub); err != nil {
		t.Fatal(err)
	}
	if got := ds("sub.a.test"); got != "NOERROR" { // it leads to the one below
		t.Errorf("DS of a zone that is gone: %s", got)
	}
	if got := ds("x.sub.a.test"); got != tag(deep) {
		t.Errorf("DS below a zone that is gone: %s, want %s", got, tag(deep))
	}
	if err := s.DropZone(&store.Domain{ID: "dom_9", Name: "z.other.test", DNSProvider: "builtin"}); err != nil {
		t.Error(err)
	}
	if above.DNSSEC == nil {
		t.Error("no key")
	}
}

// Secondaries get new signatures by a new serial, in time and not all the time, and the owner sees
// no change.
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
		if _, err := s.Resign(t.Context(), nil); err != nil {
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
	err := s.Store.View(func(tx *store.Tx) error {
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
	if _, err := s.Resign(stopped, nil); err == nil {
		t.Error("goes on after it was told to stop")
	}
}

// What the parent says is kept, also when nothing else is answered, as behind a resolver that
// validates.
func TestWhatTheParentSays(t *testing.T) {
	var found []dnsprov.DS
	var fails error
	dead := errors.New("no resolver")
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{
		LookupDS: func(context.Context, string) ([]dnsprov.DS, error) { return found, fails },
		Resolver: &servicetest.FakeDNS{},
	}, nil)
	d := signedDomain(t, s, "dom_1", "a.test")
	ours := builtin.PublicKey(d.DNSSEC.Public).DS("a.test")
	other := ours
	other.KeyTag++
	for _, tc := range []struct {
		found []dnsprov.DS
		fails error
		want  string
	}{
		{nil, dead, "unknown"},
		{nil, nil, "unpublished"},
		{[]dnsprov.DS{other, ours}, nil, "secure"},
		{nil, dead, "secure"},
		{[]dnsprov.DS{other}, nil, "bogus"},
	} {
		found, fails = tc.found, tc.fails
		l := s.LookAt(t.Context(), d)
		err := s.Store.Update(func(tx *store.Tx) error { return s.KeepLook(tx, d, l) })
		if got := domains.DNSSECOf(d).Status; got != tc.want || err != nil {
			t.Errorf("%v, %v: %s, want %s; %v", tc.found, tc.fails, got, tc.want, err)
		}
	}
}
