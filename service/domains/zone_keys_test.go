package domains_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
	"github.com/miekg/dns"
)

// A domain from before there were keys gets one when it is set up again, and keeps what it has.
func TestTheKeysStepMakesWhatIsMissing(t *testing.T) {
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{}, nil)
	had := []store.DKIMKey{{Selector: "old", Record: "v=DKIM1; p=AA"}}
	d := &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "a.test", DNSProvider: "builtin", DKIM: had}
	servicetest.PutTestDomain(t, s, d)
	var err error
	for range 2 {
		d, err = s.Domains.MakeKeys(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
	}
	if d.DNSSEC == nil || len(d.DKIM) != 1 || d.DKIM[0].Selector != "old" {
		t.Errorf("keys %+v, %+v", d.DKIM, d.DNSSEC)
	}
	first := d.DNSSEC.Public
	d, err = s.Domains.MakeKeys(t.Context(), d)
	if err != nil || string(d.DNSSEC.Public) != string(first) {
		t.Errorf("the key changed: %v", err)
	}
	z, _ := s.Zones.Zone("a.test")
	if m := z.Answer(new(dns.Msg).SetQuestion("a.test.", dns.TypeMX).SetEdns0(1232, true)); len(m.Answer) != 2 {
		t.Errorf("not signed: %v", m)
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
	d := &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "a.test", DNSProvider: "builtin"}
	if err := s.Zones.GenerateZoneKey(d); err != nil {
		t.Fatal(err)
	}
	servicetest.PutTestDomain(t, s, d)
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
		l := s.Domains.LookAt(t.Context(), d)
		err := s.Core.Store.Update(func(tx *store.Tx) error { return s.Domains.KeepLook(tx, d, l) })
		if got := zones.DNSSECOf(d).Status; got != tc.want || err != nil {
			t.Errorf("%v, %v: %s, want %s; %v", tc.found, tc.fails, got, tc.want, err)
		}
	}
}

// A zone that is served here has its DKIM records from the connecting on, and the setup keeps them.
func TestKeysExistWhenADomainIsConnected(t *testing.T) {
	s := servicetest.New(t, nil)
	who := servicetest.Actor(s.Owner)
	out, err := s.Domains.ConnectDomains(t.Context(), who, domains.ConnectDomainsIn{Domains: []string{"a.test", "b.test"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, connected := range out.Domains {
		d, err := s.Core.DomainByID(*connected.DomainID)
		if err != nil || len(d.DKIM) != 2 {
			t.Fatalf("%s: %+v, %v", connected.Domain, d, err)
		}
		zone, err := s.Zones.GetZone(t.Context(), who, zones.GetZoneIn{DomainID: d.ID})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range d.DKIM {
			published := slices.ContainsFunc(zone.Zone.Records, func(r zones.RecordSet) bool {
				return r.Name == key.Selector+"._domainkey" && strings.Contains(strings.Join(r.Values, ""), key.Record[len(key.Record)-20:])
			})
			if !published {
				t.Errorf("%s: the zone has no record of the key %s", d.Name, key.Selector)
			}
		}
		again, err := s.Domains.MakeKeys(t.Context(), d)
		if err != nil || len(again.DKIM) != 2 || again.DKIM[0].Record != d.DKIM[0].Record {
			t.Errorf("the setup has made other keys: %v", err)
		}
	}
}
