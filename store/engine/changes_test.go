package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// heard records what OnCommit receives: one text per transaction, its changes as "table account id"
// with commas between.
type heard struct {
	mu  sync.Mutex
	all []string
}

func hear(db *DB) *heard {
	h := &heard{}
	db.OnCommit(func(changes []Change) {
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

// is checks what was heard since its last call.
func (h *heard) is(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.all, want) {
		t.Errorf("heard %q, want %q", h.all, want)
	}
	h.all = nil
}

func TestOnlyWhatIsCommittedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openTest(t, Options{})
		h := hear(db)
		batch(t, db,
			func(tx *Tx) error { return putAccount(tx, 1) },
			func(tx *Tx) error { return errors.Join(putAccount(tx, 2), errTest) },
			func(tx *Tx) error { _ = putAccount(tx, 3); panic("bug") },
			func(tx *Tx) error { return errors.Join(putAccount(tx, 4), putAccount(tx, 4), putAccount(tx, 5)) },
			func(*Tx) error { return nil },
			func(tx *Tx) error { return Accounts.Delete(tx, "acc_1") },
		)
		h.is(t, "account acc_1 acc_1", "account acc_4 acc_4, account acc_5 acc_5", "account acc_1 acc_1")
		db.OnCommit(nil)
		update(t, db, func(tx *Tx) error { return putAccount(tx, 6) })
		h.is(t)
	})
}

func TestWhatCannotBeCommittedIsNotTold(t *testing.T) {
	db := openUnchecked(t, t.TempDir(), strict(Options{}))
	defer db.Close()
	h := hear(db)
	db.Fail(errTest)
	if err := db.Update(func(tx *Tx) error { return putAccount(tx, 1) }); !errors.Is(err, ErrFailed) {
		t.Fatalf("Update of a failed database: %v", err)
	}
	h.is(t)
}

// TestNothingIsNotedForNobody: while OnCommit has no function, a write costs one look at a pointer.
func TestNothingIsNotedForNobody(t *testing.T) {
	db := openTest(t, Options{})
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Bolt(tx).Rollback() }()
	a := &Account{ID: "acc_1", Num: 1}
	if n := testing.AllocsPerRun(100, func() { Accounts.recordChange(tx, a) }); n != 0 || tx.changes != nil {
		t.Errorf("%v allocations, and %d changes noted", n, len(tx.changes))
	}
}
