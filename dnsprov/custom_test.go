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
		"": "", ".": "", "*": "*.example.com", "*.www": "*.www.example.com", "*.example.com.": "*.example.com", "a.*": "", "*.": "", "*a": "", "*.*": "", "*.other.com": "", "*.app": "*.app.example.com", "*.com": "*.com.example.com", "*.test": "*.test.example.com", "*.co.uk": "", "*.app.": "", "www.": "", "www.other.com": "", "other.test": "", "notexample.com": "", "www.other.org.": "",
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
		{"TXT", "a\nb", ""}, {"TXT", "\xff", ""}, {"SPF", "v=spf1 -all", ""},
	} {
		got := ""
		set, err := CustomSet("example.com", "www.example.com", tc.typ, 300, []string{tc.in})
		if err == nil {
			got = set[0].Value
		}
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s %.40q is %.40q, %v; want %.40q", tc.typ, tc.in, got, err, tc.want)
		}
	}
}

// An accepted name is accepted again in its normalized form, with the same meaning.
func FuzzCustomName(f *testing.F) {
	for _, name := range []string{"@", "www", "bücher", "_a._b", "*.a", "www.example.com."} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if full, err := CustomName(name, "example.com"); err == nil {
			if again, err := CustomName(full+".", "example.com"); err != nil || again != full {
				t.Errorf("%q became %q, then %q, %v", name, full, again, err)
			}
		}
	})
}

func TestRegisteredName(t *testing.T) {
	for in, want := range map[string]string{
		"example.com": "example.com", "www.example.com": "example.com", "a.b.example.co.uk": "example.co.uk", "example.co.uk": "example.co.uk",
		"somebody.github.io": "github.io", "x.blogspot.com": "blogspot.com", "example.test": "example.test", "a.example.test": "example.test",
		"www.xn--bcher-kva.de": "xn--bcher-kva.de", "co.uk": "co.uk",
	} {
		if got := RegisteredName(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
