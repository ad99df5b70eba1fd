package auth

import (
	"slices"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/msg"
)

const maxAuthors = 10 // From domains that are evaluated

// foundRecord is a DMARC record with the domain at which it was found.
type foundRecord struct {
	dmarc.Record
	at               string // the domain that publishes the record
	fromOrganisation bool   // at is above the From domain, so that sp= or np= applies
}

// discovery is the result of looking for the DMARC record of a From domain. failed is "" if one was
// found, and otherwise None, TempError or PermError.
type discovery struct {
	domain string
	record foundRecord
	failed Result
}

// authors holds the domains of the authors of a message. If its From field is unclear, it holds all
// domains that some program could find in the field.
type authors struct {
	domains []string
	unclear bool // programs disagree about the author, or the field does not only hold addresses at domains
	tooMany bool // domains is incomplete
}

// authorsOf reads the From field of m. shown are the addresses that the caller displays to people.
func authorsOf(shown []string, m *message) authors {
	possible := msg.ReadPossibleAuthors(m.header)
	present := possible.Emails != nil || possible.Unclear || m.truncated
	a := authors{
		unclear: possible.Unclear || m.tooLarge || m.truncated || present && len(shown) == 0,
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

// add adds the domain name unless it is known. It returns false if name is not a domain.
func (a *authors) add(name string) (ok bool) {
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

// dmarcRules are the rules of one version of DMARC: how to find the record of a From domain, which
// domains are aligned with a From domain, and which policy applies to a message that fails. settled
// is false if DNS did not answer.
type dmarcRules interface {
	discover(domain string) discovery
	aligned(authenticated, from string, strict bool) (same, settled bool)
	policy(d discovery) (policy string, tested bool)
}

// rfc7489Rules implements the rules of RFC 7489. It uses the public suffix list and ignores pct=.
type rfc7489Rules struct{ records *treeWalker }

func (r rfc7489Rules) discover(domain string) discovery {
	d := r.at(domain)
	if org := orgDomain(domain); d.failed == None && org != domain {
		d = r.at(org)
		d.domain, d.record.fromOrganisation = domain, true
	}
	return d
}

func (r rfc7489Rules) at(domain string) discovery {
	a := r.records.recordAt(domain)
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

func (rfc7489Rules) aligned(authenticated, from string, strict bool) (same, settled bool) {
	return aligned(authenticated, from, strict), true
}

func (rfc7489Rules) policy(d discovery) (policy string, tested bool) {
	if d.record.fromOrganisation {
		return d.record.SubPolicy, false
	}
	return d.record.Policy, false
}

// policy returns the policy for a message that fails (RFC 9989 section 4.7). In test mode (t=y)
// that is one step milder than the published policy, and tested is true.
func (t *treeWalker) policy(d discovery) (policy string, tested bool) {
	policy = t.publishedPolicy(d)
	if !d.record.Testing || policy == dmarc.PolicyNone {
		return policy, false
	}
	return dmarc.Milder(policy), true
}

// publishedPolicy returns the policy that the record publishes for the From domain (p=, sp= or
// np=). If DNS does not tell whether that domain exists, it returns the milder of sp= and np=.
func (t *treeWalker) publishedPolicy(d discovery) string {
	r := d.record
	switch {
	case !r.fromOrganisation:
		return r.Policy
	case r.SubPolicy == r.NoPolicy:
		return r.SubPolicy
	}
	exists, settled := t.exists(d.domain)
	switch {
	case !settled && stricterPolicy(r.SubPolicy, r.NoPolicy) == r.SubPolicy:
		return r.NoPolicy
	case exists || !settled:
		return r.SubPolicy
	}
	return r.NoPolicy
}

// A Judgment is the DMARC result of a message by one version of the rules.
type Judgment struct {
	Result Result
	// Policy is what the domain asks receivers to do: dmarc.PolicyNone, PolicyQuarantine or
	// PolicyReject. It is empty if DMARC passes or does not apply to the message.
	Policy string

	tested bool      // Policy is milder than the published one
	found  discovery // the record for the From domain that decided Result; found.domain is "" if no domain did
}

// judge evaluates DMARC by one version of the rules. If there are several From domains, the
// strictest policy of those that fail applies (RFC 9989 section 11.5). An unclear From field is
// permerror with at least quarantine, since programs may show any name in it. If it names more
// domains than are looked up, the policy is reject. A message without a From field is permerror
// without a policy, since it names no domain to protect.
func judge(by dmarcRules, verdict *Verdict, from authors) Judgment {
	j := Judgment{Result: PermError}
	for i, domain := range from.domains {
		one := Judgment{found: by.discover(domain)}
		one.Result = evaluateDomain(by, verdict, one.found)
		if one.Result == Fail {
			one.Policy, one.tested = by.policy(one.found)
		}
		if i == 0 || severity(one.Result, one.Policy) > severity(j.Result, j.Policy) {
			j = one
		}
	}
	if from.unclear {
		j.Result, j.Policy = PermError, stricterPolicy(j.Policy, dmarc.PolicyQuarantine)
	}
	if from.tooMany {
		j.Result, j.Policy = PermError, dmarc.PolicyReject
	}
	return j
}

// evaluateDomain returns the DMARC result for one From domain, derived from the results of SPF and
// DKIM.
func evaluateDomain(by dmarcRules, verdict *Verdict, d discovery) Result {
	if d.failed != "" {
		return d.failed
	}
	unsure := false
	counts := func(result Result, domain string, strict bool) bool {
		if result != Pass && result != TempError {
			return false
		}
		same, settled := by.aligned(domain, d.domain, strict)
		// If the failed look-up could have led to a pass, the message must not fail.
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

// evaluateDMARC sets the DMARC fields of verdict by RFC 9989, and Former by RFC 7489 for
// comparison.
func evaluateDMARC(t *treeWalker, verdict *Verdict, from authors) {
	j := judge(t, verdict, from)
	domain := j.found.domain
	verdict.DMARC, verdict.Policy, verdict.FromDomain = j.Result, j.Policy, domain
	verdict.severalAuthors, verdict.TooManyAuthors = len(from.domains) > 1, from.tooMany
	verdict.Former = judge(rfc7489Rules{t}, verdict, from)
	if domain == "" || j.found.failed != "" {
		return
	}
	rec := j.found.record
	verdict.Published = &PublishedRecord{rec.at, rec.Record}
	for s := range verdict.Signatures {
		sig := &verdict.Signatures[s]
		sig.Aligned, _ = t.aligned(sig.Domain, domain, rec.StrictDKIM || sig.Result != Pass)
	}
	verdict.SPFAligned, _ = t.aligned(verdict.SPFDomain, domain, rec.StrictSPF || verdict.SPF != Pass)
	verdict.Tested = verdict.DMARC == Fail && j.tested
	if verdict.DMARC == Pass && verdict.SPFDomain != domain && topLabel(verdict.SPFDomain) == topLabel(domain) {
		verdict.org, _ = t.lookUpOrganisation(domain)
	}
}

// PublishedRecord is the DMARC record that applies to a message, with its domain.
type PublishedRecord struct {
	Domain string // the domain that publishes the record
	dmarc.Record
}

// stricterPolicy returns the stricter of two policies.
func stricterPolicy(a, b string) string {
	order := []string{"", dmarc.PolicyNone, dmarc.PolicyQuarantine, dmarc.PolicyReject}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// severity returns a rank for the DMARC outcome of one From domain. Outcomes rank first by the
// strictness of the policy, then by the result, from Pass (lowest) to Fail.
func severity(result Result, policy string) int {
	policies := []string{"", dmarc.PolicyNone, dmarc.PolicyQuarantine, dmarc.PolicyReject}
	results := []Result{Pass, None, PermError, TempError, Fail}
	return slices.Index(policies, policy)*len(results) + slices.Index(results, result)
}
