package store

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
)

func TestFolderUnderAnOldNameHasAnotherUIDValidity(t *testing.T) {
	s := openTest(t, Options{Now: func() time.Time { return second(0) }}) // a clock that stands still
	seen := map[uint32]bool{}
	for range 5 {
		update(t, s, func(tx *Tx) error {
			f := &Folder{Mailbox: 1, Name: "Again"}
			if err := tx.CreateFolder(f); err != nil {
				return err
			}
			if f.UIDValidity == 0 || seen[f.UIDValidity] {
				t.Errorf("UIDVALIDITY %d after %v", f.UIDValidity, seen)
			}
			tx.After(func() { seen[f.UIDValidity] = true })
			_, err := tx.DeleteFolder(1, f.ID, 1)
			return err
		})
	}
}

func TestUIDsAreNotUsedAgain(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Options{})
	addMailbox(t, s, 1)
	inbox := Message{Account: 1, Mailbox: 1, Folder: InboxID}
	for want := uint32(1); want < 4; want++ {
		m := addTest(t, s, inbox, "x")
		if m.UID != want {
			t.Errorf("UID %d, want %d", m.UID, want)
		}
		update(t, s, func(tx *Tx) error { return tx.DeleteMessage(1, InboxID, m.UID) })
		closeTest(t, s)
		s = openDir(t, dir, Options{})
	}
}

func TestFolderWithoutUIDsIsFull(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "x")
	update(t, s, func(tx *Tx) error {
		f, err := tx.Folder(1, 2)
		if err != nil {
			return err
		}
		f.UIDNext = math.MaxUint32 - 1
		return mailindex.PutFolder(&tx.Tx, f)
	})
	for _, want := range []error{nil, ErrFolderFull} {
		if err := s.Update(func(tx *Tx) error { _, err := tx.CopyMessage(m, 2); return err }); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "x")
	gone := &Message{Account: 1, Mailbox: 1, Folder: InboxID, UID: 99}
	for name, fn := range map[string]func(*Tx) error{
		"message":           func(tx *Tx) error { _, err := tx.Message(1, InboxID, 99); return err },
		"meta":              func(tx *Tx) error { _, err := tx.Meta(1, InboxID, 99); return err },
		"folder":            func(tx *Tx) error { _, err := tx.Folder(2, InboxID); return err },
		"folder name":       func(tx *Tx) error { _, err := tx.FolderByName(1, "archive"); return err },
		"flags":             func(tx *Tx) error { return tx.SetFlags(gone, FlagSeen, nil) },
		"bits":              func(tx *Tx) error { return tx.SetBits(gone, BitBounce) },
		"deletion":          func(tx *Tx) error { return tx.DeleteMessage(1, InboxID, 99) },
		"copy":              func(tx *Tx) error { _, err := tx.CopyMessage(gone, 2); return err },
		"copy to no folder": func(tx *Tx) error { _, err := tx.CopyMessage(m, 9); return err },
		"add to no folder":  func(tx *Tx) error { return tx.AddMessage(&Message{Mailbox: 1, Folder: 9, Blob: m.Blob}, nil) },
		"rename":            func(tx *Tx) error { return tx.RenameFolder(&Folder{Mailbox: 1, ID: 9}, "x") },
		"subscription":      func(tx *Tx) error { return tx.SetSubscribed(&Folder{Mailbox: 1, ID: 9}, true) },
		"folder deletion":   func(tx *Tx) error { _, err := tx.DeleteFolder(1, 9, 1); return err },
		"reference":         func(tx *Tx) error { return SubmissionBlobs.Unref(tx, m.Blob, "sub_none") },
		"blob":              func(*Tx) error { _, err := s.OpenBlob(BlobRef{Segment: 77, Offset: 36, Head: 40}); return err },
		"add of no blob":    func(tx *Tx) error { return tx.AddMessage(&Message{Mailbox: 1, Folder: InboxID}, nil) },
		"reference to other": func(tx *Tx) error {
			return SubmissionBlobs.Ref(tx, BlobRef{Segment: 1, Offset: 36, Head: 1, Length: 1}, "sub_none")
		},
	} {
		err := s.Update(func(tx *Tx) error {
			err := fn(tx)
			if tx.Writes() != 0 {
				t.Errorf("%s: %d writes before the error", name, tx.Writes())
			}
			return err
		})
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: got %v, want %v", name, err, ErrNotFound)
		}
	}
}

func TestNamesAndKeywordsAreBounded(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1)
	ref := appendTest(t, s, "x")
	for _, keywords := range [][]string{{""}, {strings.Repeat("k", 256)}, slices.Repeat([]string{"k"}, 129)} {
		add := func(tx *Tx) error {
			return tx.AddMessage(&Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref, Keywords: keywords}, nil)
		}
		if err := s.Update(add); !errors.Is(err, ErrKeywords) {
			t.Errorf("%d keywords: %v, want %v", len(keywords), err, ErrKeywords)
		}
	}
	longest := slices.Repeat([]string{strings.Repeat("k", 255)}, 128)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Keywords: longest}, "x")
	view(t, s, func(tx *Tx) error {
		got, err := tx.Message(1, InboxID, m.UID)
		if err == nil && !slices.Equal(got.Keywords, longest) {
			t.Error("the longest keywords are not kept")
		}
		return err
	})
	for _, name := range []string{"", strings.Repeat("n", 1001)} {
		for _, fn := range []func(*Tx) error{
			func(tx *Tx) error { return tx.CreateFolder(&Folder{Mailbox: 1, Name: name}) },
			func(tx *Tx) error { return tx.RenameFolder(&Folder{Mailbox: 1, ID: 2}, name) },
		} {
			if err := s.Update(fn); !errors.Is(err, ErrFolderName) {
				t.Errorf("name of %d bytes: %v, want %v", len(name), err, ErrFolderName)
			}
		}
	}
}

func TestTimesAreKeptInMilliseconds(t *testing.T) {
	s := openTest(t, Options{Now: func() time.Time { return second(9).Add(7 * time.Microsecond) }})
	addMailbox(t, s, 1)
	east := time.FixedZone("", 3600)
	for _, c := range []struct{ given, want time.Time }{
		{time.Time{}, second(9)},
		{second(1).Add(1500 * time.Microsecond).In(east), second(1).Add(time.Millisecond)},
		{time.Date(1965, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0).UTC()},
	} {
		m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Received: c.given}, "x")
		view(t, s, func(tx *Tx) error {
			got, err := tx.Message(1, InboxID, m.UID)
			if err == nil && (got.Received != c.want || m.Received != c.want) {
				t.Errorf("received %v is kept as %v and told as %v, want %v", c.given, got.Received, m.Received, c.want)
			}
			return err
		})
	}
}

func TestDropRefusesAForeignMailbox(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1)
	addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "x")
	if err := s.Update(func(tx *Tx) error { _, err := tx.DropMailbox(2, 1, 10); return err }); err == nil {
		t.Error("account 2 dropped a mailbox of account 1")
	}
	view(t, s, func(tx *Tx) error { _, err := tx.Message(1, InboxID, 1); return err })
}

// TestWalkersMayChangeMessages is what EXPUNGE and STORE do.
func TestWalkersMayChangeMessages(t *testing.T) {
	s := openTest(t, Options{MaxWrites: 20_000, noSync: true})
	addMailbox(t, s, 1)
	const n = 1000
	ref := appendTest(t, s, "x")
	for range n {
		update(t, s, func(tx *Tx) error {
			return tx.AddMessage(&Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref, Received: second(1)}, nil)
		})
	}
	seen := 0
	update(t, s, func(tx *Tx) error {
		seen = 0
		for m := range tx.Messages(1, InboxID, 1, math.MaxUint32) {
			seen++
			if m.UID%2 == 0 {
				if err := tx.SetFlags(&m, FlagSeen, []string{"a rather long keyword that moves what follows"}); err != nil {
					return err
				}
			} else if err := tx.DeleteMessage(1, InboxID, m.UID); err != nil {
				return err
			}
		}
		for pos := range tx.Inbox(InboxQuery{Account: 1}) {
			seen++
			if err := tx.DeleteMessage(pos.Num, InboxID, pos.UID); err != nil {
				return err
			}
		}
		return nil
	})
	if seen != n+n/2 {
		t.Errorf("saw %d messages, want %d", seen, n+n/2)
	}
}

func TestReadingARowAllocatesNothing(t *testing.T) {
	s := openTest(t, Options{noSync: true})
	addMailbox(t, s, 1)
	ref := appendTest(t, s, "x")
	for range 1000 {
		update(t, s, func(tx *Tx) error {
			return tx.AddMessage(&Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref}, nil)
		})
	}
	view(t, s, func(tx *Tx) error {
		allocs := testing.AllocsPerRun(10, func() {
			for range tx.Messages(1, InboxID, 1, 1000) {
				continue
			}
			for range tx.Inbox(InboxQuery{Account: 1}) {
				continue
			}
		})
		if allocs > 100 {
			t.Errorf("reading 2000 rows allocates %v times", allocs)
		}
		return nil
	})
}

// structures counts the rows of long structures.
func structures(t *testing.T, s *Store) (n int) {
	t.Helper()
	view(t, s, func(tx *Tx) error {
		n = tx.Bucket(mailrow.BucketStructure).Stats().KeyN
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
		return errors.Join(ArrivalBlobs.Ref(tx, ref, id), Arrivals.Put(tx, &Arrival{ID: id, Blob: ref}))
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
		return errors.Join(ArrivalBlobs.Unref(tx, copied.Blob, "arr_1"), Arrivals.Delete(tx, "arr_1"))
	})
	if n := structures(t, s); n != 0 {
		t.Errorf("%d structures are left of messages that are gone", n)
	}
}
