package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
)

// work does attempts, one after the other, until the lane's next job is another worker's.
func (d *dispatcher) work(c *claim) {
	defer d.running.Done()
	defer d.signal()
	for c != nil {
		c = d.step(c)
	}
}

// step does one attempt and commits what it came to. If the lane has another job of the kind, and
// no other lane waits for a worker, the same transaction claims that, and step returns the claim.
func (d *dispatcher) step(c *claim) (next *claim) {
	defer func() {
		if next == nil {
			d.scheduler.finish(c)
		}
	}()
	defer c.cancel(nil)
	defer c.cleanup.run()
	killpoint.At("jobs.claimed")
	ctx, end := c.ctx, func(error) {}
	if d.Began != nil {
		ctx, end = d.Began(ctx, c.job)
	}
	writes, err := d.attempt(ctx, c)
	killpoint.At("jobs.worked")
	o := outcome{err: err, writes: writes, cause: ctx, progress: &c.progress}
	o.stopped = errors.Is(context.Cause(c.ctx), errStopped)
	c.progress.seal()
	if d.stopping.Err() == nil && d.scheduler.mayChain(c) {
		o.then = func(tx *store.Tx) error {
			return d.chain(tx, c, func(n *claim) { next = n })
		}
	}
	err = d.persist(c, o)
	killpoint.At("jobs.finished")
	if failure := o.err; counts(failure) && !o.stopped {
		end(failure)
	} else {
		end(err)
	}
	if errors.Is(o.err, ErrArgs) {
		d.noteUnread(c.job.ID, o.err)
	} else {
		d.forgetUnread(c.job.ID)
	}
	switch {
	case errors.Is(err, errLost):
		d.Log.Warn("a job's work came too late and was dropped", "job_id", c.job.ID, "kind", c.job.Kind, "attempt", c.job.Attempt)
	case err != nil:
		d.Log.Error("the end of a job's work was not kept", "job_id", c.job.ID, "kind", c.job.Kind, "error", err)
		d.fail(err)
	}
	return next
}

// fail ends Run if the store takes nothing more. After any other error the job is done again when
// its claim is over.
func (q *Queue) fail(err error) {
	if !errors.Is(err, store.ErrFailed) && !errors.Is(err, store.ErrClosed) {
		return
	}
	select {
	case q.fatal <- err:
	default:
	}
}

// attempt calls Work. A panic is its error.
func (q *Queue) attempt(ctx context.Context, c *claim) (w Writes, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.kind.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = &panicked{v, debug.Stack()}
		}
	}()
	j := *c.job
	q.beginProgress(c, &j)
	ctx = context.WithValue(ctx, cleanupKey{}, &c.cleanup)
	ctx = context.WithValue(ctx, wantedKey{}, func() bool { return q.scheduler.wanted(c) })
	return c.kind.Work(context.WithValue(ctx, progressKey{}, &c.progress), &j)
}

// persist concludes a claim, and does so again while the disk is full and the claim lasts: what was
// done outside is done twice if it is forgotten.
func (q *Queue) persist(c *claim, o outcome) error {
	pause := time.Second
	for {
		err := q.conclude(c.job, o)
		if !errors.Is(err, store.ErrFull) || time.Until(c.over) < pause {
			return err
		}
		select {
		case <-time.After(pause):
		case <-c.base.Done():
			return err
		}
		pause = min(2*pause, maxPause)
	}
}

// An outcome is what an attempt came to.
type outcome struct {
	err      error
	writes   Writes
	cause    context.Context // of what writes adds; nil: nothing that is known
	progress *progress
	stopped  bool                     // its ctx ended because the queue stops
	hold     bool                     // it must not be given up now
	then     func(tx *store.Tx) error // in the same transaction; may be nil
}

// conclude commits the outcome of the claim that j stands for. It returns errLost if j has been
// claimed again, or is gone. When Writes or Failed refuse, the attempt counts as failed, without
// them.
func (q *Queue) conclude(j *store.Job, o outcome) error {
	var after *store.Job
	for {
		err := q.Store.Update(func(tx *store.Tx) (err error) {
			tx.MayUseReserve() // or deletions, which are jobs, would wait for room
			after, err = q.applyOutcome(tx, j, o)
			if err != nil || o.then == nil {
				return err
			}
			return o.then(tx)
		})
		var r refused
		if !errors.As(err, &r) {
			if err == nil {
				q.report(after, o.err)
				if q.Ended != nil && after.State != store.JobQueued {
					q.Ended(after)
				}
			}
			return err
		}
		o.writes, o.err, o.hold = nil, r.error, o.hold || r.failed
	}
}

// applyOutcome brings a job into the state that follows from the outcome of its claim.
func (q *Queue) applyOutcome(tx *store.Tx, claimed *store.Job, o outcome) (*store.Job, error) {
	j, err := store.Jobs.Find(tx, claimed.ID)
	if err != nil {
		return nil, err
	}
	if j == nil || j.State != store.JobRunning || j.Attempt != claimed.Attempt {
		return nil, errLost
	}
	if o.progress != nil {
		o.progress.write(j)
	}
	if errors.Is(o.err, errCrashed) {
		j.Crashes++
	}
	q.decideState(tx, j, o)
	if o.writes != nil {
		tx.For(o.cause)
		err := q.guard(func() error { return o.writes(tx, j) })
		tx.ForNobody() // what comes again by the clock was caused by nothing
		if err != nil {
			return nil, refusal(fmt.Errorf("writes of job %s: %w", j.ID, err), false)
		}
	}
	k := q.kinds[j.Kind]
	if j.Parked() && k != nil && k.Parked != nil {
		if err := q.guard(func() error { return k.Parked(tx, j) }); err != nil {
			return nil, refusal(fmt.Errorf("parking of job %s: %w", j.ID, err), true)
		}
	}
	if j.State == store.JobQueued {
		return j, q.requeue(tx, j)
	}
	if j.State == store.JobError && k != nil && k.Failed != nil {
		if err := q.guard(func() error { return k.Failed(tx, j, o.err) }); err != nil {
			return nil, refusal(fmt.Errorf("failure of job %s: %w", j.ID, err), true)
		}
	}
	return j, q.end(tx, j)
}

// guard calls fn in a transaction. A panic is its error: over a damaged page, store.ErrDatabase.
func (q *Queue) guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if err = q.Store.Damage(v); err == nil {
				err = &panicked{v, debug.Stack()}
			}
		}
	}()
	return fn()
}

// refusal is the error of Writes or Failed as one of the job, unless it is the database's own: then
// the job is done again, and the attempt does not count.
func refusal(err error, failed bool) error {
	if errors.Is(err, store.ErrDatabase) {
		return err
	}
	return refused{error: err, failed: failed}
}

// decideState decides which state follows from the outcome.
func (q *Queue) decideState(tx *store.Tx, j *store.Job, o outcome) {
	now := tx.Now()
	var perm permanent
	var snoozed snooze
	isPermanent := errors.As(o.err, &perm)
	isSnoozed := errors.As(o.err, &snoozed)
	unknown := errors.Is(o.err, ErrArgs)
	if !errors.Is(o.err, errCrashed) {
		j.Crashes = 0
	}
	switch {
	case o.err == nil:
		j.State, j.Err, j.ErrCode = store.JobCompleted, "", ""
	case j.Cancel:
		j.State = store.JobCancelled
	case unknown: // it may be of a newer version, which is to find it
		recordError(j, o.err)
		j.Attempt--
		j.State, j.Due = store.JobQueued, now.Add(unhandledWait)
	case isSnoozed:
		j.Attempt--
		j.State, j.Due = store.JobQueued, snoozed.until
	case o.stopped && !isPermanent:
		j.Attempt--
		j.State, j.Due = store.JobQueued, now
	case j.Crashes >= crashesMost:
		park(j, now)
	case !o.hold && !errors.Is(o.err, errCrashed) && (isPermanent || j.Max > 0 && j.Attempt >= j.Max):
		recordError(j, o.err)
		j.State = store.JobError
	default:
		recordError(j, o.err)
		j.State, j.Due = store.JobQueued, q.retryTime(j, o.err, now)
	}
	if j.State == store.JobQueued {
		if !j.WakeAt.IsZero() && j.WakeAt.Before(j.Due) && !j.Parked() {
			j.Due = j.WakeAt
		}
		j.Due = latest(j.Due, now).UTC().Truncate(time.Millisecond)
	} else {
		j.EndedAt = now
	}
	j.WakeAt, j.Cancel = time.Time{}, false
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// retryTime is when a job that failed is due.
func (q *Queue) retryTime(j *store.Job, err error, now time.Time) time.Time {
	var at retryAt
	switch {
	case errors.As(err, &at):
		return at.at
	case errors.Is(err, errCrashed):
		return now.Add(time.Duration(j.Crashes-1) * suspectWait)
	}
	backoff := Backoff
	if k := q.kinds[j.Kind]; k != nil {
		backoff = k.Backoff
	}
	return now.Add(backoff(j.Attempt, float64(j.Jitter)/(1<<16)))
}

// requeue lets a job wait again. If another with its key has begun to wait since, that one does the
// work, at the earlier time of the two, and this one is cancelled.
func (q *Queue) requeue(tx *store.Tx, j *store.Job) error {
	other, err := q.waiting(tx, j.Kind, j.Key)
	if err != nil {
		return err
	}
	if other == nil {
		return q.put(tx, j)
	}
	if j.Crashes > other.Crashes { // it is the same work, which may end the process again
		other.Crashes, other.ParkedAt = j.Crashes, j.ParkedAt
	}
	if j.Due.Before(other.Due) || other.Parked() {
		other.Due = j.Due
	}
	if err := q.put(tx, other); err != nil {
		return err
	}
	j.State, j.EndedAt, j.Detail = store.JobCancelled, tx.Now(), "superseded by "+other.ID
	return q.end(tx, j)
}

// end keeps a job that has ended, or lets it go, and sees to the next one of a recurring kind.
func (q *Queue) end(tx *store.Tx, j *store.Job) error {
	if err := q.put(tx, j); err != nil {
		return err
	}
	return q.recur(tx, j)
}

// counts reports whether the error of an attempt says that it has failed: it was not put off, nor
// of a form that a newer version is to read.
func counts(err error) bool {
	return err != nil && !errors.As(err, new(snooze)) && !errors.Is(err, ErrArgs)
}

// report logs what an attempt came to, unless it was put off.
func (q *Queue) report(j *store.Job, err error) {
	if err != nil && !counts(err) {
		return
	}
	level, what := slog.LevelInfo, "a job has ended"
	p := new(panicked)
	switch {
	case errors.As(err, &p):
		level, what = slog.LevelError, "a job panicked"
	case j.State == store.JobError:
		level, what = slog.LevelWarn, "a job was given up"
	case j.Parked():
		level, what = slog.LevelError, "a job was parked, since the process has ended each time that it ran"
	case j.State == store.JobQueued:
		what = "a job is tried again"
	case j.State == store.JobCancelled:
		what = "a job was cancelled"
	}
	ctx := context.Background()
	if !q.Log.Enabled(ctx, level) {
		return
	}
	line := []slog.Attr{slog.String("job_id", j.ID), slog.String("kind", j.Kind), slog.Int("attempt", j.Attempt), slog.String("state", j.State)}
	if j.State == store.JobQueued {
		line = append(line, slog.Time("due", j.Due))
	}
	if err != nil {
		line = append(line, slog.Any("error", err))
	}
	if p.stack != nil {
		line = append(line, slog.String("stack", string(p.stack)))
	}
	q.Log.LogAttrs(ctx, level, what, line...)
}
