package builtin

import (
	"slices"

	"github.com/miekg/dns"
)

// maxChain bounds the aliases that one answer follows.
const maxChain = 8

// anyTTL is the TTL of the answer to ANY, in seconds: the longer it is kept, the fewer ask.
const anyTTL = 3600

// Answer answers the one question of q from the zone, authoritatively. A name outside of the zone
// is REFUSED, one of a delegated zone gets its name servers. ANY gets the minimal answer of RFC
// 8482. The letter case of the question is kept, which resolvers use as a check. A signed zone adds
// signatures and proofs for who asks for them by the DO bit (RFC 4035 section 3.1); nil if they
// cannot be made.
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

// holds reports whether a name is in the zone.
func (z *Zone) holds(name string) bool {
	_, ok := dns.IsDomainName(name)
	return ok && dns.IsSubDomain(z.apex, name)
}

// A reply is an answer that is being made.
type reply struct {
	z      *Zone
	m      *dns.Msg
	qtype  uint16
	proven bool   // with signatures
	closer string // below what a wildcard answers for and no name is; "" where none answers
	err    error  // the first that could not be made
}

// follow answers for one name, canonical and as it was asked, and goes on through aliases inside
// the zone. The status is that of the last name (RFC 6604 section 3).
func (r *reply) follow(asked, name string) {
	visited := make([]string, 0, maxChain)
	for len(visited) < maxChain && !slices.Contains(visited, name) {
		n := r.z.nodes[name]
		cut := r.z.cutAt(name)
		switch {
		case cut != nil && (cut != n || r.qtype != dns.TypeDS): // DS alone is the parent's (RFC 4035 section 3.1.4.1)
			r.refer(cut)
			return
		case n == nil:
			closest, below := r.z.enclosing(name)
			wildcard := "*." + closest
			n = r.z.nodes[wildcard]
			if n == nil {
				r.m.Rcode = dns.RcodeNameError
				r.absent(closest, below)
				return
			}
			// The wildcard answers (RFC 4592 section 3.3.1); that there is nothing closer is proven
			// with it (RFC 4035 sections 3.1.3.3 and 3.1.3.4).
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
			r.nothing(n, name)
			return
		}
		r.m.Answer = join(r.m.Answer, owned(r.records(alias), asked))
		r.proveWildcard()
		visited = append(visited, name)
		asked = alias.rrs[0].(*dns.CNAME).Target
		name = dns.CanonicalName(asked)
		if r.z.nodes[name] == nil && !r.z.holds(name) {
			return // the resolver goes on elsewhere
		}
	}
}

// cutAt returns the node at or above a name where another zone begins; nil if there is none.
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

// found answers with what a name has of the type that was asked for, if it has that.
func (r *reply) found(name string, n *node, asked string) bool {
	signed := r.z.signing != nil
	if len(n.sets) == 0 && (!signed || r.qtype != dns.TypeNSEC && r.qtype != dns.TypeRRSIG) {
		return false
	}
	set := n.set(r.qtype)
	switch {
	case signed && r.qtype == dns.TypeNSEC: // of a name that only leads to others too: the proof that it has nothing is one
		set = r.z.own(name, n)
	case set != nil:
	case r.qtype == dns.TypeANY && r.proven: // made up, it could not be proven: NSEC says that it is not there
		set = n.sets[0]
	case r.qtype == dns.TypeANY:
		r.m.Answer = append(r.m.Answer, &dns.HINFO{Hdr: header(asked, dns.TypeHINFO, anyTTL), Cpu: "RFC8482"})
		return true
	case r.qtype == dns.TypeRRSIG && signed:
		r.m.Answer = join(r.m.Answer, owned(r.signatures(name, n), asked))
		return true
	default:
		return false
	}
	r.m.Answer = join(r.m.Answer, owned(r.records(set), asked))
	if !r.proven {
		r.m.Extra = slices.Clip(set.glue)
		return true
	}
	for _, host := range set.hosts {
		r.m.Extra = append(r.m.Extra, r.records(host)...)
	}
	return true
}

// refer says who serves a zone below this one, and with which key, or that it has none.
func (r *reply) refer(cut *node) {
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
	r.m.Ns = append(r.m.Ns, r.records(r.z.own(ns.rrs[0].Header().Name, cut))...)
}

// addSOA adds the SOA record of a negative answer. It returns true if proofs go with it.
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

// nothing says that a name has nothing of the type.
func (r *reply) nothing(n *node, name string) {
	if !r.addSOA() {
		return
	}
	r.m.Ns = append(r.m.Ns, r.records(r.z.own(name, n))...)
	r.proveWildcard()
}

// absent says that a name does not exist, below the closest one that does, and that no wildcard
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

// proveWildcard shows that there is no name closer to the one that was asked for than the wildcard
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

// records are a set as it goes into the reply.
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

// signatures are those over every set of a name.
func (r *reply) signatures(name string, n *node) []dns.RR {
	var out []dns.RR
	for _, set := range append(slices.Clip(n.sets), r.z.own(name, n)) {
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

// join adds to a section of an answer. What is shared is never written to.
func join(section, rrs []dns.RR) []dns.RR {
	if section == nil {
		return slices.Clip(rrs)
	}
	return append(section, rrs...)
}

// owned returns records under the name as it was asked. The zone's own are shared, since nobody
// changes them.
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
