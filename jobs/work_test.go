package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/store"
)

// failing is a Work that always fails, and notes when it ran.
func failing(q *Queue, ran *notes[time.Time], err func(run int) error) Work {
	return func(context.Context, *store.Job) (Writes, error) {
		return nil, err(ran.add(q.Store.Now()))
	}
}

type coded struct{ code, text string }

func (c coded) Error() string     { return c.code + ": " + c.text }
func (c coded) ErrorCode() string { return c.code }

func TestScheduleOverDays(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var ran notes[time.Time]
		var gaveUp notes[string]
		steps := []time.Duration{time.Minute, 30 * time.Minute, 8 * time.Hour, 8 * time.Hour, 24 * time.Hour}
		q.Rand = func() float64 { return 1.0 / 4 }
		q.Handle(Kind{
			Name: "k", Max: 6, Visible: true,
			Work:    failing(q, &ran, func(run int) error { return coded{"ns_timeout", fmt.Sprintf("try %d", run)} }),
			Backoff: func(n int, r float64) time.Duration { return Jitter(steps[n-1], r) },
			Failed: func(tx *store.Tx, j *store.Job, err error) error {
				tx.After(func() { gaveUp.add(j.State + " " + err.Error()) })
				j.Detail = "told"
				return nil
			},
		})
		start(t, q)
		id := add(t, q, New{Kind: "k"}).ID
		time.Sleep(5 * 24 * time.Hour)
		j := wantState(t, q, id, store.JobError)
		if j.Attempt != 6 || j.Err != "try 6" || j.ErrCode != "ns_timeout" || j.Detail != "told" {
			t.Errorf("given up: %+v", j)
		}
		if gaveUp.String() != "[error ns_timeout: try 6]" {
			t.Errorf("Failed was called with %v", gaveUp.all())
		}
		times := ran.all()
		for i, step := range steps {
			if have, want := times[i+1].Sub(times[i]), Jitter(step, 1.0/4); have.Round(time.Second) != want.Round(time.Second) {
				t.Errorf("wait %d: %v, want %v", i+1, have, want)
			}
		}
	})
}

func TestDefaultBackoffRises(t *testing.T) {
	for _, r := range []float64{0, 0.3, 0.999} {
		last := time.Duration(0)
		for n := 1; n < 100; n++ {
			d := Backoff(n, r)
			if d < last || d > 66*time.Minute || d < 4*time.Second {
				t.Errorf("attempt %d, r %v: %v after %v", n, r, d, last)
			}
			last = d
		}
	}
}

func TestErrorsOfWorkDecide(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var perms, retries, snoozes notes[time.Time]
		bang := errors.New("bang")
		q.Handle(Kind{Name: "perm", Max: 9, Visible: true, Work: failing(q, &perms, func(int) error {
			return fmt.Errorf("deep: %w", Permanent(bang))
		})})
		q.Handle(Kind{Name: "retry", Max: 3, Visible: true, Work: failing(q, &retries, func(int) error {
			return RetryAt(q.Store.Now().Add(7*time.Hour), bang)
		})})
		q.Handle(Kind{Name: "snooze", Max: 1, Visible: true, Work: failing(q, &snoozes, func(run int) error {
			if run == 5 {
				return nil
			}
			return Snooze(q.Store.Now().Add(6 * time.Hour))
		})})
		start(t, q)
		p, r, s := add(t, q, New{Kind: "perm"}), add(t, q, New{Kind: "retry"}), add(t, q, New{Kind: "snooze"})
		time.Sleep(48 * time.Hour)
		perm, retry, snooze := perms.all(), retries.all(), snoozes.all()
		if j := wantState(t, q, p.ID, store.JobError); len(perm) != 1 || j.Err != "deep: bang" {
			t.Errorf("permanent: %d runs, %+v", len(perm), j)
		}
		if j := wantState(t, q, r.ID, store.JobError); len(retry) != 3 || retry[2].Sub(retry[0]) != 14*time.Hour || j.Attempt != 3 {
			t.Errorf("retry: %v, %+v", retry, j)
		}
		if j := wantState(t, q, s.ID, store.JobCompleted); len(snooze) != 5 || j.Attempt != 1 || snooze[4].Sub(snooze[0]) != 24*time.Hour {
			t.Errorf("snooze: %v, %+v", snooze, j)
		}
		if !errors.Is(Permanent(bang), bang) || !errors.Is(RetryAt(time.Time{}, bang), bang) {
			t.Error("the cause is hidden")
		}
	})
}

func TestWritesCommitWithTheState(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var states notes[string]
		mark := func(fail error) Work {
			return func(_ context.Context, j *store.Job) (Writes, error) {
				return func(tx *store.Tx, j *store.Job) error {
					saw := j.Kind + " " + j.State
					tx.After(func() { states.add(saw) })
					j.Result = []byte(`{"done":true}`)
					return store.Domains.Put(tx, &store.Domain{ID: "dom_" + j.Kind, Name: j.Kind})
				}, fail
			}
		}
		q.Handle(Kind{Name: "good", Visible: true, Work: mark(nil)})
		q.Handle(Kind{Name: "bad", Visible: true, Work: mark(Permanent(errors.New("bad")))})
		start(t, q)
		good, bad := add(t, q, New{Kind: "good"}), add(t, q, New{Kind: "bad"})
		time.Sleep(time.Second)
		if j := wantState(t, q, good.ID, store.JobCompleted); string(j.Result) != `{"done":true}` {
			t.Errorf("result %s", j.Result)
		}
		wantState(t, q, bad.ID, store.JobError)
		for _, name := range []string{"good", "bad"} {
			err := q.Store.View(func(tx *store.Tx) error {
				_, err := store.DomainByName.Get(tx, name)
				return err
			})
			if err != nil {
				t.Errorf("writes of %s: %v", name, err)
			}
		}
		if saw := states.String(); saw != "[good completed bad error]" && saw != "[bad error good completed]" {
			t.Errorf("Writes saw %v", saw)
		}
	})
}

func TestRefusedWritesUndoTheTransaction(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var runs atomic.Int32
		q.Handle(Kind{Name: "k", Visible: true, Work: func(context.Context, *store.Job) (Writes, error) {
			n := runs.Add(1)
			return func(tx *store.Tx, j *store.Job) error {
				if err := store.Domains.Put(tx, &store.Domain{ID: fmt.Sprintf("dom_%d", n), Name: fmt.Sprint(n)}); err != nil {
					return err
				}
				switch n {
				case 1:
					return store.ErrExists
				case 2:
					panic("in the committer")
				}
				return nil
			}, nil
		}})
		start(t, q)
		id := add(t, q, New{Kind: "k"}).ID
		time.Sleep(time.Hour)
		j := wantState(t, q, id, store.JobCompleted)
		if j.Attempt != 3 {
			t.Errorf("after %d attempts", j.Attempt)
		}
		err := q.Store.View(func(tx *store.Tx) error {
			for d := range store.Domains.All(tx) {
				if d.ID != "dom_3" {
					t.Errorf("%s was written", d.ID)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestJobIsKeptWhileFailedRefuses(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var asked, told atomic.Int32
		var ready atomic.Bool
		q.Handle(Kind{
			Name: "k", Max: 1, Visible: true,
			Work: func(context.Context, *store.Job) (Writes, error) { return nil, errors.New("no") },
			Failed: func(tx *store.Tx, _ *store.Job, _ error) error {
				asked.Add(1)
				if !ready.Load() {
					return errors.New("not now")
				}
				tx.After(func() { told.Add(1) })
				return nil
			},
		})
		start(t, q)
		id := add(t, q, New{Kind: "k"}).ID
		time.Sleep(time.Second)
		if wantState(t, q, id, store.JobQueued); asked.Load() == 0 {
			t.Error("Failed was not called")
		}
		ready.Store(true)
		time.Sleep(time.Hour)
		if wantState(t, q, id, store.JobError); told.Load() != 1 {
			t.Errorf("Failed committed %d times", told.Load())
		}
	})
}

func TestPanicIsAFailure(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var log bytes.Buffer
		q.Log = slog.New(slog.NewTextHandler(&log, nil))
		q.Handle(Kind{Name: "k", Max: 2, Visible: true, Work: func(context.Context, *store.Job) (Writes, error) {
			panic("the cat is on the keyboard")
		}})
		q.Handle(Kind{Name: "fine", Visible: true, Work: done})
		stop := start(t, q)
		id := add(t, q, New{Kind: "k"}).ID
		time.Sleep(time.Hour)
		j := wantState(t, q, id, store.JobError)
		if j.Attempt != 2 || j.Err != "panic: the cat is on the keyboard" {
			t.Errorf("%+v", j)
		}
		fine := add(t, q, New{Kind: "fine"}).ID
		synctest.Wait()
		wantState(t, q, fine, store.JobCompleted)
		stop()
		if n := strings.Count(log.String(), "TestPanicIsAFailure"); n < 2 {
			t.Errorf("%d stacks in the log:\n%s", n, log.String())
		}
	})
}

// TestCausesAndEnds: what a job adds has the job as its cause, unless it is planned for later; an
// attempt that was put off has not failed.
func TestCausesAndEnds(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		type idKey struct{}
		var added, ended, worked notes[string]
		q.Added = func(cause context.Context, j *store.Job) { added.add(fmt.Sprint(j.Kind, " by ", cause.Value(idKey{}))) }
		q.Began = func(ctx context.Context, j *store.Job) (context.Context, func(error)) {
			return context.WithValue(ctx, idKey{}, j.Kind), func(err error) { ended.add(fmt.Sprint(j.Kind, " ", j.Attempt, " ", err)) }
		}
		q.Handle(Kind{Name: "first", Work: func(ctx context.Context, j *store.Job) (Writes, error) {
			worked.add(fmt.Sprint(ctx.Value(idKey{})))
			if len(worked.all()) == 1 {
				return nil, Snooze(q.Store.Now().Add(time.Minute))
			}
			return func(tx *store.Tx, _ *store.Job) error {
				for kind, due := range map[string]time.Time{"second": {}, "later": tx.Now().Add(time.Hour)} {
					if _, err := q.Add(tx, New{Kind: kind, Due: due}); err != nil {
						return err
					}
				}
				return nil
			}, nil
		}})
		q.Handle(Kind{Name: "second", Max: 1, Work: func(context.Context, *store.Job) (Writes, error) { return nil, errors.New("no") }})
		q.Handle(Kind{Name: "later", Work: done})
		q.Handle(Kind{Name: "again", Work: done})
		q.Every("again", time.Hour)
		start(t, q)
		update(t, q, func(tx *store.Tx) error {
			tx.For(context.WithValue(context.Background(), idKey{}, "request"))
			_, err := q.Add(tx, New{Kind: "first"})
			return err
		})
		time.Sleep(90 * time.Minute)
		if got := added.String(); got != "[first by request second by first]" {
			t.Errorf("added: %s", got)
		}
		if got := worked.String(); got != "[first first]" {
			t.Errorf("worked: %s", got)
		}
		for want, times := range map[string]int{"first 1 <nil>": 2, "second 1 no": 1, "later 1 <nil>": 1, "again 1 <nil>": 1} {
			if got := ended.String(); strings.Count(got, want) < times {
				t.Errorf("ended: %s, without %s", got, want)
			}
		}
	})
}

func TestTimeoutEndsTheContext(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var took atomic.Int64
		q.Handle(Kind{Name: "k", Max: 1, Timeout: time.Minute, Visible: true, Work: func(ctx context.Context, _ *store.Job) (Writes, error) {
			began := time.Now()
			<-ctx.Done()
			took.Store(int64(time.Since(began)))
			return nil, ctx.Err()
		}})
		start(t, q)
		id := add(t, q, New{Kind: "k"}).ID
		time.Sleep(2 * time.Minute)
		if wantState(t, q, id, store.JobError); time.Duration(took.Load()) != time.Minute {
			t.Errorf("its ctx ended after %v", time.Duration(took.Load()))
		}
	})
}

// TestLapseIsSeenInAQuietQueue: nothing happens but that work does not come to its end; its claim
// is over all the same.
func TestLapseIsSeenInAQuietQueue(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var runs atomic.Int32
		q.Handle(Kind{Name: "k", Timeout: time.Minute, Visible: true, Work: func(context.Context, *store.Job) (Writes, error) {
			if runs.Add(1) == 1 {
				time.Sleep(10 * time.Minute) // deaf to its ctx
			}
			return nil, nil
		}})
		id := add(t, q, New{Kind: "k"}).ID // so that the first look finds nothing behind it
		start(t, q)
		time.Sleep(4 * time.Minute)
		wantState(t, q, id, store.JobCompleted)
		time.Sleep(10 * time.Minute)
	})
}

func TestLateResultIsDropped(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		var committed notes[string]
		var runs atomic.Int32
		q.Handle(Kind{Name: "k", Timeout: time.Minute, Visible: true, Work: func(context.Context, *store.Job) (Writes, error) {
			n := runs.Add(1)
			if n == 1 {
				time.Sleep(10 * time.Minute) // deaf to its ctx
			} else {
				time.Sleep(30 * time.Second)
			}
			return func(tx *store.Tx, j *store.Job) error {
				tx.After(func() { committed.add(fmt.Sprintf("run %d attempt %d", n, j.Attempt)) })
				return nil
			}, nil
		}})
		start(t, q)
		a, b := add(t, q, New{Kind: "k", Lane: "x"}), add(t, q, New{Kind: "k", Lane: "x"})
		time.Sleep(80 * time.Second)
		wantState(t, q, a.ID, store.JobRunning)
		time.Sleep(4 * time.Minute)
		wantState(t, q, b.ID, store.JobCompleted) // the lane went on
		if j := wantState(t, q, a.ID, store.JobCompleted); j.Attempt != 2 {
			t.Errorf("%+v", j)
		}
		time.Sleep(time.Hour)
		if all := committed.all(); len(all) != 2 || strings.Contains(committed.String(), "run 1") {
			t.Errorf("committed %v", all)
		}
		if works, lanes, claims := memory(q); works+lanes+claims != 0 {
			t.Errorf("memory keeps %d works, %d lanes, %d claims", works, lanes, claims)
		}
	})
}

func TestUnseenJobsGoWhenTheyEnd(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		q.Handle(Kind{Name: "good", Work: done})
		q.Handle(Kind{Name: "bad", Work: func(context.Context, *store.Job) (Writes, error) { return nil, Permanent(errors.New("no")) }})
		q.Handle(Kind{Name: "cancelled", Work: done})
		start(t, q)
		ids := []string{add(t, q, New{Kind: "good"}).ID, add(t, q, New{Kind: "bad"}).ID}
		c := add(t, q, New{Kind: "cancelled", Due: q.Store.Now().Add(time.Hour)})
		update(t, q, func(tx *store.Tx) error { return q.Cancel(tx, c.ID) })
		time.Sleep(time.Second)
		for _, id := range append(ids, c.ID) {
			if j := get(t, q, id); j != nil {
				t.Errorf("still there: %+v", j)
			}
		}
	})
}

func TestProgressIsThrottled(t *testing.T) {
	in(t, func(t *testing.T, q *Queue) {
		const ticks = 10_000
		q.Handle(Kind{Name: "k", Visible: true, Work: func(ctx context.Context, _ *store.Job) (Writes, error) {
			Step(ctx, "count", "in_progress", "")
			for i := range ticks {
				Progress(ctx, i, ticks, "")
				time.Sleep(time.Millisecond)
			}
			Progress(ctx, ticks, ticks, "counted")
			Step(ctx, "count", "completed", "")
			Step(ctx, "more", "skipped", "")
			return nil, nil
		}})
		start(t, q)
		id := add(t, q, New{Kind: "k", Steps: []string{"count", "rest"}, Total: ticks}).ID
		seen := map[int]bool{}
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			seen[get(t, q, id).Completed] = true
		}
		if len(seen) < 9 || len(seen) > 12 {
			t.Errorf("%d different counts seen in 10 s", len(seen))
		}
		time.Sleep(time.Minute)
		j := wantState(t, q, id, store.JobCompleted)
		if j.Completed != ticks || j.Total != ticks || j.Detail != "counted" {
			t.Errorf("%+v", j)
		}
		var steps []string
		for _, s := range j.Steps {
			steps = append(steps, s.Name+" "+s.Status)
		}
		if fmt.Sprint(steps) != "[count completed rest queued more skipped]" {
			t.Errorf("steps %v", steps)
		}
	})
}

func TestProgressOutsideOfWorkDoesNothing(t *testing.T) {
	Progress(t.Context(), 1, 2, "x")
	Step(t.Context(), "a", "completed", "")
}

func TestErrorTextIsBounded(t *testing.T) {
	j := &store.Job{}
	recordError(j, errors.New("a"+strings.Repeat("é", maxText)))
	if len(j.Err) > maxText || !strings.HasSuffix(j.Err, "é") {
		t.Errorf("%d bytes, ending in %q", len(j.Err), j.Err[len(j.Err)-2:])
	}
}
