package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/mailstead/mailstead/store/boltfile"
)

// hasList tells whether the database file in dir has the list of its free pages.
func hasList(t *testing.T, dir string) bool {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "mailstead.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	meta, found, err := boltfile.NewestMeta(f)
	if err != nil || !found {
		t.Fatalf("no meta page: %v", err)
	}
	return meta.HasFreelist()
}

// copyStore is what kill -9 leaves.
func copyStore(t *testing.T, s *Store) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	update(t, s, func(*Tx) error { // nothing is written meanwhile
		return errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(s.dir)))
	})
	return to
}

// fillPages writes n records of a page each, and deletes some of them, so that pages are free.
func fillPages(t testing.TB, s *Store, n int) {
	t.Helper()
	for from := 0; from < n; from += 500 {
		update(t, s, func(tx *Tx) error {
			for i := from; i < min(n, from+500); i++ {
				if err := putText(tx, fmt.Sprint(i), 3000); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for from := 0; from < n; from += 500 {
		update(t, s, func(tx *Tx) error {
			for i := from; i < min(n, from+500); i++ {
				if err := Templates.Delete(tx, fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 3 { // which gives the pages free that the last ones left
		update(t, s, func(tx *Tx) error { return putAccount(tx, 1) })
	}
}

func TestShortFreeListSurvivesAKill(t *testing.T) {
	s := openTest(t, Options{})
	fillPages(t, s, 300)
	if free := s.db.Stats().FreePageN; free < 50 {
		t.Fatalf("%d pages are free, want many", free)
	}
	if !hasList(t, copyStore(t, s)) {
		t.Error("a short list was not written")
	}
}

func TestLongFreeListIsWrittenByClose(t *testing.T) {
	s := openTest(t, Options{})
	fillPages(t, s, 4000)
	free := s.db.Stats().FreePageN
	killed := copyStore(t, s)
	if free < freelistMost || hasList(t, killed) {
		t.Errorf("a list of %d pages was written at each commit", free)
	}
	closeTest(t, s)
	if !hasList(t, s.dir) {
		t.Error("Close has not written the list")
	}
	for _, dir := range []string{s.dir, killed} {
		s := openDir(t, dir, Options{})
		if got := s.db.Stats().FreePageN; got < free-20 || got > free+20 {
			t.Errorf("%d pages are free, want about %d", got, free)
		}
		update(t, s, func(tx *Tx) error { return putAccount(tx, 2) })
		if got := accountNums(t, s); len(got) != 2 {
			t.Errorf("accounts %v", got)
		}
	}
}

// TestFreeListSwitchesSafely has the list be written at some commits and not at others, amid
// deletions, a reader and kills. Every store is checked; bbolt's own check finds pages that are
// lost or used twice.
func TestFreeListSwitchesSafely(t *testing.T) {
	s := openTest(t, Options{})
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		update(t, s, func(tx *Tx) error {
			for range 50 {
				id := fmt.Sprint(r.IntN(1500))
				if r.IntN(2) == 0 {
					if err := putText(tx, id, r.IntN(9000)); err != nil {
						return err
					}
				} else if err := Templates.Delete(tx, id); err != nil {
					return err
				}
			}
			return nil
		})
		if round%10 != 9 {
			continue
		}
		killed := openDir(t, copyStore(t, s), Options{})
		fillPages(t, killed, 1000+500*(round/10))
		view(t, killed, func(tx *Tx) error {
			for err := range tx.b.Check() {
				t.Errorf("round %d: %v", round, err)
			}
			return nil
		})
		closeTest(t, killed)
		s = openDir(t, killed.dir, Options{})
	}
}
