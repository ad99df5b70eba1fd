package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// heard records the changes that an observer of a store gets; each text is a transaction, as "table
// account id" separated by commas.
type heard struct {
	mu  sync.Mutex
	all []string
}

func hear(s *Store) *heard {
	h := &heard{}
	s.OnCommit(func(changes []Change) {
		var texts []string
		for _, c := range changes {
			texts = append(texts, strings.TrimSpace(fmt.Sprintln(c.Table, c.Account, c.ID, c.User)))
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, strings.Join(texts, ", "))
	})
	return h
}

// is compares the changes since its last call with the wanted ones.
func (h *heard) is(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.all, want) {
		t.Errorf("heard %q, want %q", h.all, want)
	}
	h.all = nil
}

// TestChangesNameWhomTheyConcern covers the rows whose Change has more than an id, and those that
// publish no Change.
func TestChangesNameWhomTheyConcern(t *testing.T) {
	s := openTest(t, Options{})
	h := hear(s)
	for _, c := range []struct {
		put  func(tx *Tx) error
		want []string
	}{
		{func(tx *Tx) error {
			return Domains.Put(tx, &Domain{ID: "dom_1", AccountID: "acc_1", Name: "example.test"})
		}, []string{"domain acc_1 dom_1"}},
		{func(tx *Tx) error { return CustomRecords.Put(tx, &CustomRecord{ID: "rec_1", DomainID: "dom_1"}) }, []string{"custom_record acc_1 rec_1"}},
		{func(tx *Tx) error { return CustomRecords.Delete(tx, "rec_1") }, []string{"custom_record acc_1 rec_1"}},
		{func(tx *Tx) error { return CustomRecords.Put(tx, &CustomRecord{ID: "rec_2", DomainID: "dom_gone"}) }, nil},
		{func(tx *Tx) error { return Tokens.Put(tx, &Token{ID: "tok_1", AccountID: "acc_1", UserID: "usr_1"}) }, []string{"token acc_1 tok_1 usr_1"}},
		{func(tx *Tx) error {
			return Exports.Put(tx, &Export{ID: "exp_1", AccountID: "acc_1", CreatedBy: "usr_1"})
		}, []string{"export acc_1 exp_1 usr_1"}},
		{func(tx *Tx) error { return Suppressions.Put(tx, &Suppression{AccountID: "acc_1", Email: "x@far.test"}) }, []string{"suppression acc_1 x@far.test"}},
		{func(tx *Tx) error { return Jobs.Put(tx, &Job{ID: "job_1", AccountID: "acc_1", Kind: "k"}) }, nil},
		{func(tx *Tx) error {
			return Jobs.Put(tx, &Job{ID: "job_2", AccountID: "acc_1", Kind: "k", Visible: true})
		}, []string{"job acc_1 job_2"}},
		{func(tx *Tx) error { return DayStats.Put(tx, &DayStat{AccountID: "acc_1", Date: "2026-11-21"}) }, nil},
		{func(tx *Tx) error { return Domains.Delete(tx, "dom_gone") }, nil},
	} {
		update(t, s, c.put)
		h.is(t, c.want...)
	}
}

func TestChangesOfTheInboxNameItsMailbox(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1, 2)
	update(t, s, func(tx *Tx) error {
		return errors.Join(
			Mailboxes.Put(tx, &Mailbox{ID: "eu_1", Num: 1, AccountID: "acc_1", Email: "ann@example.test"}),
			Mailboxes.Put(tx, &Mailbox{ID: "eu_2", Num: 2, AccountID: "acc_2", Email: "bob@example.test"}))
	})
	ref := appendTest(t, s, "x")
	h := hear(s)
	add := func(mailbox, folder uint32) func(tx *Tx) error {
		return func(tx *Tx) error {
			return tx.AddMessage(&Message{Account: mailbox, Mailbox: mailbox, Folder: folder, Blob: ref}, nil)
		}
	}
	update(t, s, func(tx *Tx) error { return errors.Join(add(1, InboxID)(tx), add(1, InboxID)(tx), add(2, InboxID)(tx)) })
	h.is(t, "inbox acc_1 eu_1, inbox acc_2 eu_2")
	update(t, s, add(1, InboxID+1))
	h.is(t)
	for _, change := range []func(tx *Tx) error{
		func(tx *Tx) error { return tx.SetFlags(&Message{Mailbox: 1, Folder: InboxID, UID: 1}, FlagSeen, nil) },
		func(tx *Tx) error { return tx.SetBits(&Message{Mailbox: 1, Folder: InboxID, UID: 1}, BitWarmup) },
		func(tx *Tx) error { return tx.DeleteMessage(1, InboxID, 1) },
	} {
		update(t, s, change)
		h.is(t, "inbox acc_1 eu_1")
	}
	update(t, s, func(tx *Tx) error { return tx.SetFlags(&Message{Mailbox: 1, Folder: InboxID, UID: 2}, 0, nil) })
	h.is(t) // they were like that before
	update(t, s, func(tx *Tx) error {
		_, err := tx.DropMailbox(1, 1, 100)
		return errors.Join(err, Mailboxes.Delete(tx, "eu_1"))
	})
	h.is(t, "inbox acc_1 eu_1, mailbox acc_1 eu_1")
}

// TestNothingIsNotedForNobody: a transaction that was written while nobody observed is not passed
// to an observer that is added before the transaction is on disk.
func TestNothingIsNotedForNobody(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1)
	update(t, s, func(tx *Tx) error {
		return Mailboxes.Put(tx, &Mailbox{ID: "eu_1", Num: 1, AccountID: "acc_1", Email: "ann@example.test"})
	})
	ref := appendTest(t, s, "x")
	var h *heard
	update(t, s, func(tx *Tx) error {
		s.OnCommit(nil)
		err := errors.Join(putAccount(tx, 1), tx.AddMessage(&Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref}, nil))
		h = hear(s)
		return err
	})
	h.is(t)
}

// BenchmarkObserved is BenchmarkCommit while somebody listens.
func BenchmarkObserved(b *testing.B) {
	s := openTest(b, Options{})
	told := 0
	s.OnCommit(func(changes []Change) { told += len(changes) })
	b.ReportAllocs()
	inParallel(b, 64, func(i int64) error {
		return s.Update(func(tx *Tx) error { return putAccount(tx, uint32(i)) })
	})
	if told < b.N {
		b.Errorf("%d of %d changes were told", told, b.N)
	}
}
