package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/mailstead/mailstead/store/mailrow"
)

// TestRowsAreReadAsTheTransactionWroteThem: the cursors that a transaction keeps follow what it
// puts and deletes, and a bucket that is made anew.
func TestRowsAreReadAsTheTransactionWroteThem(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s := openTest(t, Options{MaxWrites: 100_000, noSync: true})
			rnd := rand.New(rand.NewPCG(seed, 3))
			stored := map[string]string{} // what the transactions until now have left
			for round := range 6 {
				undone := errors.New("undone")
				rows := map[string]string{}
				err := s.Update(func(tx *Tx) error {
					clear(rows)
					for key, row := range stored {
						rows[key] = row
					}
					if err := changeRows(t, tx, rnd, rows); err != nil {
						return err
					}
					if round%3 == 2 {
						return undone
					}
					return nil
				})
				switch {
				case err == nil:
					stored = rows
				case !errors.Is(err, undone):
					t.Fatal(err)
				}
				view(t, s, func(tx *Tx) error {
					for n := range rowsOfTest {
						checkRow(t, tx, stored, n)
					}
					return nil
				})
			}
			update(t, s, func(tx *Tx) error { return tx.EmptyBucket(mailrow.BucketTextGone) }) // for what looks at all rows
		})
	}
}

const rowsOfTest = 4000

// changeRows reads, puts and deletes rows of several pages in any order, and now and then drops
// them all.
func changeRows(t *testing.T, tx *Tx, rnd *rand.Rand, rows map[string]string) error {
	t.Helper()
	for range 6000 {
		n := rnd.IntN(rowsOfTest)
		key := rowKey(n)
		var err error
		switch op := rnd.IntN(1000); {
		case op == 0 && rnd.IntN(4) == 0:
			err = tx.EmptyBucket(mailrow.BucketTextGone)
			clear(rows)
		case op < 300:
			row := strings.Repeat("r", rnd.IntN(200))
			err = tx.PutRow(mailrow.BucketTextGone, []byte(key), []byte(row))
			rows[key] = row
		case op < 450:
			err = tx.DeleteRow(mailrow.BucketTextGone, []byte(key))
			delete(rows, key)
		case op < 460: // whole pages become empty
			for i := n; i < min(n+300, rowsOfTest) && err == nil; i++ {
				err = tx.DeleteRow(mailrow.BucketTextGone, []byte(rowKey(i)))
				delete(rows, rowKey(i))
			}
		}
		if err != nil {
			return err
		}
		checkRow(t, tx, rows, n)
		checkRow(t, tx, rows, rnd.IntN(rowsOfTest))
	}
	return nil
}

func rowKey(n int) string { return fmt.Sprintf("key %08d", n) }

func checkRow(t *testing.T, tx *Tx, rows map[string]string, n int) {
	t.Helper()
	want, there := rows[rowKey(n)]
	got := tx.GetRow(mailrow.BucketTextGone, []byte(rowKey(n)))
	if (got != nil) != there || string(got) != want {
		t.Fatalf("row %d is %q (nil: %v), want %q, %v", n, got, got == nil, want, there)
	}
}

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
