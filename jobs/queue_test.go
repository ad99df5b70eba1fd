package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/store"
)

// openStore opens a store that is checked when the test ends. now is its clock; nil is time.Now.
func openStore(t testing.TB, dir string, now func() time.Time) *store.Store {
	t.Helper()
	s, err := store.Open(dir, store.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newQueue(s *store.Store) *Queue {
	q := NewQueue(s)
	q.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	q.Rand = func() float64 { return 0.5 }
	return q
}

// start runs the queue and returns what stops it and waits for its end.
func start(t testing.TB, q *Queue) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func add(t testing.TB, q *Queue, n New) *store.Job {
	t.Helper()
	var j *store.Job
	update(t, q, func(tx *store.Tx) (err error) {
		j, err = q.Add(tx, n)
		return err
	})
	return j
}

func update(t testing.TB, q *Queue, fn func(tx *store.Tx) error) {
	t.Helper()
	if err := q.Store.Update(fn); err != nil {
		t.Fatal(err)
	}
}

// get is the job's record; nil if there is none.
func get(t testing.TB, q *Queue, id string) *store.Job {
	t.Helper()
	var j *store.Job
	err := q.Store.View(func(tx *store.Tx) (err error) {
		j, err = store.Jobs.Find(tx, id)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func wantState(t testing.TB, q *Queue, id, state string) *store.Job {
	t.Helper()
	j := get(t, q, id)
	if j == nil || j.State != state {
		t.Fatalf("job %s: have %+v, want state %s", id, j, state)
	}
	return j
}

// in runs a test in a bubble of fake time, with a queue on a store of its own.
func in(t *testing.T, test func(t *testing.T, q *Queue)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, newQueue(openStore(t, t.TempDir(), nil)))
	})
}

// notes is what works note for the test.
type notes[T any] struct {
	mu   sync.Mutex
	rows []T
}

// add notes v, and answers how many notes there are now.
func (n *notes[T]) add(v T) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rows = append(n.rows, v)
	return len(n.rows)
}

func (n *notes[T]) all() []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]T(nil), n.rows...)
}

func (n *notes[T]) String() string { return fmt.Sprint(n.all()) }

// memory is what the queue holds in memory: works, lanes and claims.
func memory(q *Queue) (works, lanes, claims int) {
	q.scheduler.mu.Lock()
	defer q.scheduler.mu.Unlock()
	return q.scheduler.busy, len(q.scheduler.lanes), len(q.scheduler.claims)
}

// done is a Work that succeeds.
func done(context.Context, *store.Job) (Writes, error) { return nil, nil }

func TestRollbackLeavesNoJob(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var ran atomic.Int32
		q.Handle(Kind{Name: "k", Work: func(context.Context, *store.Job) (Writes, error) { ran.Add(1); return nil, nil }})
		start(t, q)
		undo := errors.New("undo")
		err := q.Store.Update(func(tx *store.Tx) error {
			if _, err := q.Add(tx, New{Kind: "k"}); err != nil {
				return err
			}
			return undo
		})
		if err != undo {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if ran.Load() != 0 {
			t.Error("work of a transaction that was undone ran")
		}
	})
}

func TestAddRefusesWhatItCannotKeep(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "k", Work: done})
		for _, n := range []New{{Kind: "unheard"}, {Kind: "k", Lane: "a\x00b"}, {Kind: "k", Key: "\x00"}, {Kind: "k", Args: func() {}}} {
			err := q.Store.Update(func(tx *store.Tx) error {
				_, err := q.Add(tx, n)
				return err
			})
			if err == nil {
				t.Errorf("Add(%v) succeeded", n)
			}
		}
	})
}

func TestArgsComeBack(t *testing.T) {
	type args struct{ Name string }
	in(t, func(t *testing.T, q *Queue) {
		var got notes[args]
		q.Handle(Kind{Name: "k", Work: func(_ context.Context, j *store.Job) (w Writes, err error) {
			a, err := Args[args](j)
			got.add(a)
			return nil, err
		}})
		start(t, q)
		add(t, q, New{Kind: "k", Args: args{"x"}})
		synctest.Wait()
		if have := got.all(); len(have) != 1 || have[0].Name != "x" {
			t.Errorf("have %+v", have)
		}
		if _, err := Args[args](&store.Job{ID: "job_1", Args: []byte(`[]`)}); err == nil {
			t.Error("arguments of another shape were taken")
		}
	})
}

func TestWaitingDuplicateIsFolded(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "k", Work: done, Visible: true})
		q.Handle(Kind{Name: "other", Work: done})
		now := q.Store.Now()
		a := add(t, q, New{Kind: "k", Key: "x", Args: 1, Due: now.Add(time.Hour), CreatedBy: "usr_1"})
		b := add(t, q, New{Kind: "k", Key: "x", Args: 2, Due: now.Add(time.Minute), CreatedBy: "usr_2"})
		c := add(t, q, New{Kind: "k", Key: "x", Args: 3, Due: now.Add(2 * time.Hour)})
		if a.ID != b.ID || a.ID != c.ID {
			t.Fatalf("not folded: %s %s %s", a.ID, b.ID, c.ID)
		}
		if !c.Due.Equal(now.Add(time.Minute)) || string(c.Args) != "3" || c.CreatedBy != "usr_1" {
			t.Errorf("folded into %+v", c)
		}
		if d := add(t, q, New{Kind: "k", Key: "y"}); d.ID == a.ID {
			t.Error("another key was folded")
		}
		if d := add(t, q, New{Kind: "other", Key: "x"}); d.ID == a.ID {
			t.Error("another kind was folded")
		}
	})
}

func TestRunningJobIsNotFoldedInto(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var args notes[string]
		q.Handle(Kind{Name: "k", Visible: true, Work: func(_ context.Context, j *store.Job) (Writes, error) {
			args.add(string(j.Args))
			time.Sleep(time.Minute)
			return nil, nil
		}})
		start(t, q)
		a := add(t, q, New{Kind: "k", Key: "x", Args: 1})
		time.Sleep(time.Second)
		b := add(t, q, New{Kind: "k", Key: "x", Args: 2})
		if a.ID == b.ID {
			t.Fatal("folded into a running job")
		}
		time.Sleep(time.Hour)
		wantState(t, q, a.ID, store.JobCompleted)
		wantState(t, q, b.ID, store.JobCompleted)
		if args.String() != "[1 2]" {
			t.Errorf("ran with %v", args.all())
		}
	})
}

func TestFailedJobMakesWayForItsDuplicate(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "k", Visible: true, PerLane: 1, Work: func(_ context.Context, j *store.Job) (Writes, error) {
			if string(j.Args) == "2" {
				return nil, nil
			}
			time.Sleep(time.Minute)
			return nil, errors.New("no luck")
		}})
		start(t, q)
		a := add(t, q, New{Kind: "k", Key: "x", Args: 1})
		time.Sleep(time.Second)
		b := add(t, q, New{Kind: "k", Key: "x", Args: 2, Due: q.Store.Now().Add(24 * time.Hour)})
		time.Sleep(10 * time.Minute)
		if j := wantState(t, q, a.ID, store.JobCancelled); j.Detail != "superseded by "+b.ID || j.EndedAt.IsZero() {
			t.Errorf("the failed one: %+v", j)
		}
		if j := wantState(t, q, b.ID, store.JobCompleted); j.EndedAt.Sub(j.CreatedAt) > 2*time.Minute {
			t.Errorf("the earlier due did not win: %+v", j)
		}
	})
}

func TestCancelWaiting(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "k", Visible: true, Work: func(context.Context, *store.Job) (Writes, error) {
			t.Error("a cancelled job ran")
			return nil, nil
		}})
		start(t, q)
		j := add(t, q, New{Kind: "k", Due: q.Store.Now().Add(time.Hour)})
		update(t, q, func(tx *store.Tx) error { return q.Cancel(tx, j.ID) })
		time.Sleep(2 * time.Hour)
		wantState(t, q, j.ID, store.JobCancelled)
		err := q.Store.Update(func(tx *store.Tx) error { return q.Cancel(tx, "job_none") })
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("cancel of nothing: %v", err)
		}
	})
}

func TestCancelRunning(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "heeds", Visible: true, Work: func(ctx context.Context, _ *store.Job) (Writes, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		q.Handle(Kind{Name: "succeeds", Visible: true, Work: func(ctx context.Context, _ *store.Job) (Writes, error) {
			<-ctx.Done()
			return nil, nil
		}})
		start(t, q)
		heeds, succeeds := add(t, q, New{Kind: "heeds"}), add(t, q, New{Kind: "succeeds"})
		time.Sleep(time.Second)
		wantState(t, q, heeds.ID, store.JobRunning)
		update(t, q, func(tx *store.Tx) error {
			return errors.Join(q.Cancel(tx, heeds.ID), q.Cancel(tx, succeeds.ID))
		})
		time.Sleep(time.Second)
		if j := wantState(t, q, heeds.ID, store.JobCancelled); j.EndedAt.IsZero() || j.Cancel {
			t.Errorf("cancelled: %+v", j)
		}
		wantState(t, q, succeeds.ID, store.JobCompleted)
		update(t, q, func(tx *store.Tx) error { return q.Cancel(tx, succeeds.ID) })
		wantState(t, q, succeeds.ID, store.JobCompleted)
	})
}

func TestWake(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var ran notes[time.Duration]
		begin := q.Store.Now()
		q.Handle(Kind{Name: "k", Visible: true, Work: func(context.Context, *store.Job) (Writes, error) {
			n := ran.add(q.Store.Now().Sub(begin))
			time.Sleep(time.Minute)
			if n < 3 {
				return nil, Snooze(q.Store.Now().Add(24 * time.Hour))
			}
			return nil, nil
		}})
		start(t, q)
		j := add(t, q, New{Kind: "k", Due: begin.Add(time.Hour)})
		wake := func(due time.Time) {
			update(t, q, func(tx *store.Tx) error { return q.Wake(tx, j.ID, due) })
		}
		wake(begin.Add(2 * time.Hour)) // later than it is due: nothing
		time.Sleep(10 * time.Minute)
		wake(time.Time{})
		time.Sleep(30 * time.Second) // it runs
		wake(begin.Add(20 * time.Minute))
		time.Sleep(48 * time.Hour)
		want := []time.Duration{10 * time.Minute, 20 * time.Minute, 21*time.Minute + 24*time.Hour}
		if ran.String() != fmt.Sprint(want) {
			t.Errorf("ran after %v, want %v", ran.all(), want)
		}
		wantState(t, q, j.ID, store.JobCompleted)
		wake(time.Time{})
		wantState(t, q, j.ID, store.JobCompleted)
	})
}

func TestWait(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "k", Visible: true, Work: func(context.Context, *store.Job) (Writes, error) {
			time.Sleep(10 * time.Second)
			return nil, nil
		}})
		start(t, q)
		id := add(t, q, New{Kind: "k"}).ID
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		j, err := q.Wait(ctx, id)
		if err != nil || j.State != store.JobRunning || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), j, err)
		}
		j, err = q.Wait(t.Context(), id)
		if err != nil || j.State != store.JobCompleted || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), j, err)
		}
		if _, err := q.Wait(t.Context(), "job_none"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("wait for nothing: %v", err)
		}
		if n := len(q.watches.by); n != 0 {
			t.Errorf("%d watches are left", n)
		}
	})
}

func TestHandlePanicsOnBugs(t *testing.T) {
	q := NewQueue(nil)
	q.Handle(Kind{Name: "k", Work: done})
	for _, k := range []Kind{{Name: "k", Work: done}, {Work: done}, {Name: "x"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Handle(%+v) did not panic", k)
				}
			}()
			q.Handle(k)
		}()
	}
}
