package auth

import (
	"slices"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/mail/dmarc"
)

// maxWalkNames is the maximum number of names that one tree walk looks up (RFC 9989 section 4.10).
const maxWalkNames = 8

// A treeStep is a name in a tree walk that has a DMARC record.
type treeStep struct {
	domain string
	record foundRecord
	broken bool // the record cannot be parsed
}

// A treeWalker implements the rules of RFC 9989. To find an organisational domain, it walks up from
// a domain and looks up the DMARC record of each name (section 4.10). A treeWalker is for one
// message. It looks up each name once.
type treeWalker struct {
	look *lookups

	mu      sync.Mutex
	known   map[string]*dmarcAnswer
	answers sync.Cond // signals that an answer has arrived
}

// A dmarcAnswer is the result of looking up the DMARC record of one name.
type dmarcAnswer struct {
	arrived  bool
	answered bool // DNS answered, perhaps that there is no record
	records  int  // number of DMARC records; several count as none
	record   dmarc.Record
	broken   bool // the record cannot be parsed
}

func newTreeWalker(look *lookups) *treeWalker {
	t := &treeWalker{look: look, known: make(map[string]*dmarcAnswer)}
	t.answers.L = &t.mu
	return t
}

// recordAt returns the answer for a domain. If another goroutine is looking up the domain, recordAt
// waits for that answer.
func (t *treeWalker) recordAt(domain string) *dmarcAnswer {
	t.mu.Lock()
	a := t.known[domain]
	if a != nil {
		for !a.arrived {
			t.answers.Wait()
		}
		t.mu.Unlock()
		return a
	}
	a = &dmarcAnswer{}
	t.known[domain] = a
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		a.arrived = true
		t.mu.Unlock()
		t.answers.Broadcast()
	}()

	txts, err := t.look.LookupTXT(t.look.ctx, "_dmarc."+domain)
	a.answered = err == nil || isNotFound(err)
	for _, txt := range txts {
		if !dmarc.IsRecord(txt) {
			continue
		}
		a.records++
		if a.records == 1 {
			a.record, err = dmarc.Parse(txt)
			a.broken = err != nil
		}
	}
	return a
}

// walkUp walks up from a domain and returns the names that have a DMARC record. settled is false if
// DNS did not answer for a name that matters: the domain itself, or a name with at least two
// labels. If stopAtOwn is set, the walk ends at the record of the domain itself, if there is one.
func (t *treeWalker) walkUp(domain string, stopAtOwn bool) (found []treeStep, settled bool) {
	settled = true
	name := domain
	for range maxWalkNames {
		a := t.recordAt(name)
		if !a.answered && (name == domain || strings.Contains(name, ".")) {
			settled = false
		}
		if a.records == 1 {
			found = append(found, treeStep{name, foundRecord{Record: a.record, at: name}, a.broken})
			if a.record.PSD != 'u' || stopAtOwn && name == domain {
				return found, settled
			}
		}
		dots := strings.Count(name, ".")
		if dots == 0 {
			break
		}
		for range max(1, dots+1-(maxWalkNames-1)) {
			_, name, _ = strings.Cut(name, ".")
		}
	}
	return found, settled
}

// organisation returns the organisational domain of domain. found are the steps of a walk up from
// domain.
func organisation(domain string, found []treeStep) string {
	for _, s := range found {
		switch {
		case s.record.PSD == 'n':
			return s.domain
		case s.record.PSD == 'y' && s.domain != domain:
			return oneLabelBelow(s.domain, domain)
		}
	}
	if len(found) > 0 {
		return found[len(found)-1].domain
	}
	return domain
}

// oneLabelBelow returns the last labels of domain, one more than above has. It may return domain
// itself.
func oneLabelBelow(above, domain string) string {
	rest := strings.TrimSuffix(domain, "."+above)
	return rest[strings.LastIndexByte(rest, '.')+1:] + "." + above
}

// lookUpOrganisation returns the organisational domain of a domain. settled is false if DNS did not
// answer.
func (t *treeWalker) lookUpOrganisation(domain string) (org string, settled bool) {
	found, settled := t.walkUp(domain, false)
	return organisation(domain, found), settled
}

// aligned reports whether an authenticated domain is aligned with the From domain (RFC 9989 section
// 4.4). settled is false if DNS did not answer. An authenticated domain outside of the From
// domain's organisation is not aligned, so most unaligned domains need no walk of their own.
func (t *treeWalker) aligned(authenticated, from string, strict bool) (same, settled bool) {
	switch {
	case authenticated == "" || from == "":
		return false, true
	case authenticated == from:
		return true, true
	case strict || topLabel(authenticated) != topLabel(from):
		return false, true
	}
	org, settled := t.lookUpOrganisation(from)
	if !settled || !isWithin(authenticated, org) {
		return false, settled
	}
	other, settled := t.lookUpOrganisation(authenticated)
	return settled && other == org, settled
}

func topLabel(domain string) string { return domain[strings.LastIndexByte(domain, '.')+1:] }

// discover finds the DMARC record for a From domain: its own, that of its organisational domain, or
// that of the public suffix above it (RFC 9989 section 4.10.1).
func (t *treeWalker) discover(domain string) discovery {
	d := discovery{domain: domain}
	found, settled := t.walkUp(domain, true)
	if len(found) == 0 || !settled && found[0].domain != domain {
		d.failed = None
		if !settled {
			d.failed = TempError
		}
		return d
	}
	s := found[0]
	if s.domain != domain {
		org := organisation(domain, found)
		i := slices.IndexFunc(found, func(s treeStep) bool { return s.domain == org })
		if i < 0 { // the organisation has no record, but the public suffix above it has one
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

// exists reports whether a domain has A, AAAA, MX or TXT records (RFC 9989 section 3.2.12). settled
// is false if DNS did not answer.
func (t *treeWalker) exists(domain string) (exists, settled bool) {
	_, ip := t.look.LookupIPAddr(t.look.ctx, domain)
	if ip == nil {
		return true, true
	}
	_, mx := t.look.LookupMX(t.look.ctx, domain)
	if mx == nil {
		return true, true
	}
	_, txt := t.look.LookupTXT(t.look.ctx, domain)
	return txt == nil, txt == nil || isNotFound(ip) && isNotFound(mx) && isNotFound(txt)
}

// prefetch looks up the DMARC records of the From domains concurrently, so that later calls need
// not wait.
func (t *treeWalker) prefetch(domains []string) {
	asks := make([]func(), len(domains))
	for i, domain := range domains {
		asks[i] = func() { t.discover(domain) }
	}
	runAll(asks...)
}
