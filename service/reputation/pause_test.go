package reputation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// waits counts the queued rows.
func waits(i *servicetest.Installation) (n int) {
	i.T.Helper()
	if err := i.St.View(func(tx *store.Tx) error {
		for o := range store.Outgoings.All(tx) {
			if o.Waits() {
				n++
			}
		}
		return nil
	}); err != nil {
		i.T.Fatal(err)
	}
	return n
}

// TestPauseByBounces: a mailbox with 50 recipients, of which more than a tenth do not exist, is
// paused, and its owner is notified once. Other mailboxes may go on, and somebody can resume the
// paused one.
func TestPauseByBounces(t *testing.T) {
	h := (&servicetest.Host{Rcpt: func(to string) string {
		if strings.HasPrefix(to, "bad") {
			return "550 5.1.1 no such user"
		}
		return "250 2.1.5 ok"
	}}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	owner := i.AddMailbox(i.AddDomain(i.Account, "elsewhere.test", nil), "owner", nil)
	who, ctx := servicetest.Actor(i.Account), context.Background()
	i.Run()
	i.MustSend(ann, submit.SendEmailIn{To: append(numbered("bad", 0, 5), numbered("a", 0, 44)...), Subject: "s"})
	servicetest.Eventually(t, "49 are tried", func() bool { return waits(i) == 0 })
	if told := i.Events(reputation.EventPaused); len(told) != 0 {
		t.Fatalf("paused after 49: %v", told)
	}
	i.MustSend(bob, submit.SendEmailIn{To: numbered("b", 0, 50), Subject: "s"})
	i.MustSend(ann, submit.SendEmailIn{To: numbered("bad", 5, 6), Subject: "s"})
	servicetest.Eventually(t, "the owner hears of it", func() bool { return len(i.Events(reputation.EventPaused)) == 1 })
	told := i.Events(reputation.EventPaused)[0]
	if told["email"] != ann.Email || told["reason"] != "bounces" || told["sent"] != 50.0 || told["bounced"] != 6.0 || told["domain"] != "example.test" {
		t.Errorf("email_user.paused: %v", told)
	}
	letters := func() (n int) {
		for _, m := range i.Folder(owner, "INBOX") {
			if strings.Contains(string(m.Raw), "ann@example.test is paused") {
				n++
			}
		}
		return n
	}
	servicetest.Eventually(t, "a letter", func() bool { return letters() == 1 })
	if _, err := i.Send(ann, submit.SendEmailIn{To: numbered("c", 0, 1), Subject: "s"}); refusedFor(err) == "<nil>" || !servicetest.HasCode(err, "sending_paused") {
		t.Errorf("it sends: %v", err)
	}
	var answer *core.SMTPError
	if err := i.Svc.Submit.MaySend(ctx, core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID}); !errors.As(err, &answer) || answer.Code != 452 || answer.Enhanced != "4.7.1" {
		t.Errorf("over SMTP: %v", err)
	}
	i.MustSend(bob, submit.SendEmailIn{To: numbered("d", 0, 1), Subject: "s"})
	i.Becomes("d0@far.test", store.OutgoingSent)
	for _, a := range i.Events(reputation.EventAlert) {
		if a["scope"] != "domain" { // which was over the bound before the mailbox had enough recipients
			t.Errorf("beside the pause the owner hears %v", a)
		}
	}
	if err := i.Receive("x@far.test", "From: <x@far.test>\r\nSubject: s\r\n\r\nhello\r\n", ann.Email); err != nil {
		t.Errorf("it receives no mail: %v", err)
	}

	// The API shows the pause, and resumes the mailbox.
	r, err := i.Svc.Reputation.GetReputation(ctx, who, reputation.ReputationIn{Domain: "example.test"})
	if err != nil {
		t.Fatal(err)
	}
	if w := r.Account.Windows.Day; w.Sent != 101 || w.Bounced != 6 || w.Deferred != 0 {
		t.Errorf("the account's day: %+v", w)
	}
	if len(r.Mailboxes) != 2 || r.Mailboxes[0].Email != bob.Email || r.Mailboxes[1].SendingPaused == nil || r.Mailboxes[1].Windows.Month.BounceRate != 0.12 {
		t.Errorf("the mailboxes: %+v", r.Mailboxes)
	}
	if len(r.Destinations) != 1 || r.Destinations[0].Operator != "far.test" || r.Destinations[0].Windows.Week.Sent != 101 || r.Destinations[0].Blocked != nil {
		t.Errorf("the destinations: %+v", r.Destinations)
	}
	if other, err := i.Svc.Reputation.GetReputation(ctx, servicetest.Actor(i.AddAccount("x@elsewhere.test")), reputation.ReputationIn{}); err != nil || other.Account.Windows.Day.Sent != 0 || len(other.Mailboxes) != 0 {
		t.Errorf("another account sees %+v, %v", other, err)
	}
	null := core.Opt[core.SendingPause]{Set: true, Null: true}
	shown, err := i.Svc.Mailboxes.UpdateEmailUser(ctx, who, mailboxes.UpdateEmailUserIn{UserID: ann.ID, SendingPaused: null})
	if err != nil || shown.SendingPaused != nil {
		t.Errorf("resumed: %+v, %v", shown, err)
	}
	i.MustSend(ann, submit.SendEmailIn{To: numbered("e", 0, 40), Subject: "s"})
	i.MustSend(ann, submit.SendEmailIn{To: numbered("bad", 10, 15), Subject: "s"})
	servicetest.Eventually(t, "all is tried", func() bool { return waits(i) == 0 })
	if n := len(i.Events(reputation.EventPaused)); n != 1 {
		t.Errorf("paused again after 45: counting did not begin anew")
	}
}

// TestPausedMailWaits: mail that is queued when sending is paused stays queued, and is sent after
// the resume.
func TestPausedMailWaits(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.MustSend(ann, submit.SendEmailIn{To: numbered("a", 0, 3), Subject: "s"})
	i.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, d.ID)
		if err != nil {
			return err
		}
		d.SendingPaused = &store.SendingPaused{Reason: store.PausedComplaints, At: tx.Now()}
		return store.Domains.Put(tx, d)
	})
	i.Run()
	servicetest.Eventually(t, "the rows say so", func() bool { return strings.Contains(i.Row("a2@far.test").LastResponse, "paused") })
	if n := len(h.Mails()); n != 0 {
		t.Errorf("%d were sent", n)
	}
	if err := i.Svc.Submit.MaySend(context.Background(), core.MailboxUser{AccountID: ann.AccountID, MailboxID: ann.ID}); err == nil || !strings.Contains(err.Error(), "example.test") {
		t.Errorf("it may send: %v", err)
	}
	i.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, d.ID)
		if err == nil {
			err = i.Svc.Reputation.ResumeDomain(tx, d)
		}
		if err != nil {
			return err
		}
		return store.Domains.Put(tx, d)
	})
	for n := range 3 {
		i.Becomes(fmt.Sprintf("a%d@far.test", n), store.OutgoingSent)
	}
}

// TestLimitIsTold: the owner is notified once of a daily limit.
func TestLimitIsTold(t *testing.T) {
	i, ann, _, now := limited(t, core.Limits{RecipientsPerDomain: 3})
	i.MustSubmit(ann, servicetest.PlainMessage, numbered("a", 0, 3)...)
	for n := range 3 {
		if _, err := i.Submit(ann, servicetest.PlainMessage, numbered("b", n, n+1)...); err == nil {
			t.Error("it sends past the limit")
		}
	}
	told := i.Events(reputation.EventAlert)
	if len(told) != 1 || told[0]["kind"] != "limit" || told[0]["scope"] != "domain" || told[0]["subject"] != "example.test" || told[0]["until"] != "2026-11-27T00:00:00.000Z" || told[0]["reply"] != nil {
		t.Fatalf("sending.alert: %v", told)
	}
	*now = now.Add(3 * time.Hour)
	i.MustSubmit(ann, servicetest.PlainMessage, numbered("a", 0, 3)...)
	if _, err := i.Submit(ann, servicetest.PlainMessage, numbered("b", 0, 1)...); err == nil {
		t.Error("it sends past the limit of the next day")
	}
	if n := len(i.Events(reputation.EventAlert)); n != 2 {
		t.Errorf("%d sending.alert on the second day, want 2", n)
	}
}

// TestBlocked: the owner is notified once of a receiver's block, with advice. A block suppresses no
// address and pauses nobody, and it ends with the first message that the receiver accepts.
func TestBlocked(t *testing.T) {
	blocking := true
	h := (&servicetest.Host{Rcpt: func(string) string {
		if blocking {
			return "550 5.7.1 Unfortunately, messages from [192.0.2.1] weren't sent. Please contact your Internet service provider since part of their network is on our block list (S3140)."
		}
		return "250 2.1.5 ok"
	}}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["hotmail.test"] = "hotmail-com.olc.protection.outlook.com"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	var to []string
	for n := range 50 {
		to = append(to, fmt.Sprintf("a%d@hotmail.test", n))
	}
	i.MustSend(ann, submit.SendEmailIn{To: to, Subject: "s"})
	servicetest.Eventually(t, "all bounce", func() bool { return waits(i) == 0 })
	told := i.Events(reputation.EventAlert)
	if len(told) != 1 || told[0]["kind"] != "blocked" || told[0]["subject"] != "outlook.com" || !strings.Contains(told[0]["advice"].(string), "Microsoft") || !strings.Contains(told[0]["reply"].(string), "S3140") {
		t.Fatalf("sending.alert: %v", told)
	}
	if n := len(i.Events(reputation.EventPaused)); n != 0 {
		t.Error("a block pauses")
	}
	look := func() *reputation.BlockedReply {
		r, err := i.Svc.Reputation.GetReputation(context.Background(), servicetest.Actor(i.Account), reputation.ReputationIn{})
		if err != nil {
			t.Fatal(err)
		}
		if w := r.Destinations[0].Windows.Day; w.Bounced != 50 {
			t.Errorf("the operator's day: %+v", w)
		}
		return r.Destinations[0].Blocked
	}
	if b := look(); b == nil || b.Advice == "" {
		t.Errorf("the block is %+v", b)
	}
	blocking = false
	if out := i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"a0@hotmail.test"}, Subject: "s"}); out.Recipients[0].Status != "queued" {
		t.Errorf("the block suppressed the address: %+v", out)
	}
	servicetest.Eventually(t, "it is over", func() bool { return waits(i) == 0 })
	if b := look(); b != nil {
		t.Errorf("the block is still there: %+v", b)
	}
}
