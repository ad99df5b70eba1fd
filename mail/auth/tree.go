package auth

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/dmarc"
)

// maxWalk bounds the names that one walk asks for (RFC 9989 section 4.10).
const maxWalk = 8

// A step is a name of a walk that has a record.
type step struct {
	domain string
	record foundRecord
	broken bool // the record asks for nothing that can be applied
}

// A tree finds organisational domains as RFC 9989 section 4.10 does: by walking up from a domain
// and asking each name for a DMARC record. It is for one message, and walks from each domain once.
type tree struct {
	look *lookups
	orgs memo[orgAnswer]
}

type orgAnswer struct {
	domain  string
	settled bool
}

// steps gives the names with records from a domain upwards, as far as a walk goes. settled is false
// where DNS did not answer for one that could matter: a public suffix that does not answer takes
// nothing away from what was found below it. A walk to the policy ends at a record of the domain
// itself.
func (t *tree) steps(domain string, toPolicy bool) (found []step, settled bool) {
	settled = true
	name := domain
	for range maxWalk {
		records, answered := recordsAt(t.look, name)
		if !answered && (name == domain || strings.Contains(name, ".")) {
			settled = false
		}
		if len(records) == 1 { // several are none
			record, err := dmarc.Parse(records[0])
			found = append(found, step{name, foundRecord{Record: record, at: name}, err != nil})
			if record.PSD != 'u' || toPolicy && name == domain {
				return found, settled
			}
		}
		labels := strings.Split(name, ".")
		if len(labels) == 1 {
			break
		}
		name = strings.Join(labels[max(1, len(labels)-(maxWalk-1)):], ".")
	}
	return found, settled
}

// organisation chooses the organisational domain among the records of a walk from a domain.
func organisation(domain string, found []step) string {
	for _, s := range found {
		switch {
		case s.record.PSD == 'n':
			return s.domain
		case s.record.PSD == 'y' && s.domain != domain:
			return below(s.domain, domain)
		}
	}
	if len(found) > 0 {
		return found[len(found)-1].domain
	}
	return domain
}

// below is the name one label below another, on the way to a domain.
func below(above, domain string) string {
	rest := strings.TrimSuffix(domain, "."+above)
	return rest[strings.LastIndexByte(rest, '.')+1:] + "." + above
}

// org gives the organisational domain of a domain; false where DNS did not answer.
func (t *tree) org(domain string) (string, bool) {
	a := t.orgs.get(domain, func() orgAnswer {
		found, settled := t.steps(domain, false)
		return orgAnswer{organisation(domain, found), settled}
	})
	return a.domain, a.settled
}

// aligned compares an authenticated domain with the From domain (RFC 9989 section 4.4); settled is
// false where DNS did not answer. Most pairs are told apart without a walk from the authenticated
// domain: it must be within the organisation of the other.
func (t *tree) aligned(authenticated, from string, strict bool) (same, settled bool) {
	switch {
	case authenticated == "" || from == "":
		return false, true
	case authenticated == from:
		return true, true
	case strict || topLabel(authenticated) != topLabel(from):
		return false, true
	}
	org, settled := t.org(from)
	if !settled || !isWithin(authenticated, org) {
		return false, settled
	}
	other, settled := t.org(authenticated)
	return settled && other == org, settled
}

func topLabel(domain string) string { return domain[strings.LastIndexByte(domain, '.')+1:] }

// discover finds the record for a From domain: its own, that of its organisational domain, or that
// of the public suffix above (RFC 9989 section 4.10.1).
func (t *tree) discover(domain string) discovery {
	d := discovery{domain: domain}
	found, settled := t.steps(domain, true)
	if len(found) == 0 || !settled && found[0].domain != domain {
		if d.failed = None; !settled {
			d.failed = TempError
		}
		return d
	}
	s := found[0]
	if s.domain != domain {
		org := organisation(domain, found)
		i := slices.IndexFunc(found, func(s step) bool { return s.domain == org })
		if i < 0 { // the organisation has none, but the suffix above it has
			i = len(found) - 1
		}
		s = found[i]
	}
	if s.broken {
		d.failed = PermError
		return d
	}
	d.record = s.record
	d.record.fromOrganisation = s.domain != domain
	return d
}

// exists tells whether a domain has addresses, mail servers or texts; settled is false where DNS
// did not answer (RFC 9989 section 3.2.12).
func (t *tree) exists(domain string) (exists, settled bool) {
	_, ip := t.look.LookupIPAddr(t.look.ctx, domain)
	if ip == nil {
		return true, true
	}
	_, mx := t.look.LookupMX(t.look.ctx, domain)
	if mx == nil {
		return true, true
	}
	_, txt := t.look.LookupTXT(t.look.ctx, domain)
	return txt == nil, txt == nil || notFound(ip) && notFound(mx) && notFound(txt)
}

// prepare looks the records of From domains up, side by side.
func (t *tree) prepare(domains []string) {
	asks := make([]func(), len(domains))
	for i, domain := range domains {
		asks[i] = func() { t.discover(domain) }
	}
	runAll(asks...)
}
