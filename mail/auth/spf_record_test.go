package auth

import (
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

// FuzzSPFRecord holds the grammar to what must be so of every record that it takes.
func FuzzSPFRecord(f *testing.F) {
	f.Add("v=spf1 a:x.com/24//64 include:%{d2} redirect=_spf.%{d} exp=x.y -all")
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
	})
}
