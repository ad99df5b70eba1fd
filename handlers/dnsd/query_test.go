package dnsd

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
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
	return (&Server{Zones: stubZone{"a.test"}, Log: slog.New(slog.DiscardHandler)}).newRun()
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
	wire, _ := r.answer(query{wire: packed(t, q), limit: defaultUDPSize}, make([]byte, udpReadSize))
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
	r := (&Server{Zones: familyZones{}, Log: slog.New(slog.DiscardHandler)}).newRun()
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
		if out, _ := r.answer(query{wire: wire, limit: defaultUDPSize}, nil); out != nil {
			t.Errorf("%x got %x", wire, out)
		}
	}
	for n := headerSize; n < len(q); n++ { // cut anywhere behind the header
		out, _ := r.answer(query{wire: q[:n], limit: defaultUDPSize}, nil)
		if len(out) < headerSize || binary.BigEndian.Uint16(out) != 4711 || out[3]&0xF != dns.RcodeFormatError || out[2]&0x80 == 0 {
			t.Errorf("%d bytes of a query got %x", n, out)
		}
	}
}

func TestRateLimitTellsTheHonestToUseTCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := (&Server{Zones: stubZone{"a.test"}, Rate: 10, Exempt: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}).newRun()
		wire := packed(t, question("a.test.", dns.TypeA))
		out := make([]byte, udpReadSize)
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
		expect("127.0.0.1", 10)
		expect("10.9.8.7", 100)
		expect("::ffff:10.9.8.7", 100)
		expect("fd00::1", 100)
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
		q := query{wire: wire, limit: defaultUDPSize, overTCP: stream}
		if stream {
			q.limit = dns.MaxMsgSize - 1
		}
		out, _ := r.answer(q, make([]byte, udpReadSize))
		if out == nil {
			return
		}
		var m dns.Msg
		if err := m.Unpack(out); err != nil {
			t.Fatalf("%x got %x: %v", wire, out, err)
		}
		if !m.Response || m.Id != binary.BigEndian.Uint16(wire) || m.RecursionAvailable || !stream && len(out) > ednsUDPSize {
			t.Fatalf("%x got %v, %d bytes", wire, &m, len(out))
		}
	})
}

func BenchmarkPacket(b *testing.B) {
	r := testRun()
	wire := packed(b, change("a.test.", dns.TypeA, func(m *dns.Msg) { m.SetEdns0(1232, false) }))
	out := make([]byte, udpReadSize)
	b.ReportAllocs()
	for b.Loop() {
		r.answer(query{wire: wire, limit: defaultUDPSize}, out)
	}
}

func secretOf(t *testing.T, text string) (s cookieSecret) {
	t.Helper()
	if n, err := hex.Decode(s[:], []byte(text)); err != nil || n != len(s) {
		t.Fatal(n, err)
	}
	return s
}

func withCookie(cookie string) *dns.OPT {
	return &dns.OPT{Option: []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: cookie}}}
}

// The vectors of RFC 9018 appendix A: who sends what at which time, whether that holds, and what he
// gets.
func TestCookieVectors(t *testing.T) {
	const first, second = "e5e973e5a6b2a43f48e7dc849e37bfcf", "445536bcd2513298075a5d379663c962"
	for _, tc := range []struct {
		name, from, sent, secrets string
		at                        int64
		have                      cookieProof
		want                      string
	}{
		{"A.1", "198.51.100.100", "2464c4abcf10c957", first, 1559731985, unprovenAddress, "2464c4abcf10c957010000005cf79f111f8130c3eee29480"},
		{"A.2", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559734385, provenAddress, "2464c4abcf10c957010000005cf7a871d4a564a1442aca77"},
		{"A.3", "203.0.113.203", "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5", first, 1559734700, unprovenAddress, "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e"},
		{"A.3 in time", "203.0.113.203", "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5", first, 1559727985, provenAddress, ""},
		{
			"A.4", "2001:db8:220:1:59de:d0f4:8769:82b8", "22681ab97d52c298010000005cf7c57926556bd0934c72f8",
			second + " dd3bdf9344b678b185a6f5cb60fca715", 1559741961, provenAddress, "22681ab97d52c298010000005cf7c609a6bb79d16625507a",
		},
		{"mapped address", "::ffff:198.51.100.100", "2464c4abcf10c957", first, 1559731985, unprovenAddress, "2464c4abcf10c957010000005cf79f111f8130c3eee29480"},
		{"another address", "198.51.100.101", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559731985, unprovenAddress, ""},
		{"another client", "198.51.100.100", "2464c4abcf10c958010000005cf79f111f8130c3eee29480", first, 1559731985, unprovenAddress, ""},
		{"another version", "198.51.100.100", "2464c4abcf10c957020000005cf79f111f8130c3eee29480", first, 1559731985, unprovenAddress, ""},
		{"a bit of the hash", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29481", first, 1559731985, unprovenAddress, ""},
		{"another secret", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", second, 1559731985, unprovenAddress, ""},
		{"an hour old", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559731985 + 3600, provenAddress, ""},
		{"older", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559731985 + 3601, unprovenAddress, ""},
		{"a little ahead", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559731985 - 300, provenAddress, ""},
		{"too far ahead", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559731985 - 301, unprovenAddress, ""},
		{"too long to be ours", "198.51.100.100", "2464c4abcf10c957" + strings.Repeat("01", 32), first, 1559731985, unprovenAddress, ""},
		{"short", "198.51.100.100", "2464c4abcf10c9", first, 1559731985, badCookie, ""},
		{"between", "198.51.100.100", "2464c4abcf10c95701", first, 1559731985, badCookie, ""},
		{"too long", "198.51.100.100", strings.Repeat("01", 41), first, 1559731985, badCookie, ""},
		{"far too long", "198.51.100.100", strings.Repeat("01", 4000), first, 1559731985, badCookie, ""},
		{"empty", "198.51.100.100", "", first, 1559731985, badCookie, ""},
	} {
		now := time.Unix(tc.at, 0)
		c := newCookieMaker(now)
		var accepted []cookieSecret
		for _, s := range strings.Fields(tc.secrets) {
			accepted = append(accepted, secretOf(t, s))
		}
		c.current.Store(&cookieSecrets{accepted: accepted, made: now})
		have, fresh := c.checkCookie(withCookie(tc.sent), netip.MustParseAddr(tc.from), now)
		if have != tc.have || (fresh == nil) != (have == badCookie) {
			t.Errorf("%s: %d with %v, want %d", tc.name, have, fresh, tc.have)
		}
		if tc.want != "" && fresh.Cookie != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, fresh.Cookie, tc.want)
		}
	}
	if have, fresh := newCookieMaker(time.Now()).checkCookie(&dns.OPT{}, netip.Addr{}, time.Now()); have != noCookie || fresh != nil {
		t.Errorf("without a cookie: %d, %v", have, fresh)
	}
}

func TestSecretsRoll(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c, from := newCookieMaker(now), netip.MustParseAddr("192.0.2.1")
	_, first := c.checkCookie(withCookie("0102030405060708"), from, now)
	now = now.Add(secretLifetime - time.Second)
	_, old := c.checkCookie(withCookie("0102030405060708"), from, now)
	now = now.Add(2 * time.Second)
	have, renewed := c.checkCookie(withCookie(old.Cookie), from, now)
	if have != provenAddress || len(c.secrets(now).accepted) != 2 {
		t.Errorf("a cookie of the secret before: %d", have)
	}
	have, _ = c.checkCookie(withCookie(renewed.Cookie), from, now)
	if have != provenAddress {
		t.Errorf("a cookie of the new secret: %d", have)
	}
	have, _ = c.checkCookie(withCookie(first.Cookie), from, now)
	if have != unprovenAddress {
		t.Errorf("a cookie of yesterday: %d", have)
	}
	was := c.secrets(now).accepted[1]
	if next := c.secrets(now.Add(secretLifetime)).accepted; len(next) != 2 || next[1] == was {
		t.Error("the secret before the one before is taken")
	}
}

func cookieQuery(cookie string) *dns.Msg {
	return change("a.test.", dns.TypeA, func(m *dns.Msg) {
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = withCookie(cookie).Option
	})
}

func TestAnswersCarryACookie(t *testing.T) {
	addr := serve(t, &Server{Zones: stubZone{"a.test"}})
	for _, network := range []string{"udp", "tcp"} {
		m := exchange(t, network, addr, cookieQuery("0102030405060708"))
		got := cookieOf(m.IsEdns0())
		if m.Rcode != dns.RcodeSuccess || got == nil || len(got.Cookie) != 48 || !strings.HasPrefix(got.Cookie, "010203040506070801000000") {
			t.Errorf("over %s: %v", network, m)
		}
		m = exchange(t, network, addr, cookieQuery("01"))
		if m.Rcode != dns.RcodeFormatError || cookieOf(m.IsEdns0()) != nil {
			t.Errorf("a short cookie over %s: %v", network, m)
		}
	}
}

// Over the rate limit, a client with a valid cookie still gets answers, up to a higher limit. A
// client with only the client part of a cookie gets the server part.
func TestCookiesOpenTheRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := (&Server{Zones: stubZone{"a.test"}, Rate: 10}).newRun()
		from := netip.MustParseAddr("192.0.2.1")
		ask := func(q *dns.Msg) *dns.Msg {
			answer := r.answerUDP(packed(t, q), from, make([]byte, udpReadSize))
			if answer == nil {
				return nil
			}
			m := new(dns.Msg)
			if err := m.Unpack(answer); err != nil {
				t.Fatal(err)
			}
			return m
		}
		for range 10 { // what the network may have
			if m := ask(question("a.test.", dns.TypeA)); m == nil || len(m.Answer) != 1 {
				t.Fatalf("under the rate: %v", m)
			}
		}
		var cookie string
		for range slipEvery {
			if m := ask(cookieQuery("0102030405060708")); m != nil {
				if m.Rcode != dns.RcodeBadCookie || len(m.Answer) != 0 {
					t.Fatalf("half a cookie: %v", m)
				}
				cookie = cookieOf(m.IsEdns0()).Cookie
			}
		}
		full := 0
		for range 200 {
			if m := ask(cookieQuery(cookie)); m != nil && m.Rcode == dns.RcodeSuccess && len(m.Answer) == 1 && !m.Truncated {
				full++
			}
		}
		if full != 10*cookieRateFactor {
			t.Errorf("%d answers to a good cookie, want %d", full, 10*cookieRateFactor)
		}
		time.Sleep(500 * time.Millisecond)
		from = netip.MustParseAddr("192.0.2.2") // has another cookie, and a neighbour who has used the rate up again
		for range 5 {
			ask(question("a.test.", dns.TypeA))
		}
		for range 2 * slipEvery {
			if m := ask(cookieQuery(cookie)); m != nil && m.Rcode != dns.RcodeBadCookie {
				t.Errorf("somebody else's cookie: %v", m)
			}
			if m := ask(cookieQuery("01")); m != nil && !m.Truncated {
				t.Errorf("over the rate with a broken cookie: %v", m)
			}
		}
	})
}
