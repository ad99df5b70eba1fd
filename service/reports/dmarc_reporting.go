package reports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/dmarcreport"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/store"
)

const (
	reportsAtOnce    = 4
	maxTargetLookups = 8 // attempts to find the addresses for the report in DNS
)

// reportSweepKind is the job that plans the reports of past days, one job for each domain.
func (s *Service) reportSweepKind() jobs.Kind {
	return jobs.Kind{Name: "dmarc_report_sweep", Work: s.planReports, Timeout: 30 * time.Minute}
}

// reportKind is the job that sends one domain's report of one day.
func (s *Service) reportKind() jobs.Kind {
	return jobs.Kind{Name: "dmarc_report", Work: s.sendReport, Max: maxTargetLookups + 2, Most: reportsAtOnce, Failed: s.reportFailed}
}

// reportArgs names a domain and a day.
type reportArgs struct {
	Day    string `json:"day"`
	Domain string `json:"domain"`
}

func (s *Service) planReports(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	today := s.Now().UTC().Format(time.DateOnly)
	for after := ""; ctx.Err() == nil; {
		var next *store.DMARCCount
		err := s.Store.Update(func(tx *store.Tx) error {
			next = nil
			for _, c := range store.DMARCCountsByDay.Asc(tx, "", after) {
				next = c
				break
			}
			if next == nil || next.Day >= today {
				next = nil
				return s.deleteEmptyDays(tx, today)
			}
			_, err := s.Queue.Add(tx, jobs.New{
				Kind: "dmarc_report", Key: next.Day + " " + next.Domain, Lane: "dmarc_report " + next.Domain, Args: reportArgs{next.Day, next.Domain},
			})
			return err
		})
		if err != nil || next == nil {
			return nil, err
		}
		after = next.Day + next.Domain + "\x01" // after all rows of this domain and day
	}
	return nil, ctx.Err()
}

// deleteEmptyDays deletes the records of past days whose rows were all deleted.
func (s *Service) deleteEmptyDays(tx *store.Tx, today string) error {
	var ids []string
	for d := range store.DMARCDays.All(tx) {
		if d.Day < today && !store.DMARCCountsByDay.Has(tx, d.Day) {
			ids = append(ids, d.Day)
		}
	}
	return core.DeleteAll(tx, store.DMARCDays, ids)
}

// sendReport makes a report, queues the message with it, and deletes the counts. A domain whose
// report addresses want no report gets none.
func (s *Service) sendReport(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[reportArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	report, to, err := s.makeReport(args)
	if err != nil || report == nil {
		return nil, err
	}
	v := auth.Verifier{Resolver: s.Resolver, Now: s.Now, Timeout: core.AuthTimeout}
	targets, waits := v.ReportTargets(ctx, args.Domain, to)
	if waits && j.Attempt < maxTargetLookups {
		return nil, fmt.Errorf("look up the DMARC report addresses of %s: the DNS does not answer", args.Domain)
	}
	mail, err := s.composeReport(report, targets)
	if err != nil {
		return nil, err
	}
	if mail != nil {
		jobs.Finally(ctx, func() { s.inbox.Release(mail.StoredMessage) }) // does nothing if the message was queued
	}
	return func(tx *store.Tx, _ *store.Job) error {
		if mail != nil {
			if err := s.outbound.SendSystemMail(tx, *mail); err != nil {
				return err
			}
		}
		return deleteCounts(tx, args)
	}, nil
}

// reportFailed deletes the counts of a report that was given up.
func (s *Service) reportFailed(tx *store.Tx, j *store.Job, _ error) error {
	args, err := jobs.Args[reportArgs](j)
	if err != nil {
		return nil // the job names no report
	}
	return deleteCounts(tx, args)
}

func deleteCounts(tx *store.Tx, args reportArgs) error {
	var ids []string
	for _, id := range store.DMARCCountsByDay.Keys(tx, args.Day+args.Domain+"\x00", "") {
		ids = append(ids, id)
	}
	return core.DeleteAll(tx, store.DMARCCounts, ids)
}

// makeReport returns the report about one domain and day, with the addresses to send it to; nil if
// there is nothing to report.
func (s *Service) makeReport(args reportArgs) (*dmarcreport.Report, []string, error) {
	day, err := time.Parse(time.DateOnly, args.Day)
	if err != nil {
		return nil, nil, jobs.Permanent(err)
	}
	d := &dmarcreport.Report{
		Org: s.Hostname(), ID: args.Day + "." + core.TextHash(args.Domain)[:12] + "@" + s.Hostname(), Begin: day, End: day.Add(24*time.Hour - time.Second),
	}
	var policy reportPolicy
	err = s.Store.View(func(tx *store.Tx) error {
		for _, c := range store.DMARCCountsByDay.Asc(tx, args.Day+args.Domain+"\x00", "") {
			var r dmarcreport.Record
			if err := errors.Join(json.Unmarshal(c.Record, &r), json.Unmarshal(c.Policy, &policy)); err != nil {
				return fmt.Errorf("decode the DMARC counts of %s: %w", args.Domain, err)
			}
			r.Count = c.Count
			d.Records = append(d.Records, r)
		}
		return nil
	})
	if err != nil || len(d.Records) == 0 {
		return nil, nil, err
	}
	d.Policy = policy.Policy
	return d, policy.Reports, nil
}

// composeReport composes the message with a report. It returns nil if no target accepts the report,
// or if this server hosts no domain to send it from.
func (s *Service) composeReport(report *dmarcreport.Report, targets []auth.ReportTarget) (*outbound.SystemMail, error) {
	from, account, err := s.outbound.Reporter()
	if err != nil || len(targets) == 0 {
		return nil, err
	}
	report.Email = "postmaster@" + from.Name
	file, err := report.Gzip()
	if err != nil {
		return nil, err
	}
	to := recipientsOf(targets, int64(len(file)))
	if len(to) == 0 {
		s.Log.Info("a DMARC report exceeds the size limit of every report address", "domain", report.Policy.Domain, "bytes", len(file))
		return nil, nil
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if _, err := s.composeMessage(report, from, to, file).WriteTo(spool); err != nil {
		return nil, fmt.Errorf("compose the DMARC report about %s: %w", report.Policy.Domain, err)
	}
	d, err := s.inbox.Prepare(spool, inbox.Envelope{Received: s.Now(), Outgoing: true})
	if err != nil {
		return nil, err
	}
	return &outbound.SystemMail{StoredMessage: d, AccountID: account, From: from, To: to}, nil
}

func (s *Service) composeMessage(report *dmarcreport.Report, from *store.Domain, to []outbound.Rcpt, file []byte) *msg.Composer {
	host := s.Hostname()
	d := &msg.Composer{
		From: msg.Address{Name: host, Mailbox: "postmaster", Host: from.Name}, Subject: report.Subject(host),
		MessageID: msg.NewMessageID(host), Date: s.Now(), Headers: []msg.Header{{Name: "Auto-Submitted", Value: "auto-generated"}},
		Text: fmt.Sprintf("This is an aggregate report (RFC 9990) about mail that came to %s\non %s (UTC) in the name of %s.\n",
			host, report.Begin.Format(time.DateOnly), report.Policy.Domain),
		Attachments: []msg.AttachedFile{{Filename: report.Filename(host), ContentType: dmarcreport.MediaType, Content: file}},
	}
	for _, r := range to {
		local, domain, _ := msg.SplitEmail(r.Address)
		d.To = append(d.To, msg.Address{Mailbox: local, Host: domain})
	}
	return d
}

// recipientsOf returns the addresses that accept a report of this size.
func recipientsOf(targets []auth.ReportTarget, size int64) (out []outbound.Rcpt) {
	seen := map[string]bool{}
	for _, t := range targets {
		address, err := msg.NormalizeEmail(t.Address)
		if err != nil || seen[address] || t.Most > 0 && size > t.Most {
			continue
		}
		seen[address] = true
		out = append(out, outbound.Rcpt{Address: address, Notify: "NEVER"})
	}
	return out
}
