package builtin

import (
	"iter"
	"maps"
	"slices"

	"github.com/miekg/dns"
)

// Serial is the version of the zone, in its SOA.
func (z *Zone) Serial() uint32 { return z.soa().Serial }

func (z *Zone) soa() *dns.SOA {
	for _, rr := range z.nodes[dns.Fqdn(z.Origin)].set(dns.TypeSOA).rrs {
		if soa, ok := rr.(*dns.SOA); ok {
			return soa
		}
	}
	return &dns.SOA{}
}

// Transfer lists every record of the zone as a zone transfer has them: the SOA first and last (RFC 5936 section 2.2).
// Nobody may change them.
func (z *Zone) Transfer() iter.Seq[dns.RR] {
	return func(yield func(dns.RR) bool) {
		soa := z.soa()
		if !yield(soa) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(z.nodes)) {
			for _, set := range z.nodes[name].sets {
				if set.typ != dns.TypeSOA && !yieldAll(yield, set.rrs) {
					return
				}
			}
		}
		yield(soa)
	}
}
