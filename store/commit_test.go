package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/boltfile"
	"github.com/mailstead/mailstead/store/diskroom"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/segment/disktest"
)

var errTest = errors.New("the function's own error")

func putAccount(tx *Tx, num uint32) error {
	return Accounts.Put(tx, &Account{ID: fmt.Sprint("acc_", num), Num: num})
}

// batch makes the committer take all functions in one batch and in this order, and returns what
// Update answered to each. A panic is answered as an error.
func batch(t *testing.T, s *Store, fns ...func(*Tx) error) []error {
	t.Helper()
	errs := make([]error, len(fns))
	gate := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := s.Update(func(*Tx) error { <-gate; return nil }); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	for i, fn := range fns {
		all.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					errs[i] = fmt.Errorf("panic: %v", v)
				}
			}()
			errs[i] = s.Update(fn)
		})
		synctest.Wait()
	}
	close(gate)
	all.Wait()
	return errs
}

func accountNums(t *testing.T, s *Store) (nums []uint32) {
	t.Helper()
	view(t, s, func(tx *Tx) error {
		for a := range Accounts.All(tx) {
			nums = append(nums, a.Num)
		}
		return nil
	})
	return nums
}

func TestFailingMembersLeaveTheirNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, Options{})
		put := func(num uint32) func(*Tx) error { return func(tx *Tx) error { return putAccount(tx, num) } }
		spoil := func(num uint32) func(*Tx) error {
			return func(tx *Tx) error { return errors.Join(putAccount(tx, num), errTest) }
		}
		errs := batch(t, s,
			put(1),
			spoil(2),
			put(3),
			func(*Tx) error { return errTest },
			func(tx *Tx) error { _ = putAccount(tx, 4); panic("bug") },
			put(5),
			spoil(6),
		)
		for i, want := range []string{"", "own error", "", "own error", "panic: bug", "", "own error"} {
			if got := fmt.Sprint(errs[i]); want == "" && errs[i] != nil || !strings.Contains(got, want) {
				t.Errorf("member %d: got %v, want %q", i, errs[i], want)
			}
		}
		if got := accountNums(t, s); !slices.Equal(got, []uint32{1, 3, 5}) {
			t.Errorf("accounts %v are there, want 1, 3, 5", got)
		}
	})
}

func TestNobodyRunsMoreThanTwiceWhateverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, Options{lenient: true})
		runs := make([]int, 40)
		var fns []func(*Tx) error
		for i := range runs {
			fns = append(fns, func(tx *Tx) error {
				runs[i]++
				if err := putAccount(tx, uint32(i+1)); err != nil || i%2 == 0 {
					return err
				}
				return errTest
			})
		}
		batch(t, s, fns...)
		if most := slices.Max(runs); most != 2 {
			t.Errorf("a function ran %d times, want 2: %v", most, runs)
		}
		if got := len(accountNums(t, s)); got != len(runs)/2 {
			t.Errorf("%d accounts are there, want %d", got, len(runs)/2)
		}
	})
}

func TestErrorIsAnsweredOnceItsReasonCanBeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, Options{})
		seen := make(chan bool, 1)
		exists := func(tx *Tx) error {
			if _, err := Accounts.Get(tx, "acc_1"); err == nil {
				return ErrExists
			}
			return putAccount(tx, 1)
		}
		errs := batch(t, s, exists, exists, func(tx *Tx) error {
			tx.After(func() {
				err := engine.File(s.db).View(func(b *bolt.Tx) error {
					seen <- b.Bucket([]byte(Accounts.Name())).Get([]byte("acc_1")) != nil
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			return nil
		})
		if errs[0] != nil || !errors.Is(errs[1], ErrExists) || errs[2] != nil {
			t.Fatalf("got %v", errs)
		}
		if !<-seen {
			t.Error("answers are given before the commit that they are about")
		}
	})
}

func TestAfterRunsOnceAndOnlyAfterACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, Options{})
		ran := make([]int, 3)
		note := func(i int, err error) func(*Tx) error {
			return func(tx *Tx) error {
				tx.After(func() { ran[i]++ })
				return errors.Join(putAccount(tx, uint32(i+1)), err)
			}
		}
		batch(t, s, note(0, nil), note(1, errTest), note(2, nil))
		if !slices.Equal(ran, []int{1, 0, 1}) {
			t.Errorf("the functions ran %v times, want 1, 0, 1", ran)
		}
	})
}

func TestFunctionThatEndsItsGoroutineStopsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openTest(t, Options{})
		errs := batch(t, s,
			func(tx *Tx) error { return putAccount(tx, 1) },
			func(*Tx) error { runtime.Goexit(); return nil },
		)
		if !errors.Is(errs[0], engine.ErrEnded) || !errors.Is(errs[1], engine.ErrEnded) {
			t.Errorf("got %v, want %v for both", errs, engine.ErrEnded)
		}
		update(t, s, func(tx *Tx) error { return putAccount(tx, 2) })
		if got := accountNums(t, s); !slices.Equal(got, []uint32{2}) {
			t.Errorf("accounts %v are there, want 2", got)
		}
	})
}

func TestCloseKeepsWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Options{})
	var mu sync.Mutex
	var acknowledged []uint32
	var writers sync.WaitGroup
	started := make(chan struct{}, 800)
	for w := range uint32(8) {
		writers.Go(func() {
			for i := range uint32(100_000) {
				num := w*100_000 + i + 1
				err := s.Update(func(tx *Tx) error { return putAccount(tx, num) })
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, num)
				mu.Unlock()
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 200 {
		<-started
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	if err := s.View(func(*Tx) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("view of a closed store: %v, want %v", err, ErrClosed)
	}
	s = openDir(t, dir, Options{})
	there := accountNums(t, s)
	slices.Sort(there)
	slices.Sort(acknowledged)
	if !slices.Equal(there, acknowledged) {
		t.Errorf("%d accounts are there, %d were acknowledged", len(there), len(acknowledged))
	}
}

func TestFailedSyncOfMessagesWritesNoRows(t *testing.T) {
	dir := t.TempDir()
	faults := &disktest.Faults{}
	var log bytes.Buffer
	s := openDir(t, dir, Options{disk: faults, Log: slog.New(slog.NewTextHandler(&log, nil))})
	addMailbox(t, s, 1)
	ref := appendTest(t, s, "lost")
	faults.Set(func() { faults.SyncErr = syscall.EIO })
	ran := false
	err := s.Update(func(tx *Tx) error {
		tx.After(func() { ran = true })
		return tx.AddMessage(&Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref}, nil)
	})
	if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) || ran {
		t.Errorf("got %v (after: %v), want %v", err, ran, ErrFailed)
	}
	faults.Set(func() { faults.SyncErr = nil })
	if err := s.Update(func(tx *Tx) error { return putAccount(tx, 1) }); !errors.Is(err, ErrFailed) {
		t.Errorf("the next write: %v, want %v", err, ErrFailed)
	}
	if _, err := s.Append(nil, s.NewSpool(0)); !errors.Is(err, ErrFailed) {
		t.Errorf("the next append: %v, want %v", err, ErrFailed)
	}
	if n := strings.Count(log.String(), "takes no more writes"); n != 1 {
		t.Errorf("the log tells of it %d times, want once: %s", n, &log)
	}
	messages := func(s *Store) (n int) {
		view(t, s, func(tx *Tx) error {
			for range tx.Messages(1, InboxID, 1, 100) {
				n++
			}
			return nil
		})
		return n
	}
	if n := messages(s); n != 0 {
		t.Errorf("%d messages are there, want none", n)
	}
	_ = s.Close() // it failed before
	s = openDir(t, dir, Options{})
	if n := messages(s); n != 0 {
		t.Errorf("%d messages are there after a restart, want none", n)
	}
	addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "kept")
}

func TestFullDiskIsToldAndPasses(t *testing.T) {
	faults := &disktest.Faults{}
	s := openTest(t, Options{disk: faults})
	addMailbox(t, s, 1)
	addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "before")
	faults.Set(func() { faults.WriteErr, faults.Room = syscall.ENOSPC, 10 })
	spool := s.NewSpool(100)
	defer spool.Close()
	if _, err := spool.Write([]byte("no room for this")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(nil, spool); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want %v", err, ErrFull)
	}
	faults.Set(func() { faults.WriteErr = nil })
	m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "after")
	if got := readTest(t, s, m.Blob); got != "after" {
		t.Errorf("got %q", got)
	}
}

func TestOnlyARefusedWriteIsAFullDisk(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
	}{
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, ErrFull},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT}, ErrFull},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.EIO}, ErrFailed},
		{syscall.ENOSPC, ErrFailed}, // as bbolt returns it from fdatasync
	} {
		s := openTest(t, Options{Log: slog.New(slog.DiscardHandler)})
		if err := engine.CommitFailed(s.db, c.err); !errors.Is(err, c.want) {
			t.Errorf("%v: got %v, want %v", c.err, err, c.want)
		}
		if failed := s.Failed() != nil; failed != (c.want == ErrFailed) {
			t.Errorf("%v: store failed: %v", c.err, failed)
		}
	}
}

func TestReadTransactionRefusesWrites(t *testing.T) {
	s := openTest(t, Options{})
	view(t, s, func(tx *Tx) error {
		for i, err := range []error{
			putAccount(tx, 1),
			tx.CreateFolder(&Folder{Mailbox: 1, Name: "x"}),
			Accounts.Put(tx, &Account{ID: "acc_2"}),
		} {
			if !errors.Is(err, engine.ErrReadOnly) {
				t.Errorf("write %d: got %v, want %v", i, err, engine.ErrReadOnly)
			}
		}
		return nil
	})
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	openDir(t, dir, Options{})
	if _, err := Open(dir, Options{LockTimeout: 1}); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want %v", err, ErrInUse)
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
		name string
		free int64
		room bool
	}{
		{"enough", diskroom.Reserve, true}, {"short", diskroom.Reserve - 1, false}, {"shorter", diskroom.Reserve/2 - 1, false}, {"none", 0, false}, {"again", 1 << 40, true},
	} {
		free = c.free
		time.Sleep(diskroom.Interval)
		want := func(what string, ok bool, err error) {
			t.Helper()
			if ok != (err == nil) || err != nil && !errors.Is(err, ErrFull) {
				t.Errorf("%s: %s: %v", c.name, what, err)
			}
		}
		ref, err := s.Append(nil, spool)
		want("message", c.room, err)
		s.Release(ref)
		want("large", c.room, s.Update(func(tx *Tx) error { return putText(tx, "new", 20_000) }))
		want("small", c.room, s.Update(func(tx *Tx) error { return putText(tx, "new", 100) }))
		want("queue", true, s.Update(func(tx *Tx) error { tx.MayUseReserve(); return putText(tx, "new", 100) }))
		want("nothing written", true, s.Update(func(tx *Tx) error { return nil }))
	}
	if a, b := strings.Count(log.String(), "almost full"), strings.Count(log.String(), "room on the disk again"); a != 1 || b != 1 {
		t.Errorf("the log tells %d times of the end and %d times of new room: %s", a, b, &log)
	}
	free = 0
	time.Sleep(diskroom.Interval)
	update(t, s, func(tx *Tx) error { return Templates.Delete(tx, "old") })
	update(t, s, func(tx *Tx) error { return tx.DeleteMessage(1, InboxID, m.UID) })
}

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
	if free := engine.File(s.db).Stats().FreePageN; free < 50 {
		t.Fatalf("%d pages are free, want many", free)
	}
	if !hasList(t, copyStore(t, s)) {
		t.Error("a short list was not written")
	}
}

func TestLongFreeListIsWrittenByClose(t *testing.T) {
	oneAtATime(t)
	s := openTest(t, Options{})
	fillPages(t, s, 4000)
	free := engine.File(s.db).Stats().FreePageN
	killed := copyStore(t, s)
	if free < engine.FreelistMost || hasList(t, killed) {
		t.Errorf("a list of %d pages was written at each commit", free)
	}
	closeTest(t, s)
	if !hasList(t, s.dir) {
		t.Error("Close has not written the list")
	}
	for _, dir := range []string{s.dir, killed} {
		s := openDir(t, dir, Options{})
		if got := engine.File(s.db).Stats().FreePageN; got < free-20 || got > free+20 {
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
	oneAtATime(t)
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
			for err := range engine.Bolt(tx).Check() {
				t.Errorf("round %d: %v", round, err)
			}
			return nil
		})
		closeTest(t, killed)
		s = openDir(t, killed.dir, Options{})
	}
}
