package scan

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
)

const maxTypes = 64 // of one name

// errNoWalk says that there is no chain of NSEC records, or that it leads nowhere.
var errNoWalk = errors.New("the names of the zone cannot be walked along")

// walk follows the NSEC records of a signed zone from a domain on (RFC 4034 section 4), and returns
// the types of each name at and below the domain. It verifies no signatures, but it ends with
// errNoWalk where the chain goes back or leads to names that do not exist, as with servers that
// make NSEC records for each answer (RFC 4470). Then, and with other errors, the names so far are
// returned.
func (z *session) walk(ctx context.Context, domain string) (map[string][]uint16, error) {
	names := map[string][]uint16{}
	here, err := z.firstNSEC(ctx, domain)
	for err == nil {
		owner, next := here.Hdr.Name, here.NextDomain
		if dns.IsSubDomain(domain, owner) {
			types := slices.DeleteFunc(here.TypeBitMap, dnsprov.ServerMakes)
			if len(types) > maxTypes {
				return names, errNoWalk
			}
			names[owner] = types
		}
		if next == z.zone { // the chain has gone around
			return names, nil
		}
		if inOrder(next, owner) || !dns.IsSubDomain(z.zone, next) || hasZeroByte(next) || len(names) == MaxRecords {
			return names, errNoWalk
		}
		if !dns.IsSubDomain(domain, next) && inOrder(domain, next) { // the chain has left the domain
			return names, nil
		}
		here, err = z.nsecOf(ctx, next)
	}
	return names, err
}

// firstNSEC returns the NSEC record of a domain. If there is none, because the domain has no
// records itself, it returns the one before.
func (z *session) firstNSEC(ctx context.Context, domain string) (*dns.NSEC, error) {
	nsec, err := z.nsecOf(ctx, domain)
	if err != errNoWalk || domain == z.zone {
		return nsec, err
	}
	r, err := z.ask(ctx, domain, dns.TypeNSEC, true)
	if err != nil {
		return nil, err
	}
	for _, nsec := range r.nsec {
		if dns.IsSubDomain(z.zone, nsec.Hdr.Name) && inOrder(nsec.Hdr.Name, domain) && (nsec.NextDomain == z.zone || inOrder(domain, nsec.NextDomain)) {
			return nsec, nil
		}
	}
	return nil, errNoWalk
}

// nsecOf returns the NSEC record of a name, which proves that the name exists. Servers answer
// questions about delegated names by a delegation; then a question for a name right after it gets
// the record as proof that there is no such name.
func (z *session) nsecOf(ctx context.Context, name string) (*dns.NSEC, error) {
	after, ok := rightAfter(name)
	for _, q := range []dns.Question{{Name: name, Qtype: dns.TypeNSEC}, {Name: after, Qtype: dns.TypeA}} {
		if q.Name == after && !ok {
			break
		}
		r, err := z.ask(ctx, q.Name, q.Qtype, true)
		if err != nil {
			return nil, err
		}
		for _, rr := range slices.Concat(r.set, asRRs(r.nsec)) {
			nsec, ok := rr.(*dns.NSEC)
			ofChild := ok && name != z.zone && slices.Contains(nsec.TypeBitMap, dns.TypeSOA) // of a zone below, which the same server has
			if ok && nsec.Hdr.Name == name && !ofChild {
				nsec.NextDomain = dns.CanonicalName(nsec.NextDomain)
				return nsec, nil
			}
		}
		if q.Qtype == dns.TypeNSEC && name == z.zone {
			break // the zone has no NSEC records
		}
	}
	return nil, errNoWalk
}

func asRRs(list []*dns.NSEC) []dns.RR {
	var out []dns.RR
	for _, rr := range list {
		out = append(out, rr)
	}
	return out
}

// rightAfter returns the next possible name in the canonical order that is not below a name.
func rightAfter(name string) (after string, ok bool) {
	next, end := dns.NextLabel(name, 0)
	if end {
		next = len(name)
	}
	after = name[:next-1] + `\000` + name[next-1:]
	_, ok = dns.IsDomainName(after)
	return after, ok
}

// inOrder reports whether a is before b or the same, in the canonical order of names (RFC 4034
// section 6.1).
func inOrder(a, b string) bool {
	return bytes.Compare(builtin.AppendOrderKey(nil, a), builtin.AppendOrderKey(nil, b)) <= 0
}

// hasZeroByte reports whether the first label of a name has a zero byte. Servers that make an NSEC
// record for each answer write it to the next possible name.
func hasZeroByte(name string) bool {
	next, end := dns.NextLabel(name, 0)
	if end {
		next = len(name)
	}
	return strings.Contains(name[:next], `\000`)
}
