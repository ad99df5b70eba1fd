package rfc2136

import (
	"fmt"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
)

// transfer asks for the whole zone (RFC 5936) and returns the records at and below a domain,
// without those that the server makes itself.
func (s *session) transfer(zone, domain string) ([]dns.RR, error) {
	origin := dns.Fqdn(zone)
	m := new(dns.Msg).SetAxfr(origin)
	v, err := s.send(m)
	if err != nil {
		return nil, err
	}
	broken := fmt.Errorf("rfc2136: the transfer of the zone %s from %s is broken", zone, s.server)
	var out []dns.RR
	begun, ended, delegated := false, false, false
	for !ended {
		wire, in, err := s.receive()
		if err != nil {
			return nil, err
		}
		switch {
		case in.Id != m.Id:
			err = broken
		case in.IsTsig() == nil && in.Rcode == dns.RcodeSuccess && v.skip(wire) == nil:
		default:
			err = s.accept(zone, v, wire, in)
		}
		if err != nil {
			return nil, err
		}
		for _, rr := range in.Answer {
			h := rr.Header()
			name := dns.CanonicalName(h.Name)
			soa := h.Rrtype == dns.TypeSOA && name == origin
			switch {
			case ended, !begun && !soa, h.Class != dns.ClassINET:
				return nil, broken
			case soa:
				begun, ended = true, begun
			case h.Rrtype == dns.TypeNS && name != origin && dns.IsSubDomain(name, dns.Fqdn(domain)):
				delegated = true
			}
			if dns.IsSubDomain(dns.Fqdn(domain), name) && !dnsprov.ServerMakes(h.Rrtype) {
				out = append(out, rr)
			}
		}
		if len(out) > maxRecords {
			return nil, s.tooMany(zone)
		}
	}
	if v.count > 0 { // the last message must be signed (RFC 8945 section 5.3.1)
		return nil, broken
	}
	if delegated {
		return nil, s.delegated(zone, domain)
	}
	return out, nil
}

func (s *session) tooMany(zone string) error {
	return fmt.Errorf("rfc2136: %s has more than %d records of the domain in the zone %s", s.server, maxRecords, zone)
}
