// Package jobs is the durable job queue. A job that is added in a transaction runs after the
// commit, and is retried until it succeeds or is given up. The package does not know any kind of
// job, what arguments mean, or who may see a job.
//
// The states of a job:
//
//	  Add                 claim: Attempt+1, Due = the claim's end
//	   │          ┌──────────────────────────────────┐
//	┌──▼───┐ ─────┘                            ┌─────▼─────┐ ── nil ──────────────────▶ completed
//	│queued│                                   │in_progress│ ── Permanent, Max used ──▶ error
//	└──┬───┘ ◀── error: Backoff, RetryAt ───── └───────────┘ ── error after Cancel ───▶ cancelled
//	   │     ◀── Snooze, stopped: not counted ─────┘
//	   │     ◀── claim over, crash: counted ───────┘   (crashes.go says what a third crash does)
//	   └── Cancel ─▶ cancelled
//
// Each arrow is one transaction. The effects of Work outside of the store happen at least once. The
// Writes that Work returns are committed exactly once, in the transaction of the arrow. There are
// no leases besides the index of due times: a job is due again when its claim ends. The store is
// not shared with other processes, so a job that is in progress when Run starts was interrupted by
// a crash and is due at once.
//
// Jobs are queued in lanes, so that one dead peer does not block the jobs for others. The
// dispatcher scans the keys of the index of due times once and remembers the names of lanes with
// due jobs. Lanes then take turns, one job each; an index finds the first job of a lane directly. A
// lane that runs its maximum number of jobs is not ready until one of them ends. So a job costs the
// same whether none or a hundred thousand others are queued in its lane. Memory holds a bounded
// number of lane names, and no queued jobs except the ids of unreadable rows. These rows stay in
// place, and their lanes skip them.
package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

// Work makes one attempt at a job, outside of any transaction. ctx ends when the claim ends, the
// job is cancelled or the queue stops. j is a copy; Writes must make any change that is to be
// stored. After a crash, Work may be called again for a job that it has already done, and must
// detect that. The error decides how the job continues: see Permanent, RetryAt and Snooze. Any
// other error is retried after the kind's Backoff.
type Work func(ctx context.Context, j *store.Job) (Writes, error)

// Writes runs in the transaction that commits the job's new state, whatever that state is. Writes
// may be nil. j already has the new State, Due, Err and EndedAt. Writes may set Result, Steps and
// Detail. Like every transaction function it may run twice. An error rolls the transaction back and
// counts as the error of Work.
type Writes func(tx *store.Tx, j *store.Job) error

// A Kind defines how jobs of one kind are run.
type Kind struct {
	Name    string
	Work    Work
	Max     int           // maximum number of attempts; 0 = no limit
	Timeout time.Duration // time limit of one attempt; 0 = 5 minutes
	// Backoff returns the wait after a failed attempt; attempt is 1 for the first one. r, in [0,1),
	// is a random number for jitter. It is the same for all attempts of a job, so that jitter does
	// not make a later wait shorter than an earlier one. If Backoff is nil, the package's Backoff
	// applies (5 s to an hour).
	Backoff func(attempt int, r float64) time.Duration
	PerLane int // maximum number of running jobs per lane; 0 = 1
	// Most is the maximum number of running jobs of the kind in all lanes together, MostEach the
	// maximum for one account; 0 = no limit. A kind that waits for foreign servers sets both, so
	// that slow servers cannot occupy all workers. Its jobs must not share lanes with other kinds,
	// since a lane waits for its first job.
	Most, MostEach int
	Visible        bool // kept for 30 days after its end, and listed by GET /v1/jobs
	// Parked runs in the transaction that parks a job after repeated crashes. The job is not given
	// up: Work runs again at Due, or when the operator resumes it. If nothing is left to do for
	// Work, Parked may reset ParkedAt.
	Parked func(tx *store.Tx, j *store.Job) error
	// Failed runs in the transaction that gives a job up, after Writes.
	Failed func(tx *store.Tx, j *store.Job, err error) error
}

// New describes a job to add. Args is stored as JSON. Lane and Key must not contain a zero byte.
type New struct {
	AccountID string
	Kind      string
	Key       string
	Lane      string
	Args      any
	Due       time.Time // zero or a past time means now
	Resource  store.JobResource
	CreatedBy string
	Steps     []string
	Total     int
}

// A Queue runs jobs. Its exported fields are set before Run. Its clock is the store's.
type Queue struct {
	Store   *store.Store
	Log     *slog.Logger
	Rand    func() float64     // [0,1), for jitter
	Workers int                // maximum number of running jobs
	Grace   time.Duration      // how long running jobs may continue after Run's ctx has ended
	Ended   func(j *store.Job) // called for each job that an attempt has ended; may be nil
	// Added is called in the committer for each added job that is due at once, if the transaction
	// has a cause (see store.Tx.For). It may be nil.
	Added func(cause context.Context, j *store.Job)
	// Began is called at the start of each attempt. It returns the context for Work, which is also
	// the cause of everything that Writes adds. end is called after the commit of the attempt, with
	// its error, or nil if the attempt succeeded or does not count. Began may be nil.
	Began func(ctx context.Context, j *store.Job) (work context.Context, end func(err error))

	kinds     map[string]*Kind
	intervals map[string]time.Duration // of the recurring kinds
	watches   Watchers[string]
	scheduler scheduler
	unread    unreadJobs
	wake      chan struct{} // holds a value when the dispatcher must look for due jobs
	fatal     chan error    // the first error after which the store accepts no more writes
	running   sync.WaitGroup
}

const (
	defaultWorkers = 256
	defaultGrace   = 20 * time.Second
	defaultTimeout = 5 * time.Minute
	maxText        = 2 << 10 // maximum length of a job's error or detail in bytes
)

// NewQueue returns a queue on s. It runs no jobs before Run. A recurring job of the queue itself
// deletes old jobs.
func NewQueue(s *store.Store) *Queue {
	q := &Queue{
		Store: s, Log: slog.Default(), Rand: rand.Float64, Workers: defaultWorkers, Grace: defaultGrace,
		kinds:     map[string]*Kind{},
		intervals: map[string]time.Duration{},
		wake:      make(chan struct{}, 1),
		fatal:     make(chan error, 1),
	}
	q.Handle(Kind{Name: pruneKind, Work: q.prune, Max: 5})
	q.Every(pruneKind, pruneInterval)
	return q
}

// Handle registers a kind of job. It is called before Run, once for each name.
func (q *Queue) Handle(k Kind) {
	if k.Name == "" || k.Work == nil || strings.Contains(k.Name, "\x00") || q.kinds[k.Name] != nil {
		panic(fmt.Sprintf("jobs: kind %q has no name or Work, or is registered twice", k.Name))
	}
	if k.Timeout == 0 {
		k.Timeout = defaultTimeout
	}
	if k.Backoff == nil {
		k.Backoff = Backoff
	}
	k.PerLane = max(k.PerLane, 1)
	q.kinds[k.Name] = &k
}

// Add adds a job to the queue if tx commits. If a job of the same Kind and Key is already queued,
// Add merges the new job into it and returns it. The earlier Due applies, and all other fields of
// New except CreatedBy replace those of the queued job. Its attempts stay counted, and if it is
// parked it stays parked. Add never merges into a running job, which may have read data that has
// changed since.
func (q *Queue) Add(tx *store.Tx, n New) (*store.Job, error) {
	k := q.kinds[n.Kind]
	if k == nil {
		return nil, fmt.Errorf("add job: no handler for kind %q", n.Kind)
	}
	if strings.Contains(n.Lane, "\x00") || strings.Contains(n.Key, "\x00") {
		return nil, fmt.Errorf("add job of kind %s: lane %q or key %q contains a zero byte", n.Kind, n.Lane, n.Key)
	}
	args, err := json.Marshal(n.Args)
	if err != nil {
		return nil, fmt.Errorf("encode arguments of a %s job: %w", n.Kind, err)
	}
	now := tx.Now()
	due := n.Due.UTC().Truncate(time.Millisecond)
	if due.Before(now) {
		due = now
	}
	j, err := q.queuedJob(tx, n.Kind, n.Key)
	if err != nil {
		return nil, err
	}
	if j == nil {
		j = &store.Job{
			ID: tx.NewID("job"), Kind: n.Kind, Key: n.Key, State: store.JobQueued, Due: due,
			Jitter:  uint16(q.Rand() * (1 << 16)),
			Visible: k.Visible, CreatedBy: n.CreatedBy, CreatedAt: now,
		}
	}
	j.AccountID, j.Lane, j.Args, j.Max, j.Resource, j.Total = n.AccountID, n.Lane, args, k.Max, n.Resource, n.Total
	if due.Before(j.Due) && !j.Parked() {
		j.Due = due
	}
	j.Steps = nil
	for _, name := range n.Steps {
		j.Steps = append(j.Steps, store.JobStep{Name: name, Status: store.JobQueued})
	}
	if cause := tx.Cause(); cause != nil && q.Added != nil && !j.Due.After(now) {
		tx.After(func() { q.Added(cause, j) })
	}
	return j, q.put(tx, j)
}

// queuedJob returns the queued job with the key, or nil.
func (q *Queue) queuedJob(tx *store.Tx, kind, key string) (*store.Job, error) {
	if key == "" {
		return nil, nil
	}
	j, err := store.JobByKey.Find(tx, store.JobKey(kind, key))
	if err != nil && isUnread(err) {
		q.recordUnread(queuedID(tx, kind, key), err)
	}
	return j, err
}

// put writes a job in its new state, or deletes it if it has ended and is not Visible. After the
// commit it notifies watchers and the dispatcher.
func (q *Queue) put(tx *store.Tx, j *store.Job) error {
	j.UpdatedAt = tx.Now()
	id, due, queued := j.ID, j.Due, j.State == store.JobQueued
	tx.After(func() {
		q.watches.Changed(id)
		if queued {
			q.scheduler.recordDue(due)
			q.wakeDispatcher()
		}
	})
	if j.Ended() && !j.Visible {
		return store.Jobs.Delete(tx, j.ID)
	}
	return store.Jobs.Put(tx, j)
}

// wakeDispatcher wakes the dispatcher. It never blocks.
func (q *Queue) wakeDispatcher() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Cancel cancels a queued job at once. For a running job it ends ctx: the job is cancelled when
// Work returns an error or the claim ends, and completed if Work succeeds after all. Cancel does
// not change a job that has ended. It returns store.ErrNotFound if there is no such job.
func (q *Queue) Cancel(tx *store.Tx, id string) error {
	j, err := store.Jobs.Get(tx, id)
	if err != nil {
		return err
	}
	switch j.State {
	case store.JobQueued:
		j.State, j.EndedAt = store.JobCancelled, tx.Now()
		return q.end(tx, j)
	case store.JobRunning:
		j.Cancel = true
		tx.After(func() { q.scheduler.cancelWork(id) })
		return q.put(tx, j)
	}
	return nil
}

// Wake makes a queued job due at the time `due`, or now if that is zero or past. A job that is due
// earlier stays so. If the job is running and is then queued again, it becomes due at that time.
// Wake does not change a job that is parked or has ended. It returns store.ErrNotFound if there is
// no such job.
func (q *Queue) Wake(tx *store.Tx, id string, due time.Time) error {
	j, err := store.Jobs.Get(tx, id)
	if err != nil {
		return err
	}
	due = due.UTC().Truncate(time.Millisecond)
	if now := tx.Now(); due.Before(now) {
		due = now
	}
	switch {
	case j.State == store.JobQueued && !j.Parked() && due.Before(j.Due):
		j.Due = due
	case j.State == store.JobRunning && (j.WakeAt.IsZero() || due.Before(j.WakeAt)):
		j.WakeAt = due
	default:
		return nil
	}
	return q.put(tx, j)
}

// CancelKey cancels the queued job with the key, if there is one.
func (q *Queue) CancelKey(tx *store.Tx, kind, key string) error {
	j, err := q.queuedJob(tx, kind, key)
	if j == nil || err != nil {
		return err
	}
	return q.Cancel(tx, j.ID)
}

// Move changes the kind and lane of a queued job and makes it due now; a parked job stays parked.
// Move does not change a job that is running or has ended. It returns store.ErrNotFound if there is
// no such job.
func (q *Queue) Move(tx *store.Tx, id, kind, lane string) error {
	k := q.kinds[kind]
	if k == nil {
		return fmt.Errorf("move job: no handler for kind %q", kind)
	}
	j, err := store.Jobs.Get(tx, id)
	if err != nil || j.State != store.JobQueued {
		return err
	}
	j.Kind, j.Lane, j.Max, j.Visible = kind, lane, k.Max, k.Visible
	if !j.Parked() {
		j.Due = tx.Now()
	}
	return q.put(tx, j)
}

// Args decodes the arguments of a job. Its error wraps ErrArgs.
func Args[T any](j *store.Job) (T, error) {
	var args T
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return args, fmt.Errorf("decode arguments of job %s: %w: %w", j.ID, ErrArgs, err)
	}
	return args, nil
}

// SetArgs replaces the arguments of a job that is queued again, for example to store how far it is.
// It is called in Writes.
func SetArgs(j *store.Job, args any) error {
	data, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("encode arguments of job %s: %w", j.ID, err)
	}
	j.Args = data
	return nil
}
