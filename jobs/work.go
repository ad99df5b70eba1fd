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

// work makes attempts one after another, as long as runClaim claims the lane's next job.
func (d *dispatcher) work(c *claim) {
	defer d.running.Done()
	defer d.wakeDispatcher()
	for c != nil {
		c = d.runClaim(c)
	}
}

// runClaim makes one attempt and commits its outcome. If the lane has another job of the kind and
// no other lane waits for a worker, the same transaction claims that job, and runClaim returns the
// new claim. Otherwise it returns nil.
func (d *dispatcher) runClaim(c *claim) (next *claim) {
	defer func() {
		if next == nil {
			d.scheduler.finishClaim(c)
		}
	}()
	defer c.cancel(nil)
	defer c.cleanup.run()
	killpoint.At("jobs.claimed")
	ctx, end := c.ctx, func(error) {}
	if d.Began != nil {
		ctx, end = d.Began(ctx, c.job)
	}
	writes, err := d.callWork(ctx, c)
	killpoint.At("jobs.worked")
	o := outcome{err: err, writes: writes, cause: ctx, progress: &c.progress}
	o.stopped = errors.Is(context.Cause(c.ctx), errStopped)
	c.progress.finish()
	if d.stopping.Err() == nil && d.scheduler.mayChain(c) {
		o.then = func(tx *store.Tx) error {
			return d.claimNextOf(tx, c, func(n *claim) { next = n })
		}
	}
	err = d.persistOutcome(c, o)
	killpoint.At("jobs.finished")
	if failure := o.err; isFailure(failure) && !o.stopped {
		end(failure)
	} else {
		end(err)
	}
	if errors.Is(o.err, ErrArgs) {
		d.recordUnread(c.job.ID, o.err)
	} else {
		d.forgetUnread(c.job.ID)
	}
	switch {
	case errors.Is(err, errLost):
		d.Log.Warn("the result of a job came after the end of its claim and was dropped", "job_id", c.job.ID, "kind", c.job.Kind, "attempt", c.job.Attempt)
	case err != nil:
		d.Log.Error("could not write the result of a job", "job_id", c.job.ID, "kind", c.job.Kind, "error", err)
		d.reportFatal(err)
	}
	return next
}

// reportFatal ends Run if err means that the store accepts no more writes. After any other error
// the job runs again when its claim ends.
func (q *Queue) reportFatal(err error) {
	if !errors.Is(err, store.ErrFailed) && !errors.Is(err, store.ErrClosed) {
		return
	}
	select {
	case q.fatal <- err:
	default:
	}
}

// callWork calls Work. It returns a panic as an error.
func (q *Queue) callWork(ctx context.Context, c *claim) (w Writes, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.kind.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	j := *c.job
	q.beginProgress(c, &j)
	ctx = context.WithValue(ctx, cleanupKey{}, &c.cleanup)
	ctx = context.WithValue(ctx, placeWantedKey{}, func() bool { return q.scheduler.isPlaceWanted(c) })
	return c.kind.Work(context.WithValue(ctx, progressKey{}, &c.progress), &j)
}

// persistOutcome commits the outcome of a claim. While the disk is full it retries until the claim
// ends: if the outcome were lost, the job would be done twice.
func (q *Queue) persistOutcome(c *claim, o outcome) error {
	pause := time.Second
	for {
		err := q.commitOutcome(c.job, o)
		if !errors.Is(err, store.ErrFull) || time.Until(c.expires) < pause {
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

// An outcome is the result of an attempt.
type outcome struct {
	err       error
	writes    Writes
	cause     context.Context // the cause of jobs that writes adds (see store.Tx.For); may be nil
	progress  *progress
	stopped   bool                     // ctx ended because the queue stops
	mustRetry bool                     // the job must be tried again, even without attempts left
	then      func(tx *store.Tx) error // runs in the same transaction; may be nil
}

// commitOutcome commits the outcome of a claim; j is the job as it was claimed. It returns errLost
// if the job has been claimed again or is gone. If Writes, Parked or Failed return an error, the
// attempt counts as failed and is committed without Writes.
func (q *Queue) commitOutcome(j *store.Job, o outcome) error {
	var after *store.Job
	for {
		err := q.Store.Update(func(tx *store.Tx) (err error) {
			tx.MayUseReserve() // otherwise jobs that delete data could not end when the disk is full
			after, err = q.applyOutcome(tx, j, o)
			if err != nil || o.then == nil {
				return err
			}
			return o.then(tx)
		})
		var r callbackError
		if !errors.As(err, &r) {
			if err == nil {
				q.logOutcome(after, o.err)
				if q.Ended != nil && after.State != store.JobQueued {
					q.Ended(after)
				}
			}
			return err
		}
		o.writes, o.err, o.mustRetry = nil, r.error, o.mustRetry || r.failed
	}
}

// applyOutcome sets and writes the state of a job that follows from the outcome, and calls Writes,
// Parked and Failed.
func (q *Queue) applyOutcome(tx *store.Tx, claimed *store.Job, o outcome) (*store.Job, error) {
	j, err := store.Jobs.Find(tx, claimed.ID)
	if err != nil {
		return nil, err
	}
	if j == nil || j.State != store.JobRunning || j.Attempt != claimed.Attempt {
		return nil, errLost
	}
	if o.progress != nil {
		o.progress.copyTo(j)
	}
	if errors.Is(o.err, errCrashed) {
		j.Crashes++
	}
	q.decideState(tx, j, o)
	if o.writes != nil {
		tx.For(o.cause)
		err := q.recoverPanic(func() error { return o.writes(tx, j) })
		tx.ForNobody() // a retry or recurring job has no cause
		if err != nil {
			return nil, asCallbackError(fmt.Errorf("run the writes of job %s: %w", j.ID, err), false)
		}
	}
	k := q.kinds[j.Kind]
	if j.Parked() && k != nil && k.Parked != nil {
		if err := q.recoverPanic(func() error { return k.Parked(tx, j) }); err != nil {
			return nil, asCallbackError(fmt.Errorf("park job %s: %w", j.ID, err), true)
		}
	}
	if j.State == store.JobQueued {
		return j, q.requeue(tx, j)
	}
	if j.State == store.JobError && k != nil && k.Failed != nil {
		if err := q.recoverPanic(func() error { return k.Failed(tx, j, o.err) }); err != nil {
			return nil, asCallbackError(fmt.Errorf("record the failure of job %s: %w", j.ID, err), true)
		}
	}
	return j, q.end(tx, j)
}

// recoverPanic calls fn and returns a panic as an error: store.ErrDatabase if a damaged page caused
// it.
func (q *Queue) recoverPanic(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if err = q.Store.DamageError(v); err == nil {
				err = &panicError{v, debug.Stack()}
			}
		}
	}()
	return fn()
}

// asCallbackError wraps an error of Writes, Parked or Failed as a callbackError. It returns
// store.ErrDatabase unchanged: then the outcome is not committed, and the job runs again.
func asCallbackError(err error, failed bool) error {
	if errors.Is(err, store.ErrDatabase) {
		return err
	}
	return callbackError{error: err, failed: failed}
}

// decideState sets the state, due time and error of a job from the outcome.
func (q *Queue) decideState(tx *store.Tx, j *store.Job, o outcome) {
	now := tx.Now()
	var perm permanentError
	var snoozed snoozeError
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
	case unknown: // perhaps from a newer version, so keep it
		recordError(j, o.err)
		j.Attempt--
		j.State, j.Due = store.JobQueued, now.Add(unhandledWait)
	case isSnoozed:
		j.Attempt--
		j.State, j.Due = store.JobQueued, snoozed.until
	case o.stopped && !isPermanent:
		j.Attempt--
		j.State, j.Due = store.JobQueued, now
	case j.Crashes >= maxCrashes:
		park(j, now)
	case !o.mustRetry && !errors.Is(o.err, errCrashed) && (isPermanent || j.Max > 0 && j.Attempt >= j.Max):
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
		j.Due = laterTime(j.Due, now).UTC().Truncate(time.Millisecond)
	} else {
		j.EndedAt = now
	}
	j.WakeAt, j.Cancel = time.Time{}, false
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// retryTime returns when a failed job is due again.
func (q *Queue) retryTime(j *store.Job, err error, now time.Time) time.Time {
	var at retryAtError
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

// requeue queues a job again. If another job with its key has been queued meanwhile, that job
// remains, due at the earlier of the two times, and this one is cancelled.
func (q *Queue) requeue(tx *store.Tx, j *store.Job) error {
	other, err := q.queuedJob(tx, j.Kind, j.Key)
	if err != nil {
		return err
	}
	if other == nil {
		return q.put(tx, j)
	}
	if j.Crashes > other.Crashes { // it is the same work, which may crash the process again
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

// end writes or deletes a job that has ended, and adds the next one of a recurring kind.
func (q *Queue) end(tx *store.Tx, j *store.Job) error {
	if err := q.put(tx, j); err != nil {
		return err
	}
	return q.scheduleNext(tx, j)
}

// isFailure reports whether the error of an attempt is a failure: neither Snooze nor ErrArgs.
func isFailure(err error) bool {
	return err != nil && !errors.As(err, new(snoozeError)) && !errors.Is(err, ErrArgs)
}

// logOutcome logs the outcome of an attempt, except Snooze and ErrArgs.
func (q *Queue) logOutcome(j *store.Job, err error) {
	if err != nil && !isFailure(err) {
		return
	}
	level, what := slog.LevelInfo, "a job has ended"
	p := new(panicError)
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
