package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

// A lane is what the round knows of jobs that take turns. It is forgotten when none of them is due
// or runs.
type lane struct {
	name    string // as store.JobsByLane has it
	running int
	limit   int  // how many may run, by the kind that was claimed last
	due     bool // it may have something due beyond what runs
	listed  bool // it is in the round, aside, or in the dispatcher's hands
	next    *lane
}

// open tells whether the lane may run one more.
func (l *lane) open() bool { return l.running == 0 || l.running < l.limit }

// A round is the queue's memory: which lanes have their turn next, and what runs.
type round struct {
	mu          sync.Mutex
	lanes       map[string]*lane
	first, last *lane // those that have something due and are open, next turn first
	waiting     int   // how many those are
	busy        int   // works that have not returned, lost claims included
	claims      map[string]*claim
	shares      map[shareKey]*share // that are used or waited for
	low         string              // the lowest due since the dispatcher looked, as a key; "" if there was none
}

// reset forgets everything that no work holds.
func (r *round) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lanes, r.claims, r.shares = map[string]*lane{}, map[string]*claim{}, map[shareKey]*share{}
	r.first, r.last, r.waiting = nil, nil, 0
}

// lower notes that a job has become due at a time that the dispatcher may have passed already.
func (r *round) lower(due time.Time) {
	key := store.TimeKey(due)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.low == "" || key < r.low {
		r.low = key
	}
}

// takeLow answers what lower noted and forgets it, and how many more lanes there is room for.
func (r *round) takeLow() (low string, room int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	low, r.low = r.low, ""
	return low, maxLanes - r.waiting
}

// mark notes that the lanes have something due.
func (r *round) mark(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		l := r.lanes[name]
		if l == nil {
			l = &lane{name: name}
			r.lanes[name] = l
		}
		l.due = true
		r.settle(l)
	}
}

// settle puts a lane where it belongs: into the round, aside until one of its jobs ends, or out of
// memory.
func (r *round) settle(l *lane) {
	switch {
	case l.listed:
	case l.due && l.open():
		r.push(l)
	case !l.due && l.running == 0:
		delete(r.lanes, l.name)
	}
}

func (r *round) push(l *lane) {
	l.listed = true
	if r.last == nil {
		r.first = l
	} else {
		r.last.next = l
	}
	r.last = l
	r.waiting++
}

// turns takes the lanes whose turn it is out of the round, one for each free worker at most, and
// says how many workers are free and how much of each share is used.
func (r *round) turns(workers, most int) (turns []turn, free int, used map[shareKey]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	free = min(workers-r.busy, most)
	for len(turns) < free && r.first != nil {
		l := r.first
		if r.first = l.next; r.first == nil {
			r.last = nil
		}
		l.next = nil
		r.waiting--
		turns = append(turns, turn{lane: l, running: l.running, limit: l.limit})
	}
	return turns, free, r.used()
}

// ready tells whether a lane waits for a worker that is free.
func (r *round) ready(workers int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first != nil && r.busy < workers
}

// giveBack ends turns in which nothing was claimed because the store took no write.
func (r *round) giveBack(turns []turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range turns {
		t.lane.listed = false
		r.settle(t.lane)
	}
}

// start ends turns, and notes the claims that came of them.
func (r *round) start(turns []turn, claims []*claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range turns {
		t.lane.listed = false
		t.lane.running += t.taken
		t.lane.limit = t.limit
		t.lane.due = t.more
		if t.full != nil && t.lane.due && t.lane.open() {
			r.putAside(t.lane, t.full)
			continue
		}
		r.settle(t.lane)
	}
	r.busy += len(claims)
	for _, c := range claims {
		r.claims[c.job.ID] = c
		r.count(c, 1)
	}
	r.resume() // what has returned since the turns were taken found nobody waiting
}

// lose takes the lane back from a claim that is over while its work goes on.
func (r *round) lose(id string, attempt int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.claims[id]; c != nil && c.job.Attempt == attempt {
		r.release(c)
	}
}

// finish notes that the work of a claim has returned.
func (r *round) finish(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	r.count(c, -1)
	defer r.resume()
	if r.claims[c.job.ID] == c {
		r.release(c)
	}
}

// mayFollow tells whether the worker of a claim may go on with the lane's next job: only if no lane
// waits for a worker, or for the claim's place in its share.
func (r *round) mayFollow(c *claim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.lane.due && r.first == nil && !r.waited(c) && r.claims[c.job.ID] == c
}

// follow puts a claim in the place of one that has ended. Whether more of the lane is due, the
// dispatcher finds out.
func (r *round) follow(ended, next *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.claims, ended.job.ID)
	r.claims[next.job.ID] = next
	r.count(ended, -1)
	r.count(next, 1)
}

func (r *round) release(c *claim) {
	delete(r.claims, c.job.ID)
	c.lane.running--
	r.settle(c.lane)
}

// cancel ends the ctx of the job's work, if it runs.
func (r *round) cancel(id string) {
	r.mu.Lock()
	c := r.claims[id]
	r.mu.Unlock()
	if c != nil {
		c.cancel(errCancelled)
	}
}

// A turn is what one lane gets in one transaction of claims.
type turn struct {
	lane    *lane
	running int // when the turn began
	taken   int
	limit   int
	more    bool       // something is due beyond what was taken
	over    bool       // nothing more can be taken
	full    *fullShare // that has no place for its next job
}

// A claim is one attempt of one job, from the transaction that counts it to the one that ends it.
type claim struct {
	job    *store.Job
	kind   *Kind
	lane   *lane
	base   context.Context // ends when the queue stops in earnest
	ctx    context.Context // ends then, and when the job is cancelled
	cancel context.CancelCauseFunc
	news   news
	last   last
}
