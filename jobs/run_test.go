package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/storetest"
)

func TestCrashBetweenWorkAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, t.TempDir(), nil)
		var left notes[string]
		q := newQueue(s)
		q.Handle(Kind{Name: "k", Visible: true, Timeout: time.Hour, Work: func(context.Context, *store.Job) (Writes, error) {
			left.add(storetest.CopyCrashed(t, s))
			return nil, nil
		}})
		start(t, q)
		id := add(t, q, New{Kind: "k"}).ID
		time.Sleep(time.Second)
		wantState(t, q, id, store.JobCompleted)

		after := newQueue(openStore(t, left.all()[0], nil))
		wantState(t, after, id, store.JobRunning)
		after.Handle(Kind{Name: "k", Visible: true, Work: done})
		began := time.Now()
		start(t, after)
		time.Sleep(time.Second)
		if j := wantState(t, after, id, store.JobCompleted); j.Attempt != 2 || j.EndedAt.Sub(began) > time.Second {
			t.Errorf("after the crash: %+v", j)
		}
	})
}

// TestACrashGivesNoJobUp: an attempt that the process did not survive is not the last one.
func TestACrashGivesNoJobUp(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var told atomic.Int32
		k := Kind{
			Name: "k", Max: 1, Visible: true,
			Work:   func(ctx context.Context, _ *store.Job) (Writes, error) { <-ctx.Done(); return nil, ctx.Err() },
			Failed: func(tx *store.Tx, _ *store.Job, _ error) error { tx.After(func() { told.Add(1) }); return nil },
		}
		q.Handle(k)
		q.Grace = 0
		stop := start(t, q)
		id := add(t, q, New{Kind: "k"}).ID
		synctest.Wait()
		wantState(t, q, id, store.JobRunning)
		left := storetest.CopyCrashed(t, q.Store)
		stop()
		if told.Load() != 0 {
			t.Error("a stop counted as an attempt")
		}
		after := newQueue(openStore(t, left, nil))
		after.Handle(k)
		start(t, after)
		synctest.Wait()
		if j := wantState(t, after, id, store.JobRunning); told.Load() != 0 || j.Crashes != 1 {
			t.Errorf("given up %d times: %+v", told.Load(), j)
		}
	})
}

func TestStopGivesGraceAndThenCuts(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var runs atomic.Int32
		work := func(d time.Duration) Work {
			return func(ctx context.Context, _ *store.Job) (Writes, error) {
				runs.Add(1)
				select {
				case <-time.After(d):
					return nil, nil
				case <-ctx.Done():
					return nil, RetryAt(q.Store.Now().Add(8*time.Hour), fmt.Errorf("cut: %w", ctx.Err()))
				}
			}
		}
		q.Handle(Kind{Name: "short", Visible: true, Work: work(10 * time.Second)})
		q.Handle(Kind{Name: "long", Visible: true, Max: 1, Work: work(time.Minute)})
		stop := start(t, q)
		short, long := add(t, q, New{Kind: "short"}), add(t, q, New{Kind: "long"})
		time.Sleep(time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took != q.Grace {
			t.Errorf("stopped after %v", took)
		}
		wantState(t, q, short.ID, store.JobCompleted)
		if j := wantState(t, q, long.ID, store.JobQueued); j.Attempt != 0 || j.Due.After(time.Now()) {
			t.Errorf("cut: %+v", j)
		}
		late := add(t, q, New{Kind: "short"})
		time.Sleep(time.Hour)
		wantState(t, q, late.ID, store.JobQueued)
		start(t, q)
		time.Sleep(2 * time.Minute)
		wantState(t, q, late.ID, store.JobCompleted)
		if j := wantState(t, q, long.ID, store.JobCompleted); j.Attempt != 1 || runs.Load() != 4 {
			t.Errorf("%d runs, %+v", runs.Load(), j)
		}
	})
}

func TestLaneIsBounded(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var now, most [2]atomic.Int32
		work := func(i int) Work {
			return func(context.Context, *store.Job) (Writes, error) {
				n := now[i].Add(1)
				most[i].Store(max(most[i].Load(), n))
				time.Sleep(time.Second)
				now[i].Add(-1)
				return nil, nil
			}
		}
		q.Handle(Kind{Name: "three", PerLane: 3, Work: work(0)})
		q.Handle(Kind{Name: "free", Work: work(1)})
		q.Workers = 20
		for range 30 {
			add(t, q, New{Kind: "three", Lane: "x"})
			add(t, q, New{Kind: "free"})
		}
		start(t, q)
		time.Sleep(time.Minute)
		if have := most[0].Load(); have != 3 {
			t.Errorf("%d of a lane of 3 ran at a time", have)
		}
		if have := most[1].Load(); have != 17 {
			t.Errorf("%d without a lane ran at a time, beside 3 others, of 20 workers", have)
		}
		if _, lanes, _ := memory(q); lanes != 0 {
			t.Errorf("%d lanes are left in memory", lanes)
		}
	})
}

func TestLaneIsSharedByKinds(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var running, ran atomic.Int32
		work := func(context.Context, *store.Job) (Writes, error) {
			if running.Add(1) > 1 {
				t.Error("two of a lane at a time")
			}
			time.Sleep(time.Second)
			running.Add(-1)
			ran.Add(1)
			return nil, nil
		}
		q.Handle(Kind{Name: "a", Work: work})
		q.Handle(Kind{Name: "b", Work: work})
		start(t, q)
		for range 5 {
			add(t, q, New{Kind: "a", Lane: "dom_1"})
			add(t, q, New{Kind: "b", Lane: "dom_1"})
		}
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if ran.Load() != 10 {
			t.Errorf("%d ran", ran.Load())
		}
	})
}

// addMany adds n jobs in few transactions.
func addMany(t testing.TB, q *Queue, n int, job func(i int) New) {
	t.Helper()
	const chunk = 1000
	for from := 0; from < n; from += chunk {
		update(t, q, func(tx *store.Tx) error {
			for i := from; i < min(from+chunk, n); i++ {
				if _, err := q.Add(tx, job(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func TestLongLaneHoldsNobodyUp(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "slow", PerLane: 2, Work: func(context.Context, *store.Job) (Writes, error) {
			time.Sleep(time.Minute)
			return nil, nil
		}})
		q.Handle(Kind{Name: "quick", Visible: true, Work: done})
		addMany(t, q, 20_000, func(int) New { return New{Kind: "slow", Lane: "dead peer"} })
		last := add(t, q, New{Kind: "quick", Lane: "y"})
		began := time.Now()
		stop := start(t, q)
		synctest.Wait()
		if j := wantState(t, q, last.ID, store.JobCompleted); j.EndedAt.Sub(began) != 0 {
			t.Errorf("waited for %v", j.EndedAt.Sub(began))
		}
		time.Sleep(time.Second)
		for range 100 {
			j := add(t, q, New{Kind: "quick"})
			synctest.Wait()
			wantState(t, q, j.ID, store.JobCompleted)
		}
		if _, lanes, _ := memory(q); lanes != 1 {
			t.Errorf("%d lanes in memory", lanes)
		}
		stop()
	})
}

func TestEveryLaneHasItsTurn(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var ran notes[string]
		q.Workers = 1
		q.Handle(Kind{Name: "k", Work: func(_ context.Context, j *store.Job) (Writes, error) {
			ran.add(j.Lane)
			time.Sleep(time.Second)
			return nil, nil
		}})
		addMany(t, q, 300, func(i int) New { return New{Kind: "k", Lane: fmt.Sprint(i / 100)} })
		q.Grace = 0
		start(t, q)
		time.Sleep(30 * time.Second)
		for _, lane := range []string{"0", "1", "2"} {
			if n := strings.Count(ran.String(), lane); n < 9 || n > 11 {
				t.Errorf("of 30 jobs, lane %s had %d", lane, n)
			}
		}
	})
}

func TestMoreLanesThanMemoryHolds(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		const n = maxLanes + maxLanes/2
		var ran atomic.Int32
		q.Handle(Kind{Name: "k", Work: func(context.Context, *store.Job) (Writes, error) { ran.Add(1); return nil, nil }})
		addMany(t, q, n, func(i int) New { return New{Kind: "k", Lane: fmt.Sprint(i)} })
		start(t, q)
		synctest.Wait()
		if ran.Load() != n {
			t.Errorf("%d of %d ran", ran.Load(), n)
		}
	})
}

// Jobs with long arguments, such as setups with a hundred mailboxes, are claimed a few at a time:
// one transaction of all of them would be over the store's bounds.
func TestLongJobsAreClaimedAFewAtATime(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var ran notes[string]
		q.Handle(Kind{Name: "long", Work: func(_ context.Context, j *store.Job) (Writes, error) {
			ran.add(j.ID)
			return nil, nil
		}})
		const n = 2 * maxClaims
		for i := range n {
			add(t, q, New{Kind: "long", Lane: fmt.Sprint("lane ", i), Args: strings.Repeat("x", 100<<10)})
		}
		start(t, q)
		time.Sleep(500 * time.Millisecond)
		if got := len(ran.all()); got != n {
			t.Errorf("%d of %d jobs ran at once", got, n)
		}
	})
}

func TestUnknownKindIsPutOff(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "new", Visible: true, Work: done})
		q.Handle(Kind{Name: "old", Visible: true, Work: done})
		add(t, q, New{Kind: "new", Lane: "x"})
		lost := add(t, q, New{Kind: "new", Lane: "x"})
		old := add(t, q, New{Kind: "old", Lane: "x"})

		before := newQueue(q.Store)
		before.Handle(Kind{Name: "old", Visible: true, Work: done})
		stop := start(t, before)
		synctest.Wait()
		wantState(t, before, old.ID, store.JobCompleted)
		wantState(t, before, lost.ID, store.JobQueued)
		stop()
		start(t, q)
		time.Sleep(unhandledWait + time.Second)
		wantState(t, q, lost.ID, store.JobCompleted)
	})
}

func TestRecurringJobOverDaysAndRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, t.TempDir(), nil)
		var ran, most, now atomic.Int32
		began := time.Now()
		for range 20 { // restarts
			q := newQueue(s)
			q.Handle(Kind{Name: "k", Max: 1, Work: func(ctx context.Context, _ *store.Job) (Writes, error) {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Minute)
				now.Add(-1)
				if ran.Add(1)%5 == 0 {
					return nil, errors.New("a bad day")
				}
				return nil, nil
			}})
			q.Every("k", time.Hour)
			stop := start(t, q)
			time.Sleep(12 * time.Hour)
			stop()
		}
		hours := int32(time.Since(began) / time.Hour)
		if n := ran.Load(); n < hours-10 || n > hours+20 || most.Load() != 1 {
			t.Errorf("ran %d times in %d hours, %d at a time", n, hours, most.Load())
		}
	})
}

func TestRecurringJobNeedsAKind(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Every("unheard", time.Hour)
		if err := q.Run(t.Context()); !errors.Is(err, errNoKind) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestEndedJobsArePruned(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "k", Visible: true, Work: done})
		start(t, q)
		addMany(t, q, 2*pruneChunk+5, func(int) New { return New{Kind: "k"} })
		synctest.Wait()
		time.Sleep(10 * 24 * time.Hour)
		young := add(t, q, New{Kind: "k"})
		waiting := add(t, q, New{Kind: "k", Due: time.Now().Add(400 * 24 * time.Hour)})
		time.Sleep(19 * 24 * time.Hour)
		if n := count(t, q); n != 2*pruneChunk+5+3 {
			t.Errorf("%d jobs after 29 days", n)
		}
		time.Sleep(2 * 24 * time.Hour)
		if n := count(t, q); n != 3 { // and the job that prunes
			t.Errorf("%d jobs after 31 days", n)
		}
		wantState(t, q, young.ID, store.JobCompleted)
		wantState(t, q, waiting.ID, store.JobQueued)
	})
}

func count(t *testing.T, q *Queue) (n int) {
	t.Helper()
	err := q.Store.View(func(tx *store.Tx) error {
		for range store.Jobs.All(tx) {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestIdleQueueSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looked atomic.Int64
		q := newQueue(openStore(t, t.TempDir(), func() time.Time { looked.Add(1); return time.Now() }))
		q.Handle(Kind{Name: "k", Visible: true, Work: done})
		start(t, q)
		id := add(t, q, New{Kind: "k", Due: time.Now().Add(10*24*time.Hour + 123*time.Millisecond)}).ID
		time.Sleep(10 * 24 * time.Hour)
		wantState(t, q, id, store.JobQueued)
		// The clock is read once a minute, and some twenty times by each of the 40 jobs that prune
		// meanwhile.
		if n := looked.Load(); n > 2000+10*24*60 {
			t.Errorf("the clock was read %d times in ten idle days", n)
		}
		time.Sleep(123 * time.Millisecond)
		synctest.Wait()
		if j := wantState(t, q, id, store.JobCompleted); !j.StartedAt.Equal(time.Now().UTC()) {
			t.Errorf("due %v, done %v", j.Due, j.StartedAt)
		}
	})
}

func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		q := newQueue(openStore(t, t.TempDir(), func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }))
		q.Handle(Kind{Name: "k", Visible: true, Work: done})
		start(t, q)
		time.Sleep(time.Minute)
		soon := add(t, q, New{Kind: "k", Due: q.Store.Now().Add(10 * time.Second)})
		offset.Store(int64(-time.Hour))
		now := add(t, q, New{Kind: "k"})
		synctest.Wait()
		wantState(t, q, now.ID, store.JobCompleted)
		wantState(t, q, soon.ID, store.JobQueued)
		time.Sleep(time.Hour + 11*time.Second)
		wantState(t, q, soon.ID, store.JobCompleted)
	})
}

func TestRunEndsWithItsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.TempDir(), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		q := newQueue(s)
		q.Handle(Kind{Name: "k", Work: func(context.Context, *store.Job) (Writes, error) {
			time.Sleep(time.Minute)
			return nil, nil
		}})
		ended := make(chan error, 1)
		go func() { ended <- q.Run(t.Context()) }()
		add(t, q, New{Kind: "k"})
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, store.ErrClosed) {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestClockThatIsSetDoesNoWorkTwice: it goes a year forward while a job runs, whose claim is over
// by the calendar then; and a year back, after which recurring jobs come as before.
func TestClockThatIsSetDoesNoWorkTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set, runs, rounds atomic.Int64
		q := newQueue(openStore(t, t.TempDir(), func() time.Time { return time.Now().Round(0).Add(time.Duration(set.Load())) }))
		q.Handle(Kind{Name: "slow", Visible: true, Work: func(context.Context, *store.Job) (Writes, error) {
			runs.Add(1)
			time.Sleep(4 * time.Minute)
			return nil, nil
		}})
		q.Handle(Kind{Name: "again", Work: func(context.Context, *store.Job) (Writes, error) { rounds.Add(1); return nil, nil }})
		q.Every("again", time.Hour)
		start(t, q)
		id := add(t, q, New{Kind: "slow"}).ID
		later := add(t, q, New{Kind: "slow", Due: time.Now().Add(300 * 24 * time.Hour)}).ID
		time.Sleep(time.Second)
		set.Store(int64(365 * 24 * time.Hour))
		time.Sleep(10 * time.Minute)
		wantState(t, q, id, store.JobCompleted)
		wantState(t, q, later, store.JobCompleted)
		if runs.Load() != 2 {
			t.Errorf("two jobs were done %d times", runs.Load())
		}
		set.Store(0)
		add(t, q, New{Kind: "slow"}) // the queue looks at its clock when something happens, or when it is due
		before := rounds.Load()
		time.Sleep(3 * time.Hour)
		if got := rounds.Load() - before; got < 2 {
			t.Errorf("an hourly job came %d times in three hours after the clock was set back", got)
		}
	})
}
