package service_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/store"
)

// A deletion that was cut in the middle goes on: each mailbox is told of once, and nothing of the domain is left.
func TestDeletionGoesOnAfterACrash(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	st, err := store.Open(dir, store.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := service.LoadKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	q := jobs.NewQueue(st)
	q.Log = log
	s := service.New(st, q, keys, service.Config{Log: log, Nameservers: []string{"ns1.example.test"}, Limits: service.Limits{Plan: "startup"}})
	owner, err := s.CreateAccount(t.Context(), service.NewAccount{OwnerEmail: "owner@example.test"})
	if err != nil {
		t.Fatal(err)
	}
	who, err := s.Operator(t.Context(), owner.AccountID)
	if err != nil {
		t.Fatal(err)
	}
	id := connect(t, s, who, "cut.test")
	var boxes []string
	for _, name := range []string{"a", "b", "c"} {
		box, err := s.CreateEmailUser(t.Context(), who, service.CreateEmailUserIn{Email: name + "@cut.test"})
		if err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, box.UserID)
	}
	err = st.Update(func(tx *store.Tx) error {
		return store.CustomRecords.Put(tx, &store.CustomRecord{ID: "rec_1", DomainID: id, Name: "www.cut.test", Type: "A", Value: "192.0.2.1", TTL: 60})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteEmailUser(t.Context(), who, service.EmailUserIn{UserID: boxes[0]}); err != nil {
		t.Fatal(err)
	}
	job, err := s.DeleteDomain(t.Context(), who, service.DomainIn{DomainID: id})
	if err != nil {
		t.Fatal(err)
	}
	// As a crash leaves it: one mailbox is marked and one is gone, with the job's claim still open.
	err = st.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, boxes[1])
		if err != nil {
			return err
		}
		mb.Status, mb.JobID = "deleting", job.JobID
		if err := store.Mailboxes.Put(tx, mb); err != nil {
			return err
		}
		j, err := store.Jobs.Get(tx, job.JobID)
		if err != nil {
			return err
		}
		j.State, j.Attempt = store.JobRunning, 1
		return store.Jobs.Put(tx, j)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	if job, err = s.GetJob(t.Context(), who, service.GetJobIn{ID: job.JobID, Wait: new(10)}); err != nil || job.Status != "completed" || job.Attempts != 2 {
		t.Errorf("job %+v, %v", job, err)
	}
	if told := events(t, s, who, service.EventEmailUserDeleted); len(told) != len(boxes) {
		t.Errorf("told of %d mailboxes: %s", len(told), told)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	err = st.View(func(tx *store.Tx) error {
		if n := store.CustomRecordsByDomain.Count(tx, id, 0) + store.MailboxesByDomain.Count(tx, id, 0) + store.DomainsByAccount.Count(tx, who.AccountID, 0); n != 0 {
			t.Errorf("%d records are left", n)
		}
		return nil
	})
	s.Close()
	if err := errors.Join(err, st.Check(), st.Close()); err != nil {
		t.Error(err)
	}
}
