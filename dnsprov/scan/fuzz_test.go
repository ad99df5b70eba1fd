package scan

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
)

// FuzzReply reads any bytes as the answer to a question. What is kept of it belongs to the
// question, and each record can be written as a record of dnsprov.
func FuzzReply(f *testing.F) {
	const zone, name = "example.test.", "a.example.test."
	for _, text := range []string{
		"a.example.test. 60 IN A 192.0.2.1", "a.example.test. 60 IN CNAME b.example.test.", "example.test. 60 IN DNAME example.org.", `a.example.test. 60 IN TXT "v=spf1 include:b.example.test a:%{i}.x mx:c.example.test redirect=d" "\000"`,
		"a.example.test. 60 IN NS ns.a.example.test.", "a.example.test. 60 IN SRV 1 2 3 .", `a.example.test. 60 IN HTTPS 1 . alpn="h2"`, `a.example.test. 60 IN NSEC \000.a.example.test. A TYPE65280`, `a.example.test. 60 IN CAA 0 issue "x"`,
		`a.example.test. 60 IN TYPE65280 \# 1 00`, "example.test. 60 IN SOA a. b. 1 2 3 4 5", "a.example.test. 60 IN NAPTR 1 2 \"u\" \"x\" \"!.*!y!\" .",
	} {
		rr, err := dns.NewRR(text)
		if err != nil {
			f.Fatal(err)
		}
		for _, authoritative := range []bool{true, false} {
			m := new(dns.Msg).SetQuestion(name, rr.Header().Rrtype)
			m.Id, m.Response, m.RecursionDesired, m.Authoritative = 1, true, false, authoritative
			if authoritative {
				m.Answer = []dns.RR{rr}
			} else {
				m.Ns = []dns.RR{rr}
			}
			wire, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(rr.Header().Rrtype, wire)
		}
	}
	for _, rr := range withoutNames(name) {
		m := new(dns.Msg).SetQuestion(name, rr.Header().Rrtype)
		m.Id, m.Response, m.Authoritative, m.Answer = 1, true, true, []dns.RR{rr}
		wire, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(rr.Header().Rrtype, wire)
	}
	f.Fuzz(func(t *testing.T, typ uint16, wire []byte) {
		if len(wire) > dns.MaxMsgSize {
			return
		}
		q := dns.Question{Name: name, Qtype: typ, Qclass: dns.ClassINET}
		asked := &dns.Msg{MsgHdr: dns.MsgHdr{Id: 1}, Question: []dns.Question{q}}
		in, answers := parse(wire, asked)
		if in == nil || in.Truncated {
			return
		}
		if !answers || in.Id != 1 {
			t.Fatalf("taken: %v", in)
		}
		for _, zone := range []string{"", zone} {
			r := readReply(in, q, zone)
			if r == nil {
				continue
			}
			for _, rr := range r.set {
				if h := rr.Header(); h.Name != name && (h.Rrtype != dns.TypeDNAME || !dns.IsSubDomain(h.Name, name)) {
					t.Fatalf("%v", rr)
				}
			}
			if len(r.set) > 0 && (r.cut != nil || !r.exists) {
				t.Fatalf("%+v", r)
			}
			if r.cut != nil && (zone == "" || len(r.cut.ns) == 0 || len(r.cut.ns) > maxHosts || !dns.IsSubDomain(zone, r.cut.name) || r.cut.name == zone || !dns.IsSubDomain(r.cut.name, name)) {
				t.Fatalf("%+v", r.cut)
			}
			found := newHarvest("example.test.")
			for _, rr := range append(r.set, r.led...) {
				found.add(rr)
				for _, to := range leadsTo(rr) {
					if to != dns.CanonicalName(to) || strings.Contains(to, "%") && rr.Header().Rrtype == dns.TypeTXT {
						t.Fatalf("%v leads to %q", rr, to)
					}
				}
				_ = values([]dns.RR{rr})
			}
			for _, rr := range r.nsec {
				_, _ = rightAfter(rr.Hdr.Name)
				if inOrder(rr.Hdr.Name, rr.NextDomain) && inOrder(rr.NextDomain, rr.Hdr.Name) && rr.Hdr.Name != rr.NextDomain {
					t.Fatalf("%q and %q are equal", rr.Hdr.Name, rr.NextDomain)
				}
				_ = hasZeroByte(rr.NextDomain)
			}
			for _, record := range found.sorted() {
				if record.Name != strings.ToLower(record.Name) || record.Type == "" {
					t.Fatalf("%+v", record)
				}
				if _, err := dnsprov.FromText(record.Name, record.Type, record.Text(), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// withoutNames returns records whose data ends before the name that it should have.
func withoutNames(owner string) []dns.RR {
	h := func(typ uint16) dns.RR_Header {
		return dns.RR_Header{Name: owner, Rrtype: typ, Class: dns.ClassINET, Ttl: 60}
	}
	return []dns.RR{
		&dns.MX{Hdr: h(dns.TypeMX), Preference: 10}, &dns.SRV{Hdr: h(dns.TypeSRV), Port: 1}, &dns.SVCB{Hdr: h(dns.TypeSVCB), Priority: 1},
		&dns.HTTPS{SVCB: dns.SVCB{Hdr: h(dns.TypeHTTPS), Priority: 1}},
	}
}

// TestCutRecords: a record whose data ends too early is left out.
func TestCutRecords(t *testing.T) {
	const name = "example.test."
	for _, rr := range withoutNames(name) {
		q := dns.Question{Name: name, Qtype: rr.Header().Rrtype, Qclass: dns.ClassINET}
		wire, err := (&dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Question: []dns.Question{q}, Answer: []dns.RR{rr}}).Pack()
		if err != nil {
			t.Fatal(err)
		}
		in := new(dns.Msg)
		if err := in.Unpack(wire); err != nil || len(in.Answer) != 1 {
			t.Fatalf("%v: %v", in, err)
		}
		if r := readReply(in, q, name); r == nil || len(r.set) > 0 {
			t.Errorf("%v is taken: %+v", rr, r)
		}
	}
}
