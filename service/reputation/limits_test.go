package reputation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// limited is an installation with limits, its own clock, and two mailboxes of one domain.
func limited(t *testing.T, l core.Limits) (i *servicetest.Installation, ann, bob *store.Mailbox, now *time.Time) {
	t.Helper()
	at := time.Date(2026, 11, 26, 22, 0, 0, 0, time.UTC)
	i = servicetest.InstallWith(t, core.Config{Settings: core.Settings{Outbound: "capture", Limits: l}}, store.Options{Now: func() time.Time { return at }})
	d := i.AddDomain(i.Account, "example.test", nil)
	return i, i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil), &at
}

func numbered(name string, from, to int) (out []string) {
	for n := from; n < to; n++ {
		out = append(out, fmt.Sprintf("%s%d@far.test", name, n))
	}
	return out
}

// refusedFor returns which limit an error is about.
func refusedFor(err error) string {
	var e *core.Error
	if !errors.As(err, &e) || len(e.Details) == 0 {
		return fmt.Sprint(err)
	}
	return e.Code + " " + e.Details[0].Field
}

// TestRecipientsOfADay: each scope has a limit; no part of a message that exceeds one is counted or
// sent; the next day starts from zero.
func TestRecipientsOfADay(t *testing.T) {
	i, ann, bob, now := limited(t, core.Limits{RecipientsPerMailbox: 10, RecipientsPerDomain: 15, RecipientsPerAccount: 20})
	i.MustSubmit(ann, servicetest.PlainMessage, numbered("a", 0, 8)...)
	_, err := i.Submit(ann, servicetest.PlainMessage, numbered("a", 8, 11)...)
	if got := refusedFor(err); got != "daily_send_limit_reached mailbox" {
		t.Errorf("past the mailbox's limit: %s", got)
	}
	var answer *core.SMTPError
	if !errors.As(err, &answer) || answer.Code != 452 || answer.Enhanced != "4.5.3" || !strings.Contains(answer.Message, "until 2026-11-27T00:00:00Z") {
		t.Errorf("over SMTP the answer is %v", err)
	}
	var refused *core.Error
	if errors.As(err, &refused); refused.RetryAfter != 2*time.Hour {
		t.Errorf("it may send again after %s, want 2 h", refused.RetryAfter)
	}
	i.MustSubmit(ann, servicetest.PlainMessage, numbered("a", 8, 10)...)
	i.MustSend(bob, submit.SendEmailIn{To: numbered("b", 0, 5), Subject: "s"})
	if _, err = i.Send(bob, submit.SendEmailIn{To: submit.Texts{"b9@far.test"}, Subject: "s"}); refusedFor(err) != "daily_send_limit_reached domain" {
		t.Errorf("past the domain's limit: %s", refusedFor(err))
	}
	cat := i.AddMailbox(i.AddDomain(i.Account, "second.test", nil), "cat", nil)
	i.MustSend(cat, submit.SendEmailIn{To: numbered("c", 0, 5), Subject: "s"})
	if _, err = i.Send(cat, submit.SendEmailIn{To: numbered("c", 5, 6), Subject: "s"}); refusedFor(err) != "daily_send_limit_reached account" {
		t.Errorf("past the account's limit: %s", refusedFor(err))
	}
	other := i.AddMailbox(i.AddDomain(i.AddAccount("x@elsewhere.test"), "other.test", nil), "dan", nil)
	i.MustSend(other, submit.SendEmailIn{To: numbered("d", 0, 5), Subject: "s"})
	*now = now.Add(3 * time.Hour)
	i.MustSubmit(ann, servicetest.PlainMessage, numbered("a", 0, 10)...)
}

// TestNewRecipients: an address is new unless the account has written to it, or it to the account,
// within 90 days; local addresses never are.
func TestNewRecipients(t *testing.T) {
	i, ann, bob, now := limited(t, core.Limits{NewRecipientsPerMailbox: 3})
	i.DNS.Txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
	i.MustSubmit(ann, servicetest.PlainMessage, numbered("a", 0, 3)...)
	if _, err := i.Submit(ann, servicetest.PlainMessage, "a0@far.test", "a9@far.test"); refusedFor(err) != "new_recipient_limit_reached mailbox" {
		t.Errorf("past the limit: %s", refusedFor(err))
	}
	i.MustSubmit(ann, servicetest.PlainMessage, append(numbered("a", 0, 3), "bob@example.test", "A1@far.test")...)
	i.MustSend(bob, submit.SendEmailIn{To: append(numbered("a", 0, 3), numbered("b", 0, 3)...), Subject: "s"})
	if err := i.Receive("z@far.test", "From: Z <Z@far.test>\r\nSubject: s\r\n\r\nhello\r\n", "bob@example.test"); err != nil {
		t.Fatal(err)
	}
	i.MustSubmit(ann, servicetest.PlainMessage, "z@far.test")
	*now = now.AddDate(0, 0, 90)
	i.MustSubmit(ann, servicetest.PlainMessage, "z@far.test", "a0@far.test", "n1@far.test", "n2@far.test", "n3@far.test")
	*now = now.AddDate(0, 0, 91)
	if _, err := i.Submit(ann, servicetest.PlainMessage, "a1@far.test", "z@far.test", "a0@far.test", "n1@far.test"); refusedFor(err) != "new_recipient_limit_reached mailbox" {
		t.Errorf("after 91 days: %s", refusedFor(err))
	}
	if _, err := i.Svc.Prune(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if err := i.St.View(func(tx *store.Tx) error {
		for c := range store.Contacts.All(tx) {
			t.Errorf("contact of day %d is kept", c.Day)
		}
		for d := range store.SendDays.All(tx) {
			t.Errorf("the counts of %s are kept", d.Day)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestLimitsWhileRecipientsAreNamed: a client gets the refusal at the first recipient beyond the
// limit; a recipient that is named twice counts once.
func TestLimitsWhileRecipientsAreNamed(t *testing.T) {
	i, ann, _, _ := limited(t, core.Limits{RecipientsPerMailbox: 3, NewRecipientsPerMailbox: 2})
	u := core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID, Email: ann.Email}
	var e reputation.Envelope
	for _, c := range []struct{ to, want string }{
		{"a@far.test", "<nil>"}, {"a@far.test", "<nil>"}, {"b@far.test", "<nil>"}, {"c@far.test", "new_recipient_limit_reached mailbox"}, {"c@far.test", "new_recipient_limit_reached mailbox"},
		{"bob@example.test", "<nil>"}, {"ann@example.test", "daily_send_limit_reached mailbox"},
	} {
		if got := refusedFor(i.Svc.Submit.MaySendTo(context.Background(), u, &e, c.to)); got != c.want {
			t.Errorf("%s: %s, want %s", c.to, got, c.want)
		}
	}
	if err := i.St.View(func(tx *store.Tx) error {
		n, err := reputation.SentToday(tx, ann)
		if n != 0 {
			t.Errorf("%d recipients are counted before the message", n)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
