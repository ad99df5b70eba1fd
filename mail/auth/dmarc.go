package auth

import (
	"errors"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/mail/msg"
)

const (
	maxAuthors    = 10 // From domains that DMARC is judged for
	maxReportURIs = 5  // of one record; RFC 7489 section 6.2 asks for two
)

// errRecord says that a DMARC record cannot be applied.
var errRecord = errors.New("malformed DMARC record")

// dmarcRecord is a DMARC record (RFC 7489 section 6.3), without what only failure reports need.
type dmarcRecord struct {
	policy, subPolicy     string
	strictDKIM, strictSPF bool
	percent               int
	reports               []string // rua=
	at                    string   // the domain that publishes it
	fromOrganisation      bool     // that is the organisational domain, so that sp= counts
}

// parseRecord reads a record that isRecord knows. Only p= and sp= can spoil one, and not even they
// when there is someone to report to (RFC 7489 section 6.6.3, step 6); anything else that is
// malformed has its default.
func parseRecord(txt string) (dmarcRecord, error) {
	tags := parseTags(txt)
	rec := dmarcRecord{
		policy:     strings.ToLower(tags["p"]),
		subPolicy:  strings.ToLower(tags["sp"]),
		strictDKIM: strings.EqualFold(tags["adkim"], "s"),
		strictSPF:  strings.EqualFold(tags["aspf"], "s"),
		percent:    100,
		reports:    reportURIs(tags["rua"]),
	}
	if pct, err := strconv.ParseUint(tags["pct"], 10, 7); err == nil && pct <= 100 {
		rec.percent = int(pct)
	}
	_, hasSub := tags["sp"]
	if !isPolicy(rec.policy) || hasSub && !isPolicy(rec.subPolicy) {
		if len(rec.reports) == 0 {
			return dmarcRecord{}, errRecord
		}
		rec.policy, rec.subPolicy = PolicyNone, PolicyNone
	}
	if rec.subPolicy == "" {
		rec.subPolicy = rec.policy
	}
	return rec, nil
}

// isRecord tells a DMARC record from other texts at its name by the version, which must come first.
func isRecord(txt string) bool {
	first, _, _ := strings.Cut(txt, ";")
	name, value, _ := strings.Cut(first, "=")
	return strings.TrimSpace(name) == "v" && strings.TrimSpace(value) == "DMARC1"
}

func isPolicy(s string) bool {
	return s == PolicyNone || s == PolicyQuarantine || s == PolicyReject
}

// reportURIs are the first URIs of a rua= tag, as they are written.
func reportURIs(list string) (out []string) {
	for uri := range strings.SplitSeq(list, ",") {
		uri = strings.TrimSpace(uri)
		u, err := url.Parse(uri)
		if err == nil && u.Scheme != "" && (u.Opaque != "" || u.Host != "") && len(out) < maxReportURIs {
			out = append(out, uri)
		}
	}
	return out
}

// discovery is the record that applies to a From domain, or why there is none: none, temperror or
// permerror.
type discovery struct {
	domain string
	record dmarcRecord
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

func recordAt(look *lookups, domain string) (dmarcRecord, Result) {
	txts, err := look.LookupTXT(look.ctx, "_dmarc."+domain)
	if err != nil && !notFound(err) {
		return dmarcRecord{}, TempError
	}
	var records []string
	for _, txt := range txts {
		if isRecord(txt) {
			records = append(records, txt)
		}
	}
	if len(records) == 0 {
		return dmarcRecord{}, None
	}
	rec, err := parseRecord(records[0])
	if err != nil || len(records) > 1 {
		return dmarcRecord{}, PermError
	}
	rec.at = domain
	return rec, ""
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
	domain, ok := asciiDomain(name)
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

// judge fills in DMARC. Of several From domains the strictest policy among those that fail holds
// (RFC 7489 section 6.6.1). A From field that cannot be judged is permerror and quarantine at
// least, since people may be shown any name in it, and reject where not all of its domains can be
// asked; a message without one shows nothing to be protected, so its permerror asks for nothing.
func (v *Verifier) judge(verdict *Verdict, from authors, found []discovery) {
	if len(from.domains) > 0 {
		verdict.FromDomain = from.domains[0]
	}
	verdict.DMARC = PermError
	for i, d := range found {
		result, policy := v.judgeDomain(verdict, d)
		if i == 0 || severity(result, policy) > severity(verdict.DMARC, verdict.Policy) {
			verdict.DMARC, verdict.Policy, verdict.FromDomain = result, policy, d.domain
		}
	}
	if from.unclear {
		verdict.DMARC, verdict.Policy = PermError, stricter(verdict.Policy, PolicyQuarantine)
	}
	if from.tooMany {
		verdict.DMARC, verdict.Policy, verdict.TooManyAuthors = PermError, PolicyReject, true
	}
	if verdict.FromDomain != "" {
		verdict.OrgDomain = orgDomain(verdict.FromDomain)
	}
	i := slices.IndexFunc(found, func(d discovery) bool { return d.domain == verdict.FromDomain })
	for s := range verdict.Signatures {
		sig := &verdict.Signatures[s]
		sig.Aligned = i >= 0 && aligned(sig.Domain, verdict.FromDomain, found[i].record.strictDKIM)
	}
	if i >= 0 && found[i].failed == "" {
		rec := found[i].record
		verdict.Published = rec.published()
		verdict.SPFAligned = aligned(verdict.SPFDomain, verdict.FromDomain, rec.strictSPF)
		verdict.SampledOut = verdict.DMARC == Fail && verdict.Policy != rec.asked()
	}
}

// Published is the DMARC record that applies to a message, with its defaults filled in.
type Published struct {
	Domain                string // that publishes it
	Policy, SubPolicy     string // p= and sp=
	StrictDKIM, StrictSPF bool   // adkim= and aspf=
	Percent               int    // pct=
	Reports               []string
}

func (r *dmarcRecord) published() *Published {
	return &Published{
		Domain: r.at, Policy: r.policy, SubPolicy: r.subPolicy, StrictDKIM: r.strictDKIM, StrictSPF: r.strictSPF,
		Percent: r.percent, Reports: r.reports,
	}
}

// asked is the policy for the From domain that the record was found for.
func (r *dmarcRecord) asked() string {
	if r.fromOrganisation {
		return r.subPolicy
	}
	return r.policy
}

// judgeDomain judges one From domain by SPF and DKIM (RFC 7489 section 6.6.2).
func (v *Verifier) judgeDomain(verdict *Verdict, d discovery) (Result, string) {
	if d.failed != "" {
		return d.failed, ""
	}
	spf := None
	if aligned(verdict.SPFDomain, d.domain, d.record.strictSPF) {
		spf = verdict.SPF
	}
	unsure := spf == TempError
	for _, sig := range verdict.Signatures {
		if !aligned(sig.Domain, d.domain, d.record.strictDKIM) {
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
func (v *Verifier) policy(rec dmarcRecord) string {
	policy := rec.asked()
	if rec.percent == 100 || v.rand(100) < rec.percent {
		return policy
	}
	if policy == PolicyReject {
		return PolicyQuarantine
	}
	return PolicyNone
}

func (v *Verifier) rand(n int) int {
	if v.Rand == nil {
		return rand.IntN(n)
	}
	return v.Rand(n)
}

func stricter(a, b string) string {
	order := []string{"", PolicyNone, PolicyQuarantine, PolicyReject}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// severity orders the outcomes of several From domains: the strictest policy first, then the least
// settled result.
func severity(result Result, policy string) int {
	policies := []string{"", PolicyNone, PolicyQuarantine, PolicyReject}
	results := []Result{Pass, None, PermError, TempError, Fail}
	return slices.Index(policies, policy)*len(results) + slices.Index(results, result)
}
