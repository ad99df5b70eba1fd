package storetest

import (
	"errors"
	"testing"

	"github.com/mailstead/mailstead/store"
)

// recorder is a testing.TB that counts errors and collects cleanups.
type recorder struct {
	testing.TB
	errors  int
	cleanup []func()
}

func (r *recorder) Errorf(string, ...any) { r.errors++ }
func (r *recorder) Cleanup(fn func())     { r.cleanup = append(r.cleanup, fn) }

func (r *recorder) end() {
	for _, fn := range r.cleanup {
		fn()
	}
}

func TestStoreSurvivesReopen(t *testing.T) {
	s := Open(t)
	if err := s.Update(func(tx *store.Tx) error { return store.Accounts.Put(tx, &store.Account{ID: "acc_1", Num: 1}) }); err != nil {
		t.Fatal(err)
	}
	s = Reopen(t, s, store.Options{SegmentSize: 1 << 20})
	err := s.View(func(tx *store.Tx) error { _, err := store.Accounts.Get(tx, "acc_1"); return err })
	if err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestFaultFailsTheTest(t *testing.T) {
	for _, faulty := range []bool{false, true} {
		r := &recorder{TB: t}
		s := Open(r)
		err := s.Update(func(tx *store.Tx) error {
			sub := &store.Submission{ID: "sub_1"}
			if faulty {
				sub.Blob = store.BlobRef{Segment: 1, Offset: 36, Head: 40}
			}
			return store.Submissions.Put(tx, sub)
		})
		if r.end(); err != nil || (r.errors > 0) != faulty {
			t.Errorf("faulty %v: %d errors, %v", faulty, r.errors, err)
		}
		if err := s.Update(func(*store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
			t.Errorf("the store is not closed: %v", err)
		}
	}
}
