package auth

import (
	"net/netip"
	"strings"
	"testing"
)

func TestSPFRecordGrammar(t *testing.T) {
	for _, good := range []string{
		"v=spf1", "v=spf1 -all", "V=SPF1 a mx ptr ip4:192.0.2.0/24 ip6:2001:db8::/32 ?all", "v=spf1  a:x.com/24//64  -all ",
		"v=spf1 include:_spf.%{d2} exists:%{ir}.%{l1r+-}.x.com ~all", "v=spf1 redirect=_spf.x.com", "v=spf1 a exp=e.%{d} moo=%{d}=x",
		"v=spf1 mx//128 a/0", "v=spf1 include:%{d}", "v=spf1 a:x.com. -all",
	} {
		if !isSPF(good) || !isSPFRecord(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{
		"v=spf1 all:x", "v=spf1 include", "v=spf1 include:", "v=spf1 a:/24", "v=spf1 a/33", "v=spf1 a/024", "v=spf1 a//129", "v=spf1 ip4:1.2.3",
		"v=spf1 ip4:1.2.3.4/", "v=spf1 ip6:1.2.3.4", "v=spf1 ip6", "v=spf1 ip6:fe80::1%eth0", "v=spf1 -all;", "v=spf1 exists:%{x}.com",
		"v=spf1 redirect=a.com redirect=b.com", "v=spf1 exp=", "v=spf1 -all exp=x", "v=spf1 a:x.123", "v=spf1 a:x%(d).com", "v=spf1 a:\x80.com",
		"v=spf1 +redirect=x.com", "v=spf1 moo=%", "v=spf1 exists:%{d0}.com", "v=spf1 exists:%{t}.com", "v=spf1 -", "v=spf1 a:x.com\x00",
	} {
		if isSPFRecord(bad) {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, other := range []string{"v=spf10", "v=spf", " v=spf1", "v=spf1;a", ""} {
		if isSPF(other) {
			t.Errorf("%q is taken for a record", other)
		}
	}
}

// What the library reads has no macros any more, and no names that it would cut up.
func TestSPFRecordExpanded(t *testing.T) {
	look, cancel := (&Verifier{Resolver: newSuiteZone(t, nil)}).lookups(t.Context())
	defer cancel()
	l := &spfLookups{lookups: look, macros: spfMacros{look: look, ip: netip.MustParseAddr("2001:db8::1"), helo: "Mx.Example.com", local: "bob+a/b@c", domain: "example.com"}}
	for _, c := range [][2]string{
		{"v=spf1 -exists:%{l}._u.%{o} ?all", "v=spf1 -exists:0.stand-in.invalid ?all"},
		{"v=spf1 A:%{h}/24//64 Redirect=_spf.%{d2}", "v=spf1 A:Mx.Example.com/24//64 Redirect=_spf.here.test"},
		{"v=spf1 a/24 a:foo/bar.example.com/24 mx all", "v=spf1 a/24 a:1.stand-in.invalid/24 mx all"},
		{"v=spf1 include:%{ir}.%{v}.%{p}.x.com exp=%{d}", "v=spf1 include:1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.unknown.x.com exp=%{d}"},
		{"v=spf1 ptr:%{D}. exists:%{L1r+}.x.com moo=%_", "v=spf1 ptr:very.long.here.test exists:bob.x.com moo=%_"},
	} {
		if got := l.expanded(t.Context(), c[0], "very.long.here.test"); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
	for name, want := range map[string]string{
		"0.stand-in.invalid": "bob+a/b@c._u.example.com", "1.stand-in.invalid": "foo/bar.example.com", "2.stand-in.invalid": "2.stand-in.invalid", "-1.stand-in.invalid": "-1.stand-in.invalid", "x.com": "x.com",
	} {
		if got := l.meant(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	long := strings.Repeat("a23456789.", 24) + "%{d}.example.com" // 255 characters with the domain
	if got := l.macros.expandSpec(t.Context(), long, "here.test"); len(got) > maxDomain || len(got) < maxDomain-10 || !strings.HasSuffix(got, ".here.test.example.com") {
		t.Errorf("%d characters: %s", len(got), got)
	}
}

// FuzzSPFRecord holds the grammar to what must be so of every record that it takes.
func FuzzSPFRecord(f *testing.F) {
	f.Add("v=spf1 a:x.com/24//64 include:%{d2} redirect=_spf.%{d} exp=x.y -all")
	f.Add("v=spf1 exists:%{L3r+-}.%%%_%-.%{I}.%{p}.x a:b/c.d/24//64 ptr:%{v}")
	f.Fuzz(func(t *testing.T, txt string) {
		if !isSPF(txt) || !isSPFRecord(txt) {
			return
		}
		if strings.ContainsFunc(txt, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is taken", txt)
		}
		if !isSPFRecord(txt+" -all") || isSPFRecord(txt+" bogus") {
			t.Errorf("%q: more terms change it", txt)
		}
		look, cancel := (&Verifier{Resolver: newSuiteZone(t, nil)}).lookups(t.Context())
		defer cancel()
		l := &spfLookups{lookups: look, macros: spfMacros{look: look, ip: netip.MustParseAddr("192.0.2.1"), helo: "mx", local: "bob+a/b@c", domain: "example.com"}}
		for term := range strings.SplitSeq(l.expanded(t.Context(), txt, "here.test"), " ") {
			if _, spec, _ := cutSpec(term); strings.ContainsAny(spec, "%/") {
				t.Errorf("%q: %q is left", txt, term)
			}
		}
	})
}
