package store

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// structures counts the rows of long structures.
func structures(t *testing.T, s *Store) (n int) {
	t.Helper()
	view(t, s, func(tx *Tx) error {
		n = tx.messageBucket(bktStructure).Stats().KeyN
		return nil
	})
	return n
}

func TestLongStructureIsKeptOnceForAllMailboxes(t *testing.T) {
	s := compactStore(t, Options{})
	long := bytes.Repeat([]byte("structure "), 5000)
	dead := fill(t, s, 3)
	ref := appendTest(t, s, strings.Repeat("x", 400))
	dead = append(dead, fill(t, s, 5)...)
	var all []*Message
	update(t, s, func(tx *Tx) error {
		all = nil
		for range 20 {
			m := &Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref}
			if err := tx.AddMessage(m, &Meta{Structure: long, Preview: "hello"}); err != nil {
				return err
			}
			all = append(all, m)
		}
		id := "arr_1"
		return errors.Join(tx.RefArrival(ref, id), Arrivals.Put(tx, &Arrival{ID: id, Blob: ref}))
	})
	if n := structures(t, s); n != 1 {
		t.Errorf("the structure of one message in 20 places is kept %d times", n)
	}
	fill(t, s, 20)
	deleteTest(t, s, dead...)
	compact(t, s)
	var copied *Message
	update(t, s, func(tx *Tx) (err error) { copied, err = tx.CopyMessage(all[0], 2); return err })
	if copied.Blob == ref {
		t.Fatal("the message has not moved")
	}
	view(t, s, func(tx *Tx) error {
		for _, m := range []*Message{all[0], all[19], copied} {
			meta, err := tx.Meta(m.Mailbox, m.Folder, m.UID)
			if err != nil {
				return err
			}
			if !bytes.Equal(meta.Structure, long) || meta.Preview != "hello" {
				t.Errorf("message %d has %d bytes of structure and preview %q", m.UID, len(meta.Structure), meta.Preview)
			}
		}
		a, err := Arrivals.Get(tx, "arr_1")
		if err == nil && a.Blob != copied.Blob {
			t.Error("the arrival points to where the message was")
		}
		return err
	})
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	deleteTest(t, s, append(all, copied)...)
	if n := structures(t, s); n != 1 {
		t.Errorf("the arrival's message has %d structures", n)
	}
	update(t, s, func(tx *Tx) error {
		return errors.Join(tx.UnrefArrival(copied.Blob, "arr_1"), Arrivals.Delete(tx, "arr_1"))
	})
	if n := structures(t, s); n != 0 {
		t.Errorf("%d structures are left of messages that are gone", n)
	}
}
