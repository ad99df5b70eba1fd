package store

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/mailstead/mailstead/store/mailrow"
)

// TestMetaIsACopy: only ReadMeta may give bytes of the database.
func TestMetaIsACopy(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1)
	ref := appendTest(t, s, "x")
	structures := [][]byte{[]byte("short"), bytes.Repeat([]byte("long"), mailrow.MaxOwnStructure)}
	var all []*Message
	update(t, s, func(tx *Tx) error {
		all = nil
		for _, structure := range structures {
			m := &Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref}
			if err := tx.AddMessage(m, &Meta{Structure: structure, Preview: "hello"}); err != nil {
				return err
			}
			all = append(all, m)
		}
		return nil
	})
	view(t, s, func(tx *Tx) error {
		var inPlace Meta
		for i, m := range all {
			meta, err := tx.Meta(m.Mailbox, m.Folder, m.UID)
			if err != nil {
				return err
			}
			if err := tx.ReadMeta(&inPlace, m); err != nil {
				return err
			}
			first := unsafe.SliceData(inPlace.Structure)
			if !bytes.Equal(meta.Structure, structures[i]) || !bytes.Equal(inPlace.Structure, structures[i]) || inPlace.Preview != "hello" {
				t.Errorf("message %d: Meta reads %q, ReadMeta %q", m.UID, meta.Structure, inPlace.Structure)
			}
			if unsafe.SliceData(meta.Structure) == first {
				t.Errorf("message %d: Meta gives bytes of the database", m.UID)
			}
			if err := tx.ReadMeta(&inPlace, m); err != nil || unsafe.SliceData(inPlace.Structure) != first {
				t.Errorf("message %d: ReadMeta copies the structure, %v", m.UID, err)
			}
		}
		if err := tx.ReadMeta(&inPlace, &Message{Mailbox: 1, Folder: InboxID, UID: 99}); !errors.Is(err, ErrNotFound) {
			t.Errorf("the meta of no message: %v", err)
		}
		return nil
	})
}

// TestTransactionsOfTestsAreStrict: they run twice, and one that is over its bounds fails with the
// names of its function and of who called Update.
func TestTransactionsOfTestsAreStrict(t *testing.T) {
	s := openTest(t, Options{MaxWrites: 1})
	runs := 0
	err := s.Update(func(tx *Tx) error {
		runs++
		return putAccount(tx, 1)
	})
	const name = "store.TestTransactionsOfTestsAreStrict"
	if !errors.Is(err, ErrTooMuch) || !strings.Contains(err.Error(), "in "+name+".func1 < "+name+" < ") {
		t.Errorf("got %v, want %v and its names", err, ErrTooMuch)
	}
	if runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
}
