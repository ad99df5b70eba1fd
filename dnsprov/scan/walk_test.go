package scan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/scan"
)

// TestLyingChains: where the chain does not lead around the zone, usual names are asked for too,
// and what it told so far is not lost.
func TestLyingChains(t *testing.T) {
	nsec := func(f *fake, owner string) *dns.NSEC {
		for _, rr := range f.rrs {
			if nsec, ok := rr.(*dns.NSEC); ok && dns.CanonicalName(nsec.Hdr.Name) == owner {
				return nsec
			}
		}
		panic(owner)
	}
	for name, lie := range map[string]func(f *fake){
		"back":             func(f *fake) { nsec(f, "www.example.com.").NextDomain = "_dmarc.example.com." },
		"to itself":        func(f *fake) { nsec(f, "www.example.com.").NextDomain = "www.example.com." },
		"out of the zone":  func(f *fake) { nsec(f, "www.example.com.").NextDomain = "zzz.example.net." },
		"to nothing":       func(f *fake) { nsec(f, "www.example.com.").NextDomain = "zzz.example.com." },
		"to the next name": func(f *fake) { nsec(f, "www.example.com.").NextDomain = `\000.www.example.com.` },
		"to the root":      func(f *fake) { nsec(f, "www.example.com.").NextDomain = "." },
		"to a name with all types": func(f *fake) {
			for typ := range uint16(1000) {
				nsec(f, "www.example.com.").TypeBitMap = append(nsec(f, "www.example.com.").TypeBitMap, 300+typ)
			}
		},
		"to a broken proof": func(f *fake) {
			f.rrs = slices.DeleteFunc(f.rrs, func(rr dns.RR) bool { return rr == nsec(f, "www.example.com.") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse+unusual)
				f.chain()
				lie(f)
				r := zoneOf(t, w, servers("192.0.2.1"))
				if r.Method != scan.MethodQuestions || r.Complete || r.Partial {
					t.Errorf("%s, complete %t, partial %t", r.Method, r.Complete, r.Partial)
				}
				compare(t, r.Records, visible(t, domain+".", inUse+unusual))
			})
		})
	}
}

// TestChainsMadeForEachAnswer: such servers say of every name that it exists and that the next one
// is the first below it (RFC 9824), or right after it (RFC 4470).
func TestChainsMadeForEachAnswer(t *testing.T) {
	for name, next := range map[string]func(name string) string{
		"below": func(name string) string { return `\000.` + name },
		"after": func(name string) string { return strings.Replace(name, ".", `\000.`, 1) },
		"x":     func(name string) string { return "x." + name },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse)
				f.misbehave = func(l *link, q *dns.Msg) bool {
					if opt := q.IsEdns0(); opt == nil || !opt.Do() {
						return false
					}
					m := f.answer(q)
					if len(m.Answer) > 0 {
						return false
					}
					at := q.Question[0].Name
					m.Rcode = dns.RcodeSuccess
					m.Ns = append(m.Ns, &dns.NSEC{
						Hdr:        dns.RR_Header{Name: at, Rrtype: dns.TypeNSEC, Class: dns.ClassINET, Ttl: 60},
						NextDomain: next(at), TypeBitMap: []uint16{dns.TypeRRSIG, dns.TypeNSEC},
					})
					m.SetEdns0(1232, true)
					return l.write(m)
				}
				r := zoneOf(t, w, servers("192.0.2.1"))
				if r.Method != scan.MethodQuestions || r.Complete {
					t.Errorf("%s, complete %t", r.Method, r.Complete)
				}
				compare(t, r.Records, visible(t, domain+".", inUse))
			})
		})
	}
}

// TestWalkPastAZoneBelow: the servers have the delegated zone, too, and answer with its chain.
func TestWalkPastAZoneBelow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse+unusual)
		f.chain()
		below := w.add("ns.other.test", "192.0.2.9", "dev.example.com", "@ 60 SOA ns1.dns.test. h. 7 2 3 4 5\n@ 60 NS ns.dev.example.com.\n@ 60 NS ns.elsewhere.test.\n@ 60 A 192.0.2.90\nns 60 A 192.0.2.54\nwww 60 A 192.0.2.91\n")
		below.chain()
		f.misbehave = func(l *link, q *dns.Msg) bool {
			if name := dns.CanonicalName(q.Question[0].Name); !dns.IsSubDomain(below.zone, name) || name == below.zone && q.Question[0].Qtype == dns.TypeDS {
				return false
			}
			return l.write(below.answer(q))
		}
		r := zoneOf(t, w, servers("192.0.2.1"))
		if r.Method != scan.MethodNSEC || !r.Complete {
			t.Errorf("%s, complete %t", r.Method, r.Complete)
		}
		compare(t, r.Records, visible(t, domain+".", inUse+unusual))

		f.rrs = slices.DeleteFunc(f.rrs, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeNSEC })
		r = zoneOf(t, w, servers("192.0.2.1"))
		if r.Method != scan.MethodQuestions {
			t.Error(r.Method)
		}
		compare(t, r.Records, visible(t, domain+".", inUse))
	})
}

// TestWalkWithAMissingSet: the chain tells of a set that nobody gets.
func TestWalkWithAMissingSet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse)
		f.chain()
		f.rrs = slices.DeleteFunc(f.rrs, func(rr dns.RR) bool {
			return strings.HasPrefix(rr.Header().Name, "shop.") && rr.Header().Rrtype == dns.TypeA
		})
		r := zoneOf(t, w, servers("192.0.2.1"))
		if r.Method != scan.MethodNSEC || r.Complete || !r.Partial {
			t.Errorf("%s, complete %t, partial %t", r.Method, r.Complete, r.Partial)
		}
	})
}
