package builtin

import (
	"slices"

	"github.com/miekg/dns"
)

// maxChain bounds the aliases that one answer follows.
const maxChain = 8

// anyTTL is the TTL of the answer to ANY, in seconds: the longer it is kept, the fewer ask.
const anyTTL = 3600

// Answer answers the one question of q from the zone, authoritatively. A name outside of the zone is REFUSED; ANY gets
// the minimal answer of RFC 8482. The letter case of the question is kept, which resolvers use as a check.
func (z *Zone) Answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	if len(q.Question) != 1 {
		m.Rcode = dns.RcodeFormatError
		return m
	}
	asked := q.Question[0]
	name := dns.CanonicalName(asked.Name)
	if z.nodes[name] == nil && !z.holds(name) {
		m.Rcode = dns.RcodeRefused
		return m
	}
	m.Authoritative = true
	z.follow(m, asked.Name, name, asked.Qtype)
	return m
}

// holds reports whether a name is in the zone.
func (z *Zone) holds(name string) bool {
	_, ok := dns.IsDomainName(name)
	return ok && dns.IsSubDomain(dns.Fqdn(z.Origin), name)
}

// follow fills m for one name, canonical and as it was asked, and goes on through aliases inside the zone. The status
// is that of the last name (RFC 6604 section 3).
func (z *Zone) follow(m *dns.Msg, asked, name string, qtype uint16) {
	visited := make([]string, 0, maxChain)
	for len(visited) < maxChain && !slices.Contains(visited, name) {
		n := z.nodes[name]
		if n == nil {
			m.Rcode, m.Ns = dns.RcodeNameError, slices.Clip(z.negative)
			return
		}
		if qtype == dns.TypeANY && len(n.sets) > 0 {
			m.Answer = append(m.Answer, &dns.HINFO{Hdr: header(asked, dns.TypeHINFO, anyTTL), Cpu: "RFC8482"})
			return
		}
		if set := n.set(qtype); set != nil {
			m.Answer = append(m.Answer, owned(set.rrs, asked)...)
			m.Extra = slices.Clip(set.glue)
			return
		}
		alias := n.set(dns.TypeCNAME)
		if alias == nil {
			m.Ns = slices.Clip(z.negative)
			return
		}
		m.Answer = append(m.Answer, owned(alias.rrs, asked)...)
		visited = append(visited, name)
		asked = alias.rrs[0].(*dns.CNAME).Target
		name = dns.CanonicalName(asked)
		if z.nodes[name] == nil && !z.holds(name) {
			return // the resolver goes on elsewhere
		}
	}
}

// owned returns records under the name as it was asked. The zone's own are shared, since nobody changes them.
func owned(rrs []dns.RR, asked string) []dns.RR {
	if len(rrs) == 0 || rrs[0].Header().Name == asked {
		return slices.Clip(rrs)
	}
	out := make([]dns.RR, len(rrs))
	for i, rr := range rrs {
		out[i] = dns.Copy(rr)
		out[i].Header().Name = asked
	}
	return out
}
