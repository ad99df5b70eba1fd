package dnsprov

import (
	"strings"
	"testing"
)

func TestCustomName(t *testing.T) {
	for in, want := range map[string]string{
		"@": "example.com", "www": "www.example.com", "WWW": "www.example.com", "www.example.com": "www.example.com",
		"www.Example.COM.": "www.example.com", "example.com": "example.com", "example.com.": "example.com", " a ": "a.example.com",
		"_sip._tcp": "_sip._tcp.example.com", "s1._domainkey": "s1._domainkey.example.com", "a.b.c": "a.b.c.example.com", "com": "com.example.com",
		"bücher": "xn--bcher-kva.example.com", "xn--bcher-kva": "xn--bcher-kva.example.com",
		"": "", ".": "", "*": "*.example.com", "*.www": "*.www.example.com", "*.example.com.": "*.example.com", "a.*": "", "*.": "", "*a": "", "*.*": "", "*.other.com": "", "www.": "", "www.other.com": "", "other.test": "", "notexample.com": "", "www.other.org.": "",
		"a..b": "", "-a": "", "a-": "", "a b": "", "a/b": "", strings.Repeat("a", 64): "", strings.Repeat("a.", 125) + "a": "", "a\x00b": "",
	} {
		got, err := CustomName(in, "example.com")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestCustomValue(t *testing.T) {
	for _, tc := range []struct{ typ, in, want string }{
		{"A", "192.0.2.1", "192.0.2.1"}, {"A", "2001:db8::1", ""}, {"A", "192.0.2", ""}, {"A", "www.example.com", ""}, {"A", "", ""},
		{"AAAA", "2001:DB8:0::1", "2001:db8::1"}, {"AAAA", "192.0.2.1", ""}, {"AAAA", "::ffff:192.0.2.1", ""}, {"AAAA", "fe80::1%eth0", ""},
		{"CNAME", "Target.Example.NET.", "target.example.net"}, {"CNAME", "@", "example.com"}, {"CNAME", "bücher.example", "xn--bcher-kva.example"},
		{"CNAME", "target", ""}, {"CNAME", "192.0.2.1", ""}, {"CNAME", "a b.example.net", ""}, {"CNAME", "", ""},
		{"TXT", "hello world", "hello world"}, {"TXT", `"hello" "world"`, "helloworld"}, {"TXT", `"a\"b"`, `a"b`}, {"TXT", `say "hi"`, `say "hi"`},
		{"TXT", strings.Repeat("x", 4096), strings.Repeat("x", 4096)}, {"TXT", strings.Repeat("x", 4097), ""}, {"TXT", "", ""}, {"TXT", `""`, ""},
		{"TXT", "a\nb", ""}, {"TXT", "\xff", ""}, {"MX", "10 mail.example.com", ""},
	} {
		got, err := CustomValue(tc.typ, tc.in, "example.com")
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s %.40q is %.40q, %v; want %.40q", tc.typ, tc.in, got, err, tc.want)
		}
	}
}

// What is taken once is taken again and means the same.
func FuzzCustomRecord(f *testing.F) {
	for _, s := range [][2]string{{"@", "x"}, {"www", "target.example.net"}, {"bücher", `"a" "b"`}, {"_a._b", "192.0.2.1"}, {"www.example.com.", "2001:db8::1"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if full, err := CustomName(name, "example.com"); err == nil {
			if again, err := CustomName(full+".", "example.com"); err != nil || again != full {
				t.Errorf("%q became %q, then %q, %v", name, full, again, err)
			}
		}
		for _, typ := range []string{"A", "AAAA", "CNAME", "TXT"} {
			kept, err := CustomValue(typ, value, "example.com")
			if err != nil {
				continue
			}
			given := kept
			if typ == "TXT" {
				given = QuoteText(kept)
			}
			if again, err := CustomValue(typ, given, "example.com"); err != nil || again != kept {
				t.Errorf("%s %q became %q, then %q, %v", typ, value, kept, again, err)
			}
		}
	})
}

func TestCheckDMARC(t *testing.T) {
	for in, ok := range map[string]bool{
		"v=DMARC1; p=reject": true, "v=DMARC1;p=none;": true, "v=DMARC1; p=quarantine; sp=none; pct=50; adkim=s; aspf=r; rua=mailto:a@example.com,mailto:b@example.com; fo=1": true,
		"v=DMARC1 ; p=none": true, "v=DMARC1; p=Reject; x=unknown": true,
		"": false, "p=reject": false, "v=dmarc1; p=none": false, "v=DMARC1": false, "v=DMARC1; rua=mailto:a@example.com": false, "v=DMARC1; p=maybe": false,
		"v=DMARC1 p=reject": false, "v=DMARC12; p=none": false, "v=DMARC1; p=none; p=reject": false, "v=DMARC1; p=none; pct=101": false, "v=DMARC1; p=none; pct=-1": false,
		"v=DMARC1; p=none; rua=a@example.com": false, "v=DMARC1; p=none; rua=mailto:": false, "v=DMARC1; p=none; adkim=x": false, "v=DMARC1; p=none;; sp=none": false,
		"v=DMARC1; p=none; x": false, "v=DMARC1; p=none\n": false, "v=DMARC1; p=nöne": false, "v=DMARC1; p=none; x=" + strings.Repeat("a", 1024): false,
		`"v=DMARC1; p=none"`: false,
	} {
		if err := CheckDMARC(in); (err == nil) != ok {
			t.Errorf("%.60q: %v", in, err)
		}
	}
}

// Whatever is taken is what receivers take for a policy.
func FuzzCheckDMARC(f *testing.F) {
	for _, s := range []string{"v=DMARC1; p=reject", "v=DMARC1;p=none;rua=mailto:a@b.c", "v=DMARC1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if CheckDMARC(value) != nil {
			return
		}
		if got, well := tags(value); !isDMARC(value) || !well || got["p"] == "" {
			t.Errorf("%q was taken", value)
		}
	})
}

func TestRegistrable(t *testing.T) {
	for in, want := range map[string]string{
		"example.com": "example.com", "www.example.com": "example.com", "a.b.example.co.uk": "example.co.uk", "example.co.uk": "example.co.uk",
		"somebody.github.io": "github.io", "x.blogspot.com": "blogspot.com", "example.test": "example.test", "a.example.test": "example.test",
		"www.xn--bcher-kva.de": "xn--bcher-kva.de", "co.uk": "co.uk",
	} {
		if got := Registrable(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
