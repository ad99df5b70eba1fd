package builtin

import (
	"slices"

	"github.com/miekg/dns"
)

// maxChain is the most aliases that one answer follows.
const maxChain = 8

// anyTTL is the TTL of the answer to ANY, in seconds. It is long, so that resolvers rarely ask
// again.
const anyTTL = 3600

// Answer answers the single question of q from the zone, authoritatively. A name outside the zone
// is REFUSED; a name in a delegated zone gets a referral to its name servers. ANY gets the minimal
// answer of RFC 8482. The letter case of the question is kept, since resolvers check it. A signed
// zone adds signatures and proofs if the query has the DO bit (RFC 4035 section 3.1). The result is
// nil if they cannot be made.
func (z *Zone) Answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	if len(q.Question) != 1 {
		m.Rcode = dns.RcodeFormatError
		return m
	}
	asked := q.Question[0]
	name := dns.CanonicalName(asked.Name)
	if z.nodes[name] == nil && !z.contains(name) {
		m.Rcode = dns.RcodeRefused
		return m
	}
	m.Authoritative = true
	r := reply{z: z, m: m, qtype: asked.Qtype, proven: z.signing != nil && wantsProof(q)}
	r.follow(asked.Name, name)
	if r.err != nil {
		return nil
	}
	return m
}

func wantsProof(q *dns.Msg) bool {
	opt := q.IsEdns0()
	return opt != nil && opt.Do()
}

// contains reports whether a name is at or below the apex.
func (z *Zone) contains(name string) bool {
	_, ok := dns.IsDomainName(name)
	return ok && dns.IsSubDomain(z.apex, name)
}

// A reply is an answer while it is being built.
type reply struct {
	z      *Zone
	m      *dns.Msg
	qtype  uint16
	proven bool   // the query asks for signatures
	closer string // if a wildcard answers: the name that must be proven absent; otherwise ""
	err    error  // the first error in making a signature or proof
}

// follow answers for one name, given in canonical form and as in the question, and follows aliases
// inside the zone. The status is that of the last name (RFC 6604 section 3).
func (r *reply) follow(asked, name string) {
	visited := make([]string, 0, maxChain)
	for len(visited) < maxChain && !slices.Contains(visited, name) {
		n := r.z.nodes[name]
		cut := r.z.cutAt(name)
		switch {
		case cut != nil && (cut != n || r.qtype != dns.TypeDS): // only DS belongs to the parent zone (RFC 4035 section 3.1.4.1)
			r.addReferral(cut)
			return
		case n == nil:
			closest, below := r.z.closestEncloser(name)
			wildcard := "*." + closest
			n = r.z.nodes[wildcard]
			if n == nil {
				r.m.Rcode = dns.RcodeNameError
				r.absent(closest, below)
				return
			}
			// The wildcard answers (RFC 4592 section 3.3.1). A proof that no closer name exists is
			// added (RFC 4035 sections 3.1.3.3 and 3.1.3.4).
			r.closer = below
			if r.found(wildcard, n, asked) {
				r.proveWildcard()
				return
			}
			name = wildcard
		case r.found(name, n, asked):
			return
		}
		alias := n.set(dns.TypeCNAME)
		if alias == nil {
			r.noData(n, name)
			return
		}
		r.m.Answer = join(r.m.Answer, underAskedName(r.records(alias), asked))
		r.proveWildcard()
		visited = append(visited, name)
		asked = alias.rrs[0].(*dns.CNAME).Target
		name = dns.CanonicalName(asked)
		if r.z.nodes[name] == nil && !r.z.contains(name) {
			return // the resolver must ask for the alias itself
		}
	}
}

// cutAt returns the delegation at or above a name; nil if there is none.
func (z *Zone) cutAt(name string) *node {
	if !z.cuts {
		return nil
	}
	for at, end := 0, false; !end && len(name)-at > len(z.apex); at, end = dns.NextLabel(name, at) {
		if n := z.nodes[name[at:]]; n != nil && n.cut {
			return n
		}
	}
	return nil
}

// found adds the name's records of the requested type to the answer, and reports whether the name
// has any.
func (r *reply) found(name string, n *node, asked string) bool {
	signed := r.z.signing != nil
	if len(n.sets) == 0 && (!signed || r.qtype != dns.TypeNSEC && r.qtype != dns.TypeRRSIG) {
		return false
	}
	set := n.set(r.qtype)
	switch {
	case signed && r.qtype == dns.TypeNSEC: // a name without records of its own has an NSEC too, which proves that it has none
		set = r.z.ownNSEC(name, n)
	case set != nil:
	case r.qtype == dns.TypeANY && r.proven: // the made-up HINFO of RFC 8482 could not be proven, since the NSEC does not list it
		set = n.sets[0]
	case r.qtype == dns.TypeANY:
		r.m.Answer = append(r.m.Answer, &dns.HINFO{Hdr: header(asked, dns.TypeHINFO, anyTTL), Cpu: "RFC8482"})
		return true
	case r.qtype == dns.TypeRRSIG && signed:
		r.m.Answer = join(r.m.Answer, underAskedName(r.signatures(name, n), asked))
		return true
	default:
		return false
	}
	r.m.Answer = join(r.m.Answer, underAskedName(r.records(set), asked))
	if !r.proven {
		r.m.Extra = slices.Clip(set.glue)
		return true
	}
	for _, host := range set.hosts {
		r.m.Extra = append(r.m.Extra, r.records(host)...)
	}
	return true
}

// addReferral adds a referral to the zone below: its name servers, and its DS or the proof that it
// has none.
func (r *reply) addReferral(cut *node) {
	if len(r.m.Answer) > 0 {
		return // the resolver asks for the alias itself
	}
	ns := cut.set(dns.TypeNS)
	r.m.Authoritative = false
	r.m.Ns, r.m.Extra = slices.Clip(ns.rrs), slices.Clip(ns.glue)
	if !r.proven {
		return
	}
	if ds := cut.set(dns.TypeDS); ds != nil {
		r.m.Ns = append(r.m.Ns, r.records(ds)...)
		return
	}
	r.m.Ns = append(r.m.Ns, r.records(r.z.ownNSEC(ns.rrs[0].Header().Name, cut))...)
}

// addSOA adds the SOA record of a negative answer. It reports whether proofs must be added too.
func (r *reply) addSOA() bool {
	if !r.proven {
		r.m.Ns = slices.Clip(r.z.negative)
		return false
	}
	soa, err := r.z.signing.of(r.z.soa, 0)
	if err != nil {
		r.err = err
		return false
	}
	r.m.Ns = append(slices.Clip(r.m.Ns), soa.negative...)
	return true
}

// noData answers that a name exists without records of the requested type.
func (r *reply) noData(n *node, name string) {
	if !r.addSOA() {
		return
	}
	r.m.Ns = append(r.m.Ns, r.records(r.z.ownNSEC(name, n))...)
	r.proveWildcard()
}

// absent answers that a name does not exist below the closest existing name, and that no wildcard
// answers for it (RFC 4035 section 3.1.3.2).
func (r *reply) absent(closest, below string) {
	if !r.addSOA() {
		return
	}
	r.closer = below
	r.proveWildcard()
	if below != "*."+closest {
		r.m.Ns = append(r.m.Ns, r.records(r.z.absentWildcard(closest, r.z.nodes[closest]))...)
	}
}

// proveWildcard proves that no name exists that is closer to the requested name than the wildcard
// that answers.
func (r *reply) proveWildcard() {
	if !r.proven || r.closer == "" || r.err != nil {
		return
	}
	set, err := r.z.absent(r.closer)
	if err != nil {
		r.err = err
		return
	}
	r.closer = ""
	r.m.Ns = append(slices.Clip(r.m.Ns), r.records(set)...)
}

// records returns the records of a set, with the signature if the query asks for it.
func (r *reply) records(set *rrset) []dns.RR {
	if !r.proven || set.unsigned {
		return set.rrs
	}
	sig, err := r.z.signing.of(set, 0)
	if err != nil {
		r.err = err
		return nil
	}
	return sig.rrs
}

// signatures returns the signatures over every set of a name.
func (r *reply) signatures(name string, n *node) []dns.RR {
	var out []dns.RR
	for _, set := range append(slices.Clip(n.sets), r.z.ownNSEC(name, n)) {
		if set.unsigned || set == n.nsec {
			continue
		}
		sig, err := r.z.signing.of(set, 0)
		if err != nil {
			r.err = err
			return nil
		}
		out = append(out, sig.rrsig)
	}
	return out
}

// join appends records to a section of an answer. It never writes to a shared slice.
func join(section, rrs []dns.RR) []dns.RR {
	if section == nil {
		return slices.Clip(rrs)
	}
	return append(section, rrs...)
}

// underAskedName returns records under the name in the question. If the names are equal, it
// returns the zone's own records, which nobody changes.
func underAskedName(rrs []dns.RR, asked string) []dns.RR {
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
