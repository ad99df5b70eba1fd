package outbound_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

func ptr[T any](v T) *T { return &v }

// TestHold: the pending mail of a mailbox that is suspended with hold stays, and one call sends or
// discards it; without hold it is sent.
func TestHold(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob, cat, dan := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil), i.AddMailbox(d, "cat", nil), i.AddMailbox(d, "dan", nil)
	who, ctx := servicetest.Actor(i.Account), context.Background()
	for _, mb := range []*store.Mailbox{ann, bob, cat, dan} {
		for n := range 3 {
			i.MustSend(mb, submit.SendEmailIn{To: submit.Texts{fmt.Sprintf("%s%d@far.test", mb.Email[:3], n)}, Subject: "s", Text: "t"})
		}
	}
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"later@far.test"}, Subject: "s", Text: "t", SendAt: servicetest.At(time.Now().Add(time.Hour))})
	update := func(mb *store.Mailbox, in mailboxes.UpdateEmailUserIn) error {
		in.UserID = mb.ID
		_, err := i.Svc.Mailboxes.UpdateEmailUser(ctx, who, in)
		return err
	}
	if err := update(ann, mailboxes.UpdateEmailUserIn{Hold: ptr(true)}); servicetest.ErrorCode(err) != "validation_error" {
		t.Errorf("hold alone: %v", err)
	}
	for _, err := range []error{
		update(ann, mailboxes.UpdateEmailUserIn{Status: ptr("suspended"), Hold: ptr(true)}),
		update(bob, mailboxes.UpdateEmailUserIn{Status: ptr("suspended")}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := i.Svc.Mailboxes.DeleteEmailUser(ctx, who, mailboxes.DeleteEmailUserIn{UserID: cat.ID, Hold: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Svc.Mailboxes.DeleteEmailUser(ctx, who, mailboxes.DeleteEmailUserIn{UserID: dan.ID}); err != nil {
		t.Fatal(err)
	}
	i.Run()
	servicetest.Eventually(t, "held, sent and cancelled", func() bool {
		s := servicetest.Statuses(i)
		return s["held"] == 7 && s["relayed"] == 3 && s["cancelled"] == 3
	})
	if _, err := i.Svc.Outbound.RetryMessage(ctx, who, outbound.SentMessageIn{ID: i.Row("ann0@far.test").ID}); servicetest.ErrorCode(err) != "not_queued" {
		t.Errorf("retried: %v", err)
	}
	if _, err := i.Svc.Outbound.ReleaseHeldMessages(ctx, servicetest.Actor(i.AddAccount("x@elsewhere.test")), outbound.ReleaseIn{UserID: ann.ID, Action: "release"}); servicetest.ErrorCode(err) != "not_found" {
		t.Errorf("released by another account: %v", err)
	}
	servicetest.Eventually(t, "the mailbox is gone", func() bool {
		gone := false
		_ = i.St.View(func(tx *store.Tx) error {
			mb, err := store.Mailboxes.Find(tx, cat.ID)
			gone = mb == nil && err == nil
			return err
		})
		return gone
	})
	if out, err := i.Svc.Outbound.ReleaseHeldMessages(ctx, who, outbound.ReleaseIn{UserID: ann.ID, Action: "release"}); err != nil || *out != (outbound.Released{Released: 4}) {
		t.Errorf("released: %+v, %v", out, err)
	}
	if out, err := i.Svc.Outbound.ReleaseHeldMessages(ctx, who, outbound.ReleaseIn{UserID: cat.ID, Action: "release"}); err != nil || *out != (outbound.Released{Released: 3}) {
		t.Errorf("released of a deleted mailbox: %+v, %v", out, err)
	}
	servicetest.Eventually(t, "released mail is sent", func() bool { s := servicetest.Statuses(i); return s["relayed"] == 9 && s["scheduled"] == 1 })
	if out, err := i.Svc.Outbound.ReleaseHeldMessages(ctx, who, outbound.ReleaseIn{UserID: ann.ID, Action: "release"}); err != nil || *out != (outbound.Released{}) {
		t.Errorf("released again: %+v, %v", out, err)
	}
	if err := update(ann, mailboxes.UpdateEmailUserIn{Password: ptr("another pass word"), Hold: ptr(true)}); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "the scheduled one is held", func() bool { return i.Row("later@far.test").Status == "held" })
	if out, err := i.Svc.Outbound.ReleaseHeldMessages(ctx, who, outbound.ReleaseIn{UserID: ann.ID, Action: "discard"}); err != nil || *out != (outbound.Released{Discarded: 1}) {
		t.Errorf("discarded: %+v, %v", out, err)
	}
	if row := i.Row("later@far.test"); row.Status != store.OutgoingCancelled {
		t.Errorf("the discarded one is %s", row.Status)
	}
	servicetest.Eventually(t, "nothing is left", func() bool { subs, _ := i.Left(); return subs == 0 })
}

// TestHeldMailOfADeletedMailboxEnds: held messages are discarded after 14 days.
func TestHeldMailOfADeletedMailboxEnds(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.InstallWith(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}}, store.Options{Now: func() time.Time { return now }})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"a@far.test"}, Subject: "s", Text: "t"})
	if _, err := i.Svc.Mailboxes.DeleteEmailUser(context.Background(), servicetest.Actor(i.Account), mailboxes.DeleteEmailUserIn{UserID: ann.ID, Hold: true}); err != nil {
		t.Fatal(err)
	}
	i.Run()
	i.Becomes("a@far.test", store.OutgoingHeld)
	servicetest.Eventually(t, "the mailbox is gone", func() bool {
		gone := false
		_ = i.St.View(func(tx *store.Tx) error {
			mb, err := store.Mailboxes.Find(tx, ann.ID)
			gone = mb == nil && err == nil
			return err
		})
		return gone
	})
	for _, days := range []int{13, 2} {
		now = now.AddDate(0, 0, days)
		if _, err := i.Svc.Prune(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		want := store.OutgoingHeld
		if days == 2 {
			want = store.OutgoingCancelled
		}
		if row := i.Row("a@far.test"); row.Status != want {
			t.Errorf("it is %s, want %s", row.Status, want)
		}
	}
}
