package mailboxes_test

import (
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestActivationIsChunkedAndTellsOnce: a domain becomes complete with waiting mailboxes, one of
// them suspended; each has one event.
func TestActivationIsChunkedAndTellsOnce(t *testing.T) {
	s, who := servicetest.NewBare(t)
	d := &store.Domain{ID: s.Core.Store.NewID("dom"), AccountID: who.AccountID, Name: "slow.test", Status: "pending_ns", DNSProvider: "builtin"}
	servicetest.Update(t, s, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	var ids []string
	for i := range 5 {
		mb, err := s.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Username: fmt.Sprintf("u%d", i), Domain: d.ID})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, mb.UserID)
	}
	suspended := "suspended"
	if _, err := s.Mailboxes.UpdateEmailUser(t.Context(), who, mailboxes.UpdateEmailUserIn{UserID: ids[3], Status: &suspended}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mailboxes.DeleteEmailUser(t.Context(), who, mailboxes.DeleteEmailUserIn{UserID: ids[4]}); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for more := true; more; steps++ {
		servicetest.Update(t, s, func(tx *store.Tx) (err error) {
			d.Status = "complete"
			if err := store.Domains.Put(tx, d); err != nil {
				return err
			}
			more, err = s.Mailboxes.ActivateMailboxes(tx, d.ID, 2)
			return err
		})
	}
	if steps != 2 {
		t.Errorf("%d steps for four mailboxes by twos", steps)
	}
	events, err := s.Events.ListEvents(t.Context(), who, events.ListEventsIn{Type: events.EventEmailUserCreated})
	if err != nil || len(events.Data) != 4 {
		t.Errorf("%d events, %v", len(events.Data), err)
	}
	for i, want := range []string{"active", "active", "active", "suspended", "deleting"} {
		mb, err := s.Mailboxes.GetEmailUser(t.Context(), who, core.EmailUserIn{UserID: ids[i]})
		if err != nil || mb.Status != want {
			t.Errorf("mailbox %d is %s, want %s, %v", i, mb.Status, want, err)
		}
	}
	active := "active"
	mb, err := s.Mailboxes.UpdateEmailUser(t.Context(), who, mailboxes.UpdateEmailUserIn{UserID: ids[3], Status: &active})
	if err != nil || mb.Status != "active" {
		t.Errorf("the suspended one becomes %v, %v", mb, err)
	}
}

// TestSecondDeleteAnswersTheSameJob runs without a queue.
func TestSecondDeleteAnswersTheSameJob(t *testing.T) {
	s, who := servicetest.NewBare(t)
	d := &store.Domain{ID: s.Core.Store.NewID("dom"), AccountID: who.AccountID, Name: "boxes.test", Status: "complete", DNSProvider: "builtin"}
	servicetest.Update(t, s, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	mb, err := s.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Username: "ann", Domain: d.ID})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Mailboxes.DeleteEmailUser(t.Context(), who, mailboxes.DeleteEmailUserIn{UserID: mb.UserID})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Mailboxes.DeleteEmailUser(t.Context(), who, mailboxes.DeleteEmailUserIn{UserID: mb.UserID})
	if err != nil || second.JobID != first.JobID {
		t.Errorf("job %s, then %v, %v", first.JobID, second, err)
	}
	bulk, err := s.Mailboxes.DeleteEmailUsersBulk(t.Context(), who, mailboxes.BulkDeleteIn{UserIDs: &[]string{mb.UserID}})
	if err != nil || bulk.Queued != 1 || bulk.JobID == nil || *bulk.JobID != first.JobID {
		t.Errorf("in bulk: %+v, %v", bulk, err)
	}
	name := "x"
	_, err = s.Mailboxes.UpdateEmailUser(t.Context(), who, mailboxes.UpdateEmailUserIn{UserID: mb.UserID, Name: &name})
	if e, _ := core.AsError(err); e == nil || e.Code != "not_found" {
		t.Errorf("a change of what is being deleted: %v", err)
	}
	shown, err := s.Mailboxes.GetEmailUser(t.Context(), who, core.EmailUserIn{UserID: mb.UserID})
	if err != nil || shown.Status != "deleting" {
		t.Errorf("it is shown as %+v, %v", shown, err)
	}
}

// TestPasswordsAreKeptTwice opens the sealed copy and checks the hash.
func TestPasswordsAreKeptTwice(t *testing.T) {
	s, who := servicetest.NewBare(t)
	d := &store.Domain{ID: s.Core.Store.NewID("dom"), AccountID: who.AccountID, Name: "boxes.test", Status: "complete", DNSProvider: "builtin"}
	servicetest.Update(t, s, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	made, err := s.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Username: "ann", Domain: d.ID})
	if err != nil {
		t.Fatal(err)
	}
	check := func(password string) {
		t.Helper()
		err := s.Core.Store.View(func(tx *store.Tx) error {
			mb, err := store.MailboxByEmail.Get(tx, "ann@boxes.test")
			if err != nil {
				return err
			}
			plain, err := s.Core.Keys.Open(store.MailboxBinding(mb.ID), mb.PasswordSealed)
			if err == nil && (string(plain) != password || !s.Core.Logins.Check(mb.PasswordHash, password)) {
				t.Errorf("sealed %q, want %q", plain, password)
			}
			fs, err2 := tx.Folders(mb.Num)
			if err2 != nil || len(fs) != 6 || fs[0].ID != store.InboxID || fs[0].Name != "INBOX" || fs[4].SpecialUse != `\Trash` {
				t.Errorf("folders %v, %v", fs, err2)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check(made.Password)
	next := "another password"
	if _, err := s.Mailboxes.UpdateEmailUser(t.Context(), who, mailboxes.UpdateEmailUserIn{UserID: made.UserID, Password: &next}); err != nil {
		t.Fatal(err)
	}
	check(next)
}
