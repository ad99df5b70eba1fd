package dnsprov

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCustomSet(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	for _, tc := range []struct{ typ, in, want string }{ // want is "" where the value is refused
		{"A", " 192.0.2.1 ", "192.0.2.1"}, {"A", "2001:db8::1", ""},
		{"AAAA", "2001:DB8::1", "2001:db8::1"},
		{"CNAME", "Target.Example.NET.", "target.example.net"}, {"CNAME", "a.example.com", ""},
		{"TXT", `"hello" " world"`, "hello world"}, {"TXT", "plain ; text", "plain ; text"}, {"TXT", `"\"x\" y"`, `"\"x\" y"`}, {"TXT", "", ""},
		{"MX", "10 Mail.Example.NET.", "10 mail.example.net"}, {"MX", "010  @", "10 example.com"}, {"MX", "0 .", "0 ."},
		{"MX", "10 .", ""}, {"MX", "mail.example.net", ""}, {"MX", "10 mail", ""}, {"MX", "70000 mail.example.net", ""},
		{"MX", "10 192.0.2.1", ""}, {"MX", "10 mail.example.net x", ""}, {"MX", "+1 mail.example.net", ""},
		{"NS", "ns1.example.net", "ns1.example.net"}, {"NS", "ns1", ""}, {"NS", "192.0.2.1", ""}, {"NS", ".", ""}, {"NS", "a b.example.net", ""},
		{"SRV", "0 5 443 Web.example.net.", "0 5 443 web.example.net"}, {"SRV", "1 2 0 .", "1 2 0 ."}, {"SRV", "0 5 443 web", ""}, {"SRV", "0 5 web.example.net", ""},
		{"SRV", "0 5 65536 web.example.net", ""},
		{"CAA", `0 Issue "letsencrypt.org"`, `0 issue "letsencrypt.org"`}, {"CAA", `128 issuewild ;`, `128 issuewild ";"`}, {"CAA", `0 issue ""`, `0 issue ""`},
		{"CAA", "0\tissue  letsencrypt.org; validationmethods=dns-01", `0 issue "letsencrypt.org; validationmethods=dns-01"`},
		{"CAA", `256 issue "x"`, ""}, {"CAA", "0 issue", ""}, {"CAA", `0 is-sue "x"`, ""}, {"CAA", `0 issue "a\"b"`, ""}, {"CAA", `0 issue "é"`, ""},
		{"TLSA", "3 1 1 " + strings.ToUpper(digest), "3 1 1 " + digest}, {"TLSA", "3 1 1 " + digest[:32] + " " + digest[32:], "3 1 1 " + digest},
		{"TLSA", "3 1 0 00ff", "3 1 0 00ff"}, {"TLSA", "3 1 1 00ff", ""}, {"TLSA", "3 1 1", ""}, {"TLSA", "3 1 0 0", ""}, {"TLSA", "3 1 0 zz", ""}, {"TLSA", "300 1 0 00", ""},
		{"SSHFP", "4 2 " + digest, "4 2 " + digest}, {"SSHFP", "4 1 " + digest, ""}, {"SSHFP", "4 2", ""},
		{"DS", "12345 13 2 " + digest, "12345 13 2 " + digest}, {"DS", "12345 13 4 " + digest, ""}, {"DS", "99999 13 2 " + digest, ""}, {"DS", "1 13 2", ""},
		{"HTTPS", "1 . alpn=h2,h3", `1 . alpn="h2,h3"`}, {"HTTPS", `1 @ port=8443 alpn="h2"`, `1 example.com alpn="h2" port="8443"`},
		{"HTTPS", "0 CDN.example.net.", "0 cdn.example.net"}, {"HTTPS", "1 .", "1 ."}, {"HTTPS", `1 . alpn=h2 no-default-alpn`, `1 . alpn="h2" no-default-alpn=""`},
		{"HTTPS", "1 . ipv4hint=192.0.2.1 mandatory=ipv4hint", `1 . mandatory="ipv4hint" ipv4hint="192.0.2.1"`},
		{"HTTPS", "1 . no-default-alpn", ""}, {"HTTPS", "1 . mandatory=alpn", ""}, {"HTTPS", "1 . alpn=h2 alpn=h3", ""}, {"HTTPS", "1 . alpn=", ""},
		{"HTTPS", "1 cdn alpn=h2", ""}, {"HTTPS", "1", ""}, {"HTTPS", "x . alpn=h2", ""}, {"HTTPS", "1 . alpn=h2 ; a comment", ""}, {"HTTPS", `1 . alpn="h2`, ""},
		{"HTTPS", "1 . ipv4hint=2001:db8::1", ""}, {"HTTPS", "1 . (alpn=h2)", ""}, {"HTTPS", "1 . foo=bar", ""}, {"HTTPS", "1 . alpn=h2\n@ A 192.0.2.1", ""},
		{"SVCB", `1 dns.example.net alpn=dot key65400="x"`, `1 dns.example.net alpn="dot" key65400="x"`}, {"SVCB", `1 dns.example.net. dohpath=/q{?dns}`, `1 dns.example.net dohpath="/q{?dns}"`},
		{"PTR", "a.example.net", ""}, {"SOA", "a.example.net b.example.net 1 2 3 4 5", ""}, {"a", "192.0.2.1", ""}, {"", "x", ""},
	} {
		set, err := CustomSet("example.com", "a.example.com", tc.typ, 300, []string{tc.in})
		got := ""
		if err == nil {
			got = set[0].Text()
		}
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s %.60q is %.80q, %v; want %.80q", tc.typ, tc.in, got, err, tc.want)
		}
	}
}

// TestCustomSetAsAWhole: rules that concern the values together, or the name.
func TestCustomSetAsAWhole(t *testing.T) {
	const domain = "example.com"
	digest := "1 13 2 " + strings.Repeat("00", 32)
	for _, tc := range []struct {
		name, typ string
		values    []string
		want      string // the texts of the records, or a part of the error
	}{
		{"a.example.com", "A", []string{"192.0.2.1", "192.0.2.2", "192.0.2.1 "}, "192.0.2.1, 192.0.2.2"},
		{"a.example.com", "MX", []string{"10 a.example.net", "010 A.example.net."}, "10 a.example.net"},
		{"a.example.com", "TXT", []string{"one", `"one"`, "One"}, "one, One"},
		{"a.example.com", "A", nil, "no values"},
		{"a.example.com", "A", []string{"192.0.2.1", "x"}, "not an IPv4"},
		{"a.example.com", "CNAME", []string{"a.example.net", "b.example.net"}, "at most one"},
		{"a.example.com", "CNAME", []string{"b.example.net", "B.example.net."}, "b.example.net"},
		{"a.example.com", "MX", []string{"0 .", "10 a.example.net"}, "RFC 7505"},
		{domain, "DS", []string{digest}, "registrar"},
		{"a.example.com", "DS", []string{digest}, digest},
		{"*.example.com", "NS", []string{"ns.example.net"}, "wildcard"},
		{"*.a.example.com", "DS", []string{digest}, "wildcard"},
		{"*.example.com", "MX", []string{"10 @"}, "10 example.com"},
	} {
		set, err := CustomSet(domain, tc.name, tc.typ, 60, tc.values)
		var texts []string
		for _, r := range set {
			texts = append(texts, r.Text())
			if r.Name != tc.name || r.Type != tc.typ || r.TTL != 60 || r.Purpose != PurposeCustom {
				t.Errorf("%+v", r)
			}
		}
		got := strings.Join(texts, ", ")
		if err != nil {
			got = err.Error()
		}
		if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%s %s %q: %s, want %s", tc.name, tc.typ, tc.values, got, tc.want)
		}
	}
	if _, err := CustomSet(domain, domain, "A", 1<<31, []string{"192.0.2.1"}); err == nil {
		t.Error("a TTL of 2^31 seconds was taken")
	}
}

func TestFromText(t *testing.T) {
	for _, r := range []Record{
		{Type: "A", Value: "192.0.2.1"}, {Type: "TXT", Value: "a b"}, {Type: "TXT", Value: ""}, {Type: "MX", Value: "mail.test", Priority: 10},
		{Type: "MX", Value: "."}, {Type: "SRV", Value: "mail.test", Priority: 1, Weight: 2, Port: 65535}, {Type: "SRV", Value: "."}, {Type: "CAA", Value: `0 issue "x"`},
	} {
		r.Name, r.TTL = "a.test", 60
		if got, err := FromText(r.Name, r.Type, r.Text(), r.TTL); err != nil || got != r {
			t.Errorf("%+v came back as %+v, %v", r, got, err)
		}
	}
	for _, bad := range [][2]string{{"MX", ""}, {"MX", "10"}, {"MX", "10 "}, {"MX", "mail.test"}, {"MX", "70000 mail.test"}, {"SRV", "1 2 mail.test"}, {"SRV", "1 2 3"}} {
		if got, err := FromText("a.test", bad[0], bad[1], 60); err == nil {
			t.Errorf("%s %q became %+v", bad[0], bad[1], got)
		}
	}
}

// FuzzCustomSet: a value that is taken has one form, is taken again in that form, can be sent, and
// can be stored as text.
func FuzzCustomSet(f *testing.F) {
	for i, value := range []string{
		"192.0.2.1", "2001:db8::1", "a.example.net", `"a" "b;c"`, "10 mail.example.net", "ns.example.net.", "0 5 443 web.example.net", `0 issue "letsencrypt.org"`,
		"3 1 0 00ff", "4 2 " + strings.Repeat("00", 32), `1 . alpn="h2,h3" ech="AAAA"`, `1 dns.example.net dohpath="/q{?dns}" mandatory=alpn alpn="a\\,b"`, "1 13 2 " + strings.Repeat("00", 32),
	} {
		f.Add(uint8(i), value)
	}
	f.Fuzz(func(t *testing.T, which uint8, value string) {
		typ := CustomTypes[int(which)%len(CustomTypes)]
		set, err := CustomSet("example.com", "a.example.com", typ, 300, []string{value})
		if err != nil {
			if len(err.Error()) > 400 || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		r := set[0]
		rr, err := r.RR()
		if err != nil {
			t.Fatalf("%+v cannot be sent: %v", r, err)
		}
		sent := RecordOf(rr)
		sent.Purpose = PurposeCustom
		stored, err := FromText(r.Name, r.Type, r.Text(), r.TTL)
		stored.Purpose = PurposeCustom
		if err != nil || stored != r || sent != r {
			t.Fatalf("%+v is sent as %+v and stored as %+v, %v", r, sent, stored, err)
		}
		given := r.Text()
		if typ == "TXT" && !strings.HasPrefix(given, `"`) {
			given = QuoteText(given)
		}
		if again, err := CustomSet("example.com", "a.example.com", typ, 300, []string{given}); err != nil || !slices.Equal(again, set) {
			t.Fatalf("%q became %+v, then %+v, %v", value, set, again, err)
		}
	})
}

// BenchmarkFromText makes the records of a large zone from their stored texts.
func BenchmarkFromText(b *testing.B) {
	texts := make([]string, 5000)
	for i := range texts {
		texts[i] = fmt.Sprintf("10 mail%d.example.com", i)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, text := range texts {
			if _, err := FromText("example.com", "MX", text, 300); err != nil {
				b.Fatal(err)
			}
		}
	}
}
