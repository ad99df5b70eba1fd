package dnsd

import (
	"encoding/base64"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/builtin"
)

var testKey = &builtin.TSIGKey{Name: "Key.test", Algorithm: "hmac-sha256", Secret: []byte("0123456789abcdef0123456789abcdef")}

func base64Of(k *builtin.TSIGKey) string { return base64.StdEncoding.EncodeToString(k.Secret) }

// signedRun has one secondary with a key and one with an address.
func signedRun() *run {
	return (&Server{Zones: stubZone{"a.test"}, Log: slog.New(slog.DiscardHandler), Secondaries: []builtin.Secondary{
		{Name: "one", Addr: netip.MustParseAddrPort("192.0.2.53:53"), Key: testKey},
		{Name: "two", Addr: netip.MustParseAddrPort("192.0.2.54:53")},
	}}).start()
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
		out, _ := r.answer(query{wire: wire, limit: plainUDP}, make([]byte, udpIn))
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
			out, _ := r.answer(query{wire: wire, limit: plainUDP}, make([]byte, udpIn))
			m := new(dns.Msg)
			if err := m.Unpack(out); err != nil || len(out) > int(max(size, plainUDP)) {
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
