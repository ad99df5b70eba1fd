package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

// A lane is what the scheduler knows of jobs that take turns. It is forgotten when none of them is
// due or runs.
type lane struct {
	name    string // as store.JobsByLane has it
	running int
	limit   int      // how many may run, by the kind that was claimed last
	due     bool     // it may have something due beyond what runs
	listed  bool     // it is ready, parked, or in the dispatcher's hands
	turn    quotaKey // that made it ready for a place which it has not taken; zero if none did
	next    *lane
}

// open reports whether the lane may run one more.
func (l *lane) open() bool { return l.running == 0 || l.running < l.limit }

// A scheduler is the queue's memory: which lanes are ready, and what runs.
type scheduler struct {
	mu          sync.Mutex
	lanes       map[string]*lane
	first, last *lane // those the ready ones, which have something due and are open; next turn first
	waiting     int   // how many those are
	busy        int   // works that have not returned, lost claims included
	claims      map[string]*claim
	quotas      map[quotaKey]*quota // that are used or waited for
	earliest    string              // the lowest due since the dispatcher looked, as a key; "" if there was none
}

// reset forgets everything that no work holds.
func (s *scheduler) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes, s.claims, s.quotas = map[string]*lane{}, map[string]*claim{}, map[quotaKey]*quota{}
	s.first, s.last, s.waiting = nil, nil, 0
}

// noteDue notes that a job has become due at a time that the dispatcher may have passed already.
func (s *scheduler) noteDue(due time.Time) {
	key := store.TimeKey(due)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.earliest == "" || key < s.earliest {
		s.earliest = key
	}
}

// takeEarliest answers what noteDue noted and forgets it, and how many more lanes there is room
// for.
func (s *scheduler) takeEarliest() (low string, room int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	low, s.earliest = s.earliest, ""
	return low, maxLanes - s.waiting
}

// markDue notes that the lanes have something due.
func (s *scheduler) markDue(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		l := s.lanes[name]
		if l == nil {
			l = &lane{name: name}
			s.lanes[name] = l
		}
		l.due = true
		s.reschedule(l)
	}
}

// reschedule puts a lane where it belongs: among the ready ones, aside until one of its jobs ends,
// or out of memory.
func (s *scheduler) reschedule(l *lane) {
	switch {
	case l.listed:
	case l.due && l.open():
		s.push(l)
	case !l.due && l.running == 0:
		delete(s.lanes, l.name)
	}
}

func (s *scheduler) push(l *lane) {
	l.listed = true
	if s.last == nil {
		s.first = l
	} else {
		s.last.next = l
	}
	s.last = l
	s.waiting++
}

// slots gives a slot to each ready lane, at most as many as workers are free. It also says how many
// workers are free, and how much of each quota is used.
func (s *scheduler) slots(workers, most int) (slots []slot, free int, used map[quotaKey]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free = min(workers-s.busy, most)
	for len(slots) < free && s.first != nil {
		l := s.first
		s.first = l.next
		if s.first == nil {
			s.last = nil
		}
		l.next = nil
		s.waiting--
		slots = append(slots, slot{lane: l, running: l.running, limit: l.limit})
	}
	return slots, free, s.used()
}

// ready reports whether a lane waits for a worker that is free.
func (s *scheduler) ready(workers int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first != nil && s.busy < workers
}

// giveBackSlots ends slots in which nothing was claimed because the store took no write.
func (s *scheduler) giveBackSlots(slots []slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range slots {
		t.lane.listed = false
		s.reschedule(t.lane)
	}
}

// start ends slots, and notes the claims that came of them.
func (s *scheduler) start(slots []slot, claims []*claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost []slot
	for _, t := range slots {
		t.lane.listed = false
		t.lane.running += t.taken
		t.lane.limit = t.limit
		t.lane.due = t.more
		if t.taken > 0 {
			t.lane.turn = quotaKey{}
		}
		switch parks := t.full != nil && t.lane.due && t.lane.open(); {
		case parks && t.lane.turn == t.full.key:
			lost = append(lost, t)
		case parks:
			s.park(t.lane, t.full)
		default:
			s.reschedule(t.lane)
		}
	}
	s.parkFirst(lost)
	s.busy += len(claims)
	for _, c := range claims {
		s.claims[c.job.ID] = c
		s.count(c, 1)
	}
	s.resume() // what has returned since the slots were given found nobody waiting
}

// abandon takes the lane back from a claim that is over while its work goes on.
func (s *scheduler) abandon(id string, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[id]; c != nil && c.job.Attempt == attempt {
		s.release(c)
	}
}

// left is how much of its time a claim has left; not above 0 where it is over or not known.
func (s *scheduler) left(id string, attempt int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[id]; c != nil && c.job.Attempt == attempt {
		return time.Until(c.over)
	}
	return 0
}

// finish notes that the work of a claim has returned.
func (s *scheduler) finish(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.count(c, -1)
	c.ended = true
	defer s.resume()
	if s.claims[c.job.ID] == c {
		s.release(c)
	}
}

// mayChain reports whether the worker of a claim may go on with the lane's next job: only if no
// lane waits for a worker, or for the claim's place in its quota.
func (s *scheduler) mayChain(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.lane.due && s.first == nil && !s.quotaWanted(c) && s.claims[c.job.ID] == c
}

// chain puts a claim in the place of one that has ended. Whether more of the lane is due, the
// dispatcher finds out.
func (s *scheduler) chain(ended, next *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, ended.job.ID)
	s.claims[next.job.ID] = next
	s.count(ended, -1)
	ended.ended = true
	s.count(next, 1)
}

func (s *scheduler) release(c *claim) {
	delete(s.claims, c.job.ID)
	c.lane.running--
	s.reschedule(c.lane)
}

// cancel ends the ctx of the job's work, if it runs.
func (s *scheduler) cancel(id string) {
	s.mu.Lock()
	c := s.claims[id]
	s.mu.Unlock()
	if c != nil {
		c.cancel(errCancelled)
	}
}

// A slot is what one lane gets in one transaction of claims.
type slot struct {
	lane    *lane
	running int // when the slot was given
	taken   int
	limit   int
	more    bool       // something is due beyond what was taken
	over    bool       // nothing more can be taken
	full    *fullQuota // that has no place for its next job
}

// A claim is one attempt of one job, from the transaction that counts it to the one that ends it.
type claim struct {
	job      *store.Job
	kind     *Kind
	lane     *lane
	base     context.Context // ends when the queue stops in earnest
	ctx      context.Context // ends then, and when the job is cancelled
	cancel   context.CancelCauseFunc
	over     time.Time // by the machine's clock; the job's Due says so by the calendar, which may be set
	progress progress
	cleanup  cleanup

	// Guarded by the scheduler.
	ended     bool // its work has returned
	acquitted bool // it is a suspect that has gone on for long enough
}
