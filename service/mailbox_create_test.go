package service

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// newBare makes a service whose queue does not run, with one account.
func newBare(t *testing.T) (*Service, Actor) {
	t.Helper()
	return newClocked(t, nil)
}

// newClocked is newBare with a clock of the test's own.
func newClocked(t *testing.T, now func() time.Time) (*Service, Actor) {
	t.Helper()
	return newWith(t, store.Options{Now: now})
}

// newWith is newBare on a store with other options.
func newWith(t *testing.T, o store.Options) (*Service, Actor) {
	t.Helper()
	st, err := store.Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	s := New(st, jobs.NewQueue(st), keys, Config{Log: slog.New(slog.DiscardHandler), Limits: Limits{Plan: "startup"}})
	t.Cleanup(func() {
		if err := st.Check(); err != nil {
			t.Error(err)
		}
		s.Close()
		st.Close()
	})
	a, err := s.CreateAccount(t.Context(), NewAccount{OwnerEmail: "owner@example.test"})
	if err != nil {
		t.Fatal(err)
	}
	return s, Actor{AccountID: a.AccountID, AccountNum: 1, UserID: a.UserID, Role: "owner", Permissions: []string{"admin"}}
}

func update(t *testing.T, s *Service, fn func(*store.Tx) error) {
	t.Helper()
	if err := s.Store.Update(fn); err != nil {
		t.Fatal(err)
	}
}

// TestActivationIsChunkedAndTellsOnce has a domain become complete with mailboxes that waited, one
// of them suspended.
func TestActivationIsChunkedAndTellsOnce(t *testing.T) {
	s, who := newBare(t)
	d := &store.Domain{ID: s.Store.NewID("dom"), AccountID: who.AccountID, Name: "slow.test", Status: "pending_ns", DNSProvider: "builtin"}
	update(t, s, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	var ids []string
	for i := range 5 {
		mb, err := s.CreateEmailUser(t.Context(), who, CreateEmailUserIn{Username: fmt.Sprintf("u%d", i), Domain: d.ID})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, mb.UserID)
	}
	suspended := "suspended"
	if _, err := s.UpdateEmailUser(t.Context(), who, UpdateEmailUserIn{UserID: ids[3], Status: &suspended}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteEmailUser(t.Context(), who, EmailUserIn{ids[4]}); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for more := true; more; steps++ {
		update(t, s, func(tx *store.Tx) (err error) {
			d.Status = "complete"
			if err := store.Domains.Put(tx, d); err != nil {
				return err
			}
			more, err = s.activateMailboxes(tx, d.ID, 2)
			return err
		})
	}
	if steps != 2 {
		t.Errorf("%d steps for four mailboxes by twos", steps)
	}
	events, err := s.ListEvents(t.Context(), who, ListEventsIn{Type: EventEmailUserCreated})
	if err != nil || len(events.Data) != 4 {
		t.Errorf("%d events, %v", len(events.Data), err)
	}
	for i, want := range []string{"active", "active", "active", "suspended", "deleting"} {
		mb, err := s.GetEmailUser(t.Context(), who, EmailUserIn{ids[i]})
		if err != nil || mb.Status != want {
			t.Errorf("mailbox %d is %s, want %s, %v", i, mb.Status, want, err)
		}
	}
	active := "active"
	mb, err := s.UpdateEmailUser(t.Context(), who, UpdateEmailUserIn{UserID: ids[3], Status: &active})
	if err != nil || mb.Status != "active" {
		t.Errorf("the suspended one becomes %v, %v", mb, err)
	}
}

// TestSecondDeleteAnswersTheSameJob looks while no queue runs.
func TestSecondDeleteAnswersTheSameJob(t *testing.T) {
	s, who := newBare(t)
	d := &store.Domain{ID: s.Store.NewID("dom"), AccountID: who.AccountID, Name: "boxes.test", Status: "complete", DNSProvider: "builtin"}
	update(t, s, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	mb, err := s.CreateEmailUser(t.Context(), who, CreateEmailUserIn{Username: "ann", Domain: d.ID})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.DeleteEmailUser(t.Context(), who, EmailUserIn{mb.UserID})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.DeleteEmailUser(t.Context(), who, EmailUserIn{mb.UserID})
	if err != nil || second.JobID != first.JobID {
		t.Errorf("job %s, then %v, %v", first.JobID, second, err)
	}
	bulk, err := s.DeleteEmailUsersBulk(t.Context(), who, BulkDeleteIn{UserIDs: &[]string{mb.UserID}})
	if err != nil || bulk.Queued != 1 || bulk.JobID == nil || *bulk.JobID != first.JobID {
		t.Errorf("in bulk: %+v, %v", bulk, err)
	}
	name := "x"
	_, err = s.UpdateEmailUser(t.Context(), who, UpdateEmailUserIn{UserID: mb.UserID, Name: &name})
	if e, _ := AsError(err); e == nil || e.Status != 404 {
		t.Errorf("a change of what is being deleted: %v", err)
	}
	shown, err := s.GetEmailUser(t.Context(), who, EmailUserIn{mb.UserID})
	if err != nil || shown.Status != "deleting" {
		t.Errorf("it is shown as %+v, %v", shown, err)
	}
}

// TestPasswordsAreKeptTwice opens the sealed copy and checks the hash.
func TestPasswordsAreKeptTwice(t *testing.T) {
	s, who := newBare(t)
	d := &store.Domain{ID: s.Store.NewID("dom"), AccountID: who.AccountID, Name: "boxes.test", Status: "complete", DNSProvider: "builtin"}
	update(t, s, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	made, err := s.CreateEmailUser(t.Context(), who, CreateEmailUserIn{Username: "ann", Domain: d.ID})
	if err != nil {
		t.Fatal(err)
	}
	check := func(password string) {
		t.Helper()
		err := s.Store.View(func(tx *store.Tx) error {
			mb, err := store.MailboxByEmail.Get(tx, "ann@boxes.test")
			if err != nil {
				return err
			}
			plain, err := s.keys.Open("mailbox "+mb.ID, mb.PasswordSealed)
			if err == nil && (string(plain) != password || !s.logins.check(mb.PasswordHash, password)) {
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
	if _, err := s.UpdateEmailUser(t.Context(), who, UpdateEmailUserIn{UserID: made.UserID, Password: &next}); err != nil {
		t.Fatal(err)
	}
	check(next)
}
