package submit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestScheduledMessageOfADayAgo: a message is tried for five days from its scheduled time, not from
// its submission.
func TestScheduledMessageOfLongAgo(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	h := (&servicetest.Host{Rcpt: func(string) string { return "450 4.2.1 later" }}).Start(t)
	i := servicetest.InstallWith(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}}, store.Options{Now: func() time.Time { return now }})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"a@far.test"}, Subject: "s", Text: "t", SendAt: servicetest.At(now.AddDate(0, 0, 20))})
	now = now.AddDate(0, 0, 20).Add(time.Minute)
	i.Run()
	if row := i.Becomes("a@far.test", store.OutgoingDeferred, store.OutgoingBounced); row.Status != store.OutgoingDeferred {
		t.Errorf("after its first attempt it is %s: %s", row.Status, row.LastResponse)
	}
}

// TestEmailDelayed: the first deferral of direct mail emits an event, then one a day.
func TestEmailDelayed(t *testing.T) {
	h := (&servicetest.Host{Rcpt: func(string) string { return "450 4.2.1 later" }}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	sent := i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"a@far.test"}, Subject: "s", Text: "t"})
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
		if _, err := i.Svc.Outbound.RetryMessage(context.Background(), servicetest.Actor(i.Account), outbound.SentMessageIn{ID: sent.Recipients[0].ID}); err != nil {
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

// TestEventsOfDirectMailAlone: relayed, local and captured mail has neither email.delayed nor
// email.delivered; its other events have the tags.
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
	for _, c := range []core.Config{{Settings: core.Settings{Relays: []core.Relay{h.Relay("ses")}}}, {Settings: core.Settings{Outbound: core.ViaCapture}}} {
		i := servicetest.Install(t, c)
		d := i.AddDomain(i.Account, "example.test", nil)
		ann := i.AddMailbox(d, "ann", nil)
		i.AddMailbox(d, "bob", nil)
		i.MustSend(ann, submit.SendEmailIn{
			To: submit.Texts{"bob@example.test", "x@far.test", "later@far.test", "never@far.test"}, Subject: "s", Text: "t", Tags: outbound.TagMap{"kind": "news"},
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

// TestLettersAreNoAccountsMail: the server's own mail emits no email.delivered.
func TestLettersAreNoAccountsMail(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	i.AddDomain(i.Account, "example.test", nil)
	i.Update(func(tx *store.Tx) error {
		return alert.Plan(i.Svc.Core, tx, alert.HostMail{To: "owner@far.test", Subject: "s", Text: "t"})
	})
	i.Run()
	i.Becomes("owner@far.test", store.OutgoingSent)
	if told := i.Events(events.EventEmailDelivered); len(told) != 0 {
		t.Errorf("told: %v", told)
	}
}
