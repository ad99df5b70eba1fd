package reports

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/tlsrpt"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/store"
)

const (
	reportSpread  = 4 * time.Hour  // reports are sent over this time after midnight (RFC 8460 section 4.1)
	reportGiveUp  = 48 * time.Hour // so long after the end of its day, a report that cannot be sent is given up
	reportTimeout = 30 * time.Second
)

// tlsReportKind is the job that sends reports on the TLS failures of the day before to the domains
// that ask for them (RFC 8460). It sends no report about a domain without failures.
func (s *Service) tlsReportKind() jobs.Kind {
	return jobs.Kind{Name: "tls_reports", Work: s.ReportTLS, Timeout: 30 * time.Minute}
}

func (s *Service) newReportClient() *http.Client {
	t := s.Guard.Transport(s.Resolver, s.Config.RootCAs)
	t.DisableKeepAlives = true
	t.MaxResponseHeaderBytes = 16 << 10
	return &http.Client{
		Timeout:       reportTimeout,
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (s *Service) ReportTLS(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	due, err := s.dueTLSCounts()
	if err != nil {
		return nil, err
	}
	for _, row := range due {
		if err := s.sendReportOfRow(ctx, row); err != nil {
			return nil, fmt.Errorf("send the TLS report about %s: %w", row.Domain, err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, nil
}

// dueTLSCounts returns the rows of past days whose report is due. Each is due some hours after
// midnight, so that not all reports go out at once.
func (s *Service) dueTLSCounts() ([]*store.TLSCount, error) {
	now := s.Now().UTC()
	var out []*store.TLSCount
	err := s.Store.View(func(tx *store.Tx) error {
		for row := range store.TLSCounts.All(tx) {
			sum := sha256.Sum256([]byte(row.Domain))
			wait := time.Duration(binary.BigEndian.Uint64(sum[:]) % uint64(reportSpread))
			if end := endOfDay(row); !now.Before(end.Add(wait)) {
				out = append(out, row)
			}
		}
		return nil
	})
	return out, err
}

// endOfDay returns the midnight that ends the day of a row; the zero time if the day cannot be
// parsed, so that the row is due.
func endOfDay(row *store.TLSCount) time.Time {
	day, err := time.Parse(time.DateOnly, row.Day)
	if err != nil {
		return time.Time{}
	}
	return day.AddDate(0, 0, 1)
}

// sendReportOfRow sends the report of one row, if the domain wants it, and deletes the row.
func (s *Service) sendReportOfRow(ctx context.Context, row *store.TLSCount) error {
	var targets []string
	if outbound.HasTLSFailures(row) {
		texts, err := s.Resolver.LookupTXT(ctx, "_smtp._tls."+row.Domain+".")
		missing := new(net.DNSError)
		if err != nil && !(errors.As(err, &missing) && missing.IsNotFound) && s.Now().Before(endOfDay(row).Add(reportGiveUp)) {
			return nil // the job runs again in an hour
		}
		targets = tlsrpt.ParseRecord(texts)
	}
	var mails []*outbound.SystemMail
	for _, target := range targets {
		l, err := s.sendTLSReport(ctx, row, target)
		if err != nil { // the domain must fix its target; there may be other targets
			s.LogOf(ctx).Info("a report on TLS cannot be sent", "domain", row.Domain, "to", target, "error", err)
		} else if l != nil {
			mails = append(mails, l)
		}
	}
	err := ctx.Err() // if this server is stopping, the report is sent later
	if err == nil {
		err = s.queueTLSReports(row, mails)
	}
	for _, m := range mails {
		s.inbox.Release(m.StoredMessage) // does nothing if the blob is in use
	}
	return err
}

// queueTLSReports queues the report messages and deletes the row.
func (s *Service) queueTLSReports(row *store.TLSCount, mails []*outbound.SystemMail) error {
	return s.Store.Update(func(tx *store.Tx) error {
		for _, m := range mails {
			if err := s.outbound.SendSystemMail(tx, *m); err != nil {
				return err
			}
		}
		return store.TLSCounts.Delete(tx, store.TLSCountID(row.Day, row.Domain))
	})
}

// sendTLSReport posts a report to an https: target, or composes the message for a mailto: target.
func (s *Service) sendTLSReport(ctx context.Context, row *store.TLSCount, target string) (*outbound.SystemMail, error) {
	from, account, err := s.outbound.Reporter()
	if err != nil {
		return nil, err
	}
	report := s.tlsReport(row, from.Name)
	content, err := report.Gzip()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(target, "https:") {
		return nil, s.postTLSReport(ctx, target, content)
	}
	to, err := msg.NormalizeEmail(tlsrpt.Mailbox(target))
	if err != nil {
		return nil, err
	}
	message := msg.TLSReport{
		From: msg.Address{Mailbox: "postmaster", Host: from.Name}, To: to, Domain: row.Domain, Submitter: from.Name, ID: report.ID,
		Content: content, Start: report.Begin, End: report.End, MessageID: msg.NewMessageID(from.Name), Date: s.Now(),
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if _, err := message.WriteTo(spool); err != nil {
		return nil, err
	}
	d, err := s.inbox.Prepare(spool, inbox.Envelope{To: []string{to}, Received: s.Now(), Outgoing: true})
	if err != nil {
		return nil, err
	}
	return &outbound.SystemMail{StoredMessage: d, AccountID: account, From: from, To: []outbound.Rcpt{{Address: to}}, TLSReport: true}, nil
}

func (s *Service) tlsReport(row *store.TLSCount, submitter string) *tlsrpt.Report {
	end := endOfDay(row)
	sum := sha256.Sum256([]byte(row.Day + " " + row.Domain))
	r := &tlsrpt.Report{
		Org: submitter, Contact: "postmaster@" + submitter, ID: row.Day + "." + hex.EncodeToString(sum[:8]) + "@" + submitter,
		Begin: end.AddDate(0, 0, -1), End: end.Add(-time.Second),
	}
	for _, c := range row.Policies {
		p := tlsrpt.Policy{
			Type: c.Type, Domain: row.Domain, Strings: c.Strings, MXHosts: c.MXHosts, Successful: c.Successful, Failed: c.Failed,
		}
		for _, f := range c.Failures {
			p.Failures = append(p.Failures, tlsrpt.Failure{Result: f.Result, MXHost: f.Host, ReceivingIP: f.IP, Sessions: f.Sessions, Reason: f.Reason})
		}
		r.Policies = append(r.Policies, p)
	}
	return r
}

func (s *Service) postTLSReport(ctx context.Context, url string, content []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", tlsrpt.MediaType)
	resp, err := s.reportClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // some servers fail if the client does not read the answer
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("post TLS report to %s: it answers %s", url, resp.Status)
	}
	return nil
}
