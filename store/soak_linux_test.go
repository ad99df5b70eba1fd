package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/boltfile"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/segment/disktest"
)

// TestOpenSoak measures how long a store of a million messages takes to open from a cold disk,
// after a clean stop and after a kill, with a short list of free pages and with a long one. Without
// MAILSTEAD_SOAK it has twenty thousand.
func TestOpenSoak(t *testing.T) {
	oneAtATime(t)
	rows := 20_000
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		rows = 1_000_000
	}
	dir := t.TempDir()
	open := func() *Store {
		s, err := Open(dir, Options{noSync: true, lenient: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	addMailbox(t, s, 1)
	for from := 0; from < rows; from += 500 {
		addSoak(t, s, from, 500)
	}
	sync := func() { // what was written without waiting for the disk
		if err := s.db.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	sync()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d messages, a database of %d MiB", rows, sizeOf(t, filepath.Join(dir, "mailstead.db"))>>20)
	cold := func(name string, most time.Duration) *Store {
		disktest.Evict(t, dir)
		began := time.Now()
		s := open()
		took := time.Since(began)
		view(t, s, func(tx *Tx) error {
			t.Logf("%s: opened in %v, %d free pages", name, took.Round(time.Millisecond), engine.Bolt(tx).DB().Stats().FreePageN)
			return nil
		})
		if took > most {
			t.Errorf("%s: opening took %v, want at most %v", name, took, most)
		}
		return s
	}
	s = cold("clean stop", time.Second)
	r := rand.New(rand.NewPCG(1, 2))
	update(t, s, func(tx *Tx) error { return putAccount(tx, 1) })
	sync()
	dir = kill(t, s)
	short := !lacksList(t, dir)
	s = cold(fmt.Sprintf("kill, list of free pages written: %v", short), 5*time.Second)
	for range 40 {
		update(t, s, func(tx *Tx) error {
			for range 400 {
				uid := uint32(r.IntN(rows)) + 1
				if err := tx.DeleteMessage(1, InboxID, uid); err != nil && !errors.Is(err, ErrNotFound) {
					return err
				}
			}
			return nil
		})
	}
	sync()
	dir = kill(t, s)
	long := lacksList(t, dir)
	if rows == 1_000_000 && !long {
		t.Error("the list of free pages is not long")
	}
	s = cold(fmt.Sprintf("kill, list of free pages written: %v", !long), 5*time.Second)
	sync()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = cold("clean stop with many free pages", time.Second)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// addSoak adds n messages of their own bytes to INBOX of mailbox 1.
func addSoak(t *testing.T, s *Store, from, n int) {
	t.Helper()
	refs := make([]BlobRef, n)
	for i := range refs {
		spool := s.NewSpool(1 << 10)
		if _, err := fmt.Fprintf(spool, "Subject: %d\r\n\r\n%0400d", from+i, i); err != nil {
			t.Fatal(err)
		}
		var err error
		refs[i], err = s.Append(nil, spool)
		if err != nil {
			t.Fatal(err)
		}
		spool.Close()
	}
	update(t, s, func(tx *Tx) error {
		for i, ref := range refs {
			m := &Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref, Received: second(0).Add(time.Duration(from+i) * time.Second)}
			if err := tx.AddMessage(m, benchMeta); err != nil {
				return err
			}
		}
		return nil
	})
}

// kill copies a store as kill -9 leaves it, and removes the store.
func kill(t *testing.T, s *Store) (dir string) {
	t.Helper()
	dir = copyStore(t, s)
	if err := errors.Join(s.Close(), os.RemoveAll(s.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// lacksList tells whether the database file in dir is without the list of its free pages.
func lacksList(t *testing.T, dir string) bool {
	t.Helper()
	lacks, err := boltfile.LacksFreelist(filepath.Join(dir, DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	return lacks
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
