package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hasList tells whether the database file in dir has the list of its free pages.
func hasList(t *testing.T, dir string) bool {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "mailstead.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	meta, found, err := newestMeta(f)
	if err != nil || !found {
		t.Fatalf("no meta page: %v", err)
	}
	return meta.freelist != noFreelist
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

func TestReserveIsKeptForDeletions(t *testing.T) {
	free := int64(1 << 40)
	room := func(string) (int64, int64, error) { return free, 1 << 40, nil }
	var log bytes.Buffer
	s := openTest(t, Options{Room: room, Log: slog.New(slog.NewTextHandler(&log, nil))})
	addMailbox(t, s, 1)
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "x")
	update(t, s, func(tx *Tx) error { return putText(tx, "old", 100) })
	spool := s.NewSpool(10)
	defer spool.Close()
	_, _ = spool.Write([]byte("x"))
	for _, c := range []struct {
		name                           string
		free                           int64
		message, large, small, allowed bool
	}{
		{"enough", reserveMost, true, true, true, true},
		{"short", reserveMost - 1, false, false, true, true},
		{"least", reserveMost/2 - 1, false, false, false, true},
		{"none", 0, false, false, false, true},
		{"again", 1 << 40, true, true, true, true},
	} {
		free = c.free
		s.room.looked = time.Time{}
		want := func(what string, ok bool, err error) {
			t.Helper()
			if ok != (err == nil) || err != nil && !errors.Is(err, ErrFull) {
				t.Errorf("%s: %s: %v", c.name, what, err)
			}
		}
		ref, err := s.Append(nil, spool)
		want("message", c.message, err)
		s.Release(ref)
		want("large", c.large, s.Update(func(tx *Tx) error { return putText(tx, "new", 20_000) }))
		want("small", c.small, s.Update(func(tx *Tx) error { return putText(tx, "new", 100) }))
		want("queue", c.allowed, s.Update(func(tx *Tx) error { tx.MayUseReserve(); return putText(tx, "new", 100) }))
		want("nothing written", true, s.Update(func(tx *Tx) error { return nil }))
	}
	if a, b := strings.Count(log.String(), "almost full"), strings.Count(log.String(), "room on the disk again"); a != 1 || b != 1 {
		t.Errorf("the log tells %d times of the end and %d times of new room: %s", a, b, &log)
	}
	free = 0
	s.room.looked = time.Time{}
	update(t, s, func(tx *Tx) error { return Templates.Delete(tx, "old") })
	update(t, s, func(tx *Tx) error { return tx.DeleteMessage(1, InboxID, m.UID) })
}

func TestReserveOfASmallDisk(t *testing.T) {
	for _, c := range []struct {
		free, total int64
		want        roomLevel
	}{
		{3 << 20, 48 << 20, roomEnough}, {2 << 20, 48 << 20, roomShort}, {1 << 20, 48 << 20, roomLeast},
		{63 << 20, 1 << 40, roomShort}, {65 << 20, 1 << 40, roomEnough}, {31 << 20, 1 << 40, roomLeast},
	} {
		if got := levelOf(c.free, c.total); got != c.want {
			t.Errorf("%d of %d: %d, want %d", c.free, c.total, got, c.want)
		}
	}
}

// FuzzNewestMeta: no file makes the reader of meta pages fail otherwise than by not finding one.
func FuzzNewestMeta(f *testing.F) {
	s, err := Open(f.TempDir(), Options{})
	if err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(s.dir, "mailstead.db"))
	if err = errors.Join(err, s.Close()); err != nil {
		f.Fatal(err)
	}
	f.Add(string(whole[:2*os.Getpagesize()]))
	f.Add(string(whole[:100]))
	f.Add("")
	f.Fuzz(func(t *testing.T, file string) {
		m, found, err := newestMeta(strings.NewReader(file))
		if err != nil && err != io.EOF || found && m.size < 0 {
			t.Errorf("%+v, %v", m, err)
		}
	})
}
