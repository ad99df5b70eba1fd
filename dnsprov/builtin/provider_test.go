package builtin

import (
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/providertest"
	"github.com/miekg/dns"
)

func TestProviderConformance(t *testing.T) {
	providertest.Run(t, func(*testing.T) providertest.Case {
		p := &Provider{Zones: &Zones{}, Options: testOptions()}
		return providertest.Case{Provider: p, Zone: dnsprov.ZoneRef{Domain: "example.test", OwnerTag: "m"}}
	})
}

func TestProviderServesWhatItApplies(t *testing.T) {
	p := &Provider{Zones: &Zones{}, Options: testOptions()}
	at := dnsprov.ZoneRef{Domain: "example.test"}
	text := dnsprov.Record{Name: "example.test", Type: "TXT", Value: "hello", TTL: 60, Purpose: dnsprov.PurposeCustom}
	if _, err := p.Apply(t.Context(), at, dnsprov.Plan(nil, []dnsprov.Record{text})); err != nil {
		t.Fatal(err)
	}
	z, ok := p.Zones.Zone("example.test")
	if !ok {
		t.Fatal("no zone is served")
	}
	if m, _ := ask(t, z, "example.test.", dns.TypeTXT); len(m.Answer) != 1 {
		t.Errorf("answer %v", m.Answer)
	}
	p.Options.Serial++
	if _, err := p.Apply(t.Context(), at, nil); err != nil {
		t.Fatal(err)
	}
	if again, _ := p.Zones.Zone("example.test"); again == z {
		t.Error("without changes, the zone has not the new options")
	}
	alias := dnsprov.Record{Name: "example.test", Type: "CNAME", Value: "elsewhere.test", TTL: 60, Purpose: dnsprov.PurposeCustom}
	if _, err := p.Apply(t.Context(), at, []dnsprov.Change{{Op: dnsprov.Create, Want: &alias}}); err == nil {
		t.Error("a CNAME beside other records was taken")
	}
	if have, err := p.Records(t.Context(), at); err != nil || len(have) != 1 {
		t.Errorf("after a refusal: %v, %v", have, err)
	}
	if have, err := p.Records(t.Context(), dnsprov.ZoneRef{Domain: "sub.example.test"}); err != nil || len(have) != 0 {
		t.Errorf("the zone above was taken for the domain's: %v, %v", have, err)
	}
}
