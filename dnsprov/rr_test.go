package dnsprov

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// TestRecordsOnTheWire: records of all types that are carried come back as they were sent.
func TestRecordsOnTheWire(t *testing.T) {
	for _, r := range []Record{
		{Type: "A", Value: "192.0.2.1"},
		{Type: "AAAA", Value: "2001:db8::1"},
		{Type: "CNAME", Value: "elsewhere.test"},
		{Type: "NS", Value: "ns1.elsewhere.test"},
		{Type: "MX", Value: "mail.test", Priority: 10},
		{Type: "MX", Value: "."},
		{Type: "SRV", Value: "mail.test", Priority: 1, Weight: 2, Port: 993},
		{Type: "SRV", Value: "."},
		{Type: "TXT", Value: "v=spf1 ; \\ \"quoted\" é \x00\xff"},
		{Type: "TXT", Value: ""},
		{Type: "TXT", Value: strings.Repeat("é", 500)},
		{Type: "TXT", Value: `"\"quotation marks at both ends\""`},
		{Type: "CAA", Value: `0 issue "ca.test; accounturi=https://ca.test/Acct/1"`},
		{Type: "TLSA", Value: "3 1 1 00ff"},
		{Type: "SSHFP", Value: "4 2 00ff"},
		{Type: "DS", Value: "1 13 2 00ff"},
		{Type: "HTTPS", Value: `1 . alpn="h2,h3" ipv4hint="192.0.2.1"`},
		{Type: "SVCB", Value: `1 svc.elsewhere.test alpn="h2" port="853"`},
		{Type: "HTTPS", Value: "0 alias.test"},
		{Type: "PTR", Value: "host.test"},
		{Type: "LOC", Value: `52 22 23.000 N 04 53 32.000 E -2m 0.00m 10000m 10m`},
		{Type: "TYPE65280", Value: `\# 2 00ff`},
	} {
		r.Name, r.TTL = "a.test", 300
		rr, err := r.RR()
		if err != nil {
			t.Errorf("%s %q: %v", r.Type, r.Value, err)
			continue
		}
		if back := RecordOf(rr); back != r {
			t.Errorf("%+v came back as %+v", r, back)
		}
	}
}

func TestNoRecordsOnTheWire(t *testing.T) {
	for _, r := range []Record{
		{Type: "A", Value: "2001:db8::1"},
		{Type: "A", Value: ""},
		{Type: "A", Value: "192.0.2.1\n$INCLUDE /etc/passwd"},
		{Type: "A\n$INCLUDE /etc/passwd\n", Value: "192.0.2.1"},
		{Type: "MX", Value: "not a name"},
		{Type: "MX", Value: ""},
		{Type: "CNAME", Value: strings.Repeat("a", 64) + ".test"},
		{Type: "CAA", Value: "issue"},
		{Type: "DS", Value: "1 13 2"},
		{Type: "SOA", Value: "a.test. b.test. 1 2 3 4"},
		{Type: Flattened, Value: "a.test"},
		{Type: "NONE", Value: "a"},
		{Type: "", Value: "192.0.2.1"},
		{Type: "A", Value: "192.0.2.1 ; a comment"},
		{Type: "TXT", Name: "a..test", Value: "x"},
		{Type: "TXT", Value: strings.Repeat("x", 70000)},
	} {
		if rr, err := r.RR(); err == nil {
			t.Errorf("%s %.80q became %v", r.Type, r.Value, rr)
		} else if strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
			t.Errorf("%s: %q", r.Type, err)
		}
	}
}

func TestKey(t *testing.T) {
	r := Record{Name: "a.test", Type: "MX", Value: "mail.test", Priority: 10}
	if got, want := r.Key(), "MX a.test 8e6d5834c41a6a315d0f812ebf8cbc73"; got != want {
		t.Errorf("the key has become %q, stored ones are %q", got, want)
	}
	all := []Record{
		r,
		{Name: "A.test.", Type: "MX", Value: "Mail.test.", Priority: 10, TTL: 60, Purpose: PurposeMX, ID: "x", SetTTL: true},
		{Name: "a.test", Type: "MX", Value: "mail.test", Priority: 1},
		{Name: "b.test", Type: "MX", Value: "mail.test", Priority: 10},
		{Name: "a.test", Type: "CNAME", Value: "mail.test"},
		{Name: "a.test", Type: "TXT", Value: "a text"},
		{Name: "a.test", Type: "TXT", Value: `"a" " text"`},
		{Name: "a.test", Type: "TXT", Value: "A text"},
		{Name: "a.test", Type: "TXT", Value: `"\"a text\""`},
		{Name: "a.test", Type: "CAA", Value: `0 issue "ca.test; accounturi=https://ca.test/A"`},
		{Name: "a.test", Type: "CAA", Value: `0 issue "ca.test; accounturi=https://ca.test/a"`},
		{Name: "a.test", Type: "SRV", Value: "mail.test", Priority: 1, Weight: 23},
		{Name: "a.test", Type: "SRV", Value: "mail.test", Priority: 12, Weight: 3},
	}
	for _, a := range all {
		for _, b := range all {
			if a.Same(b) != (a.Key() == b.Key()) {
				t.Errorf("%+v and %+v have the keys %s and %s", a, b, a.Key(), b.Key())
			}
		}
	}
}

// FuzzRecordOf: the value of a record of the wire fits in one line, and one of the usual types can
// be written again and stays the same.
func FuzzRecordOf(f *testing.F) {
	for _, seed := range []string{
		`a.test. 60 IN TXT "\"a\"" "b"`, "a.test. 60 IN MX 10 Mail.test.", `a.test. 60 IN HTTPS 1 . alpn="h2,h3" key65400="\000a"`, `a.test. 60 IN CAA 0 issue "ca.test"`,
		`a.test. 60 IN NAPTR 100 10 "S" "SIP+D2T" "" _sip._tcp.a.test.`, `a\.b\032.test. 60 IN SRV 0 0 0 .`, `a.test. 60 IN TYPE65280 \# 2 00ff`,
	} {
		rr, err := dns.NewRR(seed)
		if err != nil {
			f.Fatal(err)
		}
		wire := make([]byte, dns.Len(rr))
		if _, err := dns.PackRR(rr, wire, 0, nil, false); err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		rr, _, err := dns.UnpackRR(wire, 0)
		if err != nil || rr.Header().Rrtype == dns.TypeOPT || rr.Header().Rrtype == dns.TypeTSIG { // these are in no zone
			return
		}
		r := RecordOf(rr)
		_ = r.Key()
		if r.Type != "TXT" && strings.ContainsAny(r.Value, "\n\r") {
			t.Fatalf("%q", r.Value)
		}
		again, err := r.RR()
		if err != nil || !slices.Contains([]string{"A", "AAAA", "CNAME", "NS", "MX", "SRV", "TXT", "TLSA", "SSHFP", "DS"}, r.Type) {
			return // an empty value, or one that cannot be written
		}
		if back := RecordOf(again); !back.Same(r) || back.Key() != r.Key() {
			t.Fatalf("%+v came back as %+v", r, back)
		}
	})
}

func TestDataSize(t *testing.T) {
	for _, tc := range []struct {
		typ, text string
		size      int
	}{
		{"A", "192.0.2.1", 4}, {"AAAA", "::1", 16}, {"MX", "10 a.test", 10}, {"TXT", "abc", 4}, {"TLSA", "3 1 1 abcd", 5}, {"HTTPS", `1 . ipv6hint="::1,::2"`, 39}, {"A", "x", 0},
	} {
		r, err := FromText("own.test", tc.typ, tc.text, 60)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.DataSize(); got != tc.size {
			t.Errorf("%s %s has %d bytes, want %d", tc.typ, tc.text, got, tc.size)
		}
	}
}
