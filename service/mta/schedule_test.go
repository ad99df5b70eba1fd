package mta_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

func codeOf(err error) string {
	var e *core.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

func at(t time.Time) *core.Time { return &core.Time{Time: t} }

// TestScheduledMessage: it leaves when its time has come and not before, its copy is filed then,
// and until then its time can be changed and it can be taken back.
func TestScheduledMessage(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	who := servicetest.Actor(i.Account)
	ctx := context.Background()
	i.Run()
	due := time.Now().Add(1500 * time.Millisecond).Truncate(time.Millisecond)
	sent := i.MustSend(ann, mta.SendEmailIn{To: mta.Texts{"a@far.test", "b@far.test", "c@far.test"}, Subject: "s", Text: "t", SendAt: at(due), Tags: mta.TagMap{"kind": "news"}})
	if sent.Status != "scheduled" || !sent.SendAt.Equal(due) || sent.Recipients[0].Status != "scheduled" {
		t.Errorf("the answer is %+v", sent)
	}
	id := map[string]string{}
	for _, r := range sent.Recipients {
		id[r.Email] = r.ID
	}
	later := due.Add(time.Hour)
	row, err := i.Svc.MTA.UpdateScheduledMessage(ctx, who, mta.UpdateScheduledIn{ID: id["b@far.test"], SendAt: at(later)})
	if err != nil || !row.SendAt.Equal(later) || !row.NextAttemptAt.Equal(later) || row.Status != "scheduled" {
		t.Errorf("changed to %+v, %v", row, err)
	}
	row, err = i.Svc.MTA.CancelMessage(ctx, who, mta.SentMessageIn{ID: id["c@far.test"]})
	if err != nil || row.Status != "cancelled" {
		t.Errorf("taken back: %+v, %v", row, err)
	}
	if _, err := i.Svc.MTA.RetryMessage(ctx, who, mta.SentMessageIn{ID: id["b@far.test"]}); codeOf(err) != "not_queued" {
		t.Errorf("retried: %v", err)
	}
	for _, wrong := range []time.Time{time.Now().Add(-time.Second), time.Now().Add(31 * 24 * time.Hour)} {
		if _, err := i.Send(ann, mta.SendEmailIn{To: mta.Texts{"x@far.test"}, Subject: "s", SendAt: at(wrong)}); codeOf(err) != "validation_error" {
			t.Errorf("sent at %s: %v", wrong, err)
		}
	}
	if n := inSent(i, ann); n != 0 {
		t.Errorf("%d copies before it is sent", n)
	}
	done := i.Becomes("a@far.test", store.OutgoingSent)
	if first := done.Log[0].At; first.Before(due) || first.After(due.Add(2*time.Second)) {
		t.Errorf("it left at %s, and was due at %s", first, due)
	}
	if n := inSent(i, ann); n != 1 {
		t.Errorf("%d copies after the first one was sent", n)
	}
	if _, err := i.Svc.MTA.UpdateScheduledMessage(ctx, who, mta.UpdateScheduledIn{ID: id["a@far.test"], SendAt: at(later)}); codeOf(err) != "not_scheduled" {
		t.Errorf("changed after it was sent: %v", err)
	}
	if _, err := i.Svc.MTA.UpdateScheduledMessage(ctx, servicetest.Actor(i.AddAccount("x@elsewhere.test")), mta.UpdateScheduledIn{ID: id["b@far.test"], SendAt: at(later)}); codeOf(err) != "not_found" {
		t.Errorf("changed by another account: %v", err)
	}
	if _, err := i.Svc.MTA.UpdateScheduledMessage(ctx, who, mta.UpdateScheduledIn{ID: id["b@far.test"], SendAt: at(time.Now().Add(300 * time.Millisecond))}); err != nil {
		t.Fatal(err)
	}
	i.Becomes("b@far.test", store.OutgoingSent)
	if n, mails := inSent(i, ann), len(h.Mails()); n != 1 || mails != 2 {
		t.Errorf("%d copies and %d mails in the end", n, mails)
	}
	told := i.Events(events.EventEmailDelivered)
	if len(told) != 2 || told[0]["id"] != id["a@far.test"] || told[0]["host"] != "mx.far.test" || fmt.Sprint(told[0]["tags"]) != "map[kind:news]" {
		t.Errorf("email.delivered: %v", told)
	}
	if subs, js := i.Left(); subs+js != 0 {
		t.Errorf("%d submissions and %d jobs are left", subs, js)
	}
}

// TestScheduledMessageOfADayAgo: one that was scheduled for long is tried for five days from its
// time on.
func TestScheduledMessageOfLongAgo(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	h := (&servicetest.Host{Rcpt: func(string) string { return "450 4.2.1 later" }}).Start(t)
	i := servicetest.InstallWith(t, core.Config{Relays: []core.Relay{h.Relay("custom")}}, store.Options{Now: func() time.Time { return now }})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.MustSend(ann, mta.SendEmailIn{To: mta.Texts{"a@far.test"}, Subject: "s", Text: "t", SendAt: at(now.AddDate(0, 0, 20))})
	now = now.AddDate(0, 0, 20).Add(time.Minute)
	i.Run()
	if row := i.Becomes("a@far.test", store.OutgoingDeferred, store.OutgoingBounced); row.Status != store.OutgoingDeferred {
		t.Errorf("after its first attempt it is %s: %s", row.Status, row.LastResponse)
	}
}

// TestEmailDelayed: the first deferral of direct mail is told, then one a day.
func TestEmailDelayed(t *testing.T) {
	h := (&servicetest.Host{Rcpt: func(string) string { return "450 4.2.1 later" }}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	sent := i.MustSend(ann, mta.SendEmailIn{To: mta.Texts{"a@far.test"}, Subject: "s", Text: "t"})
	attempts := func(n int) *store.Outgoing {
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if row := i.Row("a@far.test"); row.Attempts == n && row.Status == store.OutgoingDeferred {
				return row
			}
			if time.Now().After(end) {
				t.Fatalf("it was not tried %d times", n)
			}
		}
	}
	retry := func() {
		if _, err := i.Svc.MTA.RetryMessage(context.Background(), servicetest.Actor(i.Account), mta.SentMessageIn{ID: sent.Recipients[0].ID}); err != nil {
			t.Fatal(err)
		}
	}
	attempts(1)
	retry()
	row := attempts(2)
	told := i.Events(events.EventEmailDelayed)
	if len(told) != 1 || told[0]["id"] != row.ID || told[0]["attempts"] != 1.0 || told[0]["response"] != "450 4.2.1 later" || told[0]["next_attempt_at"] == nil || told[0]["tls"] != nil {
		t.Fatalf("email.delayed: %v", told)
	}
	i.Update(func(tx *store.Tx) error {
		row, err := store.Outgoings.Get(tx, row.ID)
		if err != nil {
			return err
		}
		row.DelayedAt = row.DelayedAt.Add(-25 * time.Hour)
		return store.Outgoings.Put(tx, row)
	})
	retry()
	attempts(3)
	if n := len(i.Events(events.EventEmailDelayed)); n != 2 {
		t.Errorf("%d email.delayed after a day, want 2", n)
	}
}

// TestEventsOfDirectMailAlone: what a relay deferred or took, what stays here and what is captured
// has neither email.delayed nor email.delivered; tags are in the events that it has.
func TestEventsOfDirectMailAlone(t *testing.T) {
	h := (&servicetest.Host{Rcpt: func(to string) string {
		switch {
		case strings.HasPrefix(to, "later"):
			return "450 4.2.1 later"
		case strings.HasPrefix(to, "never"):
			return "550 5.1.1 no such user"
		}
		return "250 ok"
	}}).Start(t)
	for _, c := range []core.Config{{Relays: []core.Relay{h.Relay("ses")}}, {Outbound: core.ViaCapture}} {
		i := servicetest.Install(t, c)
		d := i.AddDomain(i.Account, "example.test", nil)
		ann := i.AddMailbox(d, "ann", nil)
		i.AddMailbox(d, "bob", nil)
		i.MustSend(ann, mta.SendEmailIn{
			To: mta.Texts{"bob@example.test", "x@far.test", "later@far.test", "never@far.test"}, Subject: "s", Text: "t", Tags: mta.TagMap{"kind": "news"},
		})
		i.Run()
		i.Becomes("bob@example.test", store.OutgoingDelivered)
		i.Becomes("x@far.test", store.OutgoingRelayed, store.OutgoingCaptured)
		i.Becomes("later@far.test", store.OutgoingDeferred, store.OutgoingCaptured)
		i.Becomes("never@far.test", store.OutgoingBounced, store.OutgoingCaptured)
		if told := append(i.Events(events.EventEmailDelivered), i.Events(events.EventEmailDelayed)...); len(told) != 0 {
			t.Errorf("told: %v", told)
		}
		if c.Outbound == core.ViaCapture {
			continue
		}
		for _, kind := range []string{events.EventEmailBounced, events.EventMessageRelayed} {
			if told := i.Events(kind); len(told) != 1 || fmt.Sprint(told[0]["tags"]) != "map[kind:news]" {
				t.Errorf("%s: %v", kind, told)
			}
		}
	}
}

// TestLettersAreNoAccountsMail: what the server writes of its own is told to nobody as delivered.
func TestLettersAreNoAccountsMail(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	i.AddDomain(i.Account, "example.test", nil)
	i.Update(func(tx *store.Tx) error {
		return i.Svc.MTA.PlanAlert(tx, mta.Letter{To: "owner@far.test", Subject: "s", Text: "t"})
	})
	i.Run()
	i.Becomes("owner@far.test", store.OutgoingSent)
	if told := i.Events(events.EventEmailDelivered); len(told) != 0 {
		t.Errorf("told: %v", told)
	}
}

// inSent counts the messages in a mailbox's folder of sent mail.
func inSent(i *servicetest.Installation, mb *store.Mailbox) (n int) {
	i.T.Helper()
	if err := i.St.View(func(tx *store.Tx) error {
		f, err := tx.FolderByName(mb.Num, "Sent")
		if core.IsGone(err) {
			return nil
		}
		if err == nil {
			n = int(f.Messages)
		}
		return err
	}); err != nil {
		i.T.Fatal(err)
	}
	return n
}
