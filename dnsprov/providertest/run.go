// Package providertest tests what every dnsprov.Provider must do. It does not know any of them.
package providertest

import (
	"errors"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
)

// A Case is a provider with an empty zone for one domain. The records of the suite have a TTL of at
// least a minute, and types that every provider supports.
type Case struct {
	Provider dnsprov.Provider
	Zone     dnsprov.ZoneRef

	// Stranger adds a foreign record to the zone, bypassing the provider. nil: the zone cannot have
	// foreign records.
	Stranger func(t *testing.T, r dnsprov.Record)
	// Strangers lists the foreign records of the zone, bypassing the provider, by name, type and
	// value.
	Strangers func(t *testing.T) []dnsprov.Record
	// Cut makes the n-th step of the next Apply, from 0, fail in one of several ways; it returns
	// false if there are no more steps and ways. nil: an Apply is a single step.
	Cut func(t *testing.T, n int) bool
}

// Run checks a provider against the rules of dnsprov.Provider. make returns a new Case.
func Run(t *testing.T, make func(t *testing.T) Case) {
	for _, rule := range []struct {
		name string
		hold func(*testing.T, Case)
	}{
		{"a second plan is empty", secondPlanIsEmpty},
		{"what is gone can be made again", comesBack},
		{"strangers stay", strangersStay},
		{"an identical record is adopted", adopts},
		{"a conflict is named", namesConflicts},
		{"the records of other marks stay", marksAreApart},
		{"deletion leaves nothing", leavesNothing},
	} {
		t.Run(rule.name, func(t *testing.T) { rule.hold(t, make(t)) })
	}
	t.Run("cut short anywhere it ends right", func(t *testing.T) { survivesCuts(t, make) })
}

// wanted returns the records of a mail domain.
func (c Case) wanted(host string) []dnsprov.Record {
	d := c.Zone.Domain
	rec := func(name, typ, value, purpose string) dnsprov.Record {
		return dnsprov.Record{Name: name, Type: typ, Value: value, Purpose: purpose, TTL: 3600, Critical: true}
	}
	mx := rec(d, "MX", host, dnsprov.PurposeMX)
	mx.Priority = 10
	return []dnsprov.Record{
		mx,
		rec(d, "A", "192.0.2.1", dnsprov.PurposeA),
		rec(d, "AAAA", "2001:db8::1", dnsprov.PurposeA),
		rec(d, "TXT", "v=spf1 mx ip4:192.0.2.1 ~all", dnsprov.PurposeSPF),
		rec("s._domainkey."+d, "TXT", "v=DKIM1; k=rsa; p="+string(slices.Repeat([]byte("MIIB"), 90)), dnsprov.PurposeDKIM),
		rec("_dmarc."+d, "TXT", "v=DMARC1; p=reject", dnsprov.PurposeDMARC),
	}
}

// read lists the records of the zone.
func (c Case) read(t *testing.T) ([]dnsprov.Record, error) {
	return c.Provider.Records(t.Context(), c.Zone)
}

// bring reads, plans and applies once.
func (c Case) bring(t *testing.T, want []dnsprov.Record) error {
	t.Helper()
	have, err := c.read(t)
	if err != nil {
		return err
	}
	fits, err := dnsprov.Compatible(have, want)
	if err != nil {
		return err
	}
	_, err = c.Provider.Apply(t.Context(), c.Zone, dnsprov.Plan(have, fits))
	return err
}

// must is bring, and fails the test on an error.
func (c Case) must(t *testing.T, want []dnsprov.Record) {
	t.Helper()
	if err := c.bring(t, want); err != nil {
		t.Fatal(err)
	}
}

// settled fails the test unless all wanted records exist and a plan is empty.
func (c Case) settled(t *testing.T, want []dnsprov.Record) {
	t.Helper()
	have, err := c.read(t)
	for try := 0; err != nil && try < 5; try++ { // a cut may affect this late request
		have, err = c.read(t)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range dnsprov.Plan(have, want) {
		t.Errorf("left to do: %s have %+v want %+v", ch.Op, ch.Have, ch.Want)
	}
	for _, w := range want {
		if !slices.ContainsFunc(have, w.Same) {
			t.Errorf("not there: %s %s %s", w.Name, w.Type, w.Value)
		}
	}
}

func secondPlanIsEmpty(t *testing.T, c Case) {
	if have, err := c.Provider.Records(t.Context(), c.Zone); err != nil || len(have) != 0 {
		t.Fatalf("an empty place has %v, %v", have, err)
	}
	if _, err := c.Provider.Apply(t.Context(), c.Zone, nil); err != nil {
		t.Fatalf("no changes: %v", err)
	}
	first, second := c.wanted("mail.host.test"), c.wanted("mx.host.test")
	c.must(t, first)
	c.settled(t, first)
	c.must(t, first)
	c.settled(t, first)
	second[1].Value = "192.0.2.9"
	c.must(t, second[:5])
	c.settled(t, second[:5])
}

func comesBack(t *testing.T, c Case) {
	want := c.wanted("mail.host.test")
	c.must(t, want)
	c.must(t, want[:2])
	c.must(t, want)
	c.settled(t, want)
}

// stranger returns foreign records that exclude no wanted ones.
func (c Case) stranger() []dnsprov.Record {
	d := c.Zone.Domain
	return []dnsprov.Record{
		{Name: d, Type: "TXT", Value: "google-site-verification=1", TTL: 300},
		{Name: "shop." + d, Type: "CNAME", Value: "shops.test", TTL: 300},
		{Name: "sub." + d, Type: "MX", Value: "mail.sub.test", Priority: 5, TTL: 300},
	}
}

func strangersStay(t *testing.T, c Case) {
	if c.Stranger == nil {
		return
	}
	for _, r := range c.stranger() {
		c.Stranger(t, r)
	}
	want := c.wanted("mail.host.test")
	c.must(t, want)
	c.settled(t, want)
	c.must(t, want[:1])
	c.must(t, nil)
	c.hasStrangers(t, c.stranger())
}

func (c Case) hasStrangers(t *testing.T, all []dnsprov.Record) {
	t.Helper()
	there := c.Strangers(t)
	for _, r := range all {
		if !slices.ContainsFunc(there, r.Same) {
			t.Errorf("a stranger's record is gone: %s %s %s", r.Name, r.Type, r.Value)
		}
	}
}

func adopts(t *testing.T, c Case) {
	if c.Stranger == nil {
		return
	}
	want := c.wanted("mail.host.test")
	var theirs []dnsprov.Record
	for _, r := range want[:4] {
		r.Purpose, r.TTL, r.Critical = "", 300, false
		theirs = append(theirs, r)
		c.Stranger(t, r)
	}
	c.must(t, want)
	c.settled(t, want)
	c.must(t, nil)
	c.hasStrangers(t, theirs)
}

func namesConflicts(t *testing.T, c Case) {
	if c.Stranger == nil {
		return
	}
	theirs := dnsprov.Record{Name: c.Zone.Domain, Type: "MX", Value: "mail.theirs.test", Priority: 1, TTL: 300}
	c.Stranger(t, theirs)
	var conflict *dnsprov.Conflict
	if err := c.bring(t, c.wanted("mail.host.test")); !errors.As(err, &conflict) || !conflict.Have.Same(theirs) {
		t.Errorf("%v", err)
	}
	c.hasStrangers(t, []dnsprov.Record{theirs})
}

func marksAreApart(t *testing.T, c Case) {
	if c.Stranger == nil {
		return
	}
	other := c
	other.Zone.OwnerTag += "_other"
	want := c.wanted("mail.host.test")
	other.must(t, want[3:])
	c.must(t, want[:3])
	c.must(t, nil)
	other.settled(t, want[3:])
}

func leavesNothing(t *testing.T, c Case) {
	c.must(t, c.wanted("mail.host.test"))
	c.must(t, nil)
	have, err := c.Provider.Records(t.Context(), c.Zone)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range have {
		if r.Purpose != "" {
			t.Errorf("left behind: %+v", r)
		}
	}
}

// survivesCuts makes every step of two changes fail in every way; repeated attempts must lead to
// the wanted records.
func survivesCuts(t *testing.T, make func(t *testing.T) Case) {
	for n := 0; ; n++ {
		c := make(t)
		if c.Cut == nil {
			return
		}
		first, second := c.wanted("mail.host.test"), c.wanted("mx.host.test")[1:]
		for _, r := range c.stranger() {
			c.Stranger(t, r)
		}
		c.must(t, first[:4])
		if !c.Cut(t, n) {
			return
		}
		for _, want := range [][]dnsprov.Record{first, second, nil} {
			for try := 0; c.bring(t, want) != nil; try++ {
				if try == 5 {
					t.Fatalf("cut %d: it never comes to an end", n)
				}
			}
			c.settled(t, want)
		}
		c.hasStrangers(t, c.stranger())
		if left := len(c.Strangers(t)); left != len(c.stranger()) {
			t.Errorf("cut %d: %d records are left, %d of them of strangers", n, left, len(c.stranger()))
		}
	}
}
