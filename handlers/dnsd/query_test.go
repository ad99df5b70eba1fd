package dnsd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// stubZone answers for one domain: "big" with n long texts and glue, anything else with one
// address.
type stubZone struct{ origin string }

func (z stubZone) Zone(name string) (Answerer, bool) {
	return z, name == z.origin || strings.HasSuffix(name, "."+z.origin)
}

func (z stubZone) Answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	m.Authoritative = true
	m.RecursionAvailable = true // the server must not pass this on
	name := q.Question[0].Name
	hdr := func(typ uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: typ, Class: dns.ClassINET, Ttl: 60}
	}
	switch label, _, _ := strings.Cut(strings.ToLower(name), "."); label {
	case "panic":
		panic("out of order")
	case "nil":
		return nil
	case "big":
		for i := range 20 {
			m.Answer = append(m.Answer, &dns.TXT{Hdr: hdr(dns.TypeTXT), Txt: []string{fmt.Sprint(i, strings.Repeat("x", 200))}})
		}
	case "glue":
		m.Answer = []dns.RR{&dns.MX{Hdr: hdr(dns.TypeMX), Mx: "mail.test."}}
		for range 100 {
			m.Extra = append(m.Extra, &dns.A{Hdr: hdr(dns.TypeA), A: net.IPv4(192, 0, 2, 1)})
		}
	case "unpackable":
		m.Answer = []dns.RR{&dns.TXT{Hdr: hdr(dns.TypeTXT), Txt: []string{strings.Repeat("x", 300)}}}
	default:
		m.Answer = []dns.RR{&dns.A{Hdr: hdr(dns.TypeA), A: net.IPv4(192, 0, 2, 1)}}
	}
	return m
}

func testRun() *run {
	return (&Server{Zones: stubZone{"a.test"}, Log: slog.New(slog.DiscardHandler)}).start()
}

func packed(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func question(name string, typ uint16) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(name, typ)
	m.Id = 4711
	return m
}

// change returns a question with something done to it.
func change(name string, typ uint16, do func(*dns.Msg)) *dns.Msg {
	m := question(name, typ)
	do(m)
	return m
}

func udpAnswer(t *testing.T, r *run, q *dns.Msg) (*dns.Msg, int) {
	t.Helper()
	wire, _ := r.answer(query{wire: packed(t, q), limit: plainUDP}, make([]byte, udpIn))
	m := new(dns.Msg)
	if err := m.Unpack(wire); err != nil {
		t.Fatalf("answer to %v: %v", q, err)
	}
	if m.Id != q.Id || !m.Response || m.RecursionAvailable || m.RecursionDesired != q.RecursionDesired || m.Opcode != q.Opcode {
		t.Errorf("header of the answer to %v: %+v", q.Question, m.MsgHdr)
	}
	return m, len(wire)
}

// familyZones has two zones, one below the other; each answers with its name.
type familyZones struct{}

func (familyZones) Zone(name string) (Answerer, bool) {
	for _, origin := range []string{"child.a.test", "a.test"} {
		if name == origin || strings.HasSuffix(name, "."+origin) {
			return namedZone(origin), true
		}
	}
	return nil, false
}

type namedZone string

func (z namedZone) Answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.Answer = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{string(z)}}}
	return m
}

func TestTheParentAnswersForADelegation(t *testing.T) {
	r := (&Server{Zones: familyZones{}, Log: slog.New(slog.DiscardHandler)}).start()
	for _, tc := range []struct {
		name string
		typ  uint16
		want string
	}{
		{"child.a.test.", dns.TypeDS, "a.test"},
		{"Child.A.test.", dns.TypeDS, "a.test"},
		{"x.child.a.test.", dns.TypeDS, "child.a.test"},
		{"a.test.", dns.TypeDS, "a.test"}, // its parent is not here: nothing, from the zone itself
		{"child.a.test.", dns.TypeDNSKEY, "child.a.test"},
		{"other.a.test.", dns.TypeDS, "a.test"},
	} {
		m, _ := udpAnswer(t, r, question(tc.name, tc.typ))
		if len(m.Answer) != 1 || m.Answer[0].(*dns.TXT).Txt[0] != tc.want {
			t.Errorf("%s %s: %v, want an answer of %s", tc.name, dns.TypeToString[tc.typ], m, tc.want)
		}
	}
	if m, _ := udpAnswer(t, r, question("test.", dns.TypeDS)); m.Rcode != dns.RcodeRefused {
		t.Errorf("DS of what is not ours: %v", m)
	}
}

// An authoritative server checks nothing, whatever the client wants (RFC 4035 section 3.1.6).
func TestBitsOfValidation(t *testing.T) {
	r := testRun()
	for _, name := range []string{"a.test.", "b.test.", "nil.a.test.", "big.a.test."} {
		for _, do := range []bool{false, true} {
			q := question(name, dns.TypeA)
			q.AuthenticatedData, q.CheckingDisabled = true, true
			q.SetEdns0(1232, do)
			m, _ := udpAnswer(t, r, q)
			if m.AuthenticatedData || m.CheckingDisabled || m.IsEdns0() == nil || m.IsEdns0().Do() != do {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

func TestStatusOfAnswers(t *testing.T) {
	r := testRun()
	for _, tc := range []struct {
		name string
		q    *dns.Msg
		want int
	}{
		{"ours", question("a.test.", dns.TypeA), dns.RcodeSuccess},
		{"not ours", question("b.test.", dns.TypeA), dns.RcodeRefused},
		{"the root", question(".", dns.TypeNS), dns.RcodeRefused},
		{"a dot in a label", question(`x\.a.test.`, dns.TypeA), dns.RcodeSuccess}, // the stub's rule; the name passes as it is
		{"AXFR", question("a.test.", dns.TypeAXFR), dns.RcodeRefused},
		{"IXFR with its SOA", change("a.test.", dns.TypeIXFR, func(m *dns.Msg) {
			m.Ns = []dns.RR{&dns.SOA{Hdr: dns.RR_Header{Name: "a.test.", Rrtype: dns.TypeSOA, Class: 1}, Ns: ".", Mbox: "."}}
		}), dns.RcodeRefused},
		{"a type that is none", question("a.test.", dns.TypeOPT), dns.RcodeFormatError},
		{"class CHAOS", change("version.bind.", dns.TypeTXT, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused},
		{"class ANY", change("a.test.", dns.TypeA, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }), dns.RcodeRefused},
		{"NOTIFY", change("a.test.", dns.TypeSOA, func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), dns.RcodeNotImplemented},
		{"UPDATE", change("a.test.", dns.TypeSOA, func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), dns.RcodeNotImplemented},
		{"no question", change("a.test.", dns.TypeA, func(m *dns.Msg) { m.Question = nil }), dns.RcodeFormatError},
		{"two questions", change("a.test.", dns.TypeA, func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), dns.RcodeFormatError},
		{"an answer in the query", change("a.test.", dns.TypeA, func(m *dns.Msg) {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: ".", Rrtype: 1, Class: 1}, A: net.IPv4zero}}
		}), dns.RcodeFormatError},
		{"two OPT", change("a.test.", dns.TypeA, func(m *dns.Msg) { m.SetEdns0(1232, false); m.SetEdns0(1232, false) }), dns.RcodeFormatError},
		{"zone without an answer", question("nil.a.test.", dns.TypeA), dns.RcodeServerFailure},
		{"zone that panics", question("panic.a.test.", dns.TypeA), dns.RcodeServerFailure},
		{"answer that does not pack", question("unpackable.a.test.", dns.TypeTXT), dns.RcodeServerFailure},
	} {
		if m, _ := udpAnswer(t, r, tc.q); m.Rcode != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, dns.RcodeToString[m.Rcode], dns.RcodeToString[tc.want])
		}
	}
}

func TestEDNS(t *testing.T) {
	r := testRun()
	m, _ := udpAnswer(t, r, question("a.test.", dns.TypeA))
	if m.IsEdns0() != nil {
		t.Error("an OPT record for a client that sent none")
	}
	m, _ = udpAnswer(t, r, change("a.test.", dns.TypeA, func(m *dns.Msg) { m.SetEdns0(4096, true) }))
	if opt := m.IsEdns0(); opt == nil || opt.UDPSize() != 1232 || !opt.Do() || opt.Version() != 0 || len(opt.Option) != 0 {
		t.Errorf("OPT is %v", opt)
	}
	m, _ = udpAnswer(t, r, change("b.test.", dns.TypeA, func(m *dns.Msg) { m.SetEdns0(4096, false) }))
	if opt := m.IsEdns0(); opt == nil || opt.Do() || m.Rcode != dns.RcodeRefused {
		t.Errorf("refusal %v", m)
	}
	m, _ = udpAnswer(t, r, change("a.test.", dns.TypeA, func(m *dns.Msg) { m.SetEdns0(4096, false); m.IsEdns0().SetVersion(1) }))
	if opt := m.IsEdns0(); m.Rcode != dns.RcodeBadVers || opt == nil || opt.Version() != 0 || len(m.Answer) != 0 {
		t.Errorf("version 1 got %v", m)
	}
}

func TestAnswersFitWhatTheClientTakes(t *testing.T) {
	r := testRun()
	for _, tc := range []struct {
		size uint16 // 0 for no EDNS
		max  int
	}{{0, 512}, {100, 512}, {512, 512}, {900, 900}, {1232, 1232}, {65535, 1232}} {
		for _, name := range []string{"big.a.test.", "glue.a.test."} {
			q := question(name, dns.TypeTXT)
			if tc.size > 0 {
				q.SetEdns0(tc.size, false)
			}
			m, n := udpAnswer(t, r, q)
			if n > tc.max {
				t.Errorf("%s with size %d: %d bytes", name, tc.size, n)
			}
			cut := name == "big.a.test."
			if m.Truncated != cut || cut && len(m.Answer) != 0 || !cut && len(m.Answer) != 1 || (m.IsEdns0() != nil) != (tc.size > 0) {
				t.Errorf("%s with size %d: tc=%v, %d answers", name, tc.size, m.Truncated, len(m.Answer))
			}
		}
	}
}

func TestNoAnswerToWhatIsNoQuery(t *testing.T) {
	r := testRun()
	q := packed(t, question("a.test.", dns.TypeA))
	reply := bytes.Clone(q)
	reply[2] |= 0x80
	for _, wire := range [][]byte{nil, {1}, q[:11], reply} {
		if out, _ := r.answer(query{wire: wire, limit: plainUDP}, nil); out != nil {
			t.Errorf("%x got %x", wire, out)
		}
	}
	for n := headerSize; n < len(q); n++ { // cut anywhere behind the header
		out, _ := r.answer(query{wire: q[:n], limit: plainUDP}, nil)
		if len(out) < headerSize || binary.BigEndian.Uint16(out) != 4711 || out[3]&0xF != dns.RcodeFormatError || out[2]&0x80 == 0 {
			t.Errorf("%d bytes of a query got %x", n, out)
		}
	}
}

func TestRateLimitTellsTheHonestToUseTCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := (&Server{Zones: stubZone{"a.test"}, Rate: 10}).start()
		wire := packed(t, question("a.test.", dns.TypeA))
		out := make([]byte, udpIn)
		count := func(from string) (full, slipped, dropped int) {
			for range 100 {
				answer := r.answerUDP(wire, netip.MustParseAddr(from), out)
				var m dns.Msg
				switch {
				case answer == nil:
					dropped++
				case m.Unpack(answer) == nil && m.Truncated && len(m.Answer) == 0 && len(m.Question) == 1:
					slipped++
				case m.Rcode == dns.RcodeSuccess && len(m.Answer) == 1:
					full++
				}
			}
			return full, slipped, dropped
		}
		expect := func(from string, answered int) {
			t.Helper()
			full, slipped, dropped := count(from)
			if full != answered || full+slipped+dropped != 100 || max(slipped-dropped, dropped-slipped) > 1 {
				t.Errorf("%s: %d answered, %d told to use TCP, %d dropped; want %d answered, half of the rest told", from, full, slipped, dropped, answered)
			}
		}
		expect("192.0.2.1", 10)
		expect("192.0.2.200", 0) // the same network
		expect("::ffff:192.0.2.7", 0)
		expect("198.51.100.1", 10)
		expect("2001:db8:1:200::1", 10)
		expect("2001:db8:1:2ff::1", 0)
		expect("127.0.0.1", 100)
		expect("::1", 100)
		time.Sleep(500 * time.Millisecond)
		expect("192.0.2.1", 5)
		time.Sleep(time.Hour)
		expect("192.0.2.1", 10)
	})
}

// FuzzPacket sends raw bytes in over both transports: whatever they are, an answer is a well-formed
// one to this query and fits.
func FuzzPacket(f *testing.F) {
	for _, m := range []*dns.Msg{
		question("a.test.", dns.TypeA), question("big.a.test.", dns.TypeTXT), question(".", dns.TypeAXFR),
		change("glue.A.test.", dns.TypeMX, func(m *dns.Msg) { m.SetEdns0(600, true) }),
		cookieQuery("0102030405060708"), ixfr(3),
		change("a.test.", dns.TypeA, func(m *dns.Msg) { m.SetTsig("key.test.", dns.HmacSHA256, 300, 1) }),
		change("a.test.", dns.TypeAXFR, func(m *dns.Msg) { m.SetTsig("other.test.", dns.HmacSHA256, 300, 1) }),
	} {
		f.Add(packed(f, m), true)
		f.Add(packed(f, m), false)
	}
	r := signedRun()
	f.Fuzz(func(t *testing.T, wire []byte, stream bool) {
		q := query{wire: wire, limit: plainUDP, stream: stream}
		if stream {
			q.limit = dns.MaxMsgSize - 1
		}
		out, _ := r.answer(q, make([]byte, udpIn))
		if out == nil {
			return
		}
		var m dns.Msg
		if err := m.Unpack(out); err != nil {
			t.Fatalf("%x got %x: %v", wire, out, err)
		}
		if !m.Response || m.Id != binary.BigEndian.Uint16(wire) || m.RecursionAvailable || !stream && len(out) > ednsUDP {
			t.Fatalf("%x got %v, %d bytes", wire, &m, len(out))
		}
	})
}

func BenchmarkPacket(b *testing.B) {
	r := testRun()
	wire := packed(b, change("a.test.", dns.TypeA, func(m *dns.Msg) { m.SetEdns0(1232, false) }))
	out := make([]byte, udpIn)
	b.ReportAllocs()
	for b.Loop() {
		r.answer(query{wire: wire, limit: plainUDP}, out)
	}
}
