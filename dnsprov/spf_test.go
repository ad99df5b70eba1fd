package dnsprov

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	evaluator "blitiri.com.ar/go/spf"

	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/mail/spf/spftest"
)

var ourSPF = Record{Name: "a.test", Type: "TXT", Purpose: PurposeSPF, Value: "v=spf1 mx ip4:192.0.2.1 ip6:2001:db8::1 ~all"}

func TestMergedSPF(t *testing.T) {
	const ours = "mx ip4:192.0.2.1 ip6:2001:db8::1"
	for _, tc := range []struct {
		name  string
		there []string
		want  string
	}{
		{"one that lets us send stays", []string{"V=SPF1  +mx -all"}, "V=SPF1  +mx -all"},
		{"one of others", []string{"v=spf1 include:_spf.google.test -all"}, "v=spf1 " + ours + " include:_spf.google.test -all"},
		{"the owner's all, neutral", []string{"v=spf1 a ?all"}, "v=spf1 " + ours + " a ?all"},
		{"no all", []string{"v=spf1 a"}, "v=spf1 " + ours + " a ~all"},
		{"one that denies us", []string{"v=spf1 -ip4:192.0.2.0/24 a -all"}, "v=spf1 " + ours + " -ip4:192.0.2.0/24 a -all"},
		{"a redirect stays one", []string{"v=spf1 redirect=_spf.else.test"}, "v=spf1 " + ours + " redirect=_spf.else.test"},
		{"a redirect beside all is none", []string{"v=spf1 a ~all redirect=x.test"}, "v=spf1 " + ours + " a ~all"},
		{"nothing after all counts", []string{"v=spf1 -all a"}, "v=spf1 " + ours + " -all"},
		{"ours beside theirs", []string{ourSPF.Value, "v=spf1 include:x.test -all"}, "v=spf1 " + ours + " include:x.test -all"},
		{"ours twice", []string{ourSPF.Value, ourSPF.Value}, "v=spf1 " + ours + " ~all"},
		{"several, each term once", []string{"v=spf1 A include:x.test -all", "v=spf1 a ip4:198.51.100.1/32 ip4:198.51.100.1 include:X.test ~all"}, "v=spf1 " + ours + " a include:x.test ip4:198.51.100.1/32 ~all"},
		{"several with a redirect", []string{"v=spf1 redirect=x.test", "v=spf1 a -all"}, "v=spf1 " + ours + " include:x.test a -all"},
		{"malformed terms", []string{"v=spf1 mx include: ip4:1.2.3 foo:bar a -all"}, "v=spf1 " + ours + " a -all"},
		{"macros and modifiers", []string{"v=spf1 exists:%{ir}.x.test exp=why.test -all"}, "v=spf1 " + ours + " exists:%{ir}.x.test exp=why.test -all"},
		{"one of eleven lookups", []string{"v=spf1" + strings.Repeat(" include:%d.test", 10) + " -all"}, "v=spf1 ip4:192.0.2.1 ip6:2001:db8::1" + strings.Repeat(" include:%d.test", 10) + " -all"},
		{"too long", []string{"v=spf1 include:" + strings.Repeat("x", maxText) + ".test -all"}, ""},
	} {
		for i := range 10 {
			for j := range tc.there {
				tc.there[j] = strings.Replace(tc.there[j], ":%d", fmt.Sprint(":d", i), 1)
			}
			tc.want = strings.Replace(tc.want, ":%d", fmt.Sprint(":d", i), 1)
		}
		if got := MergeSPF(tc.there, ourSPF); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

// spfWorld is a resolver with the DNS around one SPF record.
type spfWorld string

func (w spfWorld) LookupTXT(_ context.Context, name string) ([]string, error) {
	switch strings.TrimSuffix(name, ".") {
	case "a.test":
		return []string{string(w)}, nil
	case "one.test":
		return []string{"v=spf1 ip4:203.0.113.1 -all"}, nil
	case "two.test":
		return []string{"v=spf1 ip4:203.0.113.2 ?all"}, nil
	}
	return nil, &net.DNSError{IsNotFound: true}
}

func (spfWorld) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	return []*net.MX{{Host: "mx." + name}}, nil
}

func (spfWorld) LookupIPAddr(_ context.Context, host string) ([]net.IPAddr, error) {
	switch strings.TrimSuffix(host, ".") {
	case "mx.a.test":
		return []net.IPAddr{{IP: net.ParseIP("192.0.2.1")}, {IP: net.ParseIP("2001:db8::1")}}, nil
	case "a.test":
		return []net.IPAddr{{IP: net.ParseIP("198.51.100.7")}}, nil
	}
	return []net.IPAddr{{IP: net.ParseIP("198.51.100.9")}}, nil
}

func (spfWorld) LookupAddr(context.Context, string) ([]string, error) {
	return nil, &net.DNSError{IsNotFound: true}
}

// judge returns the result of an independent SPF evaluator for an address.
func judge(record, ip string) evaluator.Result {
	r, _ := evaluator.CheckHostWithSender(net.ParseIP(ip), "helo.test", "x@a.test", evaluator.WithResolver(spfWorld(record)))
	return r
}

var (
	ourAddresses   = []string{"192.0.2.1", "2001:db8::1"}
	otherAddresses = []string{"203.0.113.1", "203.0.113.2", "198.51.100.7", "198.51.100.9", "192.0.2.77", "203.0.113.200", "2001:db8:1::5"}
)

// randomSPF returns a record of random existing terms. If deny is true, some of them may refuse.
func randomSPF(r *rand.Rand, deny bool) string {
	mechanisms := []string{"a", "mx", "A:else.test", "mx:else.test/24", "include:one.test", "include:two.test", "ip4:203.0.113.128/25", "ip4:192.0.2.0/24", "ip6:2001:db8::/32", "exists:%{i}.x.test"}
	out := []string{"v=spf1"}
	for range r.IntN(6) {
		term := mechanisms[r.IntN(len(mechanisms))]
		if deny && r.IntN(3) == 0 {
			term = []string{"-", "~", "?"}[r.IntN(3)] + term
		}
		out = append(out, term)
	}
	switch r.IntN(8) {
	case 0:
		out = append(out, "redirect=one.test")
	case 1:
	case 2:
		out = append(out, "exp=why.test", "-all")
	default:
		out = append(out, []string{"-all", "~all", "?all", "+all"}[r.IntN(4)])
	}
	return strings.Join(out, " ")
}

// The merged record passes what the old record passes, and our host; the result for everybody else
// is unchanged.
func TestMergedSPFAuthorisesBoth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		there := randomSPF(r, true)
		merged := MergeSPF([]string{there}, ourSPF)
		for _, ip := range ourAddresses {
			if got := judge(merged, ip); got != evaluator.Pass {
				t.Fatalf("%q became %q, which gives %s for our %s", there, merged, got, ip)
			}
		}
		ends := strings.Contains(there, "all") || strings.Contains(there, "redirect=")
		for _, ip := range otherAddresses {
			if before, after := judge(there, ip), judge(merged, ip); before == evaluator.Pass && after != evaluator.Pass || ends && before != after {
				t.Fatalf("%q became %q: %s for %s became %s", there, merged, before, ip, after)
			}
		}
	}
}

// From several records, which receivers would ignore, one record is made that passes what any of
// them passes.
func TestMergedSPFAuthorisesAllOfSeveral(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 700 {
		there := []string{randomSPF(r, false), randomSPF(r, false)}
		if r.IntN(3) == 0 {
			there = append(there, ourSPF.Value)
		}
		merged := MergeSPF(there, ourSPF)
		if again := MergeSPF([]string{merged}, ourSPF); again != merged {
			t.Fatalf("%q merged once more is %q", merged, again)
		}
		for _, ip := range slices.Concat(ourAddresses, otherAddresses) {
			passed := slices.Contains(ourAddresses, ip) || slices.ContainsFunc(there, func(one string) bool { return judge(one, ip) == evaluator.Pass })
			if got := judge(merged, ip); passed && got != evaluator.Pass {
				t.Fatalf("%q became %q, which gives %s for %s", there, merged, got, ip)
			}
		}
	}
}

// The records of spftest.Cases, as they are merged where the domain's MX record leads here already:
// for domains whose records are entered by hand, and at providers by API. Two implementations
// evaluate them: our addresses pass, and what other addresses had from the record of before, they
// have from the merged one.
func TestMergedSPFByTwoImplementations(t *testing.T) {
	other, merges := spftest.StartPyspf(t), 0
	ours := Record{Name: spftest.Domain, Type: "TXT", Purpose: PurposeSPF, Value: "v=spf1 mx ip4:192.0.2.1 ip6:2001:db8::1 ~all"}
	world := func(texts ...string) spftest.World {
		w := spftest.NewWorld(t, []string{"host.ours.test"}, texts...)
		w.Add(t, "host.ours.test. 60 IN A 192.0.2.1")
		w.Add(t, "host.ours.test. 60 IN AAAA 2001:db8::1")
		return w
	}
	for _, tc := range spftest.Cases {
		there := slices.DeleteFunc(slices.Clone(tc.Old), func(text string) bool { return !spf.IsRecord(text) })
		if len(there) == 0 {
			continue
		}
		merges++
		merged := MergeSPF(there, ours)
		after := world(merged)
		for i, theirs := range other.Evaluate(t, after, ourAddresses) {
			if result := after.Evaluate(t, ourAddresses[i]); result != "pass" || theirs != "pass" {
				t.Errorf("%q became %q: our address %s has %s, and by pyspf %s", there, merged, ourAddresses[i], result, theirs)
			}
		}
		for i, theirs := range other.Evaluate(t, after, spftest.Addresses) {
			address := spftest.Addresses[i]
			is := after.Evaluate(t, address)
			if is != theirs {
				t.Errorf("%q: %s has %s, and by pyspf %s", merged, address, is, theirs)
			}
			var had []string
			for _, text := range there {
				had = append(had, world(text).Evaluate(t, address))
			}
			hasEnd := len(there) == 1 && (strings.Contains(strings.ToLower(there[0]), "all") || strings.Contains(there[0], "redirect="))
			switch {
			case slices.Contains(had, "permerror"): // a malformed term is left out, and the others count
			case slices.Contains(had, "pass") != (is == "pass"), hasEnd && had[0] != is:
				t.Errorf("%q became %q: %s had %q and has %s", there, merged, address, had, is)
			}
		}
	}
	if merges < 30 {
		t.Errorf("%d records were merged", merges)
	}
}

// Merging anything that strangers publish as SPF is safe: the result lets our host send.
func FuzzMergeSPF(f *testing.F) {
	f.Add("v=spf1 include:one.test -all", "v=spf1 a")
	f.Add("v=spf1 mx:%{d}/24//64 ip6:::1/0 exp=%{x} redirect=%%", "v=spf1 -all +all all=1 a/33 ip4:192.0.2.1/33")
	f.Fuzz(func(t *testing.T, a, b string) {
		var there []string
		for _, text := range []string{a, b} {
			if spf.IsRecord(text) {
				there = append(there, text)
			}
		}
		if len(there) == 0 {
			return
		}
		merged := MergeSPF(there, ourSPF)
		if merged == "" {
			return
		}
		if !authorizes(merged, ourSPF) || len(merged) > maxText && len(there) > 1 {
			t.Fatalf("%q became %q", there, merged)
		}
		if merged != there[0] {
			for _, ip := range ourAddresses {
				if got := judge(merged, ip); got != evaluator.Pass {
					t.Fatalf("%q became %q, which gives %s for %s", there, merged, got, ip)
				}
			}
		}
	})
}

func TestSPFThatNamesUsTooLate(t *testing.T) {
	for text, want := range map[string]bool{
		"v=spf1 -ip4:192.0.2.1 mx -all":                        false,
		"v=spf1 ~ip4:192.0.2.0/24 ip4:192.0.2.1 -all":          false,
		"v=spf1 ip4:192.0.2.1 ip6:2001:db8::1 -mx -all":        true,
		"v=spf1 ip4:192.0.2.1 mx:a.test -all":                  true,
		"v=spf1 mx:other.test -all":                            false,
		"v=spf1 +all":                                          true,
		"v=spf1 mx unknown:term -all":                          false,
		"v=spf1 mx:a.test/24//64 ~all":                         true,
		"v=spf1 ip4:192.0.2.1/33 ip4:192.0.2.1 mx":             false,
		"v=spf1 ip4:0.0.0.0/0 ip6:2001:db8::/32 some=modifier": true,
	} {
		if got := authorizes(text, ourSPF); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestVerifyOffersAMergedSPF(t *testing.T) {
	want := Record{Name: "a.test", Type: "TXT", Value: ourSPF.Value, Purpose: PurposeSPF}
	there := zoneFile{"TXT a.test.": {"v=spf1 include:one.test -all"}}
	c := Verify(t.Context(), there, []Record{want})[0]
	if c.Verified || c.Offer != "v=spf1 mx ip4:192.0.2.1 ip6:2001:db8::1 include:one.test -all" {
		t.Fatalf("%+v", c)
	}
	there["TXT a.test."] = []string{c.Offer}
	if again := Verify(t.Context(), there, []Record{want})[0]; !again.Verified || again.Offer != c.Offer {
		t.Errorf("the offer taken up: %+v", again)
	}
	if c := Verify(t.Context(), zoneFile{}, []Record{want})[0]; c.Offer != "" {
		t.Errorf("nothing there: %+v", c)
	}
}

var _ evaluator.DNSResolver = spfWorld("")

// TestHostsRecordPassesItsOwnAddresses: the record of the mail host's name is verified if it passes
// the addresses of the name and the further sending addresses.
func TestHostsRecordPassesItsOwnAddresses(t *testing.T) {
	plain := newManagedRecord("mail.example.test", "TXT", "v=spf1 a -all", PurposeSPF)
	more := newManagedRecord("mail.example.test", "TXT", "v=spf1 a ip4:192.0.2.9 -all", PurposeSPF)
	for text, want := range map[string][2]bool{
		"v=spf1 a -all":                         {true, false},
		"v=spf1 a:mail.example.test ~all":       {true, false},
		"v=spf1 a ip4:192.0.2.0/24 -all":        {true, true},
		"v=spf1 ip4:192.0.2.9 a -all":           {true, true},
		"v=spf1 ip4:192.0.2.9 -all":             {false, false},
		"v=spf1 -a ip4:192.0.2.9 -all":          {false, false},
		"v=spf1 mx -all":                        {false, false},
		"v=spf1 +all":                           {true, true},
		"v=spf1 a:other.example.test -all":      {false, false},
		"v=spf1 a -ip4:192.0.2.0/24 +all -all2": {false, false},
	} {
		if got := [2]bool{authorizes(text, plain), authorizes(text, more)}; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// The owner's part of a merged record has its terms in order and its ending. Mailstead publishes
// neither +all nor ?all, and says so.
func TestOwnersPartOfMergedSPF(t *testing.T) {
	ours := []string{"mx", "ip4:192.0.2.1", "ip6:2001:db8::1"}
	for _, tc := range []struct{ published, extra, all, loose string }{
		{"v=spf1 include:x.test -all", "include:x.test", "-", ""},
		{"v=spf1 include:x.test ~all", "include:x.test", "~", ""},
		{"v=spf1 include:x.test ?all", "include:x.test", "~", "?all"},
		{"v=spf1 -ip4:192.0.2.0/24 include:x.test +all", "-ip4:192.0.2.0/24 include:x.test", "~", "+all"},
		{"v=spf1 a all", "a", "~", "+all"},
		{"v=spf1 a", "a", "~", ""},
		{"v=spf1 redirect=x.test", "redirect=x.test", "~", ""},
		{"v=spf1 exp=why.test a -all", "exp=why.test a", "-", ""},
		{"v=spf1 -all", "", "-", ""},
	} {
		merged := MergeSPF([]string{tc.published, "v=spf1 mx ip4:192.0.2.1 ip6:2001:db8::1 ~all"}, ourSPF)
		extra, all := OwnersSPF(merged, ours)
		if strings.Join(extra, " ") != tc.extra || all != tc.all || LooseEnd(tc.published) != tc.loose {
			t.Errorf("%q: merged as %q, %q %s, loose %q", tc.published, merged, extra, all, LooseEnd(tc.published))
		}
		again := Spec{Domain: "a.test", IPv4: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, IPv6: []netip.Addr{netip.MustParseAddr("2001:db8::1")}, SPFExtra: extra, SPFAll: all}.spfRecord()
		if more, end := OwnersSPF(again, ours); !slices.Equal(more, extra) || end != all || LooseEnd(again) != "" {
			t.Errorf("%q is published as %q", tc.published, again)
		}
	}
}

// A record that would need too many lookups because of our mx permits our host by address alone.
func TestOurMXGivesWay(t *testing.T) {
	s := Spec{Domain: "a.test", IPv4: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	for n := range 10 {
		s.SPFExtra = append(s.SPFExtra, fmt.Sprintf("include:i%d.test", n))
		if got, want := strings.HasPrefix(s.spfRecord(), "v=spf1 mx ip4:192.0.2.1 "), n < 9; got != want {
			t.Errorf("with %d includes it is %s", n+1, s.spfRecord())
		}
	}
	s.IPv4 = nil
	if !strings.HasPrefix(s.spfRecord(), "v=spf1 mx ") {
		t.Errorf("without an address it is %s", s.spfRecord())
	}
}
