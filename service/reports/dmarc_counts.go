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

// Limits on what is counted for aggregate reports: rows of one day in total, and of one domain on
// that day. Messages beyond them are not reported.
const (
	maxCountsOfDay    = 20_000
	maxCountsOfDomain = 1_000
)

// reportPolicy is the part of a domain's DMARC record that is stored with the counts for its
// report.
type reportPolicy struct {
	dmarcreport.Policy
	Reports []string // rua=
}

// isCounted reports whether a message is to be counted for a report (RFC 9990): its domain asks for
// reports, and the result of DMARC is pass or fail.
func (s *Service) isCounted(v *auth.Verdict) bool {
	return s.Settings().Spam.Reports && v.Published != nil && len(v.Published.Reports) > 0 && (v.DMARC == auth.Pass || v.DMARC == auth.Fail)
}

// DMARCCount returns the row that counts a message: one row for all messages of the day with the
// same DMARC result. It returns nil if the message is not counted.
func (s *Service) DMARCCount(in inbound.Incoming, f *inbound.ScreeningResult) (*store.DMARCCount, error) {
	if !s.isCounted(f.Verdict) {
		return nil, nil
	}
	record, err := json.Marshal(reportRecord(in, f))
	if err != nil {
		return nil, fmt.Errorf("encode the DMARC record of a message: %w", err)
	}
	policy, err := json.Marshal(reportPolicyOf(f.Verdict.Published))
	if err != nil {
		return nil, fmt.Errorf("encode the DMARC policy of a message: %w", err)
	}
	day, domain := s.Now().UTC().Format(time.DateOnly), f.Verdict.Published.Domain
	id := day + core.TextHash(domain + "\x00" + string(record))[:32]
	return &store.DMARCCount{ID: id, Day: day, Domain: domain, Record: record, Policy: policy}, nil
}

// CountDMARC adds a message to the row that counts it.
func (s *Service) CountDMARC(tx *store.Tx, one *store.DMARCCount) error {
	c, err := store.DMARCCounts.Find(tx, one.ID)
	if err != nil {
		return err
	}
	if c == nil {
		c = &store.DMARCCount{ID: one.ID, Day: one.Day, Domain: one.Domain, Record: one.Record}
		if room, err := addCountRow(tx, c); !room || err != nil {
			return err
		}
	}
	c.Policy = one.Policy
	c.Count++
	return store.DMARCCounts.Put(tx, c)
}

// addCountRow counts a new row for its day. It returns false if the limits allow no further row.
func addCountRow(tx *store.Tx, c *store.DMARCCount) (added bool, err error) {
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

func reportPolicyOf(p *auth.PublishedRecord) reportPolicy {
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

// reportRecord returns the record of a message for a report, without a count.
func reportRecord(in inbound.Incoming, f *inbound.ScreeningResult) dmarcreport.Record {
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
		// Also for the null sender, which means postmaster at the name in HELO (RFC 7208 section
		// 2.4).
		r.SPFResults = []dmarcreport.AuthResult{{Domain: v.SPFDomain, Scope: "mfrom", Result: string(v.SPF)}}
	}
	return r
}
