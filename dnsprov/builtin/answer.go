package builtin

import (
	"slices"

	"github.com/miekg/dns"
)

// maxChain is the maximum number of CNAME records that one answer follows.
const maxChain = 8

// anyTTL is the TTL of the answer to ANY in seconds. It is long so that resolvers rarely ask again.
const anyTTL = 3600

// Answer returns the authoritative answer to the single question of q. A name outside the zone gets
// REFUSED, a name in a delegated zone gets a referral to that zone's nameservers, and ANY gets the
// minimal answer of RFC 8482. Names keep the letter case of the question, which resolvers check. If
// the zone is signed and the query has the DO bit, Answer adds signatures and proofs (RFC 4035
// section 3.1). It returns nil if it cannot make them.
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
	r := reply{z: z, m: m, qtype: asked.Qtype, proven: z.signing != nil && hasDOBit(q)}
	r.answerName(asked.Name, name)
	if r.err != nil {
		return nil
	}
	return m
}

// hasDOBit reports whether a query asks for DNSSEC records (RFC 3225).
func hasDOBit(q *dns.Msg) bool {
	opt := q.IsEdns0()
	return opt != nil && opt.Do()
}

// contains reports whether a name is at or below the apex.
func (z *Zone) contains(name string) bool {
	_, ok := dns.IsDomainName(name)
	return ok && dns.IsSubDomain(z.apex, name)
}

// A reply is an answer message that is being built.
type reply struct {
	z      *Zone
	m      *dns.Msg
	qtype  uint16
	proven bool   // whether to add signatures and proofs
	closer string // if a wildcard answers, the name to prove absent; otherwise ""
	err    error  // why a signature or proof could not be made
}

// answerName adds the records of a name to the reply, and follows CNAMEs inside the zone. name is
// asked in canonical form. The status of the reply is that of the last name (RFC 6604 section 3).
func (r *reply) answerName(asked, name string) {
	visited := make([]string, 0, maxChain)
	for len(visited) < maxChain && !slices.Contains(visited, name) {
		n := r.z.nodes[name]
		cut := r.z.delegationOf(name)
		switch {
		case cut != nil && (cut != n || r.qtype != dns.TypeDS): // this zone has the DS itself (RFC 4035 section 3.1.4.1)
			r.addReferral(cut)
			return
		case n == nil:
			closest, below := r.z.closestEncloser(name)
			wildcard := "*." + closest
			n = r.z.nodes[wildcard]
			if n == nil {
				r.m.Rcode = dns.RcodeNameError
				r.proveAbsent(closest, below)
				return
			}
			// The wildcard answers (RFC 4592 section 3.3.1), with a proof that no closer name
			// exists (RFC 4035 sections 3.1.3.3 and 3.1.3.4).
			r.closer = below
			if r.addRecords(wildcard, n, asked) {
				r.proveWildcard()
				return
			}
			name = wildcard
		case r.addRecords(name, n, asked):
			return
		}
		alias := n.set(dns.TypeCNAME)
		if alias == nil {
			r.proveNoData(n, name)
			return
		}
		r.m.Answer = appendRRs(r.m.Answer, renameRRs(r.records(alias), asked))
		r.proveWildcard()
		visited = append(visited, name)
		asked = alias.rrs[0].(*dns.CNAME).Target
		name = dns.CanonicalName(asked)
		if r.z.nodes[name] == nil && !r.z.contains(name) {
			return // the resolver must look up the target of the CNAME itself
		}
	}
}

// delegationOf returns the node of the delegated zone that contains a name, or nil if there is
// none.
func (z *Zone) delegationOf(name string) *node {
	if !z.hasDelegations {
		return nil
	}
	for at, end := 0, false; !end && len(name)-at > len(z.apex); at, end = dns.NextLabel(name, at) {
		if n := z.nodes[name[at:]]; n != nil && n.delegated {
			return n
		}
	}
	return nil
}

// addRecords adds the name's records of the requested type to the answer. It returns false if there
// are none.
func (r *reply) addRecords(name string, n *node, asked string) (found bool) {
	signed := r.z.signing != nil
	if len(n.sets) == 0 && (!signed || r.qtype != dns.TypeNSEC && r.qtype != dns.TypeRRSIG) {
		return false
	}
	set := n.set(r.qtype)
	switch {
	case signed && r.qtype == dns.TypeNSEC: // even a name without records has an NSEC here
		set = r.z.ownNSEC(name, n)
	case set != nil:
	case r.qtype == dns.TypeANY && r.proven: // the NSEC does not list the HINFO of RFC 8482
		set = n.sets[0]
	case r.qtype == dns.TypeANY:
		r.m.Answer = append(r.m.Answer, &dns.HINFO{Hdr: header(asked, dns.TypeHINFO, anyTTL), Cpu: "RFC8482"})
		return true
	case r.qtype == dns.TypeRRSIG && signed:
		r.m.Answer = appendRRs(r.m.Answer, renameRRs(r.signatures(name, n), asked))
		return true
	default:
		return false
	}
	r.m.Answer = appendRRs(r.m.Answer, renameRRs(r.records(set), asked))
	if !r.proven {
		r.m.Extra = slices.Clip(set.glue)
		return true
	}
	for _, host := range set.hosts {
		r.m.Extra = append(r.m.Extra, r.records(host)...)
	}
	return true
}

// addReferral adds a referral to the delegated zone: its nameservers, and its DS records or a
// proof that there are none.
func (r *reply) addReferral(cut *node) {
	if len(r.m.Answer) > 0 {
		return // the resolver must look up the target of the CNAME itself
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

// addSOA adds the SOA record of a negative answer. It returns true if the caller must add proofs
// too.
func (r *reply) addSOA() (needsProofs bool) {
	if !r.proven {
		r.m.Ns = slices.Clip(r.z.negative)
		return false
	}
	soa, err := r.z.signing.signatureOf(r.z.soa, 0)
	if err != nil {
		r.err = err
		return false
	}
	r.m.Ns = append(slices.Clip(r.m.Ns), soa.negative...)
	return true
}

// proveNoData adds the SOA and the proof that a name has no records of the requested type.
func (r *reply) proveNoData(n *node, name string) {
	if !r.addSOA() {
		return
	}
	r.m.Ns = append(r.m.Ns, r.records(r.z.ownNSEC(name, n))...)
	r.proveWildcard()
}

// proveAbsent adds the SOA and the proof that the name below does not exist and that no wildcard
// matches it (RFC 4035 section 3.1.3.2). closest is the closest existing name above it.
func (r *reply) proveAbsent(closest, below string) {
	if !r.addSOA() {
		return
	}
	r.closer = below
	r.proveWildcard()
	if below != "*."+closest {
		r.m.Ns = append(r.m.Ns, r.records(r.z.noWildcardNSEC(closest, r.z.nodes[closest]))...)
	}
}

// proveWildcard adds the proof that r.closer does not exist, so that the wildcard applies. It does
// nothing if r.closer is "".
func (r *reply) proveWildcard() {
	if !r.proven || r.closer == "" || r.err != nil {
		return
	}
	set, err := r.z.absentNSEC(r.closer)
	if err != nil {
		r.err = err
		return
	}
	r.closer = ""
	r.m.Ns = append(slices.Clip(r.m.Ns), r.records(set)...)
}

// records returns the records of a set, and its signature if the reply has signatures.
func (r *reply) records(set *rrset) []dns.RR {
	if !r.proven || set.unsigned {
		return set.rrs
	}
	sig, err := r.z.signing.signatureOf(set, 0)
	if err != nil {
		r.err = err
		return nil
	}
	return sig.rrs
}

// signatures returns the RRSIG records of all sets of a name.
func (r *reply) signatures(name string, n *node) []dns.RR {
	var out []dns.RR
	for _, set := range append(slices.Clip(n.sets), r.z.ownNSEC(name, n)) {
		if set.unsigned || set == n.nsec {
			continue
		}
		sig, err := r.z.signing.signatureOf(set, 0)
		if err != nil {
			r.err = err
			return nil
		}
		out = append(out, sig.rrsig)
	}
	return out
}

// appendRRs appends records to a section of an answer, without writing to a slice of the zone.
func appendRRs(section, rrs []dns.RR) []dns.RR {
	if section == nil {
		return slices.Clip(rrs)
	}
	return append(section, rrs...)
}

// renameRRs returns copies of records under the name in the question. If they have that name
// already, it returns the records themselves.
func renameRRs(rrs []dns.RR, asked string) []dns.RR {
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
