package builtin

import (
	"iter"
	"strings"

	"github.com/mailstead/mailstead/dnsprov/zonefile"
	"github.com/miekg/dns"
)

// Serial returns the serial number in the zone's SOA record.
func (z *Zone) Serial() uint32 { return z.soa.rrs[0].(*dns.SOA).Serial }

// SOA returns the data of the zone's SOA record.
func (z *Zone) SOA() zonefile.SOA {
	rr := z.soa.rrs[0].(*dns.SOA)
	return zonefile.SOA{
		Primary: strings.TrimSuffix(rr.Ns, "."), Hostmaster: strings.TrimSuffix(rr.Mbox, "."), TTL: rr.Hdr.Ttl,
		Serial: rr.Serial, Refresh: rr.Refresh, Retry: rr.Retry, Expire: rr.Expire, Minimum: rr.Minttl,
	}
}

// Transfer returns all records of the zone for a zone transfer (RFC 5936 section 2.2): the SOA, all
// other sets in canonical order with their signatures, the glue of delegations, and the SOA again.
// The signatures are valid for at least 10 days. If one cannot be made, the sequence ends without
// the second SOA, so that secondaries reject the transfer.
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
		for _, set := range z.glue {
			if !z.transfer(set, yield) {
				return
			}
		}
		yield(z.soa.rrs[0])
	}
}

// transfer yields the records and the signature of a set. It returns false if the transfer must
// end.
func (z *Zone) transfer(set *rrset, yield func(dns.RR) bool) bool {
	rrs := set.rrs
	if z.signing != nil && !set.unsigned {
		sig, err := z.signing.signatureOf(set, minTransferValidity)
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
