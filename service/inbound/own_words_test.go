package inbound_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestOwnDecisionsAreNoHostsReplies: decisions of this server are explained in the log, the event
// and the report, and are not attributed to a host.
func TestOwnDecisionsAreNoHostsReplies(t *testing.T) {
	signed := "Content-Type: multipart/signed; boundary=b; protocol=\"application/pgp-signature\"; micalg=pgp-sha256\r\n\r\n" +
		"--b\r\nContent-Transfer-Encoding: 8bit\r\n\r\nGrüße\r\n--b\r\nContent-Type: application/pgp-signature\r\n\r\nx\r\n--b--\r\n"
	h := (&servicetest.Host{No8Bit: true}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSubmit(ann, "From: ann@example.test\r\nSubject: s\r\nMIME-Version: 1.0\r\n"+signed, "eight@far.test")
	if _, err := i.Svc.Submit.Submit(t.Context(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email},
		submit.Submission{From: ann.Email, To: []outbound.Rcpt{{Address: "utf@far.test"}}, Body: i.Spool("From: ann@example.test\r\nCc: jörg@far.test\r\n\r\nx\r\n"), SMTPUTF8: true}); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"eight@far.test", "utf@far.test"} {
		row := i.Becomes(to, store.OutgoingBounced)
		if strings.HasPrefix(row.LastResponse, "5") || row.Log[0].Code != 0 {
			t.Errorf("%s: %q, code %d", to, row.LastResponse, row.Log[0].Code)
		}
	}
	for _, e := range i.Events(events.EventEmailBounced) {
		if e["remote_mta"] != nil {
			t.Errorf("the event says that %v answered %v", e["remote_mta"], e["diagnostic"])
		}
	}
	reports := i.Folder(ann, "INBOX")
	if len(reports) != 2 {
		t.Fatalf("%d reports", len(reports))
	}
	for _, r := range reports {
		text := string(r.Raw)
		if strings.Contains(text, "Remote-MTA") || strings.Contains(text, "(answer of") || strings.Contains(text, "Diagnostic-Code: smtp;") || !strings.Contains(text, "Diagnostic-Code: x-mailstead;") {
			t.Errorf("the report says\n%s", text)
		}
	}
}
