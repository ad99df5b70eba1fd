// Package providertest is a test suite for every dnsprov.Provider. It does not know any provider.
package providertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
)

// A Case is a provider to test, with an empty zone for one domain.
type Case struct {
	Provider dnsprov.Provider
	Zone     dnsprov.ZoneRef

	// Stranger adds a foreign record to the zone without the provider. It is nil if the zone cannot
	// have foreign records.
	Stranger func(t *testing.T, r dnsprov.Record)
	// Strangers returns the foreign records of the zone with their TTLs, without asking the
	// provider, and without the zone's own SOA and NS.
	Strangers func(t *testing.T) []dnsprov.Record
	// Cut makes the next Apply fail. Each n, from 0, stands for another step and another kind of
	// failure. Cut returns false if n is too large. It is nil if an Apply cannot fail in between.
	Cut func(t *testing.T, n int) bool
	// Late makes the next readings of the zone, of this number, show what it had before the last
	// change. It is nil if the provider always shows what it has.
	Late func(t *testing.T, readings int)
}

// Run tests a provider against the rules of dnsprov.Provider. make returns a new Case.
func Run(t *testing.T, make func(t *testing.T) Case) {
	open := make
	make = func(t *testing.T) Case {
		c := open(t)
		c.Zone.Ask = c.sets()
		return c
	}
	for _, rule := range []struct {
		name string
		test func(*testing.T, Case)
	}{
		{"the zone is found", findsZone},
		{"a second plan is empty", secondPlanIsEmpty},
		{"what is gone can be made again", comesBack},
		{"strangers stay", strangersStay},
		{"an identical record is adopted", adopts},
		{"a set is shared with strangers", sharesSets},
		{"what strangers add meanwhile stays", addedMeanwhile},
		{"a conflict is named", namesConflicts},
		{"the records of other marks stay", marksAreApart},
		{"deletion leaves nothing", leavesNothing},
	} {
		t.Run(rule.name, func(t *testing.T) { rule.test(t, make(t)) })
	}
	t.Run("what is shown late does no harm", func(t *testing.T) { survivesLateness(t, make) })
	t.Run("cut short anywhere it ends right", func(t *testing.T) { survivesCuts(t, make) })
}

// wanted returns the records of a mail domain whose MX is host.
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

// sets returns the sets of all records that the suite wants.
func (c Case) sets() []dnsprov.Set {
	var out []dnsprov.Set
	for _, w := range append(c.wanted("mail.host.test"), c.text("")) {
		if s := (dnsprov.Set{Name: w.Name, Type: w.Type}); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// text returns a TXT record of the domain's owner.
func (c Case) text(value string) dnsprov.Record {
	return dnsprov.Record{Name: c.Zone.Domain, Type: "TXT", Value: value, TTL: 3600, Purpose: dnsprov.PurposeCustom}
}

// read returns the records of the zone as the provider reports them.
func (c Case) read(t *testing.T) ([]dnsprov.Record, error) {
	return c.Provider.Records(t.Context(), c.Zone)
}

// sync brings the zone to the wanted records: it reads the zone, plans, and applies the plan.
func (c Case) sync(t *testing.T, want []dnsprov.Record) error {
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

// mustSync does the same as sync, and fails the test on an error.
func (c Case) mustSync(t *testing.T, want []dnsprov.Record) {
	t.Helper()
	if err := c.sync(t, want); err != nil {
		t.Fatal(err)
	}
}

// checkSynced fails the test unless all wanted records exist and the next plan is empty.
func (c Case) checkSynced(t *testing.T, want []dnsprov.Record) {
	t.Helper()
	have, err := c.read(t)
	for try := 0; err != nil && try < 5; try++ { // a Cut may still affect this request
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

func findsZone(t *testing.T, c Case) {
	zone, err := c.Provider.FindZone(t.Context(), c.Zone.Domain)
	if err != nil || c.Zone.Domain != zone && !strings.HasSuffix(c.Zone.Domain, "."+zone) {
		t.Errorf("%s is in the zone %q, %v", c.Zone.Domain, zone, err)
	}
	if zone, err := c.Provider.FindZone(t.Context(), "none.invalid"); !errors.Is(err, dnsprov.ErrZoneNotFound) {
		t.Errorf("none.invalid is in the zone %q, %v", zone, err)
	}
}

func secondPlanIsEmpty(t *testing.T, c Case) {
	have, err := c.Provider.Records(t.Context(), c.Zone)
	if err != nil || slices.ContainsFunc(have, func(h dnsprov.Record) bool { return h.Type != "NS" }) {
		t.Fatalf("an empty place has %v, %v", have, err)
	}
	if _, err := c.Provider.Apply(t.Context(), c.Zone, nil); err != nil {
		t.Fatalf("no changes: %v", err)
	}
	first, second := c.wanted("mail.host.test"), c.wanted("mx.host.test")
	c.mustSync(t, first)
	c.checkSynced(t, first)
	c.mustSync(t, first)
	c.checkSynced(t, first)
	second[1].Value = "192.0.2.9"
	c.mustSync(t, second[:5])
	c.checkSynced(t, second[:5])
}

func comesBack(t *testing.T, c Case) {
	want := c.wanted("mail.host.test")
	c.mustSync(t, want)
	c.mustSync(t, want[:2])
	c.mustSync(t, want)
	c.checkSynced(t, want)
}

// foreign returns foreign records that conflict with no wanted records.
func (c Case) foreign() []dnsprov.Record {
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
	for _, r := range c.foreign() {
		c.Stranger(t, r)
	}
	want := c.wanted("mail.host.test")
	c.mustSync(t, want)
	c.checkSynced(t, want)
	c.mustSync(t, want[:1])
	c.mustSync(t, nil)
	c.checkStrangers(t, c.foreign())
}

// checkStrangers fails the test if a foreign record is missing in the zone.
func (c Case) checkStrangers(t *testing.T, all []dnsprov.Record) {
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
	c.mustSync(t, want)
	c.checkSynced(t, want)
	c.mustSync(t, nil)
	c.checkStrangers(t, theirs)
}

// theirText returns a text of a stranger's at the domain.
func (c Case) theirText(value string) dnsprov.Record {
	return dnsprov.Record{Name: c.Zone.Domain, Type: "TXT", Value: value, TTL: 300}
}

// checkUnchanged fails the test unless all strangers' records exist with their TTLs.
func (c Case) checkUnchanged(t *testing.T, all []dnsprov.Record) {
	t.Helper()
	there := c.Strangers(t)
	for _, r := range all {
		if !slices.ContainsFunc(there, func(o dnsprov.Record) bool { return o.Same(r) && o.TTL == r.TTL }) {
			t.Errorf("a stranger's record is not as it was: %s %s %s %d", r.Name, r.Type, r.Value, r.TTL)
		}
	}
}

func sharesSets(t *testing.T, c Case) {
	if c.Stranger == nil {
		return
	}
	c.Stranger(t, c.theirText("theirs"))
	c.Stranger(t, c.theirText(strings.Repeat("a long text of theirs", 20)))
	theirs := c.Strangers(t)
	for _, want := range [][]dnsprov.Record{
		{c.text("ours")}, {c.text("ours"), c.text("ours too")}, {c.text("ours again"), c.text("ours too")}, {c.text("ours again")}, nil, {c.text("ours")}, nil,
	} {
		c.mustSync(t, want)
		c.checkSynced(t, want)
		c.checkUnchanged(t, theirs)
		if n := len(c.Strangers(t)); n != len(theirs)+len(want) {
			t.Errorf("%d records are there, want %d of theirs and %d of ours", n, len(theirs), len(want))
		}
	}
}

// addedMeanwhile adds a stranger's value between reading and writing, while ours are made, changed
// and deleted, and at last the value that we are about to make.
func addedMeanwhile(t *testing.T, c Case) {
	if c.Stranger == nil {
		return
	}
	var theirs []dnsprov.Record
	for n, want := range [][]dnsprov.Record{{c.text("ours")}, {c.text("ours again")}, {c.text("ours again"), c.text("ours too")}, nil, {c.text("theirs 4")}, nil} {
		have, err := c.read(t)
		if err != nil {
			t.Fatal(err)
		}
		added := c.theirText(fmt.Sprintf("theirs %d", n))
		c.Stranger(t, added)
		there := c.Strangers(t)
		added.TTL = there[slices.IndexFunc(there, added.Same)].TTL
		theirs = append(theirs, added)
		if _, err := c.Provider.Apply(t.Context(), c.Zone, dnsprov.Plan(have, want)); err != nil && !errors.Is(err, dnsprov.ErrChanged) {
			t.Fatal(err)
		}
		c.checkUnchanged(t, theirs)
		c.mustSync(t, want)
		c.checkSynced(t, want)
		c.checkUnchanged(t, theirs)
	}
	if n := len(c.Strangers(t)); n != len(theirs) {
		t.Errorf("%d records are left, %d of them of strangers", n, len(theirs))
	}
}

func namesConflicts(t *testing.T, c Case) {
	if c.Stranger == nil {
		return
	}
	theirs := dnsprov.Record{Name: c.Zone.Domain, Type: "MX", Value: "mail.theirs.test", Priority: 1, TTL: 300}
	c.Stranger(t, theirs)
	var conflict *dnsprov.Conflict
	if err := c.sync(t, c.wanted("mail.host.test")); !errors.As(err, &conflict) || !conflict.Have.Same(theirs) {
		t.Errorf("%v", err)
	}
	c.checkStrangers(t, []dnsprov.Record{theirs})
}

func marksAreApart(t *testing.T, c Case) {
	if c.Stranger == nil {
		return
	}
	other := c
	other.Zone.OwnerTag += "_other"
	want := c.wanted("mail.host.test")
	other.mustSync(t, want[3:])
	c.mustSync(t, want[:3])
	c.mustSync(t, nil)
	other.checkSynced(t, want[3:])
}

func leavesNothing(t *testing.T, c Case) {
	c.mustSync(t, c.wanted("mail.host.test"))
	c.mustSync(t, nil)
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

// survivesCuts makes syncs fail with every Cut. Repeated syncs must lead to the wanted records.
func survivesCuts(t *testing.T, make func(t *testing.T) Case) {
	for n := 0; ; n++ {
		c := make(t)
		if c.Cut == nil {
			return
		}
		first, second := c.wanted("mail.host.test"), c.wanted("mx.host.test")[1:]
		for _, r := range c.foreign() {
			c.Stranger(t, r)
		}
		c.mustSync(t, first[:4])
		if !c.Cut(t, n) {
			return
		}
		for _, want := range [][]dnsprov.Record{first, second, nil} {
			for try := 0; c.sync(t, want) != nil; try++ {
				if try == 5 {
					t.Fatalf("cut %d: it never comes to an end", n)
				}
			}
			c.checkSynced(t, want)
		}
		c.checkStrangers(t, c.foreign())
		if left := len(c.Strangers(t)); left != len(c.foreign()) {
			t.Errorf("cut %d: %d records are left, %d of them of strangers", n, left, len(c.foreign()))
		}
	}
}

// survivesLateness makes readings show what there was before the last change. Repeated syncs must
// lead to the wanted records, once each, beside those of strangers.
func survivesLateness(t *testing.T, make func(t *testing.T) Case) {
	for readings := 1; readings <= 4; readings++ {
		c := make(t)
		if c.Late == nil {
			return
		}
		for _, r := range append(c.foreign(), c.theirText("theirs")) {
			c.Stranger(t, r)
		}
		strangers := c.Strangers(t)
		first, second := append(c.wanted("mail.host.test"), c.text("ours")), append(c.wanted("mx.host.test")[1:], c.text("ours again"))
		for _, want := range [][]dnsprov.Record{first, second, first[:3], nil, second, nil} {
			for try := 0; ; try++ {
				err := c.sync(t, want)
				if try == 0 {
					c.Late(t, readings) // the first sync is over, and the next ones see what was before it
				}
				if have, readErr := c.read(t); try > readings && err == nil && readErr == nil && len(dnsprov.Plan(have, want)) == 0 {
					break
				}
				if try == 10 {
					t.Fatalf("%d late readings: it never comes to an end: %v", readings, err)
				}
			}
			c.checkSynced(t, want)
			c.checkUnchanged(t, strangers)
			if n := len(c.Strangers(t)); n != len(strangers)+len(want) {
				t.Errorf("%d late readings: %d records are there, want %d of strangers and %d of ours", readings, n, len(strangers), len(want))
			}
		}
	}
}
