package auth

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/msg"
)

const maxAuthors = 10 // From domains that DMARC is judged for

// foundRecord is a record and where it was found.
type foundRecord struct {
	dmarc.Record
	at               string // the domain that publishes it
	fromOrganisation bool   // that is the organisational domain, so that sp= counts
}

// discovery is the record that applies to a From domain, or why there is none: none, temperror or
// permerror.
type discovery struct {
	domain string
	record foundRecord
	failed Result
}

// discoverAll finds the records of all domains side by side.
func discoverAll(look *lookups, domains []string) []discovery {
	out := make([]discovery, len(domains))
	var wg sync.WaitGroup
	for i, d := range domains {
		wg.Go(func() { out[i] = discover(look, d) })
	}
	wg.Wait()
	return out
}

// discover looks at the From domain, then at its organisational domain (RFC 7489 section 6.6.3).
func discover(look *lookups, domain string) discovery {
	d := discovery{domain: domain}
	d.record, d.failed = recordAt(look, domain)
	if org := orgDomain(domain); d.failed == None && org != domain {
		d.record, d.failed = recordAt(look, org)
		d.record.fromOrganisation = true
	}
	return d
}

func recordAt(look *lookups, domain string) (foundRecord, Result) {
	txts, err := look.LookupTXT(look.ctx, "_dmarc."+domain)
	if err != nil && !notFound(err) {
		return foundRecord{}, TempError
	}
	var records []string
	for _, txt := range txts {
		if dmarc.IsRecord(txt) {
			records = append(records, txt)
		}
	}
	if len(records) == 0 {
		return foundRecord{}, None
	}
	rec, err := dmarc.Parse(records[0])
	if err != nil || len(records) > 1 {
		return foundRecord{}, PermError
	}
	return foundRecord{Record: rec, at: domain}, ""
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

// evaluateDMARC fills in DMARC. Of several From domains the strictest policy among those that fail
// holds (RFC 7489 section 6.6.1). A From field that cannot be judged is permerror and quarantine at
// least, since people may be shown any name in it, and reject where not all of its domains can be
// asked; a message without one shows nothing to be protected, so its permerror asks for nothing.
func (v *Verifier) evaluateDMARC(verdict *Verdict, from authors, found []discovery) {
	if len(from.domains) > 0 {
		verdict.FromDomain = from.domains[0]
	}
	verdict.DMARC, verdict.severalAuthors = PermError, len(from.domains) > 1
	for i, d := range found {
		result, policy := v.evaluateDomain(verdict, d)
		if i == 0 || severity(result, policy) > severity(verdict.DMARC, verdict.Policy) {
			verdict.DMARC, verdict.Policy, verdict.FromDomain = result, policy, d.domain
		}
	}
	if from.unclear {
		verdict.DMARC, verdict.Policy = PermError, stricter(verdict.Policy, dmarc.PolicyQuarantine)
	}
	if from.tooMany {
		verdict.DMARC, verdict.Policy, verdict.TooManyAuthors = PermError, dmarc.PolicyReject, true
	}
	if verdict.FromDomain != "" {
		verdict.OrgDomain = orgDomain(verdict.FromDomain)
	}
	i := slices.IndexFunc(found, func(d discovery) bool { return d.domain == verdict.FromDomain })
	for s := range verdict.Signatures {
		sig := &verdict.Signatures[s]
		sig.Aligned = i >= 0 && aligned(sig.Domain, verdict.FromDomain, found[i].record.StrictDKIM)
	}
	if i >= 0 && found[i].failed == "" {
		rec := found[i].record
		verdict.Published = &Published{rec.at, rec.Record}
		verdict.SPFAligned = aligned(verdict.SPFDomain, verdict.FromDomain, rec.StrictSPF)
		verdict.SampledOut = verdict.DMARC == Fail && verdict.Policy != rec.asked()
	}
}

// Published is the DMARC record that applies to a message.
type Published struct {
	Domain string // that publishes it
	dmarc.Record
}

// asked is the policy for the From domain that the record was found for.
func (r *foundRecord) asked() string {
	if r.fromOrganisation {
		return r.SubPolicy
	}
	return r.Policy
}

// evaluateDomain judges one From domain by SPF and DKIM (RFC 7489 section 6.6.2).
func (v *Verifier) evaluateDomain(verdict *Verdict, d discovery) (Result, string) {
	if d.failed != "" {
		return d.failed, ""
	}
	spf := None
	if aligned(verdict.SPFDomain, d.domain, d.record.StrictSPF) {
		spf = verdict.SPF
	}
	unsure := spf == TempError
	for _, sig := range verdict.Signatures {
		if !aligned(sig.Domain, d.domain, d.record.StrictDKIM) {
			continue
		}
		if sig.Result == Pass {
			return Pass, ""
		}
		unsure = unsure || sig.Result == TempError
	}
	if spf == Pass {
		return Pass, ""
	}
	if unsure {
		// What could not be looked up may have passed, so nothing is held against the message.
		return TempError, ""
	}
	return Fail, v.policy(d.record)
}

// policy is what a record asks for a message that fails. Those that pct= leaves out get the next
// milder policy (RFC 7489 section 6.6.4).
func (v *Verifier) policy(rec foundRecord) string {
	policy := rec.asked()
	if rec.Percent == 100 || v.rand(100) < rec.Percent {
		return policy
	}
	if policy == dmarc.PolicyReject {
		return dmarc.PolicyQuarantine
	}
	return dmarc.PolicyNone
}

func (v *Verifier) rand(n int) int {
	if v.Rand == nil {
		return rand.IntN(n)
	}
	return v.Rand(n)
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
