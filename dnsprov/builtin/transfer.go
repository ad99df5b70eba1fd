package builtin

import (
	"iter"

	"github.com/miekg/dns"
)

// Serial is the serial number of the zone's SOA record.
func (z *Zone) Serial() uint32 { return z.soa.rrs[0].(*dns.SOA).Serial }

// Transfer lists the whole zone as a secondary gets it (RFC 5936 section 2.2): the SOA, all other
// sets in canonical order, each with its signature, and the SOA again. Signatures hold for 10 days
// at least. If one cannot be made the list ends early, without the second SOA, which no secondary
// takes for a zone.
func (z *Zone) Transfer() iter.Seq[dns.RR] {
	return func(yield func(dns.RR) bool) {
		if !z.transfer(z.soa, yield) {
			return
		}
		for _, n := range z.chain.nodes {
			for _, set := range n.sets {
				if set != z.soa && !z.transfer(set, yield) {
					return
				}
			}
		}
		yield(z.soa.rrs[0])
	}
}

// transfer yields a set as it is in a transfer, and reports whether the transfer can go on.
func (z *Zone) transfer(set *rrset, yield func(dns.RR) bool) bool {
	rrs := set.rrs
	if z.signing != nil && !set.unsigned {
		sig, err := z.signing.of(set, transferred)
		if err != nil {
			return false
		}
		rrs = sig.rrs
	}
	for _, rr := range rrs {
		if !yield(rr) {
			return false
		}
	}
	return true
}
