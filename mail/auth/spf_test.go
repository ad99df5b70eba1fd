package auth

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/spf"
)

// What the library reads has no macros any more, and no names that it would cut up.
func TestSPFRecordExpanded(t *testing.T) {
	look, cancel := (&Verifier{Resolver: newSuiteZone(t, nil)}).newLookups(t.Context())
	defer cancel()
	l := &spfLookups{lookups: look, macros: spfMacros{look: look, ip: netip.MustParseAddr("2001:db8::1"), helo: "Mx.Example.com", local: "bob+a/b@c", domain: "example.com"}}
	for _, c := range [][2]string{
		{"v=spf1 -exists:%{l}._u.%{o} ?all", "v=spf1 -exists:0.stand-in.invalid ?all"},
		{"v=spf1 A:%{h}/24//64 Redirect=_spf.%{d2}", "v=spf1 a:Mx.Example.com/24//64 redirect=_spf.here.test"},
		{"v=spf1 a/24 a:foo/bar.example.com/24 mx all", "v=spf1 a/24 a:1.stand-in.invalid/24 mx all"},
		{"v=spf1 include:%{ir}.%{v}.%{p}.x.com exp=%{d}", "v=spf1 include:1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.unknown.x.com exp=%{d}"},
		{"v=spf1 ptr:%{D}.x. exists:%{L1r+}.x.com moo=%_", "v=spf1 ptr:very.long.here.test.x exists:bob.x.com moo=%_"},
	} {
		record := spf.Parse(c[0])
		if l.expandNames(t.Context(), record, "very.long.here.test"); record.String() != c[1] {
			t.Errorf("%q: %q, want %q", c[0], record, c[1])
		}
	}
	for name, want := range map[string]string{
		"0.stand-in.invalid": "bob+a/b@c._u.example.com", "1.stand-in.invalid": "foo/bar.example.com", "2.stand-in.invalid": "2.stand-in.invalid", "-1.stand-in.invalid": "-1.stand-in.invalid", "x.com": "x.com",
	} {
		if got := l.realName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	long := strings.Repeat("a23456789.", 24) + "%{d}.example.com" // 255 characters with the domain
	if got := l.macros.expandName(t.Context(), long, "here.test"); len(got) > idn.MaxName || len(got) < idn.MaxName-10 || !strings.HasSuffix(got, ".here.test.example.com") {
		t.Errorf("%d characters: %s", len(got), got)
	}
}

// FuzzSPFRecord holds that no macro is left in what the library reads.
func FuzzSPFRecord(f *testing.F) {
	f.Add("v=spf1 a:x.com/24//64 include:%{d2} redirect=_spf.%{d} exp=x.y -all")
	f.Add("v=spf1 exists:%{L3r+-}.%%%_%-.%{I}.%{p}.x a:b/c.d/24//64 ptr:%{v}")
	f.Fuzz(func(t *testing.T, txt string) {
		if !spf.IsRecord(txt) || !spf.Parse(txt).WellFormed {
			return
		}
		look, cancel := (&Verifier{Resolver: newSuiteZone(t, nil)}).newLookups(t.Context())
		defer cancel()
		l := &spfLookups{lookups: look, macros: spfMacros{look: look, ip: netip.MustParseAddr("192.0.2.1"), helo: "mx", local: "bob+a/b@c", domain: "example.com"}}
		record := spf.Parse(txt)
		l.expandNames(t.Context(), record, "here.test")
		for _, term := range spf.Parse(record.String()).Terms {
			if term.NeedsLookup() && strings.ContainsAny(term.Value, "%/") {
				t.Errorf("%q: %q is left", txt, term)
			}
		}
	})
}
