package idn

import (
	"strings"
	"testing"
)

// TestProfiles shows where the three profiles differ.
func TestProfiles(t *testing.T) {
	for _, tc := range []struct{ in, address, host, registrable string }{
		{"Example.COM.", "example.com", "example.com", "example.com"},
		{"bücher.example", "xn--bcher-kva.example", "xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"localhost", "localhost", "localhost", ""},
		{"co.uk", "co.uk", "co.uk", ""},
		{"192.0.2.1", "192.0.2.1", "192.0.2.1", ""},
		{"s1._domainkey.example.com", "", "s1._domainkey.example.com", ""},
		{"s1._domainkey.bücher.example", "", "s1._domainkey.xn--bcher-kva.example", ""},
		{"r3---sn.example", "", "r3---sn.example", ""},
		{"xn--a.example", "", "xn--a.example", ""},
		{" example.com ", "", "", "example.com"},
		{"", "", "", ""},
		{".", "", "", ""},
		{"a..example", "", "", ""},
		{"a b.example", "", "", ""},
		{"a\xff.example", "", "", ""},
		{strings.Repeat("a", 64) + ".example", "", "", ""},
		{strings.Repeat("a.", 125) + "a", strings.Repeat("a.", 125) + "a", strings.Repeat("a.", 125) + "a", ""},
		{strings.Repeat("a.", 126) + "ab", "", "", ""},
	} {
		if got, err := Address(tc.in); got != tc.address || (err == nil) != (tc.address != "") {
			t.Errorf("address %q: %q, %v", tc.in, got, err)
		}
		if got, ok := Host(tc.in); got != tc.host || ok != (tc.host != "") {
			t.Errorf("host %q: %q, %v", tc.in, got, ok)
		}
		if got, _, err := Registrable(tc.in); got != tc.registrable || (err == nil) != (tc.registrable != "") {
			t.Errorf("registrable %q: %q, %v", tc.in, got, err)
		}
	}
}

func TestWholeHost(t *testing.T) {
	for in, want := range map[string]string{
		" Site.Example.NET. ": "site.example.net", "bücher.example": "xn--bcher-kva.example", "_a.example.net": "_a.example.net",
		"site": "", "site.": "", "192.0.2.7": "", "2001:db8::7": "", "a b.example.net": "", "": "", ".": "",
	} {
		if name, ok := WholeHost(in); ok != (want != "") || ok && name != want {
			t.Errorf("%q is %q, %v; want %q", in, name, ok, want)
		}
	}
}

// FuzzProfiles holds that a form is the form of itself, and that a narrower profile gives what a
// wider one does.
func FuzzProfiles(f *testing.F) {
	for _, s := range []string{"Example.COM.", "bücher.example", "s1._domainkey.example.com", "r3---sn.example", "例え.テスト", "a\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, isHost := Host(s)
		if again, ok := Host(host); isHost && (!ok || again != host) {
			t.Errorf("host %q: %q, then %q", s, host, again)
		}
		address, err := Address(s)
		if err != nil {
			return
		}
		if again, err := Address(address); err != nil || again != address {
			t.Errorf("address %q: %q, then %q, %v", s, address, again, err)
		}
		if !isHost || host != address {
			t.Errorf("%q: address %q, host %q, %v", s, address, host, isHost)
		}
	})
}
