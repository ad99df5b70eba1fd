package dnsprov_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/providertest"
)

// ownersZone is a zone that somebody keeps by hand, and a resolver that sees it.
type ownersZone struct {
	dnsprov.Resolver // for look-ups that nothing here makes
	records          []dnsprov.Record
	down             bool
}

// enter does what a list of changes says.
func (z *ownersZone) enter(changes []dnsprov.Change) {
	for _, c := range changes {
		if c.Have != nil {
			z.records = slices.DeleteFunc(z.records, c.Have.Same)
		}
		if c.Want != nil {
			z.records = append(z.records, *c.Want)
		}
	}
}

func (z *ownersZone) find(name, typ string) ([]dnsprov.Record, error) {
	if z.down {
		return nil, &net.DNSError{Err: "server misbehaving", Name: name, IsTemporary: true}
	}
	var out []dnsprov.Record
	for _, r := range z.records {
		if r.Name+"." == name && r.Type == typ {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return out, nil
}

func (z *ownersZone) LookupTXT(_ context.Context, name string) ([]string, error) {
	found, err := z.find(name, "TXT")
	var out []string
	for _, r := range found {
		out = append(out, r.Value)
	}
	return out, err
}

func (z *ownersZone) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	found, err := z.find(name, "MX")
	var out []*net.MX
	for _, r := range found {
		out = append(out, &net.MX{Host: r.Value + ".", Pref: r.Priority})
	}
	return out, err
}

func (z *ownersZone) LookupNetIP(_ context.Context, network, name string) ([]netip.Addr, error) {
	found, err := z.find(name, map[string]string{"ip4": "A", "ip6": "AAAA"}[network])
	var out []netip.Addr
	for _, r := range found {
		out = append(out, netip.MustParseAddr(r.Value))
	}
	return out, err
}

func (z *ownersZone) LookupCNAME(_ context.Context, name string) (string, error) {
	found, err := z.find(name, "CNAME")
	if err != nil {
		return strings.TrimSuffix(name, "."), err
	}
	return found[0].Value, nil
}

func TestByHandConformance(t *testing.T) {
	providertest.Run(t, func(*testing.T) providertest.Case {
		z := &ownersZone{}
		var want []dnsprov.Record
		return providertest.Case{
			Provider: &dnsprov.ByHand{Resolver: z, Wanted: func(dnsprov.Place) []dnsprov.Record { return want }},
			Place:    dnsprov.Place{Domain: "example.com", Mark: "m"},
			Wants:    func(w []dnsprov.Record) { want = w },
			Owner:    func(_ *testing.T, changes []dnsprov.Change) { z.enter(changes) },
			Stranger: func(_ *testing.T, r dnsprov.Record) { z.records = append(z.records, r) },
			Strangers: func(*testing.T) []dnsprov.Record {
				return slices.Clone(z.records)
			},
		}
	})
}

func TestElsewhereConformance(t *testing.T) {
	providertest.Run(t, func(*testing.T) providertest.Case {
		return providertest.Case{Provider: dnsprov.Elsewhere{}, Place: dnsprov.Place{Domain: "example.com"}, Idle: true}
	})
}

func TestByHandKnowsNothingWithoutAnswers(t *testing.T) {
	z := &ownersZone{down: true}
	mx := dnsprov.Record{Name: "example.com", Type: "MX", Value: "mail.test", Priority: 10, Purpose: dnsprov.PurposeMX}
	p := &dnsprov.ByHand{Resolver: z, Wanted: func(dnsprov.Place) []dnsprov.Record { return []dnsprov.Record{mx} }}
	if have, err := p.Records(t.Context(), dnsprov.Place{Domain: "example.com"}); err == nil {
		t.Errorf("a dead resolver shows %v", have)
	}
}

// TestByHandTakesWhatWorks: a record that says more than ours, and does the same, leaves nothing to do.
func TestByHandTakesWhatWorks(t *testing.T) {
	z := &ownersZone{records: []dnsprov.Record{{Name: "example.com", Type: "TXT", Value: "v=spf1 mx include:other.test -all"}}}
	spf := dnsprov.Record{Name: "example.com", Type: "TXT", Value: "v=spf1 mx ~all", Purpose: dnsprov.PurposeSPF, Critical: true}
	p := &dnsprov.ByHand{Resolver: z, Wanted: func(dnsprov.Place) []dnsprov.Record { return []dnsprov.Record{spf} }}
	at := dnsprov.Place{Domain: "example.com"}
	have, err := p.Records(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(t.Context(), at, dnsprov.Plan(have, []dnsprov.Record{spf})); err != nil {
		t.Errorf("there is something to do: %v", err)
	}
	z.records = nil
	have, err = p.Records(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(t.Context(), at, dnsprov.Plan(have, []dnsprov.Record{spf})); !errors.Is(err, dnsprov.ErrByHand) {
		t.Errorf("without the record: %v", err)
	}
}
