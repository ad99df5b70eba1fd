package reports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/dmarcreport"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/reportfile"
	"github.com/mailstead/mailstead/mail/tlsrpt"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

const (
	maxReportFiles   = 3    // files of one message that are examined
	maxUnreadReports = 1000 // unread report messages of an account; further ones are treated only as mail
	maxDomainReports = 1000 // reports of one kind that are kept for a domain, separately for authenticated and other ones
	ReportsKept      = 90 * 24 * time.Hour
	maxReadJobs      = 2 // few, so that other jobs find free workers
)

// KeepForReading plans a job that searches a message for reports about domains of the account. It
// runs in the transaction that files the message, and keeps the message's blob until it is read,
// even if the message is only forwarded.
func (s *Service) KeepForReading(tx *store.Tx, accountID string, d *inbox.StoredMessage, from string, authentic bool) error {
	if store.ReportMailsByAccount.Count(tx, accountID, maxUnreadReports) == maxUnreadReports {
		return nil
	}
	m := &store.ReportMail{
		ID: tx.NewID("rpm"), AccountID: accountID, Blob: d.Blob, From: from, Authenticated: authentic, ReceivedAt: tx.Now(),
	}
	if err := store.ReportBlobs.Ref(tx, m.Blob, m.ID); err != nil {
		return err
	}
	if err := store.ReportMails.Put(tx, m); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{AccountID: accountID, Kind: "report_read", Lane: "report " + accountID, Args: readArgs{m.ID}})
	return err
}

// readArgs are the arguments of the job that reads the reports in one message.
type readArgs struct {
	MailID string `json:"mail_id"`
}

// readReportsKind is the job that reads messages that may contain reports.
func (s *Service) readReportsKind() jobs.Kind {
	return jobs.Kind{
		Name: "report_read", Work: s.readReports, Max: 5, Timeout: time.Minute, Most: maxReadJobs, MostEach: 1,
		Failed: func(tx *store.Tx, j *store.Job, _ error) error {
			args, err := jobs.Args[readArgs](j)
			if err != nil {
				return nil // the job names no message
			}
			return dropReportMail(tx, args.MailID)
		},
	}
}

// readReports reads one message and stores the reports in it.
func (s *Service) readReports(_ context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[readArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var m *store.ReportMail
	err = s.Store.View(func(tx *store.Tx) (err error) {
		m, err = store.ReportMails.Find(tx, args.MailID)
		return err
	})
	if m == nil || err != nil {
		return nil, err
	}
	found, err := s.reportsIn(m)
	if err != nil {
		return nil, err
	}
	return func(tx *store.Tx, _ *store.Job) error {
		for _, r := range found {
			if err := storeReport(tx, m, r); err != nil {
				return err
			}
		}
		return dropReportMail(tx, m.ID)
	}, nil
}

func dropReportMail(tx *store.Tx, id string) error {
	m, err := store.ReportMails.Find(tx, id)
	if m == nil || err != nil {
		return err
	}
	if err := store.ReportBlobs.Unref(tx, m.Blob, m.ID); err != nil {
		return err
	}
	return store.ReportMails.Delete(tx, m.ID)
}

// A foundReport is a report about one domain, which may belong to another account or server.
type foundReport struct {
	store.Report
	Domain string
}

// reportsIn reads the reports in a message. Unreadable ones are skipped.
func (s *Service) reportsIn(m *store.ReportMail) ([]foundReport, error) {
	blob, err := s.Store.OpenBlob(m.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	root, err := msg.Scan(msg.Whole(blob))
	if err != nil {
		return nil, fmt.Errorf("parse report message: %w", err)
	}
	var out []foundReport
	looked := 0
	for _, a := range msg.Attachments(root) {
		kind := inbound.ReportFile(&a)
		if kind == "" || looked == maxReportFiles {
			continue
		}
		looked++
		packed, err := io.ReadAll(io.LimitReader(msg.Open(blob, a.Part), reportfile.MaxPacked+1))
		if err != nil {
			return nil, fmt.Errorf("read part of report message: %w", err)
		}
		found, err := parseReport(kind, packed)
		if err != nil && !errors.Is(err, reportfile.ErrReport) {
			return nil, err
		}
		if err != nil {
			s.Log.Info("an attached report cannot be read", "from", m.From, "kind", kind)
		}
		out = append(out, found...)
	}
	return out, nil
}

// parseReport reads the reports in one file.
func parseReport(kind string, packed []byte) ([]foundReport, error) {
	if kind == store.ReportDMARC {
		d, err := dmarcreport.Read(packed)
		if err != nil {
			return nil, err
		}
		body, err := json.Marshal(d)
		return []foundReport{{store.Report{Kind: kind, ReportID: d.ID, Org: d.Org, Begin: d.Begin, End: d.End, Body: body}, d.Policy.Domain}}, err
	}
	t, err := tlsrpt.Read(packed)
	if err != nil {
		return nil, err
	}
	about := map[string][]tlsrpt.Policy{}
	for _, p := range t.Policies {
		about[p.Domain] = append(about[p.Domain], p)
	}
	var out []foundReport
	for domain, policies := range about {
		t.Policies = policies
		body, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		out = append(out, foundReport{store.Report{Kind: kind, ReportID: t.ID, Org: t.Org, Begin: t.Begin, End: t.End, Body: body}, domain})
	}
	return out, nil
}

// storeReport stores a report about a domain (or a subdomain) of the account that received it. A
// report that is already stored is skipped. If there are too many, the oldest is deleted.
func storeReport(tx *store.Tx, m *store.ReportMail, found foundReport) error {
	d, err := nearestDomain(tx, m.AccountID, found.Domain)
	if d == nil || err != nil {
		return err
	}
	r := found.Report
	r.ID, r.AccountID, r.DomainID = tx.NewID("rep"), m.AccountID, d.ID
	r.From, r.Authenticated, r.ReceivedAt = m.From, m.Authenticated, m.ReceivedAt
	if store.ReportsBySender.Has(tx, store.ReportSenderKey(&r)) {
		return nil
	}
	class := store.ReportClassKey(&r)
	if store.ReportsByClass.Count(tx, class, maxDomainReports) == maxDomainReports {
		for _, id := range store.ReportsByClass.Keys(tx, class, "") {
			if err := store.Reports.Delete(tx, id); err != nil {
				return err
			}
			break
		}
	}
	return store.Reports.Put(tx, &r)
}

// nearestDomain returns the account's domain with this name, or the nearest parent domain; nil if
// there is none.
func nearestDomain(tx *store.Tx, accountID, name string) (*store.Domain, error) {
	for name != "" {
		d, err := store.DomainOfAccount.Get(tx, store.AccountDomainKey(accountID, name))
		switch {
		case err == nil && d.Claim == store.ClaimProven && !d.Gone():
			return d, nil
		case err == nil:
			return nil, nil
		case !core.IsGone(err):
			return nil, err
		}
		if _, err := store.DomainByName.Get(tx, name); !core.IsGone(err) {
			return nil, err // another account's, and so are its subdomains
		}
		_, name, _ = strings.Cut(name, ".")
	}
	return nil, nil
}

// EraseReports deletes the reports about a domain.
func (s *Service) EraseReports(ctx context.Context, domainID string) error {
	for n := core.DropsAtATime; n == core.DropsAtATime; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Store.Update(func(tx *store.Tx) error {
			var ids []string
			for _, id := range store.ReportsByDomain.Keys(tx, domainID, "") {
				ids = append(ids, id)
				if len(ids) == core.DropsAtATime {
					break
				}
			}
			n = len(ids)
			return core.DeleteAll(tx, store.Reports, ids)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
