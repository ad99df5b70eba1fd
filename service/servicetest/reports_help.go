package servicetest

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/tlsrpt"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/reports"
	"github.com/mailstead/mailstead/store"
)

var Stranger = netip.MustParseAddr("192.0.2.1")

// ComeIn delivers a message from outside and returns the error of the delivery.
func (i *Installation) ComeIn(ip netip.Addr, from, to, text string) error {
	i.T.Helper()
	r, err := i.Svc.Inbound.Accepts(context.Background(), inbound.RecipientQuery{From: from, To: to, RemoteIP: ip})
	if err != nil {
		return err
	}
	body, err := i.Svc.Inbound.Spool(strings.NewReader(text))
	if err != nil {
		i.T.Fatal(err)
	}
	defer body.Close()
	_, err = i.Svc.Inbound.Receive(context.Background(), inbound.Incoming{Client: inbound.Client{IP: ip, Helo: "client.far.test", Extended: true}, From: from, Recipients: []inbound.Recipient{r}, Body: body})
	return err
}

func LetterFrom(author string) string {
	return "From: " + author + "\r\nTo: ann@example.test\r\nSubject: hello\r\n\r\nhello\r\n"
}

// CodeOf returns the SMTP code of an error; 250 for nil.
func CodeOf(err error) int {
	if err == nil {
		return 250
	}
	return core.AsSMTPError(err).Code
}

// Yesterday moves today's DMARC counts to yesterday.
func (i *Installation) Yesterday() {
	i.T.Helper()
	day := i.St.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	i.Update(func(tx *store.Tx) error {
		var all []*store.DMARCCount
		for c := range store.DMARCCounts.All(tx) {
			all = append(all, c)
		}
		for _, c := range all {
			if err := store.DMARCCounts.Delete(tx, c.ID); err != nil {
				return err
			}
			c.ID, c.Day = day+c.ID[len(day):], day
			if err := store.DMARCCounts.Put(tx, c); err != nil {
				return err
			}
		}
		return store.DMARCDays.Put(tx, &store.DMARCDay{Day: day, Rows: len(all)})
	})
}

func (i *Installation) Counted() (rows []*store.DMARCCount) {
	i.T.Helper()
	err := i.St.View(func(tx *store.Tx) error {
		for c := range store.DMARCCounts.All(tx) {
			rows = append(rows, c)
		}
		return nil
	})
	if err != nil {
		i.T.Fatal(err)
	}
	return rows
}

func (i *Installation) ReportsRead() {
	i.T.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		waiting := 0
		_ = i.St.View(func(tx *store.Tx) error {
			for range store.ReportMails.All(tx) {
				waiting++
			}
			return nil
		})
		if waiting == 0 {
			return
		}
		if time.Now().After(end) {
			i.T.Fatalf("%d messages wait to be read", waiting)
		}
	}
}

func (i *Installation) DMARCReports(d *store.Domain) []reports.DMARCReport {
	i.T.Helper()
	out, err := i.Svc.Reports.ListDMARCReports(context.Background(), core.Actor{AccountID: d.AccountID}, reports.ListReportsIn{DomainID: d.ID})
	if err != nil {
		i.T.Fatal(err)
	}
	return out.Data
}

// CountTLSYesterday counts TLS sessions with a domain for the day before yesterday.
func CountTLSYesterday(i *Installation, domain string, sessions ...deliver.Session) {
	i.T.Helper()
	i.Update(func(tx *store.Tx) error {
		row := &store.TLSCount{Day: tx.Now().UTC().AddDate(0, 0, -2).Format(time.DateOnly), Domain: domain}
		for _, s := range sessions {
			outbound.AddSession(row, s)
		}
		return store.TLSCounts.Put(tx, row)
	})
}

// ReportTLS sends the TLS reports that are due.
func ReportTLS(i *Installation) {
	i.T.Helper()
	if _, err := i.Svc.Reports.ReportTLS(context.Background(), nil); err != nil {
		i.T.Fatal(err)
	}
}

// Untrusted and Fine are TLS sessions with a host that has a TLS policy: one that failed, and one
// that succeeded.
var (
	Untrusted = deliver.Session{Policy: tlsrpt.PolicySTS, Strings: []string{"version: STSv1"}, MXHosts: []string{"*.far.test"}, Host: "mx.far.test", IP: "192.0.2.1", Result: tlsrpt.NotTrusted, Reason: "why"}
	Fine      = deliver.Session{Policy: tlsrpt.PolicySTS, Strings: []string{"version: STSv1"}, MXHosts: []string{"*.far.test"}, Host: "mx.far.test"}
)
