package builtin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"
)

func testOptions() Options {
	return Options{Nameservers: []string{"ns1.example.test", "ns.other.test"}, Hostmaster: "post.master@Other.test", Serial: 7}
}

func rec(name, typ, value string) dnsprov.Record {
	return dnsprov.Record{Name: name, Type: typ, Value: value, TTL: 600}
}

func testZone(t testing.TB, more ...dnsprov.Record) *Zone {
	t.Helper()
	mx := rec("example.test", "MX", "mail.example.test")
	mx.Priority = 10
	z, err := NewZone("example.test", append([]dnsprov.Record{
		mx,
		rec("example.test", "A", "192.0.2.1"),
		rec("example.test", "TXT", "v=spf1 mx ~all"),
		rec("ns1.example.test", "A", "192.0.2.2"),
		rec("mail.example.test", "A", "192.0.2.3"),
		rec("mail.example.test", "AAAA", "2001:db8::3"),
		rec("s._domainkey.example.test", "TXT", "v=DKIM1; p=AA"),
		rec("www.example.test", "CNAME", "web.example.test"),
		rec("web.example.test", "CNAME", "mail.example.test"),
		rec("out.example.test", "CNAME", "elsewhere.test"),
		rec("gone.example.test", "CNAME", "nothing.example.test"),
		rec("loop1.example.test", "CNAME", "loop2.example.test"),
		rec("loop2.example.test", "CNAME", "loop1.example.test"),
	}, more...), testOptions())
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// ask queries the zone and writes each section of the answer on one line, without TTLs. The answer
// must survive packing.
func ask(t testing.TB, z *Zone, name string, typ uint16) (*dns.Msg, string) {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(name, typ)
	m := z.Answer(q)
	wire, err := m.Pack()
	if err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[typ], err)
	}
	if err := m.Unpack(wire); err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[typ], err)
	}
	section := func(rrs []dns.RR) string {
		var out []string
		for _, rr := range rrs {
			f := strings.Fields(rr.String())
			out = append(out, f[0]+" "+strings.Join(f[3:], " "))
		}
		return strings.Join(out, ", ")
	}
	return m, fmt.Sprintf("%s | %s | %s | %s", dns.RcodeToString[m.Rcode], section(m.Answer), section(m.Ns), section(m.Extra))
}

const soa = `SOA ns1.example.test. post\.master.other.test. 7 3600 600 604800 300`

func TestAnswer(t *testing.T) {
	z := testZone(t)
	for _, tc := range []struct {
		name string
		typ  uint16
		want string
	}{
		{"example.test.", dns.TypeA, "NOERROR | example.test. A 192.0.2.1 |  | "},
		{"example.test.", dns.TypeSOA, "NOERROR | example.test. " + soa + " |  | "},
		{"example.test.", dns.TypeNS, "NOERROR | example.test. NS ns1.example.test., example.test. NS ns.other.test. |  | ns1.example.test. A 192.0.2.2"},
		{"example.test.", dns.TypeMX, "NOERROR | example.test. MX 10 mail.example.test. |  | mail.example.test. A 192.0.2.3, mail.example.test. AAAA 2001:db8::3"},
		{"example.test.", dns.TypeTXT, `NOERROR | example.test. TXT "v=spf1 mx ~all" |  | `},
		{"example.test.", dns.TypeAAAA, "NOERROR |  | example.test. " + soa + " | "},
		{"example.test.", dns.TypeDS, "NOERROR |  | example.test. " + soa + " | "},
		{"_domainkey.example.test.", dns.TypeTXT, "NOERROR |  | example.test. " + soa + " | "}, // exists, though empty
		{"_domainkey.example.test.", dns.TypeANY, "NOERROR |  | example.test. " + soa + " | "},
		{"no.example.test.", dns.TypeA, "NXDOMAIN |  | example.test. " + soa + " | "},
		{"no.example.test.", dns.TypeANY, "NXDOMAIN |  | example.test. " + soa + " | "},
		{"x.s._domainkey.example.test.", dns.TypeTXT, "NXDOMAIN |  | example.test. " + soa + " | "},
		{"www.example.test.", dns.TypeAAAA, "NOERROR | www.example.test. CNAME web.example.test., web.example.test. CNAME mail.example.test., mail.example.test. AAAA 2001:db8::3 |  | "},
		{"www.example.test.", dns.TypeCNAME, "NOERROR | www.example.test. CNAME web.example.test. |  | "},
		{"www.example.test.", dns.TypeTXT, "NOERROR | www.example.test. CNAME web.example.test., web.example.test. CNAME mail.example.test. | example.test. " + soa + " | "},
		{"out.example.test.", dns.TypeA, "NOERROR | out.example.test. CNAME elsewhere.test. |  | "},
		{"gone.example.test.", dns.TypeA, "NXDOMAIN | gone.example.test. CNAME nothing.example.test. | example.test. " + soa + " | "},
		{"loop1.example.test.", dns.TypeA, "NOERROR | loop1.example.test. CNAME loop2.example.test., loop2.example.test. CNAME loop1.example.test. |  | "},
		{"www.example.test.", dns.TypeANY, `NOERROR | www.example.test. HINFO "RFC8482" "" |  | `},
		{"example.test.", dns.TypeANY, `NOERROR | example.test. HINFO "RFC8482" "" |  | `},
		{"mAiL.eXample.TEST.", dns.TypeA, "NOERROR | mAiL.eXample.TEST. A 192.0.2.3 |  | "},
		{"WWW.example.test.", dns.TypeA, "NOERROR | WWW.example.test. CNAME web.example.test., web.example.test. CNAME mail.example.test., mail.example.test. A 192.0.2.3 |  | "},
	} {
		m, got := ask(t, z, tc.name, tc.typ)
		if got != tc.want || !m.Authoritative || m.RecursionAvailable {
			t.Errorf("%s %s:\n got %s (aa=%v)\nwant %s", tc.name, dns.TypeToString[tc.typ], got, m.Authoritative, tc.want)
		}
	}
	if m, _ := ask(t, z, "no.example.test.", dns.TypeA); m.Ns[0].Header().Ttl != 300 {
		t.Errorf("NXDOMAIN is kept for %d s, want the negative TTL", m.Ns[0].Header().Ttl)
	}
}

func TestAnswerOutsideOfTheZoneIsRefused(t *testing.T) {
	z := testZone(t)
	for _, name := range []string{"test.", ".", "notexample.test.", `foo\.example.test.`, "example.test.org."} {
		if m, got := ask(t, z, name, dns.TypeA); m.Rcode != dns.RcodeRefused || m.Authoritative {
			t.Errorf("%s: %s", name, got)
		}
	}
	if m, _ := ask(t, z, `foo\.bar.example.test.`, dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("a dot in a label: %s", dns.RcodeToString[m.Rcode])
	}
	if m := z.Answer(new(dns.Msg)); m.Rcode != dns.RcodeFormatError {
		t.Errorf("no question: %s", dns.RcodeToString[m.Rcode])
	}
}

// Answering must not change the shared records, even if the caller modifies the message.
func TestAnswersDoNotShareTheirSlices(t *testing.T) {
	z := testZone(t)
	_, before := ask(t, z, "example.test.", dns.TypeMX)
	q := new(dns.Msg)
	q.SetQuestion("EXAMPLE.test.", dns.TypeMX)
	for _, name := range []string{"EXAMPLE.test.", "example.test.", "no.example.test."} {
		q.Question[0].Name = name
		m := z.Answer(q)
		opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		m.Answer, m.Ns, m.Extra = append(m.Answer, opt), append(m.Ns, opt), append(m.Extra, opt)
	}
	if _, after := ask(t, z, "example.test.", dns.TypeMX); after != before {
		t.Errorf("answer changed from %s to %s", before, after)
	}
}

// texts decodes the TXT strings of a packed answer with another implementation.
func texts(t *testing.T, m *dns.Msg) []string {
	t.Helper()
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var p dnsmessage.Parser
	if _, err := p.Start(wire); err != nil {
		t.Fatal(err)
	}
	if err := p.SkipAllQuestions(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AnswerHeader(); err != nil {
		t.Fatal(err)
	}
	txt, err := p.TXTResource()
	if err != nil {
		t.Fatal(err)
	}
	return txt.TXT
}

func TestTextsReachTheWireByteForByte(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, want := range []string{
		"", "plain", `quote " backslash \ both \"`, `\065 is not A`, `ends in \`, "tab\tnull\x00", "ünïcödé ✓ 漢字", string(all),
		strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat(`\"`, 400), strings.Repeat("ä", 2000),
	} {
		m, _ := ask(t, testZone(t, rec("txt.example.test", "TXT", want)), "txt.example.test.", dns.TypeTXT)
		got := texts(t, m)
		if strings.Join(got, "") != want {
			t.Errorf("%.60q came back as %.60q", want, strings.Join(got, ""))
		}
		if len(got) != max(1, (len(want)+254)/255) {
			t.Errorf("%d bytes in %d strings", len(want), len(got))
		}
	}
}

func TestNewZoneRefuses(t *testing.T) {
	long := strings.Repeat("a.", 122) + "example.test"
	for _, tc := range []struct {
		record dnsprov.Record
		want   string
	}{
		{rec("other.test", "A", "192.0.2.1"), "outside"},
		{rec("badexample.test", "A", "192.0.2.1"), "outside"},
		{rec("a.example.test", "A", "2001:db8::1"), "not an address"},
		{rec("a.example.test", "AAAA", "192.0.2.1"), "not an address"},
		{rec("a.example.test", "AAAA", "::ffff:192.0.2.1"), "not an address"},
		{rec("a.example.test", "AAAA", "fe80::1%eth0"), "not an address"},
		{rec("a.example.test", "A", "nonsense"), "nonsense"},
		{rec("a.example.test", "CNAME", ""), "not a host name"},
		{rec("a.example.test", "CNAME", "b..c"), "zone example.test"},
		{rec("a..example.test", "A", "192.0.2.1"), "not a DNS name"},
		{rec(long, "A", "192.0.2.1"), "not a DNS name"},
		{rec(strings.Repeat("a", 64)+".example.test", "A", "192.0.2.1"), "not a DNS name"},
		{rec("example.test", "CNAME", "b.test"), "alone"},
		{rec("www.example.test", "A", "192.0.2.1"), "alone"},
		{rec("www.example.test", "CNAME", "second.test"), "alone"},
		{rec("a.*.example.test", "A", "192.0.2.1"), "wildcard"},
		{rec("*.example.test", "NS", "ns.other.test"), "wildcard"},
		{rec("sub.example.test", "DS", "1 13 2 00ff"), "needs NS"},
		{rec("example.test", "DS", "1 13 2 00ff"), "needs NS"},
		{rec("www.example.test", "NS", "ns.other.test"), "only be addresses"},
		{rec("a.example.test", "HTTPS", "x"), "not the value"},
		{rec("a.example.test", "SSHFP", "4 2"), "not the value"},
		{rec("a.example.test", "NAPTR", "x"), "not served"},
		{dnsprov.Record{Name: "a.example.test", Type: "A", Value: "192.0.2.1", TTL: 1 << 31}, "TTL"},
		{rec("a.example.test", "TXT", strings.Repeat("x", 70000)), "too long"},
	} {
		_, err := NewZone("example.test", []dnsprov.Record{rec("www.example.test", "CNAME", "first.test"), tc.record}, testOptions())
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s %.40q: %v, want an error with %q", tc.record.Name, tc.record.Type, tc.record.Value, err, tc.want)
		}
	}
	if _, err := NewZone("example.test", nil, Options{}); err == nil {
		t.Error("a zone without nameservers was made")
	}
	if _, err := NewZone("example.test", nil, Options{Nameservers: []string{"ns.test"}, Hostmaster: "nobody"}); err == nil {
		t.Error("a hostmaster without a domain was taken")
	}
}

func TestASetHasOneTTLAndNoTwins(t *testing.T) {
	twin := rec("set.example.test", "A", "192.0.2.8")
	twin.TTL = 60
	z := testZone(t, rec("Set.Example.test.", "A", "192.0.2.8"), rec("set.example.test", "A", "192.0.2.9"), twin)
	m, _ := ask(t, z, "set.example.test.", dns.TypeA)
	if len(m.Answer) != 2 || m.Answer[0].Header().Ttl != 60 || m.Answer[1].Header().Ttl != 60 {
		t.Errorf("answer %v, want two records with the smallest TTL", m.Answer)
	}
}

// The zone serves exactly the records of Wanted.
func TestZoneOfWantedRecords(t *testing.T) {
	spec := dnsprov.Spec{
		Domain: "example.test", MailHost: "mail.host.test", Nameservers: []string{"ns1.host.test", "ns2.host.test"},
		DKIM: []dnsprov.DKIMKey{{Selector: "k1", Record: "v=DKIM1; k=rsa; p=" + strings.Repeat("QUJD", 98)}},
	}
	z, err := NewZone(spec.Domain, dnsprov.Wanted(spec, dnsprov.Builtin), Options{Nameservers: spec.Nameservers, Serial: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, got := ask(t, z, "example.test.", dns.TypeNS); got != "NOERROR | example.test. NS ns1.host.test., example.test. NS ns2.host.test. |  | " {
		t.Error(got)
	}
	m, _ := ask(t, z, "k1._domainkey.example.test.", dns.TypeTXT)
	if got := texts(t, m); len(got) != 2 || strings.Join(got, "") != spec.DKIM[0].Record {
		t.Errorf("DKIM key %q", got)
	}
}

func TestZonesFindTheClosest(t *testing.T) {
	var zones Zones
	if _, ok := zones.Zone("example.test"); ok {
		t.Error("no zones, but one was found")
	}
	for _, origin := range []string{"example.test", "sub.example.test"} {
		z, err := NewZone(origin, nil, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		zones.Put(z)
	}
	for name, want := range map[string]string{
		"example.test": "example.test", "a.b.example.test": "example.test", "sub.example.test": "sub.example.test",
		"x.sub.example.test": "sub.example.test", "test": "", "": "", "xexample.test": "", `x\.example.test`: "", `x\\.example.test`: "example.test",
	} {
		z, ok := zones.Zone(name)
		if ok != (want != "") || ok && z.Origin != want {
			t.Errorf("zone of %q: %v, want %q", name, z, want)
		}
	}
	zones.Remove("sub.example.test")
	if z, ok := zones.Zone("sub.example.test"); !ok || z.Origin != "example.test" {
		t.Error("a removed zone still answers")
	}
}

// FuzzAnswer sends any query that can be unpacked: the answer must be packable, and contain only
// records that belong to the question.
func FuzzAnswer(f *testing.F) {
	z := testZone(f)
	for _, name := range []string{"example.test.", "www.example.test.", "loop1.EXAMPLE.test.", `\000.example.test.`, "."} {
		q := new(dns.Msg)
		q.SetQuestion(name, dns.TypeMX)
		wire, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		q := new(dns.Msg)
		if q.Unpack(wire) != nil {
			return
		}
		m := z.Answer(q)
		if !m.Response || m.Id != q.Id {
			t.Fatalf("answer %v to %v", m, q)
		}
		if len(q.Question) != 1 {
			return
		}
		packed, err := m.Pack()
		if err != nil {
			t.Fatalf("answer to %v: %v", q.Question, err)
		}
		var again dns.Msg
		if err := again.Unpack(packed); err != nil || !slices.Equal(again.Question, q.Question) {
			t.Fatalf("answer to %v has %v, %v", q.Question, again.Question, err)
		}
		if len(m.Answer) > 0 && m.Answer[0].Header().Name != q.Question[0].Name {
			t.Fatalf("answer to %v begins with %v", q.Question, m.Answer[0])
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	z := testZone(b)
	for name, q := range map[string]dns.Question{
		"MX":       {Name: "example.test.", Qtype: dns.TypeMX, Qclass: dns.ClassINET},
		"NXDOMAIN": {Name: "no.example.test.", Qtype: dns.TypeA, Qclass: dns.ClassINET},
		"0x20":     {Name: "eXample.Test.", Qtype: dns.TypeMX, Qclass: dns.ClassINET},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			msg := &dns.Msg{Question: []dns.Question{q}}
			for b.Loop() {
				z.Answer(msg)
			}
		})
	}
}
