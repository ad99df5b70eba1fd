package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/storetest"
)

// A process is what lives until it is killed; what it leaves on the disk, the next one opens.
type process struct {
	*Queue
	t    *testing.T
	stop func()
}

func newProcess(t *testing.T, dir string, kinds ...Kind) *process {
	q := newQueue(openStore(t, dir, nil))
	q.Grace = 0
	for _, k := range kinds {
		q.Handle(k)
	}
	return &process{Queue: q, t: t}
}

func (p *process) run() { p.stop = start(p.t, p.Queue) }

// kill ends the process as it is, and gives the directory that it leaves.
func (p *process) kill() (dir string) {
	p.t.Helper()
	dir = storetest.CopyCrashed(p.t, p.Store)
	p.stop()
	return dir
}

func parkedJobs(t *testing.T, q *Queue) (ids []string) {
	t.Helper()
	err := q.Store.View(func(tx *store.Tx) error {
		list, all, err := Parked(tx, 1000)
		if err == nil && all != len(list) {
			t.Errorf("%d are parked, and %d are listed", all, len(list))
		}
		for _, j := range list {
			ids = append(ids, j.ID)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestWhatEndsTheProcessIsParked: the third time that the process ends while a job runs, the job is
// parked, however few attempts its kind has. Jobs that ran beside it are done.
func TestWhatEndsTheProcessIsParked(t *testing.T) {
	for _, attempts := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint(attempts, " attempts"), func(t *testing.T) { parksWhatEndsTheProcess(t, attempts) })
	}
}

func parksWhatEndsTheProcess(t *testing.T, attempts int) {
	synctest.Test(t, func(t *testing.T) {
		var guilty atomic.Bool // runs now, so that the process is to end
		var harmless atomic.Bool
		var told atomic.Int32
		kinds := []Kind{{
			Name: "deadly", Visible: true, Max: attempts,
			Failed: func(_ *store.Tx, j *store.Job, err error) error {
				t.Errorf("it was given up: %v", err)
				return nil
			},
			Parked: func(tx *store.Tx, j *store.Job) error {
				tx.After(func() { told.Add(1) })
				return nil
			},
			Work: func(ctx context.Context, _ *store.Job) (Writes, error) {
				if harmless.Load() {
					return nil, nil
				}
				guilty.Store(true)
				<-ctx.Done()
				return nil, ctx.Err()
			},
		}, {Name: "good", Visible: true, Work: new(gauge).work(time.Second)}}
		p := newProcess(t, t.TempDir(), kinds...)
		id := add(t, p.Queue, New{Kind: "deadly", Key: "one", Lane: "shared"}).ID
		var good []string
		for i := range 50 {
			good = append(good, add(t, p.Queue, New{Kind: "good", Lane: fmt.Sprint("lane ", i)}).ID)
		}
		good = append(good, add(t, p.Queue, New{Kind: "good", Lane: "shared"}).ID)
		began := time.Now()
		crashes := func() int {
			for n := 0; ; n++ {
				for !guilty.Load() {
					if time.Sleep(time.Second); len(parkedJobs(t, p.Queue)) > 0 {
						return n
					}
				}
				p = newProcess(t, p.kill(), kinds...)
				guilty.Store(false)
				p.run()
			}
		}
		p.run()
		if n := crashes(); n != 3 {
			t.Errorf("it was parked after %d ends of the process", n)
		}
		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("it took %s", took)
		}
		time.Sleep(time.Minute)
		for _, one := range good {
			wantState(t, p.Queue, one, store.JobCompleted)
		}
		parked := wantState(t, p.Queue, id, store.JobQueued)
		if !parked.Parked() || parked.ErrCode != "job_parked" || parked.Due.Sub(parked.ParkedAt) != parkedFor {
			t.Errorf("parked: %+v", parked)
		}

		// Neither waking nor adding it again lets it go on.
		update(t, p.Queue, func(tx *store.Tx) error { return p.Wake(tx, id, time.Time{}) })
		if again := add(t, p.Queue, New{Kind: "deadly", Key: "one", Lane: "shared"}); again.ID != id || !again.Parked() {
			t.Errorf("added again: %+v", again)
		}

		// A day later it is tried again, parked for longer when that ends the process too, and goes
		// on at once when the operator says so.
		time.Sleep(time.Until(parked.Due) - time.Minute)
		synctest.Wait()
		if guilty.Load() {
			t.Error("it runs though it is parked")
		}
		time.Sleep(2 * time.Minute)
		if !guilty.Load() {
			t.Error("it was not tried again")
		}
		if n := crashes(); n != 1 {
			t.Errorf("a day later it was parked after %d ends of the process", n)
		}
		if j := wantState(t, p.Queue, id, store.JobQueued); j.Due.Sub(j.ParkedAt) != 2*parkedFor {
			t.Errorf("parked again: %+v", j)
		}
		harmless.Store(true)
		update(t, p.Queue, func(tx *store.Tx) error {
			_, err := p.Resume(tx, id)
			return err
		})
		synctest.Wait()
		if j := wantState(t, p.Queue, id, store.JobCompleted); j.Crashes != 0 {
			t.Errorf("it ended well: %+v", j)
		}
		if told.Load() != 2 {
			t.Errorf("the kind was told %d times", told.Load())
		}
	})
}

// TestKillsParkNoInnocentJob: a process that is killed three times while it has much to do parks
// nothing, and everything is done.
func TestKillsParkNoInnocentJob(t *testing.T) {
	const n = 200
	for _, life := range []time.Duration{time.Second, 7 * time.Second, 25 * time.Second} {
		t.Run(life.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g gauge
				kinds := []Kind{{Name: "k", Visible: true, Work: g.work(30 * time.Second)}}
				p := newProcess(t, t.TempDir(), kinds...)
				var ids []string
				for i := range n {
					ids = append(ids, add(t, p.Queue, New{Kind: "k", Lane: fmt.Sprint(i)}).ID)
				}
				for range 3 {
					p.run()
					time.Sleep(life)
					if parked := parkedJobs(t, p.Queue); len(parked) > 0 {
						t.Fatalf("%d are parked", len(parked))
					}
					p = newProcess(t, p.kill(), kinds...)
				}
				p.run()
				time.Sleep(time.Duration(n+10) * suspectFor)
				if parked := parkedJobs(t, p.Queue); len(parked) > 0 {
					t.Errorf("%d are parked", len(parked))
				}
				for _, id := range ids {
					if j := wantState(t, p.Queue, id, store.JobCompleted); j.Crashes != 0 {
						t.Errorf("it ended well: %+v", j)
					}
				}
			})
		})
	}
}

// TestSuspectsRunOneAtATime: what ran when the process ended runs alone among its like, until it
// has gone on for a while. Others do not wait for it.
func TestSuspectsRunOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspect, other gauge
		kinds := []Kind{
			{Name: "k", PerLane: 2, Most: 100, MostEach: 50, Visible: true, Work: suspect.work(5 * time.Second)},
			{Name: "slow", Visible: true, Work: suspect.work(time.Minute)},
			{Name: "other", Visible: true, Work: other.work(0)},
		}
		p := newProcess(t, t.TempDir(), kinds...)
		for i := range 20 {
			add(t, p.Queue, New{Kind: "k", Lane: fmt.Sprint(i / 2), AccountID: "a"})
		}
		p.run()
		synctest.Wait()
		if n := suspect.most.Load(); n != 20 {
			t.Fatalf("%d ran before the end", n)
		}
		p = newProcess(t, p.kill(), kinds...)
		suspect.most.Store(0)
		suspect.all.Store(0)
		quick := add(t, p.Queue, New{Kind: "other", Lane: "0"})
		p.run()
		time.Sleep(12 * 5 * time.Second)
		wantState(t, p.Queue, quick.ID, store.JobCompleted)
		if most, all := suspect.most.Load(), suspect.all.Load(); most != 1 || all < 11 || all > 13 {
			t.Errorf("%d ran at a time, %d in a minute", most, all)
		}
		time.Sleep(time.Minute)
		if all := suspect.all.Load(); all != 20 {
			t.Errorf("%d of 20 ran", all)
		}
		if n := quotasOf(p.Queue); n != 0 {
			t.Errorf("%d quotas are left in memory", n)
		}

		// Those that take long let the next one begin.
		for i := range 5 {
			add(t, p.Queue, New{Kind: "slow", Lane: fmt.Sprint(i)})
		}
		synctest.Wait()
		p = newProcess(t, p.kill(), kinds...)
		suspect.most.Store(0)
		p.run()
		for n := range int32(5) {
			time.Sleep(time.Second)
			if now := suspect.now.Load(); now != n+1 {
				t.Errorf("%d run after %d times %s", now, n, suspectFor)
			}
			time.Sleep(suspectFor - time.Second)
		}
		time.Sleep(2 * time.Minute)
		if n := quotasOf(p.Queue); n != 0 || suspect.now.Load() != 0 {
			t.Errorf("%d quotas are left in memory", n)
		}
	})
}

// TestAnOrderlyEndClearsASuspect: a stop, a failure and a wait each say that the process survives
// the job.
func TestAnOrderlyEndClearsASuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan error)
		block := Kind{Name: "k", Visible: true, Work: func(ctx context.Context, _ *store.Job) (Writes, error) {
			select {
			case err := <-end:
				return nil, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		for name, orderly := range map[string]func(p *process){
			"a stop":    func(p *process) { p.stop() },
			"a failure": func(*process) { end <- errors.New("failed") },
			"a wait":    func(*process) { end <- Snooze(time.Now().Add(time.Hour)) },
		} {
			p := newProcess(t, t.TempDir(), block)
			id := add(t, p.Queue, New{Kind: "k"}).ID
			for n := range 3 {
				p.run()
				time.Sleep(suspectWait * time.Duration(n+1))
				if j := wantState(t, p.Queue, id, store.JobRunning); j.Crashes != n {
					t.Fatalf("%s: after %d ends: %+v", name, n, j)
				}
				if n < 2 {
					p = newProcess(t, p.kill(), block)
				}
			}
			orderly(p)
			synctest.Wait()
			if j := wantState(t, p.Queue, id, store.JobQueued); j.Crashes != 0 {
				t.Errorf("%s: %+v", name, j)
			}
			p.stop()
		}
	})
}

// TestPlacesGoRoundAmongAccounts: an account whose jobs are many does not keep the places of a kind
// from one that comes later with one job.
func TestPlacesGoRoundAmongAccounts(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "import", Most: 4, MostEach: 2, Visible: true, Work: new(gauge).work(time.Minute)})
		for i := range 90 {
			add(t, q, New{Kind: "import", AccountID: fmt.Sprint("greedy ", i%3), Lane: fmt.Sprint(i)})
		}
		start(t, q)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		late := add(t, q, New{Kind: "import", AccountID: "late", Lane: "late"})
		time.Sleep(2 * time.Minute) // behind the 90 it would be 23
		wantState(t, q, late.ID, store.JobCompleted)
	})
}

// TestATurnEndsWhereOthersWait: a work that goes on and on finds out that its place is wanted, and
// with Snooze gives it to the next one.
func TestATurnEndsWhereOthersWait(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		ends := time.Now().Add(time.Hour)
		var turns atomic.Int32
		q.Handle(Kind{Name: "import", Most: 2, MostEach: 1, Visible: true, Work: func(ctx context.Context, j *store.Job) (Writes, error) {
			for turns.Add(1); time.Now().Before(ends); {
				if time.Sleep(time.Second); j.AccountID == "late" {
					return nil, nil
				}
				if PlaceWanted(ctx) {
					return nil, Snooze(time.Now())
				}
			}
			return nil, nil
		}})
		for i := range 6 {
			add(t, q, New{Kind: "import", AccountID: fmt.Sprint(i % 3), Lane: fmt.Sprint(i)})
		}
		start(t, q)
		time.Sleep(time.Minute)
		late := add(t, q, New{Kind: "import", AccountID: "late", Lane: "late"})
		time.Sleep(4 * time.Second) // behind three accounts, in turns of a second at two places
		wantState(t, q, late.ID, store.JobCompleted)
		if n := turns.Load(); n < 60 {
			t.Errorf("there were %d turns", n)
		}
		if PlaceWanted(context.Background()) {
			t.Error("something is wanted outside of work")
		}
	})
}
