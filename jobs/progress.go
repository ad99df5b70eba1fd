package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

const (
	progressEvery = time.Second // minimum time between two progress transactions of a job
	maxSteps      = 100
)

// progress is the progress that a running Work reports. Each report updates it in memory. For
// Visible jobs it is written to the store every progressEvery.
type progress struct {
	mu        sync.Mutex
	changed   bool // something was reported since the claim
	completed int
	total     int
	detail    string
	steps     []store.JobStep
	flush     func() // writes the progress to the store; nil for jobs that are not Visible
	now       func() time.Time
	timer     *time.Timer
	pending   bool // the timer or the flush that it started is running
	written   time.Time
	finished  bool       // later reports are dropped
	writing   sync.Mutex // held while flush writes
}

type progressKey struct{}

// Progress reports how much of a job is done, with a short text for people ("" keeps the previous
// text). total 0 shows no progress. It may be called at any rate. Outside of Work it does nothing.
func Progress(ctx context.Context, completed, total int, detail string) {
	updateProgress(ctx, func(n *progress) {
		n.completed, n.total = completed, total
		if detail != "" {
			n.detail = truncate(detail)
		}
	})
}

// Step reports the status of a named step of a job: queued, in_progress, completed, error or
// skipped. text is an error for people, "" for none. A name that the job was not added with becomes
// a new last step. Step may be called at any rate. Outside of Work it does nothing.
func Step(ctx context.Context, name, status, text string) {
	updateProgress(ctx, func(n *progress) {
		s := store.JobStep{Name: name, Status: status, Error: truncate(text), At: n.now()}
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
	if n.finished {
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

// copyTo copies the progress to the job's row, if anything was reported.
func (n *progress) copyTo(j *store.Job) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.changed {
		return
	}
	j.Completed, j.Total, j.Detail = n.completed, n.total, n.detail
	j.Steps = append([]store.JobStep(nil), n.steps...)
}

// beginProgress initializes a claim's progress from the job's row.
func (q *Queue) beginProgress(c *claim, j *store.Job) {
	n := &c.progress
	n.now = q.Store.Now
	n.completed, n.total, n.detail = j.Completed, j.Total, j.Detail
	n.steps = append(n.steps, j.Steps...)
	if j.Visible {
		n.flush = func() { q.flushProgress(c) }
	}
}

// flushProgress writes the progress of a claim to the store, unless the claim was lost.
func (q *Queue) flushProgress(c *claim) {
	n := &c.progress
	n.writing.Lock()
	defer n.writing.Unlock()
	n.mu.Lock()
	n.pending = false
	n.written = time.Now()
	finished := n.finished
	n.mu.Unlock()
	if finished {
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
		n.copyTo(j)
		return q.put(tx, j)
	})
	if err != nil && !errors.Is(err, errLost) {
		q.Log.Warn("could not write the progress of a job", "job_id", c.job.ID, "error", err)
	}
}

// finish ends the progress: later reports are dropped, and it waits for a running flush.
func (n *progress) finish() {
	n.mu.Lock()
	n.finished = true
	if n.timer != nil {
		n.timer.Stop()
	}
	n.mu.Unlock()
	n.writing.Lock() // wait for a running flush
	defer n.writing.Unlock()
}
