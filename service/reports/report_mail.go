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
	reportFiles      = 3    // of one message that are looked at
	reportsWaiting   = 1000 // messages of an account that are still to be read; what comes beyond them is only mail
	reportsOfDomain  = 1000 // of one kind that are kept, of those that are authenticated and of the others
	ReportsKept      = 90 * 24 * time.Hour
	reportsReadAtOne = 2 // so that reading them never takes more than that of the queue's workers
)

// KeepForReading has a message from a domain looked through for reports about domains of the
// account. It is in the transaction that files the message, which may have no other place here than
// on its way to elsewhere.
func (s *Service) KeepForReading(tx *store.Tx, accountID string, d *inbox.StoredMessage, from string, authentic bool) error {
	if store.ReportMailsByAccount.Count(tx, accountID, reportsWaiting) == reportsWaiting {
		return nil
	}
	m := &store.ReportMail{
		ID: tx.NewID("rpm"), AccountID: accountID, Blob: d.Blob, From: from, Authenticated: authentic, ReceivedAt: tx.Now(),
	}
	if err := tx.RefReport(m.Blob, m.ID); err != nil {
		return err
	}
	if err := store.ReportMails.Put(tx, m); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{AccountID: accountID, Kind: "report_read", Lane: "report " + accountID, Args: readArgs{m.ID}})
	return err
}

// readArgs is the job of reading one message.
type readArgs struct {
	MailID string `json:"mail_id"`
}

// readKind reads messages that may hold reports.
func (s *Service) readKind() jobs.Kind {
	return jobs.Kind{
		Name: "report_read", Work: s.readReports, Max: 5, Timeout: time.Minute, Most: reportsReadAtOne, MostEach: 1,
		Failed: func(tx *store.Tx, j *store.Job, _ error) error {
			args, err := jobs.Args[readArgs](j)
			if err != nil {
				return nil // there is no message that it could be about
			}
			return dropReportMail(tx, args.MailID)
		},
	}
}

// readReports reads one message and files what it finds.
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
			if err := fileReport(tx, m, r); err != nil {
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
	if err := tx.UnrefReport(m.Blob, m.ID); err != nil {
		return err
	}
	return store.ReportMails.Delete(tx, m.ID)
}

// A foundReport is one about one domain, which may be ours or not.
type foundReport struct {
	store.Report
	Domain string
}

// reportsIn reads the reports of a message. What cannot be read is none.
func (s *Service) reportsIn(m *store.ReportMail) ([]foundReport, error) {
	blob, err := s.Store.OpenBlob(m.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	root, err := msg.Scan(msg.Whole(blob))
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	var out []foundReport
	looked := 0
	for _, a := range msg.Attachments(root) {
		kind := inbound.ReportFile(&a)
		if kind == "" || looked == reportFiles {
			continue
		}
		looked++
		packed, err := io.ReadAll(io.LimitReader(msg.Open(blob, a.Part), reportfile.MaxPacked+1))
		if err != nil {
			return nil, fmt.Errorf("read message: %w", err)
		}
		found, err := parseReport(kind, packed)
		if err != nil && !errors.Is(err, reportfile.ErrReport) {
			return nil, err
		}
		if err != nil {
			s.Log.Info("what looked like a report is none", "from", m.From, "kind", kind)
		}
		out = append(out, found...)
	}
	return out, nil
}

// parseReport reads one file.
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

// fileReport keeps a report about a domain of the account whose mail brought it, or about a name
// below one. One that came before is not kept again; of too many the oldest goes.
func fileReport(tx *store.Tx, m *store.ReportMail, found foundReport) error {
	d, err := domainAbove(tx, m.AccountID, found.Domain)
	if d == nil || err != nil {
		return err
	}
	r := found.Report
	r.ID, r.AccountID, r.DomainID = tx.NewID("rep"), m.AccountID, d.ID
	r.From, r.Authenticated, r.ReceivedAt = m.From, m.Authenticated, m.ReceivedAt
	if store.ReportsBySender.Has(tx, store.ReportSender(&r)) {
		return nil
	}
	class := store.ReportClass(&r)
	if store.ReportsByClass.Count(tx, class, reportsOfDomain) == reportsOfDomain {
		for _, id := range store.ReportsByClass.Keys(tx, class, "") {
			if err := store.Reports.Delete(tx, id); err != nil {
				return err
			}
			break
		}
	}
	return store.Reports.Put(tx, &r)
}

// domainAbove gives the account's domain of the name, or the nearest one that the name is in; nil
// if there is none.
func domainAbove(tx *store.Tx, accountID, name string) (*store.Domain, error) {
	for name != "" {
		d, err := store.DomainOfAccount.Get(tx, store.OwnKey(accountID, name))
		switch {
		case err == nil && d.Claim == store.ClaimProven && !d.Gone():
			return d, nil
		case err == nil:
			return nil, nil
		case !core.IsGone(err):
			return nil, err
		}
		if _, err := store.DomainByName.Get(tx, name); !core.IsGone(err) {
			return nil, err // another account's, and so is what lies below it
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
