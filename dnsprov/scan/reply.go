package scan

import (
	"slices"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
)

const (
	maxAliases = 16 // CNAME records of one answer that are followed
	maxHosts   = 16 // nameservers of one zone, and of one delegation
)

// A reply is what a server says of the name that it was asked for.
type reply struct {
	exists bool
	set    []dns.RR    // records of the name: of the type that was asked for, or its CNAME, or a DNAME above it
	led    []dns.RR    // further CNAME records that lead on, and the records at their end
	cut    *cut        // the name is at or below this delegation; nil: it is not
	nsec   []*dns.NSEC // that say which names there are
	soa    *dns.SOA    // of the zone
}

// A cut is a name that is delegated to other servers (RFC 1034 section 4.2.1).
type cut struct {
	name string
	ns   []dns.RR // not empty, all NS
	glue []dns.RR // addresses of the servers, all A or AAAA
}

// readReply reads an answer. It returns nil if the server does not answer for a zone that has the
// name. zone is the name of the zone, if it is known; only then the answer may be a delegation. All
// names in a reply are canonical, of the class IN, and have data.
func readReply(in *dns.Msg, q dns.Question, zone string) *reply {
	name := dns.CanonicalName(q.Name)
	answer, authority, extra := usable(in.Answer), usable(in.Ns), usable(in.Extra)
	out := &reply{exists: in.Rcode == dns.RcodeSuccess}
	hasZone := false // whether the authority section has the SOA of the zone
	for _, rr := range authority {
		h := rr.Header()
		switch rr := rr.(type) {
		case *dns.NSEC:
			rr.NextDomain = dns.CanonicalName(rr.NextDomain)
			out.nsec = append(out.nsec, rr)
		case *dns.SOA:
			hasZone = true
			if dns.IsSubDomain(h.Name, name) {
				out.soa = rr
			}
		case *dns.NS:
			if zone != "" && h.Name != zone && dns.IsSubDomain(zone, h.Name) && dns.IsSubDomain(h.Name, name) && (out.cut == nil || out.cut.name == h.Name) {
				if out.cut == nil {
					out.cut = &cut{name: h.Name}
				}
				out.cut.ns = append(out.cut.ns, rr)
			}
		}
	}
	hasAnswer := slices.ContainsFunc(answer, func(rr dns.RR) bool { return rr.Header().Name == name })
	switch {
	case in.Rcode != dns.RcodeSuccess && in.Rcode != dns.RcodeNameError:
		return nil
	case out.cut != nil && !hasAnswer && !hasZone && in.Rcode == dns.RcodeSuccess:
		out.cut.ns = out.cut.ns[:min(len(out.cut.ns), maxHosts)]
		hosts := out.cut.hosts()
		for _, rr := range extra {
			if isAddress(rr) && slices.Contains(hosts, rr.Header().Name) {
				out.cut.glue = append(out.cut.glue, rr)
			}
		}
		return out
	case !in.Authoritative:
		return nil
	}
	out.cut = nil

	at := name
	for range maxAliases {
		next := ""
		for _, rr := range answer {
			h := rr.Header()
			switch alias, isAlias := rr.(*dns.CNAME); {
			case h.Rrtype == dns.TypeDNAME && at == name && h.Name != name && dns.IsSubDomain(h.Name, name):
				out.set = []dns.RR{rr} // the CNAME is made from it (RFC 6672 section 3.1)
				return out
			case h.Name != at || h.Rrtype != q.Qtype && !isAlias:
				continue
			case isAlias && q.Qtype != dns.TypeCNAME:
				next = dns.CanonicalName(alias.Target)
			}
			if at == name {
				out.set = append(out.set, rr)
			} else {
				out.led = append(out.led, rr)
			}
			if soa, ok := rr.(*dns.SOA); ok && at == name {
				out.soa = soa
			}
		}
		if next == "" {
			break
		}
		out.exists = true // even if the end of the aliases does not
		at = next
	}
	out.exists = out.exists || len(out.set) > 0
	return out
}

// usable returns the records of the class IN that have whole data, with canonical names and
// sensible TTLs.
func usable(rrs []dns.RR) []dns.RR {
	var out []dns.RR
	for _, rr := range rrs {
		h := rr.Header()
		if h.Class != dns.ClassINET || h.Rdlength == 0 || lacksName(rr) {
			continue
		}
		h.Name = dns.CanonicalName(h.Name)
		if h.Ttl > dnsprov.MaxTTL {
			h.Ttl = 0
		}
		out = append(out, rr)
	}
	return out
}

// lacksName reports whether the data of a record ends before the name that it should have. The dns
// package takes such data for whole.
func lacksName(rr dns.RR) bool {
	switch rr := rr.(type) {
	case *dns.MX:
		return rr.Mx == ""
	case *dns.SRV:
		return rr.Target == ""
	case *dns.SVCB:
		return rr.Target == ""
	case *dns.HTTPS:
		return rr.Target == ""
	}
	return false
}

func isAddress(rr dns.RR) bool {
	return rr.Header().Rrtype == dns.TypeA || rr.Header().Rrtype == dns.TypeAAAA
}

// hosts returns the names of the servers.
func (c *cut) hosts() []string {
	var out []string
	for _, rr := range c.ns {
		if ns, ok := rr.(*dns.NS); ok {
			out = append(out, dns.CanonicalName(ns.Ns))
		}
	}
	return out
}
