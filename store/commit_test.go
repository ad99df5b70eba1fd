package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/mailstead/mailstead/store/segment/disktest"
	bolt "go.etcd.io/bbolt"
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
				err := s.db.View(func(b *bolt.Tx) error {
					seen <- b.Bucket([]byte(Accounts.name)).Get([]byte("acc_1")) != nil
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
		if !errors.Is(errs[0], errEnded) || !errors.Is(errs[1], errEnded) {
			t.Errorf("got %v, want %v for both", errs, errEnded)
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
		s := Store{log: slog.New(slog.DiscardHandler)}
		if err := s.commitFailed(c.err); !errors.Is(err, c.want) {
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
			if !errors.Is(err, errReadOnly) {
				t.Errorf("write %d: got %v, want %v", i, err, errReadOnly)
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
