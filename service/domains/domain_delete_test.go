package domains_test

import (
	"log/slog"
	"testing"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/store"
)

// A deletion that was interrupted continues: each mailbox has one event, and nothing of the domain
// is left.
func TestDeletionGoesOnAfterACrash(t *testing.T) {
	s, run := openService(t, t.TempDir(), core.Config{
		Log: slog.New(slog.DiscardHandler), Nameservers: []string{"ns1.example.test"}, Settings: core.Settings{Limits: core.Limits{Plan: "startup"}},
	})
	owner, err := s.Accounts.CreateAccount(t.Context(), accounts.NewAccount{OwnerEmail: "owner@example.test"})
	if err != nil {
		t.Fatal(err)
	}
	who, err := s.Accounts.Operator(t.Context(), owner.AccountID)
	if err != nil {
		t.Fatal(err)
	}
	id := connect(t, s, who, "cut.test")
	boxes := fillDomain(t, s, who, id)
	if _, err := s.Mailboxes.DeleteEmailUser(t.Context(), who, mailboxes.DeleteEmailUserIn{UserID: boxes[0]}); err != nil {
		t.Fatal(err)
	}
	job, err := s.Domains.DeleteDomain(t.Context(), who, domains.DomainIn{DomainID: id})
	if err != nil {
		t.Fatal(err)
	}
	cutDeletion(t, s, job.JobID, boxes[1])
	run()
	job, err = s.GetJob(t.Context(), who, service.GetJobIn{ID: job.JobID, Wait: new(10)})
	if err != nil || job.Status != "completed" || job.Attempts != 2 {
		t.Errorf("job %+v, %v", job, err)
	}
	if told := eventsOf(t, s, who, events.EventEmailUserDeleted); len(told) != len(boxes) {
		t.Errorf("told of %d mailboxes: %s", len(told), told)
	}
	err = s.Core.Store.View(func(tx *store.Tx) error {
		left := []int{store.CustomRecordsByDomain.Count(tx, id, 0), store.MailboxesByDomain.Count(tx, id, 0), store.DomainsByAccount.Count(tx, who.AccountID, 0)}
		if left[0]+left[1]+left[2] != 0 {
			t.Errorf("custom records, mailboxes and domains are left: %v", left)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// fillDomain gives a domain three mailboxes and a custom record.
func fillDomain(t *testing.T, s *service.Service, who core.Actor, id string) (boxes []string) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		box, err := s.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Email: name + "@cut.test"})
		if err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, box.UserID)
	}
	err := s.Core.Store.Update(func(tx *store.Tx) error {
		return store.CustomRecords.Put(tx, &store.CustomRecord{ID: "rec_1", DomainID: id, Name: "www.cut.test", Type: "A", Value: "192.0.2.1", TTL: 60})
	})
	if err != nil {
		t.Fatal(err)
	}
	return boxes
}

// cutDeletion leaves the state of a crash during a deletion: one mailbox is marked, and the job is
// still claimed.
func cutDeletion(t *testing.T, s *service.Service, jobID, mailbox string) {
	t.Helper()
	err := s.Core.Store.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, mailbox)
		if err != nil {
			return err
		}
		mb.Status, mb.JobID = "deleting", jobID
		if err := store.Mailboxes.Put(tx, mb); err != nil {
			return err
		}
		j, err := store.Jobs.Get(tx, jobID)
		if err != nil {
			return err
		}
		j.State, j.Attempt = store.JobRunning, 1
		return store.Jobs.Put(tx, j)
	})
	if err != nil {
		t.Fatal(err)
	}
}
