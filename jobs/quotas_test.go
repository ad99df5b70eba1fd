package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/store"
)

// gauge counts how many works run at a time, and the most that did.
type gauge struct{ now, most, all atomic.Int32 }

func (g *gauge) work(d time.Duration) Work {
	return func(ctx context.Context, _ *store.Job) (Writes, error) {
		g.all.Add(1)
		n := g.now.Add(1)
		for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
		}
		defer g.now.Add(-1)
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return nil, nil
	}
}

func quotasOf(q *Queue) int {
	q.scheduler.mu.Lock()
	defer q.scheduler.mu.Unlock()
	return len(q.scheduler.quotas)
}

func TestSlowKindLeavesWorkersForOthers(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var slow gauge
		q.Workers = 20
		q.Handle(Kind{Name: "slow", PerLane: 3, Most: 10, Work: slow.work(time.Minute)})
		q.Handle(Kind{Name: "quick", Visible: true, Work: done})
		addMany(t, q, 1000, func(i int) New { return New{Kind: "slow", Lane: fmt.Sprint("host ", i%200)} })
		start(t, q)
		for range 20 {
			j := add(t, q, New{Kind: "quick"})
			synctest.Wait()
			wantState(t, q, j.ID, store.JobCompleted)
		}
		time.Sleep(105 * time.Minute) // 100 rounds; now and then a free place waits for the next one
		synctest.Wait()
		if most, all := slow.most.Load(), slow.all.Load(); most != 10 || all != 1000 {
			t.Errorf("%d of the slow kind ran at a time, %d in all; want 10, 1000", most, all)
		}
		if n := quotasOf(q); n != 0 {
			t.Errorf("%d quotas are left in memory", n)
		}
	})
}

func TestAccountLeavesItsKindToOthers(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var mine gauge
		others := make(chan time.Time, 100)
		began := time.Now()
		q.Handle(Kind{Name: "k", PerLane: 5, Most: 10, MostEach: 8, Work: func(ctx context.Context, j *store.Job) (Writes, error) {
			if j.AccountID == "other" {
				others <- time.Now()
				return nil, nil
			}
			return mine.work(time.Hour)(ctx, j)
		}})
		addMany(t, q, 500, func(i int) New { return New{Kind: "k", AccountID: "greedy", Lane: fmt.Sprint("host ", i%100)} })
		addMany(t, q, 100, func(i int) New { return New{Kind: "k", AccountID: "other", Lane: fmt.Sprint("peer ", i%10)} })
		start(t, q)
		synctest.Wait()
		if len(others) != 100 || mine.most.Load() != 8 {
			t.Errorf("%d of the other account's ran at once, want 100; %d of the greedy one's, want 8", len(others), mine.most.Load())
		}
		for range len(others) {
			if at := <-others; !at.Equal(began) {
				t.Fatalf("the other account waited %s", at.Sub(began))
			}
		}
	})
}

func TestMoreLanesWaitForAShareThanMemoryHolds(t *testing.T) {
	if testing.Short() {
		t.Skip("eight thousand jobs, which show the race detector no more than a hundred")
	}
	in(t, func(t *testing.T, q *Queue) {
		const n = 2*maxParked + 100
		var slow gauge
		q.Handle(Kind{Name: "slow", Most: 50, Work: slow.work(time.Second)})
		q.Handle(Kind{Name: "quick", Visible: true, Work: done})
		addMany(t, q, n, func(i int) New { return New{Kind: "slow", Lane: fmt.Sprint(i)} })
		last := add(t, q, New{Kind: "quick"})
		start(t, q)
		synctest.Wait()
		wantState(t, q, last.ID, store.JobCompleted)
		if _, lanes, _ := memory(q); lanes > maxParked+maxLanes {
			t.Errorf("%d lanes in memory", lanes)
		}
		time.Sleep(n/50*time.Second + time.Minute)
		if all := slow.all.Load(); all != n {
			t.Errorf("%d of %d ran", all, n)
		}
		if _, lanes, _ := memory(q); lanes != 0 || quotasOf(q) != 0 {
			t.Errorf("%d lanes, %d quotas are left in memory", lanes, quotasOf(q))
		}
	})
}

// TestAPlaceIsKeptForWhoeverIsNext: the lane with the next turn gets the place that becomes free,
// and not one that waited for its own account alone.
func TestAPlaceIsKeptForWhoeverIsNext(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var began notes[string]
		ends := map[string]chan struct{}{}
		q.Handle(Kind{Name: "k", Most: 2, MostEach: 1, Work: func(_ context.Context, j *store.Job) (Writes, error) {
			began.add(j.Lane)
			<-ends[j.Lane]
			return nil, nil
		}})
		for _, lane := range []string{"a1", "b1", "a2", "b2", "c", "d", "e", "f"} { // the letter is the account
			ends[lane] = make(chan struct{})
			add(t, q, New{Kind: "k", AccountID: lane[:1], Lane: lane})
			time.Sleep(time.Millisecond)
		}
		q.scheduler.reset()
		d := &dispatcher{Queue: q, stopping: t.Context(), base: context.Background(), rescan: true}
		next := func(ended ...string) (places []string) {
			before := len(began.all())
			for _, lane := range ended {
				close(ends[lane])
				synctest.Wait()
			}
			for again := true; again; {
				var err error
				again, err = d.findAndClaim()
				if err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			places = slices.Clone(began.all()[before:])
			slices.Sort(places) // those of one transaction begin in any order
			return places
		}
		got := [][]string{next()}
		got = append(got, next("a1", "b1")) // c, d and e may go on, and so may a2 and b2, whose accounts have room
		for _, lane := range []string{"c", "d", "e", "f", "a2", "b2"} {
			got = append(got, next(lane))
		}
		want := "[[a1 b1] [c d] [e] [f] [a2] [b2] [] []]"
		if got := fmt.Sprint(got); got != want {
			t.Errorf("the places went to %s, want %s", got, want)
		}
		if works, lanes, _ := memory(q); works != 0 || lanes != 0 || quotasOf(q) != 0 {
			t.Errorf("%d works, %d lanes, %d quotas are left in memory", works, lanes, quotasOf(q))
		}
	})
}
