package builtin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func recordsOf(c CopiedZone) (out []string) {
	for rr := range c.Transfer() {
		out = append(out, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	return out
}

func TestCatalogListsMembers(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := NewCatalog("Catalog.test.", func() time.Time { return now })
	if c.Origin() != "catalog.test" || !c.Hidden() {
		t.Errorf("catalog %+v", c)
	}
	for _, tc := range []struct {
		origin          string
		member, changes bool
	}{{"b.test", true, true}, {"a.test", true, true}, {"a.test", true, false}, {"c.test", true, true}, {"c.test", false, true}, {"d.test", false, false}} {
		if got := c.Set(tc.origin, tc.member); got != tc.changes {
			t.Errorf("Set(%s, %v) = %v", tc.origin, tc.member, got)
		}
	}
	const soa = "catalog.test. 0 IN SOA invalid. invalid. 1800000000 3600 600 604800 0"
	want := []string{
		soa, "catalog.test. 0 IN NS invalid.", `version.catalog.test. 0 IN TXT "2"`,
		"LABEL.zones.catalog.test. 0 IN PTR a.test.",
		"LABEL.zones.catalog.test. 0 IN PTR b.test.", soa,
	}
	got, labels := recordsOf(c), map[string]bool{}
	for i := range got { // a label is any, but each member's own
		if label, rest, ok := strings.Cut(got[i], ".zones."); ok {
			labels[label], got[i] = true, "LABEL.zones."+rest
		}
	}
	if !slices.Equal(got, want) || len(labels) != 2 {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// The serial rises with each change that somebody could have read, even within one second, and
// follows the clock.
func TestCatalogSerial(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := NewCatalog("catalog.test", func() time.Time { return now })
	serial := func() uint32 {
		m := c.Answer(new(dns.Msg).SetQuestion("catalog.test.", dns.TypeSOA))
		return m.Answer[0].(*dns.SOA).Serial
	}
	for i := range 1000 {
		c.Set(strings.Repeat("x", i%50+1)+".test", i%2 == 0)
	}
	if got := serial(); got != 1_800_000_000 {
		t.Errorf("serial %d after changes that nobody saw", got)
	}
	if got := serial(); got != 1_800_000_000 {
		t.Errorf("serial %d without a change", got)
	}
	c.Set("a.test", true)
	if got := serial(); got != 1_800_000_001 {
		t.Errorf("serial %d after a change in the same second", got)
	}
	now = now.Add(time.Hour)
	c.Set("b.test", true)
	if got := serial(); got != 1_800_003_600 {
		t.Errorf("serial %d an hour later", got)
	}
}

func TestCatalogAnswers(t *testing.T) {
	c := NewCatalog("catalog.test", time.Now)
	for _, tc := range []struct {
		name string
		typ  uint16
		want int
	}{
		{"catalog.test.", dns.TypeSOA, dns.RcodeSuccess}, {"Catalog.TEST.", dns.TypeNS, dns.RcodeSuccess},
		{"catalog.test.", dns.TypePTR, dns.RcodeRefused}, {"version.catalog.test.", dns.TypeTXT, dns.RcodeRefused}, {"test.", dns.TypeSOA, dns.RcodeRefused},
	} {
		m := c.Answer(new(dns.Msg).SetQuestion(tc.name, tc.typ))
		if m.Rcode != tc.want || m.Authoritative != (tc.want == 0) || (len(m.Answer) == 1) != (tc.want == 0) {
			t.Errorf("%s: %v", tc.name, m)
		}
	}
	if m := c.Answer(new(dns.Msg)); m.Rcode != dns.RcodeRefused {
		t.Errorf("no question: %v", m)
	}
}
