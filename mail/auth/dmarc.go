package auth

import (
	"slices"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/msg"
)

const maxAuthors = 10 // From domains that DMARC is judged for

// foundRecord is a record and where it was found.
type foundRecord struct {
	dmarc.Record
	at               string // the domain that publishes it
	fromOrganisation bool   // that is above the From domain, so that sp= or np= counts
}

// discovery is the record that applies to a From domain, or why there is none: none, temperror or
// permerror.
type discovery struct {
	domain string
	record foundRecord
	failed Result
}

// authors are the domains of the From field, or all that a program could take for one.
type authors struct {
	domains []string
	unclear bool // programs differ about who the author is, or not all of it is addresses at domains
	tooMany bool // domains is not complete
}

// authorsOf reads the From field. shown are the addresses that the caller shows to people.
func authorsOf(shown []string, m *message) authors {
	possible := msg.ReadPossibleAuthors(m.header)
	present := possible.Emails != nil || possible.Unclear || m.cut
	a := authors{
		unclear: possible.Unclear || m.tooLarge || m.cut || present && len(shown) == 0,
		tooMany: possible.TooMany,
	}
	for _, address := range possible.Emails {
		_, name := splitAddress(address)
		if !a.add(name) {
			a.unclear = true
		}
	}
	for _, name := range possible.Domains {
		a.add(name)
	}
	for _, address := range shown {
		_, name := splitAddress(address)
		before := len(a.domains)
		if !a.add(name) || len(a.domains) > before {
			a.unclear = true
		}
	}
	return a
}

// add takes a domain in; false for a text that is not a domain.
func (a *authors) add(name string) bool {
	domain, ok := idn.Host(name)
	switch {
	case !ok:
		return false
	case slices.Contains(a.domains, domain):
	case len(a.domains) == maxAuthors:
		a.unclear, a.tooMany = true, true
	default:
		a.domains = append(a.domains, domain)
	}
	return true
}

// The rules of DMARC say how the record of a From domain is found, which domains are aligned with
// it, and what is asked for a message that fails. settled is false where DNS did not answer.
type rules interface {
	discover(domain string) discovery
	aligned(authenticated, from string, strict bool) (same, settled bool)
	policy(d discovery) (policy string, tested bool)
}

// rfc7489 has the rules of RFC 7489 with the public suffix list, without sampling by pct=.
type rfc7489 struct{ records *tree }

func (r rfc7489) discover(domain string) discovery {
	d := r.at(domain)
	if org := orgDomain(domain); d.failed == None && org != domain {
		d = r.at(org)
		d.domain, d.record.fromOrganisation = domain, true
	}
	return d
}

func (r rfc7489) at(domain string) discovery {
	a := r.records.at(domain)
	switch {
	case !a.answered:
		return discovery{domain: domain, failed: TempError}
	case a.records == 0:
		return discovery{domain: domain, failed: None}
	case a.records > 1 || a.broken:
		return discovery{domain: domain, failed: PermError}
	}
	return discovery{domain: domain, record: foundRecord{Record: a.record, at: domain}}
}

func (rfc7489) aligned(authenticated, from string, strict bool) (same, settled bool) {
	return aligned(authenticated, from, strict), true
}

func (rfc7489) policy(d discovery) (policy string, tested bool) {
	if d.record.fromOrganisation {
		return d.record.SubPolicy, false
	}
	return d.record.Policy, false
}

// policy is what a record asks for a message that fails (RFC 9989 section 4.7): one step less while
// its owner tests it.
func (t *tree) policy(d discovery) (policy string, tested bool) {
	policy = t.asked(d)
	if !d.record.Testing || policy == dmarc.PolicyNone {
		return policy, false
	}
	return dmarc.Milder(policy), true
}

// asked is the policy for the From domain that a record was found for. Where DNS does not report
// whether that exists, the milder one holds.
func (t *tree) asked(d discovery) string {
	r := d.record
	switch {
	case !r.fromOrganisation:
		return r.Policy
	case r.SubPolicy == r.NoPolicy:
		return r.SubPolicy
	}
	exists, settled := t.exists(d.domain)
	switch {
	case !settled && stricter(r.SubPolicy, r.NoPolicy) == r.SubPolicy:
		return r.NoPolicy
	case exists || !settled:
		return r.SubPolicy
	}
	return r.NoPolicy
}

// A Judgment is what DMARC says about a message by some rules.
type Judgment struct {
	Result Result
	// Policy is what the receiver should do: dmarc.PolicyNone, PolicyQuarantine or PolicyReject;
	// empty when DMARC passes or says nothing about the message.
	Policy string

	tested bool      // Policy is milder than what is published
	found  discovery // for the From domain that decided; without one its domain is empty
}

// judge gives the judgment by some rules. Of several From domains the strictest policy among those
// that fail holds (RFC 9989 section 11.5). A From field that cannot be judged is permerror and
// quarantine at least, since people may be shown any name in it, and reject where not all of its
// domains can be asked; a message without one shows nothing to be protected, so its permerror asks
// for nothing.
func judge(by rules, verdict *Verdict, from authors) Judgment {
	j := Judgment{Result: PermError}
	for i, domain := range from.domains {
		one := Judgment{found: by.discover(domain)}
		one.Result = evaluate(by, verdict, one.found)
		if one.Result == Fail {
			one.Policy, one.tested = by.policy(one.found)
		}
		if i == 0 || severity(one.Result, one.Policy) > severity(j.Result, j.Policy) {
			j = one
		}
	}
	if from.unclear {
		j.Result, j.Policy = PermError, stricter(j.Policy, dmarc.PolicyQuarantine)
	}
	if from.tooMany {
		j.Result, j.Policy = PermError, dmarc.PolicyReject
	}
	return j
}

// evaluate judges one From domain by SPF and DKIM.
func evaluate(by rules, verdict *Verdict, d discovery) Result {
	if d.failed != "" {
		return d.failed
	}
	unsure := false
	counts := func(result Result, domain string, strict bool) bool {
		if result != Pass && result != TempError {
			return false
		}
		same, settled := by.aligned(domain, d.domain, strict)
		// What could not be looked up may have passed, so nothing is held against the message.
		unsure = unsure || !settled || same && result == TempError
		return same && result == Pass
	}
	for _, sig := range verdict.Signatures {
		if counts(sig.Result, sig.Domain, d.record.StrictDKIM) {
			return Pass
		}
	}
	if counts(verdict.SPF, verdict.SPFDomain, d.record.StrictSPF) {
		return Pass
	}
	if unsure {
		return TempError
	}
	return Fail
}

// evaluateDMARC fills in DMARC, by RFC 9989 and, beside it, by RFC 7489.
func evaluateDMARC(t *tree, verdict *Verdict, from authors) {
	j := judge(t, verdict, from)
	domain := j.found.domain
	verdict.DMARC, verdict.Policy, verdict.FromDomain = j.Result, j.Policy, domain
	verdict.severalAuthors, verdict.TooManyAuthors = len(from.domains) > 1, from.tooMany
	verdict.Former = judge(rfc7489{t}, verdict, from)
	if domain == "" || j.found.failed != "" {
		return
	}
	rec := j.found.record
	verdict.Published = &Published{rec.at, rec.Record}
	for s := range verdict.Signatures {
		sig := &verdict.Signatures[s]
		sig.Aligned, _ = t.aligned(sig.Domain, domain, rec.StrictDKIM || sig.Result != Pass)
	}
	verdict.SPFAligned, _ = t.aligned(verdict.SPFDomain, domain, rec.StrictSPF || verdict.SPF != Pass)
	verdict.Tested = verdict.DMARC == Fail && j.tested
	if verdict.DMARC == Pass && verdict.SPFDomain != domain && topLabel(verdict.SPFDomain) == topLabel(domain) {
		verdict.org, _ = t.org(domain)
	}
}

// Published is the DMARC record that applies to a message.
type Published struct {
	Domain string // that publishes it
	dmarc.Record
}

func stricter(a, b string) string {
	order := []string{"", dmarc.PolicyNone, dmarc.PolicyQuarantine, dmarc.PolicyReject}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// severity orders the outcomes of several From domains: the strictest policy first, then the least
// settled result.
func severity(result Result, policy string) int {
	policies := []string{"", dmarc.PolicyNone, dmarc.PolicyQuarantine, dmarc.PolicyReject}
	results := []Result{Pass, None, PermError, TempError, Fail}
	return slices.Index(policies, policy)*len(results) + slices.Index(results, result)
}
