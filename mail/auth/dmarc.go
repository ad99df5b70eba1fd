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

// recordsAt gives the records at a domain; answered is false where DNS did not answer.
func recordsAt(look *lookups, domain string) (records []string, answered bool) {
	txts, err := look.LookupTXT(look.ctx, "_dmarc."+domain)
	for _, txt := range txts {
		if dmarc.IsRecord(txt) {
			records = append(records, txt)
		}
	}
	return records, err == nil || notFound(err)
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

// add takes a domain in; false for what is none.
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

// An edition of DMARC says how the record of a From domain is found, which domains are aligned with
// it, and what is asked for a message that fails. settled is false where DNS did not answer.
type edition struct {
	discover func(domain string) discovery
	aligned  func(authenticated, from string, strict bool) (same, settled bool)
	policy   func(d discovery) (policy string, tested bool)
}

// current is RFC 9989.
func (t *tree) current() edition { return edition{t.discover, t.aligned, t.policy} }

// former is RFC 7489 with the public suffix list, without sampling by pct=.
func former(look *lookups) edition {
	at := func(domain string) (foundRecord, Result) {
		records, answered := recordsAt(look, domain)
		switch {
		case !answered:
			return foundRecord{}, TempError
		case len(records) == 0:
			return foundRecord{}, None
		}
		record, err := dmarc.Parse(records[0])
		if err != nil || len(records) > 1 {
			return foundRecord{}, PermError
		}
		return foundRecord{Record: record, at: domain}, ""
	}
	return edition{
		discover: func(domain string) discovery {
			d := discovery{domain: domain}
			d.record, d.failed = at(domain)
			if org := orgDomain(domain); d.failed == None && org != domain {
				d.record, d.failed = at(org)
				d.record.fromOrganisation = true
			}
			return d
		},
		aligned: func(authenticated, from string, strict bool) (same, settled bool) {
			return aligned(authenticated, from, strict), true
		},
		policy: func(d discovery) (policy string, tested bool) {
			if d.record.fromOrganisation {
				return d.record.SubPolicy, false
			}
			return d.record.Policy, false
		},
	}
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

// asked is the policy for the From domain that a record was found for. Where DNS does not tell
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

// A Judgment is what one edition of DMARC says about a message.
type Judgment struct {
	Result Result
	// Policy is what the receiver should do: dmarc.PolicyNone, PolicyQuarantine or PolicyReject;
	// empty when DMARC passes or says nothing about the message.
	Policy string

	tested bool   // Policy is milder than what is published
	domain string // the From domain that decided; empty without one
	found  *discovery
}

// judge gives the judgment of one edition. Of several From domains the strictest policy among those
// that fail holds (RFC 9989 section 11.5). A From field that cannot be judged is permerror and
// quarantine at least, since people may be shown any name in it, and reject where not all of its
// domains can be asked; a message without one shows nothing to be protected, so its permerror asks
// for nothing.
func (e edition) judge(verdict *Verdict, from authors) Judgment {
	j := Judgment{Result: PermError}
	for i, domain := range from.domains {
		d := e.discover(domain)
		one := Judgment{domain: domain, found: &d}
		if one.Result = e.evaluate(verdict, d); one.Result == Fail {
			one.Policy, one.tested = e.policy(d)
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
func (e edition) evaluate(verdict *Verdict, d discovery) Result {
	if d.failed != "" {
		return d.failed
	}
	unsure := false
	counts := func(result Result, domain string, strict bool) bool {
		if result != Pass && result != TempError {
			return false
		}
		same, settled := e.aligned(domain, d.domain, strict)
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
	j := t.current().judge(verdict, from)
	verdict.DMARC, verdict.Policy, verdict.FromDomain = j.Result, j.Policy, j.domain
	verdict.severalAuthors, verdict.TooManyAuthors = len(from.domains) > 1, from.tooMany
	verdict.Former = former(t.look).judge(verdict, from)
	if j.found == nil || j.found.failed != "" {
		return
	}
	rec := j.found.record
	verdict.Published = &Published{rec.at, rec.Record}
	for s := range verdict.Signatures {
		sig := &verdict.Signatures[s]
		sig.Aligned, _ = t.aligned(sig.Domain, j.domain, rec.StrictDKIM || sig.Result != Pass)
	}
	verdict.SPFAligned, _ = t.aligned(verdict.SPFDomain, j.domain, rec.StrictSPF || verdict.SPF != Pass)
	verdict.Tested = verdict.DMARC == Fail && j.tested
	if verdict.DMARC == Pass && verdict.SPFDomain != j.domain && topLabel(verdict.SPFDomain) == topLabel(j.domain) {
		verdict.org, _ = t.org(j.domain)
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
