package dnsd

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/miekg/dns"
)

// copyZone is a zone of n texts that can be copied. It counts those who are reading it.
type copyZone struct {
	stubZone
	n, size int
	serial  uint32
	private bool
	broken  bool // it panics in the middle
	endless bool // it has no second SOA
	readers *atomic.Int32
}

func newCopyZone(n, size int) *copyZone {
	return &copyZone{stubZone: stubZone{"a.test"}, n: n, size: size, serial: 7, readers: new(atomic.Int32)}
}

func (z *copyZone) Zone(name string) (Answerer, bool) {
	_, ok := z.stubZone.Zone(name)
	return z, ok
}

func (z *copyZone) Hidden() bool { return z.private }

func (z *copyZone) Transfer() iter.Seq[dns.RR] {
	return func(yield func(dns.RR) bool) {
		z.readers.Add(1)
		defer z.readers.Add(-1)
		soa := &dns.SOA{Hdr: dns.RR_Header{Name: "a.test.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 60}, Ns: "ns.a.test.", Mbox: "m.a.test.", Serial: z.serial}
		if !yield(soa) {
			return
		}
		for i := range z.n {
			if z.broken && i == z.n/2 {
				panic("out of order")
			}
			text := []string{strings.Repeat("x", z.size%256)}
			for range z.size / 256 {
				text = append(text, strings.Repeat("y", 255))
			}
			hdr := dns.RR_Header{Name: fmt.Sprintf("r%d.a.test.", i), Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}
			if !yield(&dns.TXT{Hdr: hdr, Txt: text}) {
				return
			}
		}
		if !z.endless {
			yield(soa)
		}
	}
}

// loopbackSecondaries has one secondary with a key, and 127.0.0.1 without one if open is set.
func loopbackSecondaries(open bool) []builtin.Secondary {
	all := []builtin.Secondary{{Name: "keyed", Addr: netip.MustParseAddrPort("192.0.2.53:53"), Key: testKey}}
	if open {
		all = append(all, builtin.Secondary{Name: "open", Addr: netip.MustParseAddrPort("127.0.0.1:53")})
	}
	return all
}

func axfr() *dns.Msg { return question("a.test.", dns.TypeAXFR) }

func ixfr(serial uint32) *dns.Msg {
	return change("a.test.", dns.TypeIXFR, func(m *dns.Msg) {
		m.Ns = []dns.RR{&dns.SOA{Hdr: dns.RR_Header{Name: "a.test.", Rrtype: dns.TypeSOA, Class: 1}, Ns: ".", Mbox: ".", Serial: serial}}
	})
}

// fetch copies a zone with the library's client, which checks every signature if there is a secret.
func fetch(t *testing.T, addr string, q *dns.Msg, secret string) (records, messages int, err error) {
	t.Helper()
	client := &dns.Transfer{ReadTimeout: 5 * time.Second}
	if secret != "" {
		client.TsigSecret = map[string]string{"key.test.": secret}
		q.SetTsig("key.test.", dns.HmacSHA256, 300, time.Now().Unix())
	}
	all, err := client.In(q, addr)
	if err != nil {
		t.Fatal(err)
	}
	for envelope := range all {
		if envelope.Error != nil {
			err = envelope.Error
		}
		messages++
		records += len(envelope.RR)
	}
	return records, messages, err
}

func TestWholeZoneInSeveralMessages(t *testing.T) {
	addr := serve(t, &Server{Zones: newCopyZone(3000, 100), Secondaries: loopbackSecondaries(true), Log: slog.New(slog.DiscardHandler)})
	for name, secret := range map[string]string{"unsigned": "", "signed": base64Of(testKey)} {
		for typ, q := range map[string]*dns.Msg{"AXFR": axfr(), "IXFR": ixfr(3)} {
			records, messages, err := fetch(t, addr, q, secret)
			if err != nil || records != 3002 || messages < 20 {
				t.Errorf("%s, %s: %d records in %d messages, %v", typ, name, records, messages, err)
			}
		}
	}
}

// frames reads what comes after a query until the second SOA.
func frames(t *testing.T, conn net.Conn, q *dns.Msg) (all []*dns.Msg) {
	t.Helper()
	if _, err := conn.Write(frame(packed(t, q))); err != nil {
		t.Fatal(err)
	}
	for soas := 0; soas < 2; {
		m := readFrame(t, conn)
		all = append(all, m)
		for _, rr := range m.Answer {
			if rr.Header().Rrtype == dns.TypeSOA {
				soas++
			}
		}
	}
	return all
}

func TestMessagesOfATransfer(t *testing.T) {
	for _, size := range []int{10, 300, 30_000} {
		addr := serve(t, &Server{Zones: newCopyZone(200, size), Secondaries: loopbackSecondaries(true), Log: slog.New(slog.DiscardHandler)})
		conn := dial(t, addr)
		q := axfr()
		q.SetEdns0(1232, false)
		for i, m := range frames(t, conn, q) {
			m.Compress = true
			if n := len(packed(t, m)); n > max(transferMessageSize, size)+1000 {
				t.Errorf("records of %d: message %d has %d bytes", size, i, n)
			}
			if m.Id != q.Id || !m.Response || !m.Authoritative || m.Rcode != 0 || (len(m.Question) == 1) != (i == 0) || (m.IsEdns0() != nil) != (i == 0) {
				t.Errorf("records of %d: message %d: %v", size, i, m.MsgHdr)
			}
			if i == 0 && len(m.Answer) < 2 {
				t.Errorf("records of %d: the SOA is alone", size)
			}
		}
		// The connection goes on.
		if _, err := conn.Write(frame(packed(t, question("a.test.", dns.TypeA)))); err != nil {
			t.Fatal(err)
		}
		if m := readFrame(t, conn); len(m.Answer) != 1 {
			t.Errorf("after a transfer: %v", m)
		}
	}
}

func TestIXFRTellsTheNewestVersion(t *testing.T) {
	zoneAt := func(serial uint32) string {
		zone := newCopyZone(5, 10)
		zone.serial = serial
		return serve(t, &Server{Zones: zone, Secondaries: loopbackSecondaries(true), Log: slog.New(slog.DiscardHandler)})
	}
	for _, tc := range []struct {
		network    string
		have, ours uint32
		want       int // records
	}{
		{"tcp", 7, 7, 1}, {"tcp", 8, 7, 1}, {"udp", 7, 7, 1}, {"udp", 3, 7, 1},
		{"tcp", 1 << 31, 1<<31 + 5, 7}, {"tcp", 1<<32 - 1, 3, 7}, {"tcp", 3, 1<<32 - 1, 1},
	} {
		m := exchange(t, tc.network, zoneAt(tc.ours), ixfr(tc.have))
		if len(m.Answer) != tc.want || m.Rcode != dns.RcodeSuccess || m.Answer[0].(*dns.SOA).Serial != tc.ours || !m.Authoritative {
			t.Errorf("over %s with %d of %d: %v", tc.network, tc.have, tc.ours, m)
		}
	}
	if m := exchange(t, "tcp", zoneAt(7), question("a.test.", dns.TypeIXFR)); m.Rcode != dns.RcodeFormatError {
		t.Errorf("IXFR without a version: %v", m)
	}
}

func TestTransfersAreForSecondaries(t *testing.T) {
	zone := newCopyZone(5, 10)
	secret := base64Of(testKey)
	closed := serve(t, &Server{Zones: zone, Secondaries: loopbackSecondaries(false), Log: slog.New(slog.DiscardHandler)})
	open := serve(t, &Server{Zones: zone, Secondaries: loopbackSecondaries(true), Log: slog.New(slog.DiscardHandler)})
	none := serve(t, &Server{Zones: zone})
	plain := serve(t, &Server{Zones: stubZone{"a.test"}, Secondaries: loopbackSecondaries(true), Log: slog.New(slog.DiscardHandler)})
	for _, tc := range []struct {
		name, network, addr string
		q                   *dns.Msg
		want                int
	}{
		{"no key", "tcp", closed, axfr(), dns.RcodeRefused},
		{"no key, IXFR", "tcp", closed, ixfr(1), dns.RcodeRefused},
		{"no key, IXFR over UDP", "udp", closed, ixfr(1), dns.RcodeRefused},
		{"no secondaries", "tcp", none, axfr(), dns.RcodeRefused},
		{"not there, to a stranger", "tcp", closed, question("b.test.", dns.TypeAXFR), dns.RcodeRefused},
		{"AXFR over UDP", "udp", open, axfr(), dns.RcodeRefused},
		{"not there", "tcp", open, question("b.test.", dns.TypeAXFR), dns.RcodeNotAuth},
		{"inside a zone", "tcp", open, question("r1.a.test.", dns.TypeAXFR), dns.RcodeNotAuth},
		{"class CHAOS", "tcp", open, change("a.test.", dns.TypeAXFR, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused},
		{"a zone that cannot be copied", "tcp", plain, axfr(), dns.RcodeRefused},
	} {
		if m := exchange(t, tc.network, tc.addr, tc.q); m.Rcode != tc.want || len(m.Answer) != 0 {
			t.Errorf("%s: %v", tc.name, m)
		}
	}
	for name, addr := range map[string]string{"closed": closed, "open": open} {
		if n, _, err := fetch(t, addr, axfr(), secret); err != nil || n != 7 {
			t.Errorf("%s to the key: %d records, %v", name, n, err)
		}
		if n, _, err := fetch(t, addr, axfr(), base64Of(&builtin.TSIGKey{Secret: make([]byte, 32)})); err == nil || n != 0 {
			t.Errorf("%s to a wrong key: %d records", name, n)
		}
	}
}

func TestHiddenZonesAnswerSecondariesOnly(t *testing.T) {
	zone := newCopyZone(1, 10)
	zone.private = true
	closed := serve(t, &Server{Zones: zone, Secondaries: loopbackSecondaries(false), Log: slog.New(slog.DiscardHandler)})
	open := serve(t, &Server{Zones: zone, Secondaries: loopbackSecondaries(true), Log: slog.New(slog.DiscardHandler)})
	for addr, want := range map[string]int{closed: dns.RcodeRefused, open: dns.RcodeSuccess} {
		if m := exchange(t, "tcp", addr, question("a.test.", dns.TypeSOA)); m.Rcode != want {
			t.Errorf("got %v, want %s", m, dns.RcodeToString[want])
		}
	}
	q := question("a.test.", dns.TypeSOA)
	q.SetTsig("key.test.", dns.HmacSHA256, 300, time.Now().Unix())
	c := dns.Client{TsigSecret: map[string]string{"key.test.": base64Of(testKey)}}
	if m, _, err := c.Exchange(q, closed); err != nil || m.Rcode != dns.RcodeSuccess {
		t.Errorf("with the key: %v, %v", m, err)
	}
}

// waitFor waits until something is so.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after 5 s", what)
		}
	}
}

// A secondary that does not read loses the connection, and with it what it held.
func TestSlowReadersAreCutOff(t *testing.T) {
	for name, tc := range map[string]struct {
		s     *Server
		sleep time.Duration // between reads; 0: it never reads
	}{
		"never reads":    {&Server{Idle: 200 * time.Millisecond}, 0},
		"reads a little": {&Server{Idle: 5 * time.Second, TransferFor: 300 * time.Millisecond}, 20 * time.Millisecond},
	} {
		zone := newCopyZone(1_000_000, 200)
		tc.s.Zones, tc.s.Secondaries, tc.s.Log = zone, loopbackSecondaries(true), slog.New(slog.DiscardHandler)
		conn := dial(t, serve(t, tc.s))
		if _, err := conn.Write(frame(packed(t, axfr()))); err != nil {
			t.Fatal(err)
		}
		waitFor(t, name+": transfer", func() bool { return zone.readers.Load() == 1 })
		if tc.sleep > 0 {
			go func() {
				for {
					time.Sleep(tc.sleep)
					if _, err := io.CopyN(io.Discard, conn, 10_000); err != nil {
						return
					}
				}
			}()
		}
		waitFor(t, name+": end", func() bool { return zone.readers.Load() == 0 })
	}
}

// More transfers than there are slots wait for their turn; those of one secondary do not take all
// slots.
func TestTransfersTakeTurns(t *testing.T) {
	zone := newCopyZone(1_000_000, 200)
	addr := serve(t, &Server{
		Zones: zone, Secondaries: loopbackSecondaries(true), Log: slog.New(slog.DiscardHandler), Transfers: transfersPerSecondary + 1, Idle: time.Hour, // a slow machine cuts none off
	})
	var open []net.Conn
	for range transfersPerSecondary + 1 {
		conn := dial(t, addr)
		if _, err := conn.Write(frame(packed(t, axfr()))); err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	waitFor(t, "slots", func() bool { return zone.readers.Load() == transfersPerSecondary })
	time.Sleep(50 * time.Millisecond)
	if n := zone.readers.Load(); n != transfersPerSecondary {
		t.Errorf("%d transfers at once to one secondary", n)
	}
	// Another secondary has its slot, and when one ends so does the one that waits.
	other := dial(t, addr)
	wire, _ := sign(t, axfr(), base64Of(testKey), nil)
	if _, err := other.Write(frame(wire)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "another secondary", func() bool { return zone.readers.Load() == transfersPerSecondary+1 })
	for _, conn := range open {
		conn.Close()
	}
	other.Close()
	waitFor(t, "end", func() bool { return zone.readers.Load() == 0 })
}

func TestStopWhileTransfersWait(t *testing.T) {
	zone := newCopyZone(1_000_000, 200)
	udp, tcp := sockets(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	s := &Server{Zones: zone, Secondaries: loopbackSecondaries(true), Log: slog.New(slog.DiscardHandler), Transfers: 1, Idle: time.Hour, Grace: 50 * time.Millisecond}
	go func() { done <- s.Run(ctx, udp, tcp) }()
	for range 3 { // one that does not read, and two that wait for it
		conn := dial(t, tcp.Addr().String())
		if _, err := conn.Write(frame(packed(t, axfr()))); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "transfer", func() bool { return zone.readers.Load() == 1 })
	cancel()
	select {
	case err := <-done:
		if err != nil || zone.readers.Load() != 0 {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Run waits for transfers")
	}
}

func TestZoneThatBreaksInATransfer(t *testing.T) {
	endless := newCopyZone(3, 100)
	endless.endless = true
	conn := dial(t, serve(t, &Server{Zones: endless, Secondaries: loopbackSecondaries(true), Log: slog.New(slog.DiscardHandler)}))
	if _, err := conn.Write(frame(packed(t, axfr()))); err != nil {
		t.Fatal(err)
	}
	if !closed(conn) {
		t.Error("a zone without an end is sent")
	}
	zone := newCopyZone(3000, 100)
	zone.broken = true
	addr := serve(t, &Server{Zones: zone, Secondaries: loopbackSecondaries(true), Log: slog.New(slog.DiscardHandler)})
	if n, _, err := fetch(t, addr, axfr(), ""); err == nil {
		t.Errorf("%d records and no error", n)
	}
	if m := exchange(t, "tcp", addr, question("a.test.", dns.TypeA)); len(m.Answer) != 1 {
		t.Errorf("afterwards: %v", m)
	}
}

var testKey = &builtin.TSIGKey{Name: "Key.test", Algorithm: "hmac-sha256", Secret: []byte("0123456789abcdef0123456789abcdef")}

func base64Of(k *builtin.TSIGKey) string { return base64.StdEncoding.EncodeToString(k.Secret) }

// signedRun has one secondary with a key and one with an address.
func signedRun() *run {
	return (&Server{Zones: stubZone{"a.test"}, Log: slog.New(slog.DiscardHandler), Secondaries: []builtin.Secondary{
		{Name: "one", Addr: netip.MustParseAddrPort("192.0.2.53:53"), Key: testKey},
		{Name: "two", Addr: netip.MustParseAddrPort("192.0.2.54:53")},
	}}).newRun()
}

// sign brings a query to the wire; do may spoil its TSIG record before it is signed.
func sign(t *testing.T, q *dns.Msg, secret string, do func(*dns.TSIG)) (wire []byte, mac string) {
	t.Helper()
	q.SetTsig("key.test.", dns.HmacSHA256, 300, time.Now().Unix())
	if do != nil {
		do(q.IsTsig())
	}
	wire, mac, err := dns.TsigGenerate(q, secret, "", false)
	if err != nil {
		t.Fatal(err)
	}
	return wire, mac
}

func TestStatusOfSignedQueries(t *testing.T) {
	r, secret := signedRun(), base64Of(testKey)
	other := base64.StdEncoding.EncodeToString([]byte("fedcba9876543210fedcba9876543210"))
	cut := func(size int) func([]byte) []byte {
		return func(wire []byte) []byte {
			m := new(dns.Msg)
			if err := m.Unpack(wire); err != nil {
				t.Fatal(err)
			}
			m.IsTsig().MAC, m.IsTsig().MACSize = m.IsTsig().MAC[:2*size], uint16(size)
			return packed(t, m)
		}
	}
	for _, tc := range []struct {
		name   string
		secret string
		tsig   func(*dns.TSIG)
		wire   func([]byte) []byte
		rcode  int
		code   uint16 // the TSIG error
		signed bool
	}{
		{"good", secret, nil, nil, dns.RcodeSuccess, 0, true},
		{"another case", secret, func(t *dns.TSIG) { t.Hdr.Name, t.Algorithm = "KEY.test.", "HMAC-SHA256." }, nil, dns.RcodeSuccess, 0, true},
		{"wrong secret", other, nil, nil, dns.RcodeNotAuth, dns.RcodeBadSig, false},
		{"unknown key", secret, func(t *dns.TSIG) { t.Hdr.Name = "other.test." }, nil, dns.RcodeNotAuth, dns.RcodeBadKey, false},
		{"another algorithm", secret, func(t *dns.TSIG) { t.Algorithm = dns.HmacSHA512 }, nil, dns.RcodeNotAuth, dns.RcodeBadKey, false},
		{"old", secret, func(t *dns.TSIG) { t.TimeSigned -= 301 }, nil, dns.RcodeNotAuth, dns.RcodeBadTime, true},
		{"early", secret, func(t *dns.TSIG) { t.TimeSigned += 310 }, nil, dns.RcodeNotAuth, dns.RcodeBadTime, true},
		{"changed on the way", secret, nil, func(wire []byte) []byte { wire[headerSize+1] = 'b'; return wire }, dns.RcodeNotAuth, dns.RcodeBadSig, false},
		{"another ID", secret, nil, func(wire []byte) []byte { wire[0] ^= 1; return wire }, dns.RcodeSuccess, 0, true}, // a forwarder may do that
		{"MAC cut to half", secret, nil, cut(16), dns.RcodeNotAuth, dns.RcodeBadTrunc, true},
		{"MAC cut further", secret, nil, cut(15), dns.RcodeFormatError, 0, false},
		{"no MAC", secret, nil, cut(0), dns.RcodeFormatError, 0, false},
		{"class IN", secret, nil, func(wire []byte) []byte {
			m := new(dns.Msg)
			if err := m.Unpack(wire); err != nil {
				t.Fatal(err)
			}
			m.IsTsig().Hdr.Class = dns.ClassINET
			return packed(t, m)
		}, dns.RcodeFormatError, 0, false},
		{"not the last record", secret, nil, func(wire []byte) []byte {
			m := new(dns.Msg)
			if err := m.Unpack(wire); err != nil {
				t.Fatal(err)
			}
			m.SetEdns0(1232, false)
			return packed(t, m)
		}, dns.RcodeFormatError, 0, false},
	} {
		wire, mac := sign(t, question("a.test.", dns.TypeA), tc.secret, tc.tsig)
		if tc.wire != nil {
			wire = tc.wire(wire)
		}
		q := new(dns.Msg)
		if err := q.Unpack(wire); err == nil && q.IsTsig() != nil {
			mac = q.IsTsig().MAC
		}
		out, _ := r.answer(query{wire: wire, limit: defaultUDPSize}, make([]byte, udpReadSize))
		m := new(dns.Msg)
		if err := m.Unpack(out); err != nil {
			t.Fatal(err)
		}
		tsig := m.IsTsig()
		if m.Rcode != tc.rcode || (tsig != nil) != (tc.signed || tc.code != 0) || tsig != nil && (tsig.Error != tc.code || (tsig.MACSize > 0) != tc.signed) {
			t.Errorf("%s: %v", tc.name, m)
			continue
		}
		if m.Rcode != dns.RcodeSuccess && len(m.Answer) != 0 {
			t.Errorf("%s: an answer beside the error", tc.name)
		}
		if tc.signed && m.Rcode == dns.RcodeSuccess { // the library does not look at errors' signatures
			if err := dns.TsigVerify(out, secret, mac, false); err != nil {
				t.Errorf("%s: signature of the answer: %v", tc.name, err)
			}
		}
		if tc.signed && tc.code != 0 {
			checkSignedError(t, tc.name, out, mac)
		}
		if tc.code == dns.RcodeBadTime && (tsig.TimeSigned != q.IsTsig().TimeSigned || tsig.OtherLen != 6) {
			t.Errorf("%s: %v does not tell the times", tc.name, tsig)
		}
	}
}

// checkSignedError verifies the MAC of an answer with an error, which the library refuses to do for
// its status: with the status taken out, a good MAC is one that is made again over the same
// message.
func checkSignedError(t *testing.T, name string, out []byte, queryMAC string) {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(out); err != nil {
		t.Fatal(err)
	}
	m.Compress = true
	want := m.IsTsig().MAC
	if _, mac, err := dns.TsigGenerate(m, base64Of(testKey), queryMAC, false); err != nil || mac != want {
		t.Errorf("%s: the MAC is %s, want %s, %v", name, want, mac, err)
	}
}

// A signature takes room: what is cut for it still says so, signed.
func TestSignedAnswersFit(t *testing.T) {
	r := signedRun()
	for _, name := range []string{"a.test.", "big.a.test.", "glue.a.test."} {
		for _, size := range []uint16{0, 700, 1232} {
			q := question(name, dns.TypeTXT)
			if size > 0 {
				q.SetEdns0(size, false)
			}
			wire, mac := sign(t, q, base64Of(testKey), nil)
			out, _ := r.answer(query{wire: wire, limit: defaultUDPSize}, make([]byte, udpReadSize))
			m := new(dns.Msg)
			if err := m.Unpack(out); err != nil || len(out) > int(max(size, defaultUDPSize)) {
				t.Fatalf("%s with size %d: %d bytes, %v", name, size, len(out), err)
			}
			if err := dns.TsigVerify(out, base64Of(testKey), mac, false); err != nil {
				t.Errorf("%s with size %d: %v", name, size, err)
			}
			if cut := strings.HasPrefix(name, "big"); m.Truncated != cut || (m.IsEdns0() != nil) != (size > 0) {
				t.Errorf("%s with size %d: %v", name, size, m)
			}
		}
	}
}
