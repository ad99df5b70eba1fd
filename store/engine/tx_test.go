package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestRowsAreReadAsTheTransactionWroteThem: the cursors that a transaction keeps see its own writes
// and deletions, and a bucket that was emptied.
func TestRowsAreReadAsTheTransactionWroteThem(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			db := openTest(t, Options{MaxWrites: 100_000, NoSync: true})
			rnd := rand.New(rand.NewPCG(seed, 3))
			stored := map[string]string{} // what earlier transactions have left
			for round := range 6 {
				undone := errors.New("undone")
				rows := map[string]string{}
				err := db.Update(func(tx *Tx) error {
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
				view(t, db, func(tx *Tx) error {
					for n := range rowsOfTest {
						checkRow(t, tx, stored, n)
					}
					return nil
				})
			}
		})
	}
}

const rowsOfTest = 4000

// changeRows reads, writes and deletes rows of several pages in random order, and sometimes deletes
// them all.
func changeRows(t *testing.T, tx *Tx, rnd *rand.Rand, rows map[string]string) error {
	t.Helper()
	for range 6000 {
		n := rnd.IntN(rowsOfTest)
		key := rowKey(n)
		var err error
		switch op := rnd.IntN(1000); {
		case op == 0 && rnd.IntN(4) == 0:
			err = tx.EmptyBucket(testRows)
			clear(rows)
		case op < 300:
			row := strings.Repeat("r", rnd.IntN(200))
			err = tx.PutRow(testRows, []byte(key), []byte(row))
			rows[key] = row
		case op < 450:
			err = tx.DeleteRow(testRows, []byte(key))
			delete(rows, key)
		case op < 460: // whole pages become empty
			for i := n; i < min(n+300, rowsOfTest) && err == nil; i++ {
				err = tx.DeleteRow(testRows, []byte(rowKey(i)))
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
	got := tx.GetRow(testRows, []byte(rowKey(n)))
	if (got != nil) != there || string(got) != want {
		t.Fatalf("row %d is %q (nil: %v), want %q, %v", n, got, got == nil, want, there)
	}
}
