package rrset

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
)

func TestRead(t *testing.T) {
	for _, tc := range []struct{ typ, text, value string }{
		{"A", "192.0.2.1", "192.0.2.1"},
		{"AAAA", "2001:DB8:0::1", "2001:db8::1"},
		{"MX", "10 Mail.Host.test.", "mail.host.test"},
		{"CNAME", "www", "www.example.com"}, // below the origin
		{"TXT", `"a\"b"`, `a"b`},
		{"TXT", `"a ; b"`, "a ; b"},
		{"TYPE65280", `\# 1 0A`, `\# 1 0a`},
		{"HTTPS", "1 . alpn=h2,h3", `1 . alpn="h2,h3"`},
	} {
		set := dnsprov.Set{Name: "a.example.com", Type: tc.typ}
		r := Read(set, 60, tc.text, "example.com").Record(set)
		if r.Value != tc.value || r.Name != set.Name || r.TTL != 60 || r.ID != r.Key() || !r.SetTTL {
			t.Errorf("%s %s: %+v", tc.typ, tc.text, r)
		}
	}
	for _, tc := range [][2]string{{"TXT", `"open`}, {"TXT", "a ; comment"}, {"A", "(192.0.2.1"}, {"A", "192.0.2.1\nb 0 IN A 192.0.2.2"}, {"ALIAS", "x.test."}, {"A", "192.0.2.256"}, {"TLSA", ""}, {"MX", "10"}} {
		set := dnsprov.Set{Name: "a.example.com", Type: tc[0]}
		v := Read(set, 60, tc[1], "example.com")
		r := v.Record(set)
		if v.RR != nil || r.ID != "" || r.Value != tc[1] || r.Type != tc[0] || !v.Same(Read(set, 9, tc[1], "")) {
			t.Errorf("%q was read as %+v", tc, r)
		}
	}
	for same, texts := range map[bool][2]string{true: {"10 A.test.", "10 a.test."}, false: {"10 a.test.", "5 a.test."}} {
		set := dnsprov.Set{Name: "a.example.com", Type: "MX"}
		if Read(set, 1, texts[0], "").Same(Read(set, 2, texts[1], "")) != same {
			t.Errorf("%q are the same: not %v", texts, same)
		}
	}
}

// FuzzRead reads any text as the value of a set. What has an ID is written in a form that is read
// as the same value.
func FuzzRead(f *testing.F) {
	for _, seed := range [][2]string{{"TXT", `"a" "b"`}, {"TXT", `"\300\\"`}, {"MX", "10 a"}, {"SVCB", `1 . alpn="h2"`}, {"CAA", `0 issue ";"`}, {"TYPE1", `\# 4 01020304`}, {"A", "1.2.3.4 ; x"}, {"$INCLUDE", "x"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, typ, text string) {
		set := dnsprov.Set{Name: "a.example.com", Type: typ}
		v := Read(set, 60, text, "example.com")
		r := v.Record(set)
		if r.Name != set.Name || r.Type != typ || v.RR == nil && r.ID != "" {
			t.Fatalf("%q became %+v", text, r)
		}
		if r.ID == "" {
			return
		}
		rr, err := r.RR()
		if err != nil {
			t.Fatal(err)
		}
		again := Read(set, 60, Of(rr).Text, "")
		if !again.Same(v) || again.Record(set) != r || strings.Contains(again.Text, "\n") {
			t.Fatalf("%q is written as %q, which is %+v", text, again.Text, again.Record(set))
		}
	})
}
