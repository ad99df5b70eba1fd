package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/dmarcreport"
	"github.com/mailstead/mailstead/mail/tlsrpt"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
)

// ListReportsIn is the query of list_dmarc_reports and list_tls_reports. Dates are the days (UTC)
// that a report covers, inclusive.
type ListReportsIn struct {
	page.Query
	DomainID string `path:"domain_id"`
	DateFrom string `query:"date_from"` // The first day (UTC).
	DateTo   string `query:"date_to"`   // The last day (UTC), inclusive.
	Org      string `query:"org"`       // A part of org_name.
}

// A DMARCReport is another operator's report about mail in a domain's name.
type DMARCReport struct {
	ID          string            `json:"id" words:"ours" example:"rep_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	ReportID    string            `json:"report_id" words:"theirs"`                           // The reporter's own id of the report.
	OrgName     string            `json:"org_name" words:"theirs"`                            // The name of the reporter, as the report states it.
	Email       *string           `json:"email" words:"theirs" example:"noreply@example.net"` // The reporter's address.
	DateBegin   core.Time         `json:"date_begin"`                                         // The start of the period that it covers.
	DateEnd     core.Time         `json:"date_end"`                                           // The end of the period that it covers.
	Policy      DMARCReportPolicy `json:"policy"`
	Records     []DMARCRecord     `json:"records"`
	RecordsMore int               `json:"records_omitted"` // Records that count only in the totals.
	Totals      DMARCTotals       `json:"totals"`
	// Whether the message with the report passed DMARC, SPF or DKIM for `received_from`; the report
	// has no other proof of its origin.
	Authenticated bool      `json:"authenticated" example:"true"`
	ReceivedFrom  *string   `json:"received_from" words:"theirs"` // The domain in From of the message with the report.
	ReceivedAt    core.Time `json:"received_at"`
}

// A DMARCReportPolicy is the policy that the reporter found.
type DMARCReportPolicy struct {
	Domain  string  `json:"domain" words:"theirs"`
	P       string  `json:"p" enum:"none|quarantine|reject"`
	SP      string  `json:"sp" enum:"none|quarantine|reject"` // For subdomains.
	NP      *string `json:"np" enum:"none|quarantine|reject"` // For subdomains that do not exist; null in reports of the form of RFC 7489.
	ADKIM   string  `json:"adkim" enum:"r|s"`
	ASPF    string  `json:"aspf" enum:"r|s"`
	Testing bool    `json:"testing"` // The record says t=y, so that receivers apply the next milder policy.
	// How the record was found: treewalk (RFC 9989) or psl (RFC 7489); null in reports that do not
	// say.
	Discovery *string `json:"discovery_method" words:"theirs" example:"treewalk"`
	Pct       int     `json:"pct"` // 100 in reports of the form of RFC 9990, which has no percentage.
}

// A DMARCRecord counts messages with the same results.
type DMARCRecord struct {
	SourceIP     string            `json:"source_ip" words:"theirs"`   // Who delivered the messages.
	Count        int64             `json:"count" example:"12"`         // How many messages.
	Disposition  string            `json:"disposition" words:"theirs"` // How DMARC made the receiver treat the messages: none, quarantine or reject.
	DKIM         string            `json:"dkim" words:"theirs"`
	SPF          string            `json:"spf" words:"theirs"`
	HeaderFrom   string            `json:"header_from" words:"theirs"` // The domain in From.
	EnvelopeFrom *string           `json:"envelope_from" words:"theirs" example:"example.com"`
	EnvelopeTo   *string           `json:"envelope_to" words:"theirs" example:"example.net"`
	Reasons      []DMARCReason     `json:"reasons"`
	DKIMResults  []DMARCDKIMResult `json:"dkim_results"`
	SPFResults   []DMARCSPFResult  `json:"spf_results"`
}

// A DMARCReason is why a receiver did not apply the policy.
type DMARCReason struct {
	Type    string  `json:"type" words:"theirs" example:"forwarded"`
	Comment *string `json:"comment" words:"theirs" example:"sent on by a list"`
}

// A DMARCDKIMResult is the result of DKIM alone.
type DMARCDKIMResult struct {
	Domain   string  `json:"domain" words:"theirs"`
	Selector *string `json:"selector" words:"theirs" example:"m1"`
	Result   string  `json:"result" words:"theirs"`
}

// A DMARCSPFResult is the result of SPF alone.
type DMARCSPFResult struct {
	Domain string  `json:"domain" words:"theirs"`
	Scope  *string `json:"scope" words:"theirs" example:"mfrom"`
	Result string  `json:"result" words:"theirs"`
}

// DMARCTotals holds the sums of a report.
type DMARCTotals struct {
	Messages int64 `json:"messages"`
	Passed   int64 `json:"passed"`
	Failed   int64 `json:"failed"`
}

// ListDMARCReports lists the aggregate reports about a domain, newest first.
func (s *Service) ListDMARCReports(_ context.Context, who core.Actor, in ListReportsIn) (*page.Page[DMARCReport], error) {
	l := page.Listing[store.Report, DMARCReport]{Operation: "dmarc_reports", Out: dmarcReportOut}
	return listReports(s, who, in, store.ReportDMARC, l)
}

// listReports lists the stored reports of one kind about a domain. It sets the fields of l that are
// the same for both kinds.
func listReports[Out any](s *Service, who core.Actor, in ListReportsIn, kind string, l page.Listing[store.Report, Out]) (*page.Page[Out], error) {
	from, to, err := core.ParseDays(in.DateFrom, in.DateTo)
	if err != nil {
		return nil, err
	}
	l.Index, l.Prefix = store.ReportsByDomain, in.DomainID+kind+"\x00"
	l.Filters = []string{in.DomainID, in.DateFrom, in.DateTo, in.Org}
	l.Keep = func(r *store.Report) bool {
		return !r.End.Before(from) && (to.IsZero() || r.Begin.Before(to)) && strings.Contains(strings.ToLower(r.Org), strings.ToLower(in.Org))
	}
	l.Until = func(r *store.Report) bool { return !from.IsZero() && r.ReceivedAt.Before(from.Add(-24*time.Hour)) }
	l.First = func(tx *store.Tx) error {
		_, err := core.DomainOf(tx, who, in.DomainID)
		return err
	}
	return l.Page(s.Core, who, in.Query)
}

func dmarcReportOut(_ *store.Tx, r *store.Report) (DMARCReport, error) {
	var d dmarcreport.Report
	if err := json.Unmarshal(r.Body, &d); err != nil {
		return DMARCReport{}, fmt.Errorf("read stored DMARC report %s: %w", r.ID, err)
	}
	out := DMARCReport{
		ID: r.ID, ReportID: d.ID, OrgName: d.Org, Email: core.OrNull(d.Email), DateBegin: core.Time{Time: d.Begin}, DateEnd: core.Time{Time: d.End},
		Policy: dmarcPolicyOut(&d.Policy), Records: make([]DMARCRecord, 0, len(d.Records)), RecordsMore: d.More,
		Totals: DMARCTotals(d.Totals), Authenticated: r.Authenticated, ReceivedFrom: core.OrNull(r.From), ReceivedAt: core.Time{Time: r.ReceivedAt},
	}
	for i := range d.Records {
		out.Records = append(out.Records, dmarcRecordOut(&d.Records[i]))
	}
	return out, nil
}

func dmarcPolicyOut(p *dmarcreport.Policy) DMARCReportPolicy {
	return DMARCReportPolicy{
		Domain: p.Domain, P: p.P, SP: p.SP, NP: core.OrNull(p.NP), ADKIM: p.ADKIM, ASPF: p.ASPF, Testing: p.Testing, Discovery: core.OrNull(p.Discovery), Pct: p.Pct,
	}
}

func dmarcRecordOut(r *dmarcreport.Record) DMARCRecord {
	out := DMARCRecord{
		SourceIP: r.SourceIP, Count: r.Count, Disposition: r.Disposition, DKIM: r.DKIM, SPF: r.SPF, HeaderFrom: r.HeaderFrom,
		EnvelopeFrom: core.OrNull(r.EnvelopeFrom), EnvelopeTo: core.OrNull(r.EnvelopeTo),
		Reasons: []DMARCReason{}, DKIMResults: []DMARCDKIMResult{}, SPFResults: []DMARCSPFResult{},
	}
	for _, reason := range r.Reasons {
		out.Reasons = append(out.Reasons, DMARCReason{reason.Type, core.OrNull(reason.Comment)})
	}
	for _, a := range r.DKIMResults {
		out.DKIMResults = append(out.DKIMResults, DMARCDKIMResult{a.Domain, core.OrNull(a.Selector), a.Result})
	}
	for _, a := range r.SPFResults {
		out.SPFResults = append(out.SPFResults, DMARCSPFResult{a.Domain, core.OrNull(a.Scope), a.Result})
	}
	return out
}

// A TLSReport is another operator's report about TLS connections to a domain's hosts.
type TLSReport struct {
	ID        string            `json:"id" words:"ours" example:"rep_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	ReportID  string            `json:"report_id" words:"theirs"` // The reporter's own id of the report.
	OrgName   string            `json:"org_name" words:"theirs"`  // The name of the reporter, as the report states it.
	Contact   *string           `json:"contact" words:"theirs" example:"mailto:tls@example.net"`
	DateBegin core.Time         `json:"date_begin"` // The start of the period that it covers.
	DateEnd   core.Time         `json:"date_end"`   // The end of the period that it covers.
	Policies  []TLSReportPolicy `json:"policies"`
	Totals    TLSTotals         `json:"totals"`
	// Whether the message with the report passed DMARC, SPF or DKIM for `received_from`; the report
	// has no other proof of its origin.
	Authenticated bool      `json:"authenticated" example:"true"`
	ReceivedFrom  *string   `json:"received_from" words:"theirs"` // The domain in From of the message with the report.
	ReceivedAt    core.Time `json:"received_at"`
}

// A TLSReportPolicy is a policy that was applied, with its results.
type TLSReportPolicy struct {
	Type       string             `json:"type" enum:"sts|tlsa|no-policy-found"`
	Domain     string             `json:"domain" words:"theirs"`
	Strings    []string           `json:"strings" words:"theirs" example:"version: STSv1"`
	MXHosts    []string           `json:"mx_hosts" words:"theirs" example:"mail.example.com"`
	Successful int64              `json:"successful"`
	Failed     int64              `json:"failed"`
	Failures   []TLSReportFailure `json:"failures"`
}

// A TLSReportFailure counts sessions that failed in the same way.
type TLSReportFailure struct {
	ResultType  string  `json:"result_type" words:"theirs" example:"certificate-expired"`
	Sessions    int64   `json:"sessions"`
	SendingIP   *string `json:"sending_ip" words:"theirs" example:"192.0.2.7"`
	MXHost      *string `json:"mx_host" words:"theirs" example:"mail.example.com"`
	ReceivingIP *string `json:"receiving_ip" words:"theirs" example:"198.51.100.7"`
	Reason      *string `json:"reason" words:"theirs" example:"certificate has expired"`
}

// TLSTotals counts the sessions of a report.
type TLSTotals struct {
	Successful int64 `json:"successful"`
	Failed     int64 `json:"failed"`
}

// ListTLSReports lists the TLS reports about a domain, newest first.
func (s *Service) ListTLSReports(_ context.Context, who core.Actor, in ListReportsIn) (*page.Page[TLSReport], error) {
	return listReports(s, who, in, store.ReportTLS, page.Listing[store.Report, TLSReport]{Operation: "tls_reports", Out: tlsReportOut})
}

func tlsReportOut(_ *store.Tx, r *store.Report) (TLSReport, error) {
	var t tlsrpt.Report
	if err := json.Unmarshal(r.Body, &t); err != nil {
		return TLSReport{}, fmt.Errorf("read stored TLS report %s: %w", r.ID, err)
	}
	out := TLSReport{
		ID: r.ID, ReportID: t.ID, OrgName: t.Org, Contact: core.OrNull(t.Contact), DateBegin: core.Time{Time: t.Begin}, DateEnd: core.Time{Time: t.End},
		Policies: []TLSReportPolicy{}, Authenticated: r.Authenticated, ReceivedFrom: core.OrNull(r.From), ReceivedAt: core.Time{Time: r.ReceivedAt},
	}
	for _, p := range t.Policies {
		o := TLSReportPolicy{
			Type: p.Type, Domain: p.Domain, Strings: append([]string{}, p.Strings...), MXHosts: append([]string{}, p.MXHosts...),
			Successful: p.Successful, Failed: p.Failed, Failures: []TLSReportFailure{},
		}
		for _, f := range p.Failures {
			o.Failures = append(o.Failures, TLSReportFailure{f.Result, f.Sessions, core.OrNull(f.SendingIP), core.OrNull(f.MXHost), core.OrNull(f.ReceivingIP), core.OrNull(f.Reason)})
		}
		out.Totals.Successful += p.Successful
		out.Totals.Failed += p.Failed
		out.Policies = append(out.Policies, o)
	}
	return out, nil
}
