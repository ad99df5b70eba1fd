package mailboxes_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// waits returns how many mailboxes have an expiry, and how many jobs are queued for that.
func waits(t *testing.T, b *servicetest.Sandbox) (boxes, jobs int) {
	t.Helper()
	err := b.Core.Store.View(func(tx *store.Tx) error {
		for mb := range store.Mailboxes.All(tx) {
			if !mb.ExpiresAt.IsZero() && !mb.Gone() {
				boxes++
			}
		}
		for j := range store.Jobs.All(tx) {
			if j.Kind == "email_user_expire" {
				jobs++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return boxes, jobs
}

// settles waits until this many mailboxes are left, with a job for each that has an expiry.
func settles(t *testing.T, b *servicetest.Sandbox, left int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		all := 0
		if err := b.Core.Store.View(func(tx *store.Tx) error {
			all = store.MailboxesByAccount.Count(tx, b.Owner.AccountID, 0)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		boxes, jobs := waits(t, b)
		if all == left && boxes == jobs {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d mailboxes are left, want %d; %d have a time, and %d jobs wait", all, left, boxes, jobs)
		}
	}
}

// TestInboxesTimeOutlivesARestart: the expiry of an inbox survives a restart, and however often it
// was changed, there is one job for it.
func TestInboxesTimeOutlivesARestart(t *testing.T) {
	b, restart := servicetest.NewRestarting(t, 6, nil)
	who := servicetest.Actor(b.Owner)
	b.Domain(t, b.Owner.AccountID, "boxes.test", "builtin", "complete")
	minute := 60
	var ids []string
	for range 4 {
		in, err := b.Mailboxes.CreateInbox(t.Context(), who, mailboxes.CreateInboxIn{TTLSeconds: &minute})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, in.Inbox.ID)
	}
	move := func(id string, at core.Opt[time.Time]) {
		t.Helper()
		if _, err := b.Mailboxes.UpdateEmailUser(t.Context(), who, mailboxes.UpdateEmailUserIn{UserID: id, ExpiresAt: at}); err != nil {
			t.Fatal(err)
		}
	}
	now := b.Core.Now()
	for _, by := range []time.Duration{time.Second, 3 * time.Hour, time.Minute, 2 * time.Hour} { // earlier and later
		move(ids[1], core.Opt[time.Time]{Set: true, Value: now.Add(30*time.Second + by)})
	}
	move(ids[2], core.Opt[time.Time]{Set: true, Null: true})
	if boxes, jobs := waits(t, b); boxes != 3 || jobs != 3 {
		t.Errorf("%d mailboxes and %d jobs wait, want 3", boxes, jobs)
	}
	restart()
	settles(t, b, 4)
	if _, err := b.AdvanceClock(t.Context(), service.AdvanceIn{Seconds: 61}); err != nil {
		t.Fatal(err)
	}
	settles(t, b, 2)
	restart()
	if _, err := b.AdvanceClock(t.Context(), service.AdvanceIn{Seconds: 3 * 3600}); err != nil {
		t.Fatal(err)
	}
	settles(t, b, 1)
	mb, err := b.Mailboxes.GetEmailUser(t.Context(), who, core.EmailUserIn{UserID: ids[2]})
	if err != nil || !mb.ExpiresAt.IsZero() {
		t.Errorf("the one that is kept: %v, %v", mb, err)
	}
}

// TestManyInboxesGoAtOnce: deleting as many inboxes as one request may, or a domain with inboxes,
// leaves no job and no token, and its transactions have the usual size.
func TestManyInboxesGoAtOnce(t *testing.T) {
	b := servicetest.New(t, func(c *core.Config) { c.Limits.MailboxesPerDomain = 0 })
	who := servicetest.Actor(b.Owner)
	d := b.Domain(t, b.Owner.AccountID, "boxes.test", "builtin", "complete")
	var ids []string
	for range 130 {
		in, err := b.Mailboxes.CreateInbox(t.Context(), who, mailboxes.CreateInboxIn{})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, in.Inbox.ID)
	}
	some := ids[:100]
	out, err := b.Mailboxes.DeleteEmailUsersBulk(t.Context(), who, mailboxes.BulkDeleteIn{UserIDs: &some})
	if err != nil || out.Queued != 100 {
		t.Fatalf("%+v, %v", out, err)
	}
	settles(t, b, 30)
	if _, err := b.Domains.DeleteDomain(t.Context(), who, domains.DomainIn{DomainID: d.ID}); err != nil {
		t.Fatal(err)
	}
	settles(t, b, 0)
	for _, id := range ids {
		if n := b.Access(t, id); n != 0 {
			t.Errorf("%d credentials and tokens of %s are left", n, id)
		}
	}
}
