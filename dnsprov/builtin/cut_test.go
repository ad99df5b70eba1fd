package builtin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/zonefile"
	"github.com/mailstead/mailstead/internal/cputime"
	"github.com/miekg/dns"
)

const testDS = "12345 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// cutRecords delegate three names: one with glue and a DS, one to hosts elsewhere and to a host of
// the zone, and one to itself.
func cutRecords() []dnsprov.Record {
	return []dnsprov.Record{
		rec("*.example.test", "A", "192.0.2.9"),
		rec("secure.example.test", "NS", "ns1.secure.example.test"),
		rec("secure.example.test", "NS", "ns.deep.secure.example.test"),
		rec("secure.example.test", "DS", testDS),
		rec("ns1.secure.example.test", "A", "192.0.2.10"),
		rec("ns1.secure.example.test", "AAAA", "2001:db8::10"),
		rec("ns.deep.secure.example.test", "A", "192.0.2.11"),
		rec("plain.example.test", "NS", "ns.other.test"),
		rec("plain.example.test", "NS", "ns1.example.test"),
		rec("own.example.test", "NS", "own.example.test"),
		rec("own.example.test", "A", "192.0.2.12"),
		rec("into.example.test", "CNAME", "x.secure.example.test"),
		rec("mx.example.test", "MX", "ns1.secure.example.test"),
	}
}

func TestNSRecordsDelegate(t *testing.T) {
	key := testKey(t)
	z := signedZone(t, Options{Key: key}, cutRecords()...)
	for _, tc := range []struct {
		name string
		typ  uint16
		want string
	}{
		{"secure.example.test.", dns.TypeA, "NOERROR | | NS NS DS RRSIG | A AAAA A"},
		{"secure.example.test.", dns.TypeNS, "NOERROR | | NS NS DS RRSIG | A AAAA A"},
		{"ns1.secure.example.test.", dns.TypeA, "NOERROR | | NS NS DS RRSIG | A AAAA A"},
		{"no.SECURE.example.test.", dns.TypeTXT, "NOERROR | | NS NS DS RRSIG | A AAAA A"},
		{"x.secure.example.test.", dns.TypeDS, "NOERROR | | NS NS DS RRSIG | A AAAA A"},
		{"secure.example.test.", dns.TypeDS, "NOERROR | DS RRSIG | | "},
		{"x.plain.example.test.", dns.TypeA, "NOERROR | | NS NS NSEC RRSIG | A"},
		{"plain.example.test.", dns.TypeDS, "NOERROR | | SOA RRSIG NSEC RRSIG | "},
		{"own.example.test.", dns.TypeA, "NOERROR | | NS NSEC RRSIG | A"},
		{"into.example.test.", dns.TypeA, "NOERROR | CNAME RRSIG | | "},
		{"mx.example.test.", dns.TypeMX, "NOERROR | MX RRSIG | | "}, // the address is in another zone
		{"other.example.test.", dns.TypeA, "NOERROR | A RRSIG | NSEC RRSIG | "},
		{"zecure.example.test.", dns.TypeA, "NOERROR | A RRSIG | NSEC RRSIG | "},
	} {
		m := z.Answer(question(tc.name, tc.typ))
		got := dns.RcodeToString[m.Rcode]
		for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
			got += " |"
			for _, rr := range section {
				got += " " + dns.TypeToString[rr.Header().Rrtype]
			}
		}
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(tc.want), " ") {
			t.Errorf("%s %s: %s\nwant %s\n%v", tc.name, dns.TypeToString[tc.typ], got, tc.want, m)
		}
		if m.Authoritative == strings.Contains(tc.want, "| | NS") {
			t.Errorf("%s %s: authoritative %v", tc.name, dns.TypeToString[tc.typ], m.Authoritative)
		}
	}
	m := z.Answer(question("x.plain.example.test.", dns.TypeA))
	for _, rr := range m.Ns {
		if nsec, ok := rr.(*dns.NSEC); ok && !slices.Equal(nsec.TypeBitMap, []uint16{dns.TypeNS, dns.TypeRRSIG, dns.TypeNSEC}) {
			t.Errorf("the proof that there is no DS is %v", nsec)
		}
	}
	v := validator{key: key.public.record(z.apex), apex: z.apex, at: time.Now()}
	for _, name := range []string{"secure.example.test.", "x.plain.example.test."} {
		sets, sigs := group(z.Answer(question(name, dns.TypeA)).Ns)
		for id, set := range sets {
			if id.typ == dns.TypeNS {
				continue
			}
			if err := v.verify(id, set, sigs[id]); err != nil {
				t.Error(err)
			}
		}
	}
	unsigned := testZone(t, cutRecords()...)
	if m, got := ask(t, unsigned, "x.secure.example.test.", dns.TypeA); m.Authoritative || got != "NOERROR |  | secure.example.test. NS ns1.secure.example.test., secure.example.test. NS ns.deep.secure.example.test. | "+
		"ns1.secure.example.test. A 192.0.2.10, ns1.secure.example.test. AAAA 2001:db8::10, ns.deep.secure.example.test. A 192.0.2.11" {
		t.Errorf("without signatures: %s", got)
	}
}

func TestOnlyGlueIsBelowADelegation(t *testing.T) {
	managed := rec("a.sub.example.test", "TXT", "x")
	managed.Purpose = dnsprov.PurposeACME
	for _, tc := range []struct {
		record dnsprov.Record
		taken  bool
	}{
		{rec("ns.sub.example.test", "A", "192.0.2.1"), true},
		{rec("ns.sub.example.test", "AAAA", "2001:db8::1"), true},
		{rec("sub.example.test", "NS", "ns2.other.test"), true},
		{rec("sub.example.test", "DS", testDS), true},
		{rec("xsub.example.test", "TXT", "x"), true},
		{managed, true},
		{rec("ns.sub.example.test", "TXT", "x"), false},
		{rec("sub.example.test", "A", "192.0.2.1"), false},
		{rec("sub.example.test", "TXT", "x"), false},
		{rec("sub.example.test", "CNAME", "a.other.test"), false},
		{rec("a.sub.example.test", "A", "192.0.2.1"), false},
		{rec("a.sub.example.test", "NS", "ns.other.test"), false},
		{rec("ns.sub.example.test", "NS", "ns.other.test"), false},
		{rec("a.sub.example.test", "DS", testDS), false},
		{rec("*.sub.example.test", "A", "192.0.2.1"), false},
	} {
		records := []dnsprov.Record{tc.record, rec("sub.example.test", "NS", "ns.sub.example.test")}
		z, err := NewZone("example.test", records, testOptions())
		if (err == nil) != tc.taken {
			t.Errorf("%s %s: %v", tc.record.Name, tc.record.Type, err)
		}
		if err != nil {
			continue
		}
		if m, got := ask(t, z, "a.sub.example.test.", dns.TypeTXT); m.Authoritative || len(m.Answer) > 0 {
			t.Errorf("%s %s: below it there is %s", tc.record.Name, tc.record.Type, got)
		}
	}
}

// TestServedZonesWinOverNSRecords: a zone that this server serves itself hides what the zone above
// has at and below its name. If that is itself below a delegation, nothing leads to it.
func TestServedZonesWinOverNSRecords(t *testing.T) {
	o := testOptions()
	o.Delegations = []Delegation{{Name: "sub.example.test", Nameservers: []string{"ns1.example.test"}}, {Name: "x.away.example.test", Nameservers: []string{"ns1.example.test"}}}
	z, err := NewZone("example.test", []dnsprov.Record{
		rec("sub.example.test", "NS", "ns.other.test"), rec("sub.example.test", "DS", testDS), rec("b.sub.example.test", "NS", "ns.other.test"),
		rec("c.sub.example.test", "TXT", "x"), rec("away.example.test", "NS", "ns.other.test"),
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a.sub.example.test.":    "sub.example.test. NS ns1.example.test.",
		"a.b.sub.example.test.":  "sub.example.test. NS ns1.example.test.",
		"a.x.away.example.test.": "away.example.test. NS ns.other.test.",
	} {
		if _, got := ask(t, z, name, dns.TypeA); got != "NOERROR |  | "+want+" | " {
			t.Errorf("%s: %s", name, got)
		}
	}
	if m, got := ask(t, z, "sub.example.test.", dns.TypeDS); len(m.Answer) > 0 {
		t.Errorf("the DS of the zone that was there before: %s", got)
	}
}

// customRecords has a set of every type that owners may add.
func customRecords(t testing.TB) []dnsprov.Record {
	t.Helper()
	var out []dnsprov.Record
	for _, set := range []struct{ name, typ, value string }{
		{"a4", "A", "192.0.2.7"}, {"a6", "AAAA", "2001:db8::7"}, {"alias", "CNAME", "a4.example.test"}, {"text", "TXT", `"\"quoted\" ; é"`}, {"mx", "MX", "10 a4.example.test"},
		{"nomail", "MX", "0 ."}, {"below", "NS", "ns.below.example.test"}, {"below", "DS", testDS}, {"ns.below", "A", "192.0.2.8"}, {"_imap._tcp", "SRV", "0 1 143 a4.example.test"},
		{"caa", "CAA", `0 issue "ca.test; policy=ev"`}, {"_443._tcp", "TLSA", "3 1 1 " + strings.Repeat("0a", 32)}, {"ssh", "SSHFP", "4 2 " + strings.Repeat("0a", 32)},
		{"web", "HTTPS", `1 . alpn="h2,h3" ipv4hint="192.0.2.7"`}, {"_dns", "SVCB", `1 dns.other.test alpn="dot" key65400="x y"`},
	} {
		records, err := dnsprov.CustomSet("example.test", set.name+".example.test", set.typ, 300, []string{set.value})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, records...)
	}
	return out
}

func TestAllCustomTypesAreServed(t *testing.T) {
	key := testKey(t)
	z := signedZone(t, Options{Key: key}, customRecords(t)...)
	served := map[string]bool{}
	for _, want := range customRecords(t) {
		served[want.Type] = true
		if want.Name == "ns.below.example.test" || want.Name == "below.example.test" && want.Type == "NS" {
			continue // in referrals only
		}
		m := prove(t, z, key.public, time.Now(), want.Name+".", dns.StringToType[want.Type])
		if len(m.Answer) != 2 {
			t.Errorf("%s %s: %v", want.Name, want.Type, m)
			continue
		}
		if got := dnsprov.RecordOf(m.Answer[0]); !got.Same(want) || got.TTL != 300 {
			t.Errorf("%+v is served as %+v", want, got)
		}
	}
	for _, typ := range dnsprov.CustomTypes {
		if !served[typ] {
			t.Errorf("no record of type %s", typ)
		}
	}
}

// TestBINDVerifiesTheZone: BIND's dnssec-verify finds every signature and the chain of names right
// in a transferred zone, and reads the zone as it was made.
func TestBINDVerifiesTheZone(t *testing.T) {
	program, err := exec.LookPath("dnssec-verify")
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal("dnssec-verify is missing; make peers installs it")
	case err != nil:
		t.Skip("dnssec-verify is not installed")
	}
	z := signedZone(t, Options{Key: testKey(t), Serial: 7}, append(customRecords(t), cutRecords()...)...)
	var text strings.Builder
	first := true
	for rr := range z.Transfer() {
		if rr.Header().Rrtype == dns.TypeSOA && !first {
			break
		}
		first = false
		fmt.Fprintln(&text, rr)
	}
	file := filepath.Join(t.TempDir(), "zone")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "-z", "-o", "example.test", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, out, &text)
	}
	sets, err := zonefile.Read([]byte(text.String()), "example.test")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, set := range sets {
		for _, r := range set.Records {
			read[r.Key()] = true
		}
	}
	for _, r := range slices.Concat(customRecords(t), cutRecords()) {
		if !read[r.Key()] {
			t.Errorf("%s %s %s is not in the transfer", r.Name, r.Type, r.Text())
		}
	}
}

// largeZone has as many custom records as a domain may have, of all sorts.
func largeZone() []dnsprov.Record {
	out := signedRecords()
	for i := range 5000 {
		name := fmt.Sprintf("host%d.example.test", i*7919%5000)
		r := rec(name, "A", fmt.Sprintf("192.0.2.%d", i%250))
		switch i % 10 {
		case 0:
			r = rec(name, "TXT", fmt.Sprintf("v=verification; token=%d", i))
		case 1:
			r = rec(name, "CNAME", fmt.Sprintf("tenant%d.elsewhere.test", i))
		case 2:
			r = rec("many.example.test", "A", fmt.Sprintf("198.51.%d.%d", i/250, i%250))
		case 3:
			r = rec(name, "HTTPS", `1 . alpn="h2,h3"`)
		case 4:
			r = rec("ns.team"+fmt.Sprint(i)+".example.test", "A", "192.0.2.1")
			out = append(out, rec("team"+fmt.Sprint(i)+".example.test", "NS", r.Name))
		}
		out = append(out, r)
	}
	return out
}

// TestALargeZoneIsMadeInTime: the rule is 50 ms. The best of several tries counts, in time of the
// processor, since other programs may be busy.
func TestALargeZoneIsMadeInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	records, key := largeZone(), testKey(t)
	best := time.Hour
	for range 20 {
		before := cputime.Used(t)
		signedZone(t, Options{Key: key}, records[len(signedRecords()):]...)
		best = min(best, cputime.Used(t)-before)
	}
	t.Logf("%d records in %v", len(records), best)
	if best > 50*time.Millisecond {
		t.Errorf("a zone of %d records is made in %v", len(records), best)
	}
}

func BenchmarkLargeZone(b *testing.B) {
	records, key := largeZone(), testKey(b)
	o := testOptions()
	o.Key = key
	var zones Zones
	b.ReportAllocs()
	for b.Loop() {
		z, err := NewZone("example.test", records, o)
		if err != nil {
			b.Fatal(err)
		}
		zones.Put(z)
	}
}
