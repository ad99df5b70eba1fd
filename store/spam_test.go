package store

import (
	"errors"
	"fmt"
	"maps"
	"testing"
)

// TestSpamTokens: counts are kept by account and go with the account; a token without counts is
// deleted.
func TestSpamTokens(t *testing.T) {
	s := openTest(t, Options{})
	read := func(account uint32) map[uint64]SpamCount {
		out := map[uint64]SpamCount{}
		view(t, s, func(tx *Tx) error {
			clear(out)
			maps.Insert(out, tx.SpamTokens(account))
			return nil
		})
		return out
	}
	update(t, s, func(tx *Tx) error {
		for token := range uint64(100) {
			for account := range uint32(3) {
				if err := tx.PutSpamToken(account+1, token<<56|token, SpamCount{uint16(token + 1), uint16(account), 20_000}); err != nil {
					return err
				}
			}
		}
		return tx.PutSpamToken(2, 7<<56|7, SpamCount{Day: 20_001})
	})
	if n := len(read(2)); n != 99 {
		t.Errorf("%d tokens, want 99", n)
	}
	if got, want := read(3)[5<<56|5], (SpamCount{6, 2, 20_000}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for done := false; !done; {
		update(t, s, func(tx *Tx) (err error) {
			done, err = tx.DropAccountIndex(2, 30)
			return err
		})
	}
	if a, b, c := len(read(1)), len(read(2)), len(read(3)); a != 100 || b != 0 || c != 100 {
		t.Errorf("left: %d, %d, %d", a, b, c)
	}
}

// TestSpamLessonKeepsItsMessage: the bytes of a lesson stay when its message is deleted, and are
// found when compaction has moved them.
func TestSpamLessonKeepsItsMessage(t *testing.T) {
	s := compactStore(t, Options{})
	all := fill(t, s, 40)
	lesson := func(id string) (l *SpamLesson) {
		t.Helper()
		view(t, s, func(tx *Tx) (err error) { l, err = SpamLessons.Get(tx, id); return err })
		return l
	}
	update(t, s, func(tx *Tx) error {
		for n := 0; n < len(all); n += 4 {
			id := fmt.Sprint("les_", n)
			if err := errors.Join(LessonBlobs.Ref(tx, all[n].Blob, id), SpamLessons.Put(tx, &SpamLesson{ID: id, AccountID: "acc_1", Blob: all[n].Blob})); err != nil {
				return err
			}
		}
		return nil
	})
	deleteTest(t, s, all...)
	compact(t, s)
	if l := lesson("les_4"); l.Blob == all[4].Blob {
		t.Error("the lesson was not moved")
	}
	for n := 0; n < len(all); n += 4 {
		l := lesson(fmt.Sprint("les_", n))
		if got := readTest(t, s, l.Blob); got[:4] != fmt.Sprintf("%04d", n) {
			t.Errorf("lesson %d has %.4q", n, got)
		}
		update(t, s, func(tx *Tx) error {
			return errors.Join(LessonBlobs.Unref(tx, l.Blob, l.ID), SpamLessons.Delete(tx, l.ID))
		})
	}
	compact(t, s)
	if n := len(s.seg.List()); n > 1 {
		t.Errorf("%d segments are left", n)
	}
}
