package spf

import (
	"slices"
	"strings"
	"testing"
)

func TestGrammar(t *testing.T) {
	for _, good := range []string{
		"v=spf1", "v=spf1 -all", "V=SPF1 a mx ptr ip4:192.0.2.0/24 ip6:2001:db8::/32 ?all", "v=spf1  a:x.com/24//64  -all ",
		"v=spf1 include:_spf.%{d2} exists:%{ir}.%{l1r+-}.x.com ~all", "v=spf1 redirect=_spf.x.com", "v=spf1 a exp=e.%{d} moo=%{d}=x",
		"v=spf1 mx//128 a/0", "v=spf1 include:%{d}", "v=spf1 a:x.com. -all",
	} {
		if !IsRecord(good) || !Parse(good).WellFormed {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{
		"v=spf1 all:x", "v=spf1 include", "v=spf1 include:", "v=spf1 a:/24", "v=spf1 a/33", "v=spf1 a/024", "v=spf1 a//129", "v=spf1 ip4:1.2.3",
		"v=spf1 ip4:1.2.3.4/", "v=spf1 ip6:1.2.3.4", "v=spf1 ip6", "v=spf1 ip6:fe80::1%eth0", "v=spf1 -all;", "v=spf1 exists:%{x}.com",
		"v=spf1 redirect=a.com redirect=b.com", "v=spf1 exp=", "v=spf1 -all exp=x", "v=spf1 a:x.123", "v=spf1 a:x%(d).com", "v=spf1 a:\x80.com",
		"v=spf1 +redirect=x.com", "v=spf1 moo=%", "v=spf1 exists:%{d0}.com", "v=spf1 exists:%{t}.com", "v=spf1 -", "v=spf1 a:x.com\x00",
	} {
		if Parse(bad).WellFormed {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, other := range []string{"v=spf10", "v=spf", " v=spf1", "v=spf1;a", ""} {
		if IsRecord(other) {
			t.Errorf("%q is taken for a record", other)
		}
	}
}

// What is written is read as the same terms, and malformed terms are left out.
func TestTerms(t *testing.T) {
	for in, want := range map[string]string{
		"V=SPF1  +A:X.com/24//64 -all ":                 "v=spf1 a:X.com/24//64 -all",
		"v=spf1 MX/24 ?mx//64 ~ptr ptr:x.com":           "v=spf1 mx/24 ?mx//64 ~ptr ptr:x.com",
		"v=spf1 ip4:192.0.2.7/24 ip6:2001:DB8::1 foo=":  "v=spf1 ip4:192.0.2.7/24 ip6:2001:DB8::1 foo=",
		"v=spf1 Redirect=_spf.%{d2} exp=e.x.com":        "v=spf1 redirect=_spf.%{d2} exp=e.x.com",
		"v=spf1 a include: ip4:1.2.3 foo:bar a/33 -all": "v=spf1 a -all",
		"v=spf1 redirect=a.com redirect=b.com":          "v=spf1 redirect=a.com",
	} {
		r := Parse(in)
		if got := r.String(); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if again := Parse(want); !again.WellFormed || !slices.Equal(again.Terms, r.Terms) {
			t.Errorf("%q: %+v, then %+v", in, r, again)
		}
	}
}

func TestLookups(t *testing.T) {
	for text, want := range map[string]int{
		"v=spf1 mx a include:x.test ip4:192.0.2.1 -all": 3, "v=spf1 redirect=x.test": 1, "v=spf1 a redirect=x.test ~all": 1, "other": 0,
		"v=spf1 exists:%{i}.x.test ptr exp=why.test -all": 2,
	} {
		if got := Lookups(text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// FuzzParse holds the grammar to what must be so of every record that it takes.
func FuzzParse(f *testing.F) {
	f.Add("v=spf1 a:x.com/24//64 include:%{d2} redirect=_spf.%{d} exp=x.y -all")
	f.Add("v=spf1 exists:%{L3r+-}.%%%_%-.%{I}.%{p}.x a:b/c.d/24//64 ptr:%{v}")
	f.Fuzz(func(t *testing.T, text string) {
		if !IsRecord(text) {
			return
		}
		r := Parse(text)
		if again := Parse(r.String()); !again.WellFormed || !slices.Equal(again.Terms, r.Terms) {
			t.Errorf("%q: %+v, then %+v", text, r, again)
		}
		if !r.WellFormed {
			return
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is taken", text)
		}
		if !Parse(text+" -all").WellFormed || Parse(text+" bogus").WellFormed {
			t.Errorf("%q: more terms change it", text)
		}
		for _, term := range r.Terms {
			Expand(term.Value, func(byte) string { return "a.b+c" })
		}
	})
}
