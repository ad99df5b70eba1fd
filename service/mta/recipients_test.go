package mta_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestRecipientIsWhomTheEnvelopeNamed: with its tag, or the address that the catch-all took; in the
// event and in the inbox.
func TestRecipientIsWhomTheEnvelopeNamed(t *testing.T) {
	i := servicetest.Install(t, core.Config{Outbound: "capture"})
	d := i.AddDomain(i.Account, "example.test", func(d *store.Domain) { d.CatchAll = "ann@example.test" })
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	i.Run()
	want := []string{"ann@example.test", "ann+news@example.test", "anybody@example.test", "ann+here@example.test", "else@example.test"}
	for n, to := range want {
		if n < 3 {
			i.MustArrive("pat@sender.test", to, servicetest.LetterFrom("pat@sender.test"))
			continue
		}
		i.MustSubmit(bob, strings.ReplaceAll(servicetest.PlainMessage, "ann@example.test", "bob@example.test"), to)
		i.Becomes(to, store.OutgoingDelivered)
	}
	servicetest.Keep(i, ann, "INBOX", servicetest.LetterFrom("pat@sender.test")) // without an envelope
	page, err := i.Svc.ListEmailUserInbox(context.Background(), servicetest.ActorNum(i.Account, ann.AccountNum), inbox.ListEmailUserInboxIn{UserID: ann.ID})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, m := range page.Data {
		if got[m.Recipient]++; m.Mailbox != ann.Email {
			t.Errorf("mailbox %s", m.Mailbox)
		}
	}
	told := map[string]int{}
	for _, e := range i.Events(events.EventEmailReceived) {
		told[fmt.Sprint(e["recipient"])]++
		if e["mailbox"] != ann.Email {
			t.Errorf("event %v", e)
		}
	}
	for n, to := range want {
		if count := map[bool]int{true: 2, false: 1}[n == 0]; got[to] != count || told[to] != count {
			t.Errorf("%s: %d in the list, %d events, of %v and %v", to, got[to], told[to], got, told)
		}
	}
}

// TestOurOwnRefusalSuppressesNobody, and a mailbox that is made or taken back gets mail again.
func TestOurOwnRefusalSuppressesNobody(t *testing.T) {
	i := servicetest.Install(t, core.Config{Outbound: "capture"})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", func(mb *store.Mailbox) { mb.Ready = true })
	i.Run()
	suppressed := func(email string) (yes bool) {
		i.T.Helper()
		if err := i.St.View(func(tx *store.Tx) (err error) {
			yes, err = core.IsSuppressed(tx, i.Account.AccountID, email)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	i.MustSubmit(ann, servicetest.PlainMessage, "new@example.test")
	i.Becomes("new@example.test", store.OutgoingBounced)
	if e := i.Events(events.EventEmailBounced); suppressed("new@example.test") || len(e) != 1 || e[0]["suppressed"] != false || e[0]["status"] != "5.1.1" {
		t.Errorf("events %v", e)
	}
	// A report from elsewhere about an address of ours says no more.
	i.Update(func(tx *store.Tx) error {
		row := i.Row("new@example.test")
		return i.Svc.TellBounce(tx, row, mta.Failure{Status: "5.1.1", Address: true})
	})
	if suppressed("new@example.test") {
		t.Error("a report suppresses it")
	}
	for _, email := range []string{"new@example.test", "ann@example.test", "bob@example.test"} {
		if _, err := i.Svc.CreateSuppression(context.Background(), servicetest.Actor(i.Account), mta.CreateSuppressionIn{Email: email}); err != nil {
			t.Fatal(err)
		}
	}
	pw := "correct horse battery"
	if _, err := i.Svc.CreateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.CreateEmailUserIn{Email: "new@example.test", Password: &pw}); err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{"suspended", "active"} {
		if suppressed("ann@example.test") != true {
			t.Errorf("before %s", status)
		}
		if _, err := i.Svc.UpdateEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.UpdateEmailUserIn{UserID: ann.ID, Status: &status}); err != nil {
			t.Fatal(err)
		}
	}
	if suppressed("new@example.test") || suppressed("ann@example.test") || !suppressed("bob@example.test") {
		t.Errorf("new %v, ann %v, bob %v", suppressed("new@example.test"), suppressed("ann@example.test"), suppressed("bob@example.test"))
	}
}

// TestSubmissionKnowsOurRecipients at RCPT.
func TestSubmissionKnowsOurRecipients(t *testing.T) {
	i := servicetest.Install(t, core.Config{Outbound: "direct"})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.AddMailbox(d, "sue", func(mb *store.Mailbox) { mb.Status = "suspended" })
	i.AddDomain(i.Account, "catch.test", func(d *store.Domain) { d.CatchAll = "ann@example.test" })
	away := i.AddMailbox(i.AddDomain(i.Account, "away.test", func(d *store.Domain) { d.DNSProvider = core.ProviderExternal }), "me", func(mb *store.Mailbox) {
		mb.External = &store.External{IMAP: store.Server{Host: "127.0.0.1", Port: 1, Security: "none"}}
	})
	for to, want := range map[string]string{
		"ann@example.test": "", "ann+tag@example.test": "", "x@far.test": "", "any@catch.test": "", "sue@example.test": "", "postmaster@example.test": "",
		"nobody@example.test": "550 5.1.1", "no.body+ann@example.test": "550 5.1.1", "nobody@away.test": "",
		i.Svc.SRSForward("x@far.test", "example.test"): "550 5.7.1", "no address": "553 5.1.3",
	} {
		got := ""
		if err := i.Svc.MaySendTo(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}, to); err != nil {
			got = fmt.Sprint(core.AsSMTPError(err).Code, " ", core.AsSMTPError(err).Enhanced)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", to, got, want)
		}
	}
	// An external mailbox sends through its own server, which knows its own recipients.
	if err := i.Svc.MaySendTo(context.Background(), core.MailboxUser{AccountID: away.AccountID, MailboxID: away.ID, Email: away.Email}, "nobody@example.test"); err != nil {
		t.Errorf("from an external mailbox: %v", err)
	}
}

// TestRepliesToOurOwnID: a relay that keeps Message-IDs leaves no pair behind, and the reply names
// ours.
func TestRepliesToOurOwnID(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Relays: []core.Relay{h.Relay("mailgun")}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.AddMailbox(d, "fwd", func(mb *store.Mailbox) { mb.ForwardTo = "away@far.test" })
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	i.Becomes("x@far.test", store.OutgoingRelayed)
	i.MustArrive("pat@sender.test", "fwd@example.test", "Message-ID: <theirs@sender.test>\r\n"+servicetest.LetterFrom("pat@sender.test"))
	i.Becomes("away@far.test", store.OutgoingRelayed)
	many := ""
	for n := range 30 {
		many += fmt.Sprintf(" <r%d@far.test>\r\n", n)
	}
	for fields, want := range map[string]any{
		"In-Reply-To: <own@example.test>\r\n":                                                "<own@example.test>",
		"References: <a@far.test> <own@example.test>\r\n":                                    "<own@example.test>",
		"References:" + many + "In-Reply-To: <own@example.test>\r\n":                         "<own@example.test>",
		"In-Reply-To: <other@example.test>\r\nReferences: <own@example.test> <z@z.test>\r\n": "<own@example.test>",
		"In-Reply-To: <theirs@sender.test>\r\n":                                              nil, // which we only forwarded
		"X-No: reply\r\n":                                                                    nil,
	} {
		i.MustArrive("pat@sender.test", "ann@example.test", fields+servicetest.LetterFrom("pat@sender.test"))
		e := i.Events(events.EventEmailReceived)
		if got := e[len(e)-1]["original_message_id"]; got != want {
			t.Errorf("%.80q: %v, want %v", fields, got, want)
		}
	}
}
