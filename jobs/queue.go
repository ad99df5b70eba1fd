// Package jobs is the durable queue: what is added in a transaction is done after it, until it
// succeeds or is given up. It does not know any kind of work, what arguments mean, or who may see a
// job.
//
// The way of a job:
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
// Each arrow is one transaction. The world outside sees a job's work at least once; what Work
// returns as Writes is committed exactly once, with the arrow. There is no other lease than the
// index of dues: a job whose claim is over is simply due. The queue has its store for itself, so
// what is in progress when Run starts was cut by a crash and is due at once.
//
// Lanes keep one dead peer from holding up others. The dispatcher walks the index of dues once,
// reading keys alone, and remembers for each name of a lane that it has something due; lanes then
// take turns, one job each, and the store finds the first job of a lane at once. A lane that runs
// as many as it may is not ready until one of them ends. So a job costs the same whether a
// hundred thousand others wait in its lane or none, and memory holds names of lanes, a bounded
// number, never of jobs that wait, but for ids of those whose rows cannot be read: these stay where
// they are, and their lanes go on behind them.
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

// Work does a job once, outside any transaction. ctx ends when the claim does, when the job is
// cancelled and when the queue stops. j is a copy: what is to be kept goes into Writes. Work may be
// called again for a job that it has done, after a crash, so it must be able to find that out. The
// error decides what comes next: see Permanent, RetryAt and Snooze; any other error is tried again
// after the kind's Backoff.
type Work func(ctx context.Context, j *store.Job) (Writes, error)

// Writes is committed together with the job's new state, whichever that is; it may be nil. j has
// the new State, Due, Err and EndedAt already; Writes may set its Result, Steps and Detail. Like
// every transaction function it may run twice. An error undoes the transaction and counts as the
// work's.
type Writes func(tx *store.Tx, j *store.Job) error

// A Kind is one sort of job.
type Kind struct {
	Name    string
	Work    Work
	Max     int           // attempts; 0 = no limit
	Timeout time.Duration // of one attempt; 5 minutes if 0
	// Backoff is how long to wait after the attempt (from 1). r, in [0,1), is the same for all
	// attempts of one job, so that waits which rise without it rise with it. Backoff of 5 s to an
	// hour if nil.
	Backoff func(attempt int, r float64) time.Duration
	Lanes   int // how many of one lane run at a time; 1 if 0
	// Most is how many run at a time in all lanes together, and MostEach how many of one account; 0
	// = no limit. A kind that waits for strangers has both, so that they cannot have every worker
	// wait for them. Its jobs have lanes of their own: a lane waits with its first job.
	Most, MostEach int
	Visible        bool // kept for 30 days after its end, and shown in GET /v1/jobs
	// Parked runs in the transaction that parks the job, since the process has ended each time that
	// it ran. It is neither lost nor given up: Work runs again at its Due, or when the operator
	// says so. Where Work has nothing to do any more, Parked may take ParkedAt back.
	Parked func(tx *store.Tx, j *store.Job) error
	// Failed runs in the transaction that gives the job up, after Writes.
	Failed func(tx *store.Tx, j *store.Job, err error) error
}

// New is a job to be. Args is kept as JSON. Lane and Key hold no zero byte.
type New struct {
	AccountID string
	Kind      string
	Key       string
	Lane      string
	Args      any
	Due       time.Time // zero or past: now
	Resource  store.JobResource
	CreatedBy string
	Steps     []string
	Total     int
}

// A Queue does jobs. Its exported fields are set before Run; its clock is the store's.
type Queue struct {
	Store   *store.Store
	Log     *slog.Logger
	Rand    func() float64     // [0,1), for jitter
	Workers int                // how many jobs run at a time
	Grace   time.Duration      // how long running work may go on after Run's ctx has ended
	Ended   func(j *store.Job) // told of each job whose last attempt has ended; nil: nobody is
	// Added is called for each job that is due at once and was added in a transaction with a cause
	// (see store.Tx.For), in the committer; nil: nobody is.
	Added func(cause context.Context, j *store.Job)
	// Began is called for each attempt, and gives the context of its work, which is the cause of
	// what its Writes add too. end is called when that is committed: err is why the attempt has
	// failed; nil where it has not, or does not count. nil: nobody is told.
	Began func(ctx context.Context, j *store.Job) (work context.Context, end func(err error))

	kinds     map[string]*Kind
	every     map[string]time.Duration
	watches   Watchers[string]
	scheduler scheduler
	unread    unreadJobs
	wake      chan struct{} // holds a value when the dispatcher has something to look at
	fatal     chan error    // the first error after which the store takes nothing more
	running   sync.WaitGroup
}

const (
	defaultWorkers = 256
	defaultGrace   = 20 * time.Second
	defaultTimeout = 5 * time.Minute
	maxText        = 2 << 10 // bytes of an error or detail that a job keeps
)

// NewQueue returns a queue on s that does nothing before Run. It prunes its own old jobs.
func NewQueue(s *store.Store) *Queue {
	q := &Queue{
		Store: s, Log: slog.Default(), Rand: rand.Float64, Workers: defaultWorkers, Grace: defaultGrace,
		kinds: map[string]*Kind{},
		every: map[string]time.Duration{},
		wake:  make(chan struct{}, 1),
		fatal: make(chan error, 1),
	}
	q.Handle(Kind{Name: pruneKind, Work: q.prune, Max: 5})
	q.Every(pruneKind, pruneInterval)
	return q
}

// Handle says how jobs of a kind are done. It is called before Run, once for each name.
func (q *Queue) Handle(k Kind) {
	if k.Name == "" || k.Work == nil || strings.Contains(k.Name, "\x00") || q.kinds[k.Name] != nil {
		panic(fmt.Sprintf("jobs: kind %q has no name or work, or is handled twice", k.Name))
	}
	if k.Timeout == 0 {
		k.Timeout = defaultTimeout
	}
	if k.Backoff == nil {
		k.Backoff = Backoff
	}
	k.Lanes = max(k.Lanes, 1)
	q.kinds[k.Name] = &k
}

// Add puts a job into the queue if and only if tx commits. If one of the same Kind and Key waits
// already, Add folds the new one into it and returns that: the earlier Due wins, all else that New
// says, but not who created it, is replaced by the new one's; its attempts stay counted, and it
// stays parked if it is. A job that
// runs is never folded into: what it was given may have changed since it looked.
func (q *Queue) Add(tx *store.Tx, n New) (*store.Job, error) {
	k := q.kinds[n.Kind]
	if k == nil {
		return nil, fmt.Errorf("add job: nobody handles kind %q", n.Kind)
	}
	if strings.Contains(n.Lane, "\x00") || strings.Contains(n.Key, "\x00") {
		return nil, fmt.Errorf("add job of kind %s: lane %q or key %q holds a zero byte", n.Kind, n.Lane, n.Key)
	}
	args, err := json.Marshal(n.Args)
	if err != nil {
		return nil, fmt.Errorf("write arguments of a %s job: %w", n.Kind, err)
	}
	now := tx.Now()
	due := n.Due.UTC().Truncate(time.Millisecond)
	if due.Before(now) {
		due = now
	}
	j, err := q.waiting(tx, n.Kind, n.Key)
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

// waiting is the queued job with the key, or nil.
func (q *Queue) waiting(tx *store.Tx, kind, key string) (*store.Job, error) {
	if key == "" {
		return nil, nil
	}
	j, err := store.JobByKey.Find(tx, store.JobKey(kind, key))
	if err != nil && isUnread(err) {
		q.noteUnread(waitingID(tx, kind, key), err)
	}
	return j, err
}

// put writes a job in its new state, or deletes it if it has ended and nobody is to see it, and
// tells whoever waits.
func (q *Queue) put(tx *store.Tx, j *store.Job) error {
	j.UpdatedAt = tx.Now()
	id, due, queued := j.ID, j.Due, j.State == store.JobQueued
	tx.After(func() {
		q.watches.Changed(id)
		if queued {
			q.scheduler.noteDue(due)
			q.signal()
		}
	})
	if j.Ended() && !j.Visible {
		return store.Jobs.Delete(tx, j.ID)
	}
	return store.Jobs.Put(tx, j)
}

// signal has the dispatcher look again; it never blocks.
func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Cancel ends a waiting job. A running one is told by its ctx, and is cancelled when Work returns
// an error, at the latest when its claim is over; if Work has succeeded all the same, it is
// completed. What has ended stays as it is. Cancel returns store.ErrNotFound for what is not there.
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
		tx.After(func() { q.scheduler.cancel(id) })
		return q.put(tx, j)
	}
	return nil
}

// Wake makes a waiting job due at due, or now if that is zero or past, unless it is due sooner. A
// running job that goes back to waiting is due then. What is parked or has ended stays as it is.
// Wake returns store.ErrNotFound for what is not there.
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

// CancelKey cancels the job that waits with the key, if one does.
func (q *Queue) CancelKey(tx *store.Tx, kind, key string) error {
	j, err := q.waiting(tx, kind, key)
	if j == nil || err != nil {
		return err
	}
	return q.Cancel(tx, j.ID)
}

// Move has a waiting job be done now, as one of another kind in another lane; a parked one stays
// parked. What runs or has ended stays as it is. Move returns store.ErrNotFound for what is not
// there.
func (q *Queue) Move(tx *store.Tx, id, kind, lane string) error {
	k := q.kinds[kind]
	if k == nil {
		return fmt.Errorf("move job: nobody handles kind %q", kind)
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

// Args reads the arguments that a job was added with. The error is ErrArgs.
func Args[T any](j *store.Job) (T, error) {
	var args T
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return args, fmt.Errorf("read arguments of job %s: %w: %w", j.ID, ErrArgs, err)
	}
	return args, nil
}

// SetArgs has a job that goes back to waiting be done with other arguments, such as how far it is.
// It is for Writes.
func SetArgs(j *store.Job, args any) error {
	data, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("write arguments of job %s: %w", j.ID, err)
	}
	j.Args = data
	return nil
}
