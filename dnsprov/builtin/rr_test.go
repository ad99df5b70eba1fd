package builtin

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

func TestServicesAndAuthorities(t *testing.T) {
	srv := dnsprov.Record{Name: "_imaps._tcp.example.test", Type: "SRV", Value: "Mail.example.test", Priority: 1, Weight: 2, Port: 993, TTL: 600}
	none := dnsprov.Record{Name: "_pop3._tcp.example.test", Type: "SRV", Value: ".", TTL: 600}
	z := testZone(t, srv, none, rec("example.test", "CAA", `0 issue "ca.example; validationmethods=dns-01"`),
		rec("example.test", "CAA", `128 iodef mailto:post@example.test`), rec("example.test", "CAA", `0 issuewild ";"`), rec("none.example.test", "CAA", `0 issue ""`))
	for _, tc := range []struct {
		name string
		typ  uint16
		want string
	}{
		{"_imaps._tcp.example.test.", dns.TypeSRV, "NOERROR | _imaps._tcp.example.test. SRV 1 2 993 mail.example.test. |  | mail.example.test. A 192.0.2.3, mail.example.test. AAAA 2001:db8::3"},
		{"_pop3._tcp.example.test.", dns.TypeSRV, "NOERROR | _pop3._tcp.example.test. SRV 0 0 0 . |  | "},
		{"example.test.", dns.TypeCAA, `NOERROR | example.test. CAA 0 issue "ca.example; validationmethods=dns-01", example.test. CAA 128 iodef "mailto:post@example.test", example.test. CAA 0 issuewild ";" |  | `},
		{"none.example.test.", dns.TypeCAA, `NOERROR | none.example.test. CAA 0 issue "" |  | `},
	} {
		if _, got := ask(t, z, tc.name, tc.typ); got != tc.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tc.name, dns.TypeToString[tc.typ], got, tc.want)
		}
	}
}

func TestKeysOfHosts(t *testing.T) {
	digest := strings.Repeat("0aBc", 16)
	z := testZone(t, rec("_25._tcp.mail.example.test", "TLSA", "3 1 1 "+digest), rec("_25._tcp.mail.example.test", "TLSA", " 2  0 2\t"+digest+digest))
	want := "NOERROR | _25._tcp.mail.example.test. TLSA 3 1 1 " + strings.ToLower(digest) + ", _25._tcp.mail.example.test. TLSA 2 0 2 " + strings.ToLower(digest+digest) + " |  | "
	if _, got := ask(t, z, "_25._tcp.mail.example.test.", dns.TypeTLSA); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestBadServicesAndAuthorities(t *testing.T) {
	for _, tc := range []struct {
		record dnsprov.Record
		want   string
	}{
		{rec("example.test", "CAA", ``), "flags"},
		{rec("example.test", "CAA", `issue "ca.example"`), "flags"},
		{rec("example.test", "CAA", `256 issue "ca.example"`), "flags"},
		{rec("example.test", "CAA", `-1 issue "ca.example"`), "flags"},
		{rec("example.test", "CAA", `0`), "tag"},
		{rec("example.test", "CAA", `0 "issue" "ca.example"`), "tag"},
		{rec("example.test", "CAA", `0 `+strings.Repeat("a", 256)+` "ca.example"`), "tag"},
		{rec("example.test", "CAA", `0 issue "ca.example" "another"`), "value"},
		{rec("example.test", "CAA", "0 issue ca.example\n"), ""},
		{rec("example.test", "CAA", "0 issue \"ca\nexample\""), "value"},
		{rec("example.test", "CAA", `0 issue "`), "value"},
		{rec("example.test", "CAA", `0 issue ca\046example`), "value"},
		{rec("example.test", "TLSA", ""), "three numbers"},
		{rec("example.test", "TLSA", "3 1 1"), "three numbers"},
		{rec("example.test", "TLSA", "3 1 1 00 11"), "three numbers"},
		{rec("example.test", "TLSA", "3 1 256 00"), "255"},
		{rec("example.test", "TLSA", "3 -1 1 00"), "255"},
		{rec("example.test", "TLSA", "3 1 1 0"), "hex"},
		{rec("example.test", "TLSA", "3 1 1 0g"), "hex"},
		{rec("_s._tcp.example.test", "SRV", ""), "host name"},
		{rec("_s._tcp.example.test", "SRV", ".."), "host name"},
		{rec("_s._tcp.example.test", "SRV", "a..b"), "zone example.test"},
	} {
		_, err := NewZone("example.test", []dnsprov.Record{tc.record}, testOptions())
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %.40q: %v, want an error with %q", tc.record.Type, tc.record.Value, err, tc.want)
		}
	}
}

// FuzzCAA: an accepted value of an owner survives packing, and is read again as the same value.
func FuzzCAA(f *testing.F) {
	f.Add(`0 issue "ca.example"`)
	f.Add(`128 iodef mailto:a@b.test`)
	f.Add(`0 issue ";"`)
	f.Fuzz(func(t *testing.T, value string) {
		rr, err := newRR(rec("example.test", "CAA", value))
		if err != nil {
			return
		}
		_, data, _ := strings.Cut(rr.String(), "\tCAA\t")
		again, err := newRR(rec("example.test", "CAA", data))
		if err != nil || !dns.IsDuplicate(rr, again) {
			t.Fatalf("%q became %v, and that %v, %v", value, rr, again, err)
		}
	})
}
