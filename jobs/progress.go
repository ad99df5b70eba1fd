package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

const (
	progressEvery = time.Second // at most one transaction of progress for a job in this time
	maxSteps      = 100
)

// progress is what a running work reports. It is kept in memory at the rate of the work, and
// written at that of progressEvery, for jobs that somebody can see.
type progress struct {
	mu        sync.Mutex
	changed   bool // since the job was claimed
	completed int
	total     int
	detail    string
	steps     []store.JobStep
	flush     func() // writes; nil for jobs that nobody sees
	now       func() time.Time
	timer     *time.Timer
	pending   bool // the timer runs, or what it started does
	written   time.Time
	sealed    bool
	writing   sync.Mutex
}

type progressKey struct{}

// Progress tells how much of a job is done, and says in a few words what goes on ("" leaves that as
// it was). total 0 shows no progress. It may be called at any rate; outside of Work it does
// nothing.
func Progress(ctx context.Context, completed, total int, detail string) {
	updateProgress(ctx, func(n *progress) {
		n.completed, n.total = completed, total
		if detail != "" {
			n.detail = cut(detail)
		}
	})
}

// Step tells that a named part of a job has come to a status: queued, in_progress, completed, error
// or skipped. The text of an error is for people; "" is none. Steps that the job was not added with
// come after those that it was. It may be called at any rate; outside of Work it does nothing.
func Step(ctx context.Context, name, status, text string) {
	updateProgress(ctx, func(n *progress) {
		s := store.JobStep{Name: name, Status: status, Error: cut(text), At: n.now()}
		for i := range n.steps {
			if n.steps[i].Name == name {
				n.steps[i] = s
				return
			}
		}
		if len(n.steps) < maxSteps {
			n.steps = append(n.steps, s)
		}
	})
}

func updateProgress(ctx context.Context, change func(*progress)) {
	n, _ := ctx.Value(progressKey{}).(*progress)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sealed {
		return
	}
	change(n)
	n.changed = true
	if n.flush == nil || n.pending {
		return
	}
	n.pending = true
	n.timer = time.AfterFunc(max(0, progressEvery-time.Since(n.written)), n.flush)
}

// write puts the progress into a job's record.
func (n *progress) write(j *store.Job) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.changed {
		return
	}
	j.Completed, j.Total, j.Detail = n.completed, n.total, n.detail
	j.Steps = append([]store.JobStep(nil), n.steps...)
}

// beginProgress begins a claim's progress where the job's record is.
func (q *Queue) beginProgress(c *claim, j *store.Job) {
	n := &c.progress
	n.now = q.Store.Now
	n.completed, n.total, n.detail = j.Completed, j.Total, j.Detail
	n.steps = append(n.steps, j.Steps...)
	if j.Visible {
		n.flush = func() { q.flush(c) }
	}
}

// flush writes the progress of a claim that still holds.
func (q *Queue) flush(c *claim) {
	n := &c.progress
	n.writing.Lock()
	defer n.writing.Unlock()
	n.mu.Lock()
	n.pending = false
	n.written = time.Now()
	sealed := n.sealed
	n.mu.Unlock()
	if sealed {
		return
	}
	err := q.Store.Update(func(tx *store.Tx) error {
		j, err := store.Jobs.Find(tx, c.job.ID)
		if err != nil {
			return err
		}
		if j == nil || j.State != store.JobRunning || j.Attempt != c.job.Attempt {
			return errLost
		}
		n.write(j)
		return q.put(tx, j)
	})
	if err != nil && !errors.Is(err, errLost) {
		q.Log.Warn("a job's progress was not kept", "job_id", c.job.ID, "error", err)
	}
}

// seal ends the progress: what is told from now on is dropped, and nothing writes any more.
func (n *progress) seal() {
	n.mu.Lock()
	n.sealed = true
	if n.timer != nil {
		n.timer.Stop()
	}
	n.mu.Unlock()
	n.writing.Lock() // a flush that has begun
	defer n.writing.Unlock()
}
