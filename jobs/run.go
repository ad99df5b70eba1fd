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
	maxClaims     = 64       // of one transaction
	maxLanes      = 4096     // that wait for their turn, in memory
	maxFindDue    = 16 << 10 // keys of one look
	slack         = 30 * time.Second
	maxPause      = 30 * time.Second
	unhandledWait = time.Hour // of a job that nobody handles, or whose arguments nobody knows
)

// Run does the jobs until ctx ends, then claims no more, gives running work Grace to end before its
// ctx does, and returns after the last of it. It returns an error only if the store takes no more
// writes, or if a recurring job has no kind.
func (q *Queue) Run(ctx context.Context) error {
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	q.scheduler.reset()
	d := &dispatcher{Queue: q, stopping: ctx, base: base, unseen: true}
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

// A dispatcher claims what is due. It is one goroutine, so what it keeps needs no lock.
type dispatcher struct {
	*Queue
	stopping context.Context // ends when no more is to be claimed
	base     context.Context // of all work; ends when the queue stops in earnest
	begun    bool
	cursor   string    // the key of JobsDue up to which every lane is ready, or runs as much as it may
	unseen   bool      // something due may be after cursor
	next     time.Time // the first due after that; zero if there is none
	seen     time.Time // the time of the last pass
}

func (d *dispatcher) run(ctx context.Context) error {
	pause := time.Second
	for ctx.Err() == nil {
		again, err := d.pass()
		switch {
		case errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrClosed) || errors.Is(err, errNoKind):
			return err
		case err != nil:
			d.Log.Error("the queue waits for its store", "error", err, "pause", pause)
			d.unseen, d.cursor = true, ""
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

// sleep waits until a time (zero: none), a wake-up, the end of ctx or that of the store.
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

// pass looks for what is due and claims as much of it as may run. again says that there is more to
// do at once.
func (d *dispatcher) pass() (again bool, err error) {
	if !d.begun {
		if err := d.begin(); err != nil {
			return false, err
		}
		d.begun = true
	}
	now := d.Store.Now()
	if now.Before(d.seen) { // the clock was set back: what was passed may be waiting again
		d.unseen, d.cursor = true, ""
		if err := d.seedRecurring(); err != nil {
			return false, err
		}
	}
	d.seen = now
	s, err := d.findDue(now)
	if err != nil {
		return false, err
	}
	if err := d.conclude(s.lapsed, now, errLapsed); err != nil {
		return false, err
	}
	if err := d.resumeDue(s.parked); err != nil {
		return false, err
	}
	if err := d.claim(); err != nil {
		return false, err
	}
	return s.more || d.scheduler.ready(d.Workers), nil
}

// findDue makes the lanes ready that have become due, and answers the running jobs whose claim is
// over and the parked ones whose time has come.
func (d *dispatcher) findDue(now time.Time) (s scan, err error) {
	low, room := d.scheduler.takeEarliest()
	if low != "" {
		d.cursor, d.unseen = min(d.cursor, low), true
	}
	if !d.unseen && (d.next.IsZero() || now.Before(d.next)) {
		return scan{}, nil
	}
	d.unseen, d.next = true, time.Time{}
	if room <= 0 { // a worker that becomes free makes room
		return scan{}, nil
	}
	s = scan{cursor: d.cursor, end: store.TimeKey(now.Add(time.Millisecond)), room: room}
	if err := d.Store.View(s.run); err != nil {
		return scan{}, fmt.Errorf("look for due jobs: %w", err)
	}
	d.scheduler.markDue(s.lanes)
	d.cursor, d.next, d.unseen = s.cursor, s.next, s.more
	return s, nil
}

// A scan is one walk along the index of dues.
type scan struct {
	cursor string // the last key seen
	end    string // the first key that is not due
	room   int
	lanes  []string // that have something due, each once
	lapsed []string // ids of running jobs
	parked []string // ids
	next   time.Time
	more   bool
}

func (s *scan) run(tx *store.Tx) error {
	known := map[string]bool{}
	seen := 0
	for key, id := range store.JobsDue.Keys(tx, "", s.cursor) {
		if key >= s.end {
			s.next = store.KeyTime(key)
			return nil
		}
		if seen++; seen > maxFindDue || len(s.lanes) == s.room {
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

// errNoKind says that a recurring job cannot be done.
var errNoKind = errors.New("nobody handles the kind")

// begin makes due what a crash has cut, and sees to it that each recurring job waits.
func (d *dispatcher) begin() error {
	for kind := range d.every {
		if d.kinds[kind] == nil {
			return fmt.Errorf("recurring job %s: %w", kind, errNoKind)
		}
	}
	now := d.Store.Now()
	var cut []string
	err := d.Store.View(func(tx *store.Tx) error {
		for _, id := range store.JobsByLane.Keys(tx, store.RunningLane+"\x00", "") {
			cut = append(cut, id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for jobs that a crash cut: %w", err)
	}
	if err := d.conclude(cut, now, errCrashed); err != nil {
		return err
	}
	return d.seedRecurring()
}

// conclude ends the claims of running jobs from outside: those that are over, or, after a crash,
// all.
func (d *dispatcher) conclude(ids []string, now time.Time, cause error) error {
	for _, id := range ids {
		var j *store.Job
		err := d.Store.View(func(tx *store.Tx) (err error) {
			j, err = store.Jobs.Find(tx, id)
			return err
		})
		if isUnread(err) {
			d.noteUnread(id, err)
			continue
		}
		if err != nil {
			return err
		}
		if j == nil || j.State != store.JobRunning || (cause == errLapsed && j.Due.After(now)) {
			continue
		}
		if left := d.scheduler.left(id, j.Attempt); cause == errLapsed && left > 0 {
			if err := d.extend(j, left); err != nil {
				return err
			}
			continue
		}
		err = d.Queue.conclude(j, outcome{err: cause})
		switch {
		case err == nil:
			d.scheduler.abandon(id, j.Attempt)
		case !errors.Is(err, errLost):
			return err
		}
	}
	return nil
}

// extend moves the end of a claim that is not over: the calendar was set while the work went on as
// before. To do the job again meanwhile would do it twice.
func (d *dispatcher) extend(claimed *store.Job, left time.Duration) error {
	var due time.Time
	err := d.Store.Update(func(tx *store.Tx) error {
		tx.MayUseReserve()
		due = tx.Now().Add(left + time.Millisecond).Truncate(time.Millisecond)
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

// errNothing undoes a transaction of claims that claimed nothing.
var errNothing = errors.New("nothing to claim")

// claim gives ready lanes their slots.
func (d *dispatcher) claim() error {
	slots, free, used := d.scheduler.slots(d.Workers, maxClaims)
	if len(slots) == 0 {
		return nil
	}
	var b *batch
	err := d.Store.Update(func(tx *store.Tx) error {
		tx.MayUseReserve() // or deletions, which are jobs, would wait for room
		b = &batch{q: d.Queue, tx: tx, now: tx.Now(), budget: free, used: maps.Clone(used), slots: append([]slot(nil), slots...)}
		if err := b.fill(); err != nil {
			return err
		}
		if b.budget == free {
			return errNothing
		}
		// In the committer, so that whatever commits later finds the claims in the scheduler.
		tx.After(func() { d.launch(b) })
		return nil
	})
	switch {
	case errors.Is(err, errNothing):
		d.scheduler.start(b.slots, nil)
	case err != nil:
		d.scheduler.giveBackSlots(slots)
		return fmt.Errorf("claim jobs: %w", err)
	default:
		d.expect(b)
	}
	return nil
}

// expect has the queue looked at when the first of the new claims is over, whether or not anything
// else happens until then. A claim that follows one in its lane is over later, and is seen by that
// look.
func (d *dispatcher) expect(b *batch) {
	for _, t := range b.jobs {
		if due := t.job.Due; d.next.IsZero() || due.Before(d.next) {
			d.next = due
		}
	}
}
