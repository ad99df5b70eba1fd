package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/mailstead/mailstead/store"
)

const (
	maxClaims      = 64               // jobs claimed in one transaction
	maxLanes       = 4096             // ready lanes in memory
	maxScannedKeys = 16 << 10         // keys read in one scan
	claimSlack     = 30 * time.Second // how much later than the kind's Timeout a claim ends
	maxPause       = 30 * time.Second // longest wait after an error of the store
	unhandledWait  = time.Hour        // delay of a job of an unknown kind or with unknown arguments
)

// Run runs jobs until ctx ends. Then it claims no more jobs, waits up to Grace before it ends the
// ctx of running jobs, and returns after the last one. It returns an error only if the store
// accepts no more writes, or if a recurring kind has no handler.
func (q *Queue) Run(ctx context.Context) error {
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	q.scheduler.reset()
	d := &dispatcher{Queue: q, stopping: ctx, base: base, rescan: true}
	err := d.run(ctx)
	if err != nil {
		stop(errStopped)
	}
	ended := make(chan struct{})
	go func() {
		q.running.Wait()
		close(ended)
	}()
	grace := time.NewTimer(q.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		stop(errStopped)
	}
	<-ended
	return err
}

// A dispatcher claims due jobs. It runs in one goroutine, so its fields need no lock.
type dispatcher struct {
	*Queue
	stopping context.Context // ends when no more jobs may be claimed
	base     context.Context // parent of every Work's ctx; ends after Grace
	requeued bool            // requeueInterrupted has succeeded
	cursor   string          // key in JobsDue: the scheduler knows every lane that has a due job up to this key
	rescan   bool            // there may be due jobs after cursor
	next     time.Time       // the first due time after cursor; zero if there is none
	lastPass time.Time       // the time of the last pass
}

func (d *dispatcher) run(ctx context.Context) error {
	pause := time.Second
	for ctx.Err() == nil {
		again, err := d.findAndClaim()
		switch {
		case errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrClosed) || errors.Is(err, errNoKind):
			return err
		case err != nil:
			d.Log.Error("the job queue cannot use its store, and tries again", "error", err, "pause", pause)
			d.rescan, d.cursor = true, ""
			err = d.sleep(ctx, d.Store.Now().Add(pause), nil)
			pause = min(2*pause, maxPause)
		case !again:
			err = d.sleep(ctx, d.next, d.wake)
			pause = time.Second
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sleep waits until a wake-up, the end of ctx or, if `until` is not zero, that time. A fatal error
// of the store also ends the wait; sleep returns that error.
func (d *dispatcher) sleep(ctx context.Context, until time.Time, wake <-chan struct{}) error {
	var due <-chan struct{}
	if !until.IsZero() {
		var stop func()
		due, stop = d.Store.Clock().At(until)
		defer stop()
	}
	select {
	case <-due:
	case <-wake:
	case <-ctx.Done():
	case err := <-d.fatal:
		return err
	}
	return nil
}

// findAndClaim finds due jobs and claims as many as may run. again reports that another pass is
// needed at once.
func (d *dispatcher) findAndClaim() (again bool, err error) {
	if !d.requeued {
		if err := d.requeueInterrupted(); err != nil {
			return false, err
		}
		d.requeued = true
	}
	now := d.Store.Now()
	if now.Before(d.lastPass) { // the clock was set back: jobs before cursor may not be due any more
		d.rescan, d.cursor = true, ""
		if err := d.seedRecurring(); err != nil {
			return false, err
		}
	}
	d.lastPass = now
	s, err := d.findDue(now)
	if err != nil {
		return false, err
	}
	if err := d.endClaims(s.lapsed, now, errLapsed); err != nil {
		return false, err
	}
	if err := d.resumeParkedJobs(s.parked); err != nil {
		return false, err
	}
	if err := d.claimJobs(); err != nil {
		return false, err
	}
	return s.more || d.scheduler.canClaim(d.Workers), nil
}

// findDue scans for due jobs and marks their lanes as due. The result has the running jobs with a
// lapsed claim and the parked jobs that are due.
func (d *dispatcher) findDue(now time.Time) (s dueScan, err error) {
	low, room := d.scheduler.takeEarliest()
	if low != "" {
		d.cursor, d.rescan = min(d.cursor, low), true
	}
	if !d.rescan && (d.next.IsZero() || now.Before(d.next)) {
		return dueScan{}, nil
	}
	d.rescan, d.next = true, time.Time{}
	if room <= 0 { // there are maxLanes ready lanes; a worker that becomes free makes room
		return dueScan{}, nil
	}
	s = dueScan{cursor: d.cursor, end: store.TimeKey(now.Add(time.Millisecond)), room: room}
	if err := d.Store.View(s.run); err != nil {
		return dueScan{}, fmt.Errorf("look for due jobs: %w", err)
	}
	d.scheduler.markDue(s.lanes)
	d.cursor, d.next, d.rescan = s.cursor, s.next, s.more
	return s, nil
}

// A dueScan is one pass over the index of due times.
type dueScan struct {
	cursor string    // the last key seen
	end    string    // the first key that is not due
	room   int       // how many lanes may be added
	lanes  []string  // names of lanes with due jobs, each once
	lapsed []string  // ids of running jobs with a lapsed claim
	parked []string  // ids of parked jobs that are due
	next   time.Time // due time of the first job that is not due; zero if there is none
	more   bool      // the scan stopped before end
}

func (s *dueScan) run(tx *store.Tx) error {
	known := map[string]bool{}
	seen := 0
	for key, id := range store.JobsDue.Keys(tx, "", s.cursor) {
		if key >= s.end {
			s.next = store.KeyTime(key)
			return nil
		}
		if seen++; seen > maxScannedKeys || len(s.lanes) == s.room {
			s.more = true
			return nil
		}
		s.cursor = key
		lane := store.DueLane(key, id)
		switch {
		case lane == store.RunningLane:
			s.lapsed = append(s.lapsed, id)
		case lane == store.ParkedLane:
			s.parked = append(s.parked, id)
		case !known[lane]:
			known[lane] = true
			s.lanes = append(s.lanes, lane)
		}
	}
	return nil
}

// errNoKind is returned for a recurring kind without a handler.
var errNoKind = errors.New("no handler for this kind of job")

// requeueInterrupted requeues the jobs that a crash interrupted, and ensures that each recurring
// job is queued.
func (d *dispatcher) requeueInterrupted() error {
	for kind := range d.intervals {
		if d.kinds[kind] == nil {
			return fmt.Errorf("recurring job %s: %w", kind, errNoKind)
		}
	}
	now := d.Store.Now()
	var interrupted []string
	err := d.Store.View(func(tx *store.Tx) error {
		for _, id := range store.JobsByLane.Keys(tx, store.RunningLane+"\x00", "") {
			interrupted = append(interrupted, id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for jobs that a crash interrupted: %w", err)
	}
	if err := d.endClaims(interrupted, now, errCrashed); err != nil {
		return err
	}
	return d.seedRecurring()
}

// endClaims ends claims whose Work has not returned. cause is errLapsed for lapsed claims, and
// errCrashed after a crash.
func (d *dispatcher) endClaims(ids []string, now time.Time, cause error) error {
	for _, id := range ids {
		var j *store.Job
		err := d.Store.View(func(tx *store.Tx) (err error) {
			j, err = store.Jobs.Find(tx, id)
			return err
		})
		if isUnread(err) {
			d.recordUnread(id, err)
			continue
		}
		if err != nil {
			return err
		}
		if j == nil || j.State != store.JobRunning || (cause == errLapsed && j.Due.After(now)) {
			continue
		}
		if left := d.scheduler.timeLeft(id, j.Attempt); cause == errLapsed && left > 0 {
			if err := d.extendClaim(j, left); err != nil {
				return err
			}
			continue
		}
		err = d.Queue.commitOutcome(j, outcome{err: cause})
		switch {
		case err == nil:
			d.scheduler.abandonClaim(id, j.Attempt)
		case !errors.Is(err, errLost):
			return err
		}
	}
	return nil
}

// extendClaim moves the Due of a running job to the end of its claim. That is needed after the
// system clock was set forward: otherwise the job would be due again while it runs, and run twice
// at the same time.
func (d *dispatcher) extendClaim(claimed *store.Job, timeLeft time.Duration) error {
	var due time.Time
	err := d.Store.Update(func(tx *store.Tx) error {
		tx.MayUseReserve()
		due = tx.Now().Add(timeLeft + time.Millisecond).Truncate(time.Millisecond)
		j, err := store.Jobs.Find(tx, claimed.ID)
		if err != nil || j == nil || j.State != store.JobRunning || j.Attempt != claimed.Attempt {
			return err
		}
		j.Due = due
		return d.put(tx, j)
	})
	if d.next.IsZero() || due.Before(d.next) {
		d.next = due
	}
	return err
}

// errNothingToDo rolls back a transaction that has nothing to change.
var errNothingToDo = errors.New("no job to claim or delete")

// claimJobs claims jobs for the ready lanes and starts them.
func (d *dispatcher) claimJobs() error {
	slots, free, used := d.scheduler.slots(d.Workers, maxClaims)
	if len(slots) == 0 {
		return nil
	}
	var b *claimBatch
	err := d.Store.Update(func(tx *store.Tx) error {
		tx.MayUseReserve() // otherwise jobs that delete data could not run when the disk is full
		b = &claimBatch{q: d.Queue, tx: tx, now: tx.Now(), budget: free, used: maps.Clone(used), slots: append([]claimSlot(nil), slots...)}
		if err := b.fillSlots(); err != nil {
			return err
		}
		if b.budget == free {
			return errNothingToDo
		}
		// This runs in the committer, so that later transactions find the claims in the scheduler.
		tx.After(func() { d.launchWorkers(b) })
		return nil
	})
	switch {
	case errors.Is(err, errNothingToDo):
		d.scheduler.recordClaims(b.slots, nil)
	case err != nil:
		d.scheduler.giveBackSlots(slots)
		return fmt.Errorf("claim jobs: %w", err)
	default:
		d.scheduleLapse(b)
	}
	return nil
}

// scheduleLapse schedules the next pass for the end of the first new claim, in case nothing else
// wakes the dispatcher. A chained claim ends later, so that pass finds it as well.
func (d *dispatcher) scheduleLapse(b *claimBatch) {
	for _, t := range b.jobs {
		if due := t.job.Due; d.next.IsZero() || due.Before(d.next) {
			d.next = due
		}
	}
}
