package scan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/scan"
)

func record(format string, args ...any) dns.RR {
	out, err := dns.NewRR(fmt.Sprintf(format, args...))
	if err != nil {
		panic(err)
	}
	return out
}

// TestBadTransfersAreLeftAside: the zone is read in another way instead, and no record of the
// transfer is kept.
func TestBadTransfersAreLeftAside(t *testing.T) {
	soa, ns, lie := record("example.com. 60 IN SOA ns1.dns.test. h. 2026010101 2 3 4 5"), record("example.com. 60 IN NS ns1.dns.test."), record("lie.example.com. 60 IN A 192.0.2.66")
	later := record("example.com. 60 IN SOA ns1.dns.test. h. 2026010102 2 3 4 5")
	send := func(l *link, q *dns.Msg, rrs ...dns.RR) bool {
		m := new(dns.Msg).SetReply(q)
		m.Authoritative, m.Answer = true, rrs
		return l.write(m)
	}
	for _, tc := range []struct {
		name  string
		least time.Duration // that the transfer takes
		most  time.Duration
		serve func(l *link, q *dns.Msg)
	}{
		{"no SOA at its beginning", 0, time.Second, func(l *link, q *dns.Msg) { send(l, q, ns, lie, soa) }},
		{"no SOA at its end", 0, time.Second, func(l *link, q *dns.Msg) { send(l, q, soa, ns, lie); l.Close() }},
		{"another serial at its end", 0, time.Second, func(l *link, q *dns.Msg) { send(l, q, soa, ns, lie, later) }},
		{"records after its end", 0, time.Second, func(l *link, q *dns.Msg) { send(l, q, soa, ns, soa, lie) }},
		{"no nameservers", 0, time.Second, func(l *link, q *dns.Msg) { send(l, q, soa, lie, soa) }},
		{"the SOA alone", 0, time.Second, func(l *link, q *dns.Msg) { send(l, q, soa); l.Close() }},
		{"the zone of somebody else", 0, time.Second, func(l *link, q *dns.Msg) {
			other := record("example.org. 60 IN SOA ns. h. 1 2 3 4 5")
			send(l, q, other, lie, other)
		}},
		{"nothing", 0, time.Second, func(l *link, q *dns.Msg) { send(l, q) }},
		{"another id", 0, time.Second, func(l *link, q *dns.Msg) { q.Id++; send(l, q, soa, ns, lie, soa) }},
		{"a question", 0, time.Second, func(l *link, q *dns.Msg) { l.write(q) }},
		{"garbage", 0, time.Second, func(l *link, q *dns.Msg) { l.writeRaw([]byte("garbage that is no message")) }},
		{"SERVFAIL within", 0, time.Second, func(l *link, q *dns.Msg) {
			send(l, q, soa, ns, lie)
			l.write(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
		}},
		{"silence", 10 * time.Second, 11 * time.Second, func(l *link, q *dns.Msg) { l.wait() }},
		{"silence within", 10 * time.Second, 11 * time.Second, func(l *link, q *dns.Msg) { send(l, q, soa, ns, lie); l.wait() }},
		{"slow without an end", 59 * time.Second, 61 * time.Second, func(l *link, q *dns.Msg) {
			send(l, q, soa, ns)
			for send(l, q, lie) {
				time.Sleep(9 * time.Second)
			}
		}},
		{"too many records", 0, time.Second, func(l *link, q *dns.Msg) {
			send(l, q, soa, ns)
			for n := 0; ; {
				var part []dns.RR
				for range 1000 {
					n++
					part = append(part, record("n%d.example.com. 60 IN A 192.0.2.66", n))
				}
				if !send(l, q, part...) {
					return
				}
			}
		}},
		{"too many records, the last of them with the end", 0, time.Second, func(l *link, q *dns.Msg) {
			send(l, q, soa, ns)
			for n := range 10 {
				var part []dns.RR
				for i := range 1010 {
					part = append(part, record("n%d.example.com. 60 IN A 192.0.2.66", 1010*n+i))
				}
				if n == 9 {
					part = append(part, soa)
				}
				send(l, q, part...)
			}
		}},
		{"the same record without end", 0, time.Second, func(l *link, q *dns.Msg) {
			var part []dns.RR
			for range 1500 {
				part = append(part, lie)
			}
			send(l, q, soa, ns)
			for send(l, q, part...) {
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse)
				f.chain()
				var began time.Time
				took := time.Duration(-1)
				f.misbehave = func(l *link, q *dns.Msg) bool {
					switch q.Question[0].Qtype {
					case dns.TypeNSEC:
						if took < 0 {
							took = time.Since(began)
						}
					case dns.TypeAXFR:
						began = time.Now()
						tc.serve(l, q)
						l.wait()
						return true
					}
					return false
				}
				r := zoneOf(t, w, servers("192.0.2.1"))
				if r.Method != scan.MethodNSEC || !r.Complete {
					t.Errorf("%s, complete %t", r.Method, r.Complete)
				}
				compare(t, r.Records, visible(t, domain+".", inUse))
				if took < tc.least || took > tc.most {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// TestTransferUpToTheBound has as many records as are taken.
func TestTransferUpToTheBound(t *testing.T) {
	for _, n := range []int{9_998, 9_999} { // beside two NS records
		inWorld(t, func(t *testing.T, w *world) {
			f := w.add("ns1.dns.test", "192.0.2.1", domain, "@ 60 SOA ns1.dns.test. h. 1 2 3 4 5\n@ 60 NS ns1.dns.test.\n@ 60 NS ns2.dns.test.\n")
			for i := range n {
				f.rrs = append(f.rrs, record("n%d.example.com. 60 IN A 192.0.2.66", i))
			}
			f.transfers = true
			f.misbehave = func(l *link, q *dns.Msg) bool { // it answers nothing else
				typ := q.Question[0].Qtype
				return typ != dns.TypeSOA && typ != dns.TypeAXFR && l.write(new(dns.Msg).SetRcode(q, dns.RcodeRefused))
			}
			r := zoneOf(t, w, servers("192.0.2.1"))
			if (r.Method == scan.MethodAXFR) != (n == 9_998) {
				t.Errorf("%d records: %s", n+2, r.Method)
			}
			if want := n + 2; r.Method == scan.MethodAXFR && len(r.Records) != want {
				t.Errorf("%d of %d records", len(r.Records), want)
			}
		})
	}
}

// TestTransferHidesWhatNobodySees: a CNAME beside other records is told as it is; records below a
// delegation that are no glue are not.
func TestTransferHidesWhatNobodySees(t *testing.T) {
	const text = `@ 60 SOA ns1.dns.test. h. 1 2 3 4 5
@ 60 NS ns1.dns.test.
@ 60 RRSIG A 13 2 60 20300101000000 20200101000000 1 example.com. AAAA
@ 60 DNSKEY 257 3 13 AAAA
@ 60 TYPE65534 \# 5 0d00010001
both 60 CNAME example.com.
both 60 TXT "both"
dev 60 NS ns.dev
ns.dev 60 A 192.0.2.54
`
	const hidden = `www.dev 60 A 192.0.2.55
ns.dev 60 TXT "hidden"
dev 60 TXT "hidden"
deep.dev 60 NS ns.deep.dev
ns.deep.dev 60 A 192.0.2.56
ns.elsewhere.test. 60 A 192.0.2.57
`
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, text+hidden)
		f.transfers = true
		r := zoneOf(t, w, servers("192.0.2.1"))
		compare(t, r.Records, []string{
			"example.com NS ns1.dns.test", "both.example.com CNAME example.com", "both.example.com TXT both",
			"dev.example.com NS ns.dev.example.com", "ns.dev.example.com A 192.0.2.54",
		})
	})
}

// TestTransferFromAnotherServer: the first one refuses.
func TestTransferFromAnotherServer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.add("ns1.dns.test", "192.0.2.1", domain, inUse)
		w.add("ns2.dns.test", "192.0.2.2", domain, inUse).transfers = true
		r := zoneOf(t, w, servers("192.0.2.1", "192.0.2.2"))
		if r.Method != scan.MethodAXFR {
			t.Error(r.Method)
		}
	})
}

// TestPartOfAZone: the domain is in the zone of the domain above.
func TestPartOfAZone(t *testing.T) {
	const text = `@ 60 SOA ns1.dns.test. h. 1 2 3 4 5
@ 60 NS ns1.dns.test.
www 60 A 192.0.2.1
a.example 60 A 192.0.2.2
example 60 MX 10 mx.mail.test.
www.example 60 A 192.0.2.3
www.xexample 60 A 192.0.2.4
`
	want := []string{"example.com MX 10 mx.mail.test", "www.example.com A 192.0.2.3", "a.example.com A 192.0.2.2"}
	for _, method := range []scan.Method{scan.MethodAXFR, scan.MethodNSEC, scan.MethodQuestions} {
		inWorld(t, func(t *testing.T, w *world) {
			f := w.add("ns1.dns.test", "192.0.2.1", "com.", text)
			switch method {
			case scan.MethodAXFR:
				f.transfers = true
			case scan.MethodNSEC:
				f.chain()
			default:
				want = want[:2]
			}
			r := zoneOf(t, w, servers("192.0.2.1"))
			if r.Method != method {
				t.Errorf("%s instead of %s", r.Method, method)
			}
			compare(t, r.Records, want)
		})
	}
}
