package reports

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/dmarcreport"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/store"
)

// Bounds on what is counted for aggregate reports: rows of one day in all, and of one domain on
// that day. What comes when they are full is not reported.
const (
	maxCountsOfDay    = 20_000
	maxCountsOfDomain = 1_000
)

// reportPolicy is what a row keeps of the record that a domain publishes.
type reportPolicy struct {
	dmarcreport.Policy
	Reports []string // rua=
}

// Counts reports whether a message is to be counted for a report (RFC 9990): its domain
// asks for reports, and DMARC was settled.
func (s *Service) Counts(v *auth.Verdict) bool {
	return s.Config.Spam.Reports && v.Published != nil && len(v.Published.Reports) > 0 && (v.DMARC == auth.Pass || v.DMARC == auth.Fail)
}

// DMARCCount says with which messages of the day, that DMARC judged alike, one is counted; nil: it
// is not.
func (s *Service) DMARCCount(in inbound.Incoming, f *inbound.ScreeningResult) (*store.DMARCCount, error) {
	if !s.Counts(f.Verdict) {
		return nil, nil
	}
	record, err := json.Marshal(recordOf(in, f))
	if err != nil {
		return nil, fmt.Errorf("count for DMARC: %w", err)
	}
	policy, err := json.Marshal(publishedPolicy(f.Verdict.Published))
	if err != nil {
		return nil, fmt.Errorf("count for DMARC: %w", err)
	}
	day, domain := s.Now().UTC().Format(time.DateOnly), f.Verdict.Published.Domain
	id := day + core.TextHash(domain + "\x00" + string(record))[:32]
	return &store.DMARCCount{ID: id, Day: day, Domain: domain, Record: record, Policy: policy}, nil
}

// CountDMARC counts a message.
func (s *Service) CountDMARC(tx *store.Tx, one *store.DMARCCount) error {
	c, err := store.DMARCCounts.Find(tx, one.ID)
	if err != nil {
		return err
	}
	if c == nil {
		c = &store.DMARCCount{ID: one.ID, Day: one.Day, Domain: one.Domain, Record: one.Record}
		if room, err := roomForCount(tx, c); !room || err != nil {
			return err
		}
	}
	c.Policy = one.Policy
	c.Count++
	return store.DMARCCounts.Put(tx, c)
}

// roomForCount reports whether another row may be added, and counts it.
func roomForCount(tx *store.Tx, c *store.DMARCCount) (bool, error) {
	d, err := store.DMARCDays.Find(tx, c.Day)
	if err != nil {
		return false, err
	}
	if d == nil {
		d = &store.DMARCDay{Day: c.Day}
	}
	if d.Rows >= maxCountsOfDay {
		return false, nil
	}
	if store.DMARCCountsByDay.Count(tx, c.Day+c.Domain+"\x00", maxCountsOfDomain) == maxCountsOfDomain {
		return false, nil
	}
	d.Rows++
	return true, store.DMARCDays.Put(tx, d)
}

func publishedPolicy(p *auth.Published) reportPolicy {
	out := reportPolicy{dmarcreport.Policy{
		Domain: p.Domain, P: p.Policy, SP: p.SubPolicy, NP: p.NoPolicy, ADKIM: "r", ASPF: "r", Failures: p.Failures, Testing: p.Testing, Discovery: "treewalk", Pct: 100,
	}, p.Reports}
	if p.StrictDKIM {
		out.ADKIM = "s"
	}
	if p.StrictSPF {
		out.ASPF = "s"
	}
	return out
}

// recordOf is what a report says about a message, without its count.
func recordOf(in inbound.Incoming, f *inbound.ScreeningResult) dmarcreport.Record {
	v := f.Verdict
	r := dmarcreport.Record{
		SourceIP: in.Client.IP.String(), Disposition: "none", DKIM: "fail", SPF: "fail", HeaderFrom: v.FromDomain, EnvelopeFrom: core.DomainOfAddress(in.From),
	}
	switch {
	case f.Policy == dmarc.PolicyReject || f.Policy == dmarc.PolicyQuarantine:
		r.Disposition = f.Policy
	case v.DMARC == auth.Pass && v.Published.Policy != dmarc.PolicyNone:
		r.Disposition = "pass"
	}
	switch {
	case f.Trusted:
		r.Reasons = []dmarcreport.Reason{{Type: "local_policy", Comment: "arc=pass as sealed by " + v.ARC.Sealer}}
	case v.Tested:
		r.Reasons = []dmarcreport.Reason{{Type: "policy_test_mode"}}
	}
	for _, sig := range v.Signatures {
		if sig.Domain == "" {
			continue
		}
		if sig.Result == auth.Pass && sig.Aligned {
			r.DKIM = "pass"
		}
		r.DKIMResults = append(r.DKIMResults, dmarcreport.AuthResult{Domain: sig.Domain, Selector: sig.Selector, Result: string(sig.Result)})
	}
	if v.SPF == auth.Pass && v.SPFAligned {
		r.SPF = "pass"
	}
	if v.SPFDomain != "" {
		// For the null sender, too: it stands for postmaster at the name of HELO (RFC 7208 section
		// 2.4).
		r.SPFResults = []dmarcreport.AuthResult{{Domain: v.SPFDomain, Scope: "mfrom", Result: string(v.SPF)}}
	}
	return r
}
