package rfc2136

import (
	"errors"
	"fmt"
	"slices"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

// How many messages are sent before the first answer is read.
const (
	questionsAtOnce = 200
	updatesAtOnce   = 20 // servers let fewer of these wait
)

// maxCopies is how many records all answers may have. A CNAME is in the answers for all sets at its
// name.
const maxCopies = 2 * maxRecords

// read asks for sets of a zone, and returns the records that the zone has for them. Among them is a
// CNAME at the name of any set, and for a set of type CNAME whatever the server lists at its name.
func (s *session) read(zone, domain string, sets []dnsprov.Set) ([]dns.RR, error) {
	var asked []dns.Question
	known := map[dns.Question]bool{}
	for _, set := range sets {
		typ, exists := dnsprov.TypeNumber(set.Type)
		if typ == dns.TypeCNAME {
			typ = dns.TypeANY
		}
		q := dns.Question{Name: dns.CanonicalName(set.Name), Qtype: typ, Qclass: dns.ClassINET}
		if exists && !known[q] {
			known[q] = true
			asked = append(asked, q)
		}
	}
	var out []dns.RR
	for batch := range slices.Chunk(asked, questionsAtOnce) {
		var messages []*dns.Msg
		for _, q := range batch {
			messages = append(messages, &dns.Msg{MsgHdr: dns.MsgHdr{Opcode: dns.OpcodeQuery}, Question: []dns.Question{q}})
		}
		err := s.pipeline(zone, messages, func(at int, in *dns.Msg, err error) error {
			answers, err := s.answer(zone, domain, batch[at], in, err)
			out = append(out, answers...)
			if err == nil && len(out) > maxCopies {
				err = s.tooMany(zone)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return s.real(zone, out)
}

// answer returns the records of an answer that are at the name of the question. refused is what
// accept says of it.
func (s *session) answer(zone, domain string, q dns.Question, in *dns.Msg, refused error) ([]dns.RR, error) {
	no, isRefusal := refused.(*refusal)
	switch {
	case refused == nil:
	case isRefusal && !no.unsigned && no.code == dns.RcodeNameError: // also if a CNAME leads to a name that does not exist
	case isRefusal && !no.unsigned && q.Qtype == dns.TypeANY && (no.code == dns.RcodeRefused || no.code == dns.RcodeNotImplemented):
		return nil, nil // not every server answers these (RFC 8482)
	default:
		return nil, refused
	}
	var out []dns.RR
	collect := func(section []dns.RR, types ...uint16) {
		for _, rr := range section {
			h := rr.Header()
			wanted := slices.Contains(types, h.Rrtype) || q.Qtype == dns.TypeANY && !dnsprov.ServerMakes(h.Rrtype)
			if wanted && h.Class == dns.ClassINET && dns.CanonicalName(h.Name) == q.Name {
				out = append(out, rr)
			}
		}
	}
	origin, cut := dns.Fqdn(zone), ""
	if in.Authoritative {
		collect(in.Answer, q.Qtype, dns.TypeCNAME)
		for _, rr := range in.Ns {
			if k := keyOf(rr); k.typ == dns.TypeSOA && k.name != origin && len(in.Answer) == 0 { // that of the zone without such records (RFC 2308 section 3)
				return nil, fmt.Errorf("rfc2136: %w: at %s the name %s is not in the zone %s, but in %s", dnsprov.ErrZoneNotFound, s.server, q.Name, zone, k.name)
			}
		}
		return out, nil
	}
	for _, rr := range in.Ns {
		name := dns.CanonicalName(rr.Header().Name)
		if rr.Header().Rrtype == dns.TypeNS && name != origin && dns.IsSubDomain(origin, name) && dns.IsSubDomain(name, q.Name) {
			cut = name
		}
	}
	switch {
	case cut == "":
		return nil, fmt.Errorf("rfc2136: %w: %s is no nameserver of the zone %s", dnsprov.ErrZoneNotFound, s.server, zone)
	case dns.IsSubDomain(cut, dns.Fqdn(domain)):
		return nil, s.delegated(zone, domain)
	}
	// The zone has the nameservers of the delegation, and their addresses (RFC 1034 section
	// 4.2.1).
	if q.Qtype == dns.TypeNS || q.Qtype == dns.TypeANY {
		collect(in.Ns, dns.TypeNS)
	}
	collect(in.Extra, q.Qtype)
	return out, nil
}

func (s *session) delegated(zone, domain string) error {
	return fmt.Errorf("rfc2136: %w: the zone %s at %s leaves %s to other nameservers", dnsprov.ErrZoneNotFound, zone, s.server, domain)
}

// real returns the records whose sets exist, each once. Answers also have records that the server
// makes of a wildcard (RFC 4592) or of a DNAME, and prerequisites do not see those.
func (s *session) real(zone string, rrs []dns.RR) ([]dns.RR, error) {
	var out []dns.RR
	seen := map[string]bool{}
	sets := map[setKey]bool{}
	for _, rr := range rrs {
		if k := keyOf(rr); !seen[k.String()+rrset.Data(rr)] {
			seen[k.String()+rrset.Data(rr)] = true
			sets[k] = true
			out = append(out, rr)
		}
	}
	if len(out) > maxRecords {
		return nil, s.tooMany(zone)
	}
	var all []dns.RR
	for k := range sets {
		all = append(all, k.empty(dns.ClassANY))
	}
	for part := range slices.Chunk(all, maxUpdate/maxEmptySize) {
		if err := s.exist(zone, part, sets); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(out, func(rr dns.RR) bool { return !sets[keyOf(rr)] }), nil
}

// exist finds those of some sets that exist, and deletes the others in sets. It asks by updates
// that require sets to exist (RFC 2136 section 2.4.1): by one for all of them, and if that fails,
// by one for each.
func (s *session) exist(zone string, some []dns.RR, sets map[setKey]bool) error {
	m := newUpdate(zone)
	m.Answer = some
	err := s.exchange(zone, m)
	if !errors.Is(err, dnsprov.ErrChanged) {
		return err
	}
	for batch := range slices.Chunk(some, updatesAtOnce) {
		var messages []*dns.Msg
		for _, rr := range batch {
			m := newUpdate(zone)
			m.Answer = []dns.RR{rr}
			messages = append(messages, m)
		}
		err := s.pipeline(zone, messages, func(at int, _ *dns.Msg, err error) error {
			if errors.Is(err, dnsprov.ErrChanged) {
				delete(sets, keyOf(batch[at]))
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// try sends an update that requires that the zone's own name is in use, and changes nothing.
func (s *session) try(zone string) error {
	m := newUpdate(zone)
	m.Answer = []dns.RR{setKey{dns.Fqdn(zone), dns.TypeANY}.empty(dns.ClassANY)}
	return s.exchange(zone, m)
}

func newUpdate(zone string) *dns.Msg { return new(dns.Msg).SetUpdate(dns.Fqdn(zone)) }
