package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
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

	"github.com/mailstead/mailstead/store/diskroom"
)

// batch makes the committer take all functions in one batch, in this order, and returns the results
// of their calls of Update. A panic is returned as an error.
func batch(t *testing.T, db *DB, fns ...func(*Tx) error) []error {
	t.Helper()
	errs := make([]error, len(fns))
	gate := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := db.Update(func(*Tx) error { <-gate; return nil }); err != nil {
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
			errs[i] = db.Update(fn)
		})
		synctest.Wait()
	}
	close(gate)
	all.Wait()
	return errs
}

func accountNums(t *testing.T, db *DB) (nums []uint32) {
	t.Helper()
	view(t, db, func(tx *Tx) error {
		for a := range Accounts.All(tx) {
			nums = append(nums, a.Num)
		}
		return nil
	})
	return nums
}

func TestFailingMembersLeaveTheirNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openTest(t, Options{})
		put := func(num uint32) func(*Tx) error { return func(tx *Tx) error { return putAccount(tx, num) } }
		spoil := func(num uint32) func(*Tx) error {
			return func(tx *Tx) error { return errors.Join(putAccount(tx, num), errTest) }
		}
		errs := batch(t, db,
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
		if got := accountNums(t, db); !slices.Equal(got, []uint32{1, 3, 5}) {
			t.Errorf("accounts %v are there, want 1, 3, 5", got)
		}
	})
}

func TestNobodyRunsMoreThanTwiceWhateverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openDir(t, t.TempDir(), Options{})
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
		batch(t, db, fns...)
		if most := slices.Max(runs); most != 2 {
			t.Errorf("a function ran %d times, want 2: %v", most, runs)
		}
		if got := len(accountNums(t, db)); got != len(runs)/2 {
			t.Errorf("%d accounts are there, want %d", got, len(runs)/2)
		}
	})
}

func TestErrorIsAnsweredOnceItsReasonCanBeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openTest(t, Options{})
		seen := make(chan bool, 1)
		exists := func(tx *Tx) error {
			if _, err := Accounts.Get(tx, "acc_1"); err == nil {
				return ErrExists
			}
			return putAccount(tx, 1)
		}
		errs := batch(t, db, exists, exists, func(tx *Tx) error {
			tx.After(func() {
				err := db.bolt.View(func(b *bolt.Tx) error {
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
		db := openTest(t, Options{})
		ran := make([]int, 3)
		note := func(i int, err error) func(*Tx) error {
			return func(tx *Tx) error {
				tx.After(func() { ran[i]++ })
				return errors.Join(putAccount(tx, uint32(i+1)), err)
			}
		}
		batch(t, db, note(0, nil), note(1, errTest), note(2, nil))
		if !slices.Equal(ran, []int{1, 0, 1}) {
			t.Errorf("the functions ran %v times, want 1, 0, 1", ran)
		}
	})
}

func TestFunctionThatEndsItsGoroutineStopsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openTest(t, Options{})
		errs := batch(t, db,
			func(tx *Tx) error { return putAccount(tx, 1) },
			func(*Tx) error { runtime.Goexit(); return nil },
		)
		if !errors.Is(errs[0], ErrEnded) || !errors.Is(errs[1], ErrEnded) {
			t.Errorf("got %v, want %v for both", errs, ErrEnded)
		}
		update(t, db, func(tx *Tx) error { return putAccount(tx, 2) })
		if got := accountNums(t, db); !slices.Equal(got, []uint32{2}) {
			t.Errorf("accounts %v are there, want 2", got)
		}
	})
}

func TestCloseKeepsWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	db := openDir(t, dir, strict(Options{}))
	var mu sync.Mutex
	var acknowledged []uint32
	var writers sync.WaitGroup
	started := make(chan struct{}, 800)
	for w := range uint32(8) {
		writers.Go(func() {
			for i := range uint32(100_000) {
				num := w*100_000 + i + 1
				err := db.Update(func(tx *Tx) error { return putAccount(tx, num) })
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
	if err := errors.Join(db.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	if err := db.View(func(*Tx) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("view of a closed database: %v, want %v", err, ErrClosed)
	}
	db = openDir(t, dir, strict(Options{}))
	there := accountNums(t, db)
	slices.Sort(there)
	slices.Sort(acknowledged)
	if !slices.Equal(there, acknowledged) {
		t.Errorf("%d accounts are there, %d were acknowledged", len(there), len(acknowledged))
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
		db := openTest(t, Options{Log: slog.New(slog.DiscardHandler)})
		if err := db.commitError(c.err); !errors.Is(err, c.want) {
			t.Errorf("%v: got %v, want %v", c.err, err, c.want)
		}
		if failed := db.Failed() != nil; failed != (c.want == ErrFailed) {
			t.Errorf("%v: database failed: %v", c.err, failed)
		}
	}
}

func TestReadTransactionRefusesWrites(t *testing.T) {
	db := openTest(t, Options{})
	view(t, db, func(tx *Tx) error {
		for i, err := range []error{
			putAccount(tx, 1),
			Jobs.Put(tx, &Job{ID: "job_1"}),
			tx.PutRow(testRows, []byte("k"), nil),
			tx.DeleteRow(testRows, []byte("k")),
			tx.SetSequence(testRows, 1),
			tx.EmptyBucket(testRows),
		} {
			if !errors.Is(err, ErrReadOnly) {
				t.Errorf("write %d: got %v, want %v", i, err, ErrReadOnly)
			}
		}
		return nil
	})
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	openDir(t, dir, strict(Options{}))
	if _, err := Open(filepath.Join(dir, "test.db"), Options{LockTimeout: 1}); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want %v", err, ErrInUse)
	}
}

func TestReserveIsKeptForDeletions(t *testing.T) {
	free := int64(1 << 40)
	room := func(string) (int64, int64, error) { return free, 1 << 40, nil }
	var log bytes.Buffer
	db := openTest(t, Options{Room: room, Log: slog.New(slog.NewTextHandler(&log, nil))})
	update(t, db, func(tx *Tx) error { return putText(tx, "old", 100) })
	for _, c := range []struct {
		name string
		free int64
		room bool
	}{
		{"enough", diskroom.Reserve, true}, {"short", diskroom.Reserve - 1, false}, {"shorter", diskroom.Reserve/2 - 1, false}, {"none", 0, false}, {"again", 1 << 40, true},
	} {
		free = c.free
		time.Sleep(diskroom.CheckInterval)
		want := func(what string, ok bool, err error) {
			t.Helper()
			if ok != (err == nil) || err != nil && !errors.Is(err, ErrFull) {
				t.Errorf("%s: %s: %v", c.name, what, err)
			}
		}
		want("message", c.room, db.RoomForMessage())
		want("large", c.room, db.Update(func(tx *Tx) error { return putText(tx, "new", 20_000) }))
		want("small", c.room, db.Update(func(tx *Tx) error { return putText(tx, "new", 100) }))
		want("queue", true, db.Update(func(tx *Tx) error { tx.MayUseReserve(); return putText(tx, "new", 100) }))
		want("nothing written", true, db.Update(func(tx *Tx) error { return nil }))
	}
	if a, b := strings.Count(log.String(), "almost full"), strings.Count(log.String(), "room on the disk again"); a != 1 || b != 1 {
		t.Errorf("the log tells %d times of the end and %d times of new room: %s", a, b, &log)
	}
	free = 0
	time.Sleep(diskroom.CheckInterval)
	update(t, db, func(tx *Tx) error { return Templates.Delete(tx, "old") })
	update(t, db, func(tx *Tx) error { return tx.DeleteRow(freeingRows, []byte("k")) })
}

// fillPages writes n records of a page each, and deletes some of them, so that pages are free.
func fillPages(t testing.TB, db *DB, n int) {
	t.Helper()
	for from := 0; from < n; from += 500 {
		update(t, db, func(tx *Tx) error {
			for i := from; i < min(n, from+500); i++ {
				if err := putText(tx, fmt.Sprint(i), 3000); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for from := 0; from < n; from += 500 {
		update(t, db, func(tx *Tx) error {
			for i := from; i < min(n, from+500); i++ {
				if err := Templates.Delete(tx, fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 3 { // which frees the pages that the last ones left
		update(t, db, func(tx *Tx) error { return putAccount(tx, 1) })
	}
}

func TestShortFreeListSurvivesAKill(t *testing.T) {
	db := openTest(t, Options{})
	fillPages(t, db, 300)
	if free := db.bolt.Stats().FreePageN; free < 50 {
		t.Fatalf("%d pages are free, want many", free)
	}
	if !hasList(t, copyTest(t, db)) {
		t.Error("a short list was not written")
	}
}

func TestLongFreeListIsWrittenByClose(t *testing.T) {
	oneAtATime(t)
	db := openTest(t, Options{})
	fillPages(t, db, 4000)
	free := db.bolt.Stats().FreePageN
	killed := copyTest(t, db)
	if free < MaxWrittenFreelist || hasList(t, killed) {
		t.Errorf("a list of %d pages was written at each commit", free)
	}
	closeTest(t, db)
	if !hasList(t, db.dir) {
		t.Error("Close has not written the list")
	}
	for _, dir := range []string{db.dir, killed} {
		db := openDir(t, dir, strict(Options{}))
		if got := db.bolt.Stats().FreePageN; got < free-20 || got > free+20 {
			t.Errorf("%d pages are free, want about %d", got, free)
		}
		update(t, db, func(tx *Tx) error { return putAccount(tx, 2) })
		if got := accountNums(t, db); len(got) != 2 {
			t.Errorf("accounts %v", got)
		}
	}
}

// TestFreeListSwitchesSafely writes the list of free pages at some commits and not at others,
// between deletions, a reader and kills. Every database is checked; bbolt's own check finds pages
// that are lost or used twice.
func TestFreeListSwitchesSafely(t *testing.T) {
	oneAtATime(t)
	db := openTest(t, Options{})
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		update(t, db, func(tx *Tx) error {
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
		killed := openDir(t, copyTest(t, db), strict(Options{}))
		fillPages(t, killed, 1000+500*(round/10))
		view(t, killed, func(tx *Tx) error {
			for err := range tx.b.Check() {
				t.Errorf("round %d: %v", round, err)
			}
			return nil
		})
		closeTest(t, killed)
		db = openDir(t, killed.dir, strict(Options{}))
	}
}

// BenchmarkCommitFreePages is a commit in a database with free pages, whose list is written (900)
// or is too long (3000).
func BenchmarkCommitFreePages(b *testing.B) {
	for _, free := range []int{0, 900, 3000} {
		b.Run(fmt.Sprint("free=", free), func(b *testing.B) {
			db := openTest(b, Options{})
			if free > 0 {
				fillPages(b, db, free)
			}
			b.ResetTimer()
			for i := range b.N {
				if err := db.Update(func(tx *Tx) error { return putAccount(tx, uint32(i%100)) }); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(db.bolt.Stats().FreePageN), "free")
		})
	}
}
