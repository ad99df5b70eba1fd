package rfc2136

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

// canned is a connection from which some bytes can be read.
type canned struct {
	net.Conn
	*bytes.Reader
}

func (c canned) Read(p []byte) (int, error)       { return c.Reader.Read(p) }
func (c canned) Write(p []byte) (int, error)      { return len(p), nil }
func (c canned) SetDeadline(time.Time) error      { return nil }
func (c canned) SetReadDeadline(time.Time) error  { return nil }
func (c canned) SetWriteDeadline(time.Time) error { return nil }

// FuzzAnswer reads any bytes as an answer: nothing without a right signature is accepted, errors
// have one line, and the records of an accepted one are those that were asked for.
func FuzzAnswer(f *testing.F) {
	ask := new(dns.Msg).SetQuestion("a.example.test.", dns.TypeANY)
	for _, code := range []int{dns.RcodeSuccess, dns.RcodeNotAuth, dns.RcodeRefused} {
		for _, tsig := range []uint16{0, dns.RcodeBadKey, dns.RcodeBadTime} {
			m := new(dns.Msg).SetReply(ask)
			m.Rcode, m.Authoritative = code, tsig == 0
			m.Answer = []dns.RR{setKey{"a.example.test.", dns.TypeMX}.empty(dns.ClassANY), &dns.TXT{Hdr: dns.RR_Header{Name: "a.example.test.", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{"a"}}}
			m.Ns = []dns.RR{&dns.NS{Hdr: dns.RR_Header{Name: "a.example.test.", Rrtype: dns.TypeNS, Class: dns.ClassINET}, Ns: "ns.test."}}
			m.Extra = []dns.RR{&dns.TSIG{
				Hdr: dns.RR_Header{Name: "k.", Rrtype: dns.TypeTSIG, Class: dns.ClassANY}, Algorithm: dns.HmacSHA256, TimeSigned: 1, Fudge: 300, MACSize: 32, MAC: strings.Repeat("ab", 32),
				Error: tsig, OtherLen: 6, OtherData: "000000000001",
			}}
			wire, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(wire)
		}
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		if len(wire) > dns.MaxMsgSize {
			return
		}
		framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)
		c := &Client{server: "ns.test:53", key: &builtin.TSIGKey{Name: "k.", Algorithm: dns.HmacSHA256, Secret: []byte("a secret")}}
		s := &session{Client: c, conn: &dns.Conn{Conn: canned{Reader: bytes.NewReader(framed)}}}
		got, in, err := s.receive()
		if err == nil {
			v := &chain{key: c.key, mac: strings.Repeat("00", 32), unsigned: []byte("before")}
			err = s.accept("example.test", v, got, in)
			if err == nil || v.later {
				t.Fatal("an answer without a right signature was accepted")
			}
			for _, typ := range []uint16{dns.TypeTXT, dns.TypeANY, dns.TypeNS} {
				q := dns.Question{Name: "a.example.test.", Qtype: typ, Qclass: dns.ClassINET}
				found, err := s.answer("example.test", "example.test", q, in, nil)
				for _, rr := range found {
					if keyOf(rr).name != q.Name || err != nil {
						t.Fatalf("%v, %v", rr, err)
					}
					_ = rrset.Data(rr)
				}
			}
		}
		if text := err.Error(); len(text) > 1000 || strings.ContainsFunc(text, unicode.IsControl) {
			t.Fatalf("%q", text)
		}
	})
}
