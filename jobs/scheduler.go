package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

// A lane is the scheduler's state of one lane. It is removed when no job of the lane is due or
// running.
type lane struct {
	name    string // as in store.JobsByLane
	running int
	limit   int        // maximum number of running jobs, by the kind that was claimed last
	due     bool       // it may have due jobs besides the running ones
	listed  bool       // it is ready, parked, or has a slot
	wants   *fullQuota // the quota for which it is parked
	kept    []quotaKey // the quotas that keep a place for its next job, from the end of parking to the lane's slot
	next    *lane
}

// mayRunMore reports whether the lane may run another job.
func (l *lane) mayRunMore() bool { return l.running == 0 || l.running < l.limit }

// A scheduler holds the queue's state in memory: the ready lanes and the running claims.
type scheduler struct {
	mu          sync.Mutex
	lanes       map[string]*lane
	first, last *lane // list of ready lanes: those with due jobs that may run one more; next turn first
	readyLanes  int   // number of ready lanes
	busy        int   // running attempts, including those of lost claims
	claims      map[string]*claim
	quotas      map[quotaKey]*quota // quotas that are used or waited for
	earliest    string              // key of the lowest due time recorded since the last scan; "" if none
}

// reset clears all state except busy.
func (s *scheduler) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes, s.claims, s.quotas = map[string]*lane{}, map[string]*claim{}, map[quotaKey]*quota{}
	s.first, s.last, s.readyLanes = nil, nil, 0
}

// recordDue records the due time of a queued job, since the dispatcher's scan may have passed it
// already.
func (s *scheduler) recordDue(due time.Time) {
	key := store.TimeKey(due)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.earliest == "" || key < s.earliest {
		s.earliest = key
	}
}

// takeEarliest returns and clears the lowest due time from recordDue, and returns how many more
// lanes there is room for.
func (s *scheduler) takeEarliest() (low string, room int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	low, s.earliest = s.earliest, ""
	return low, maxLanes - s.readyLanes
}

// markDue records that the lanes have due jobs.
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

// reschedule adds a lane to the ready lanes if it has due jobs and may run one more. It removes the
// lane from memory if no job of it is due or running.
func (s *scheduler) reschedule(l *lane) {
	switch {
	case l.listed:
	case l.due && l.mayRunMore():
		s.addReady(l)
	case !l.due && l.running == 0:
		delete(s.lanes, l.name)
	}
}

func (s *scheduler) addReady(l *lane) {
	l.listed = true
	if s.last == nil {
		s.first = l
	} else {
		s.last.next = l
	}
	s.last = l
	s.readyLanes++
}

// slots returns a slot for each ready lane, at most one per free worker. It also returns the number
// of free workers, limited to `most`, and the number of taken and kept places of each quota.
func (s *scheduler) slots(workers, most int) (slots []claimSlot, free int, used map[quotaKey]int) {
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
		s.readyLanes--
		slots = append(slots, claimSlot{lane: l, running: l.running, limit: l.limit, kept: l.kept})
	}
	return slots, free, s.quotaUse()
}

// canClaim reports whether there are a ready lane and a free worker.
func (s *scheduler) canClaim(workers int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first != nil && s.busy < workers
}

// giveBackSlots ends slots without claims after the store refused the transaction.
func (s *scheduler) giveBackSlots(slots []claimSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range slots {
		t.lane.listed = false
		s.reschedule(t.lane)
	}
}

// recordClaims ends the slots of a transaction and records the claims that it has made.
func (s *scheduler) recordClaims(slots []claimSlot, claims []*claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range slots {
		t.lane.listed = false
		t.lane.running += t.taken
		t.lane.limit = t.limit
		t.lane.due = t.more
		if t.taken > 0 || t.exhausted || !t.more {
			s.giveUpPlaces(t.lane)
		}
		if t.full != nil && t.lane.due && t.lane.mayRunMore() {
			s.parkLane(t.lane, t.full)
		} else {
			s.reschedule(t.lane)
		}
	}
	s.busy += len(claims)
	for _, c := range claims {
		s.claims[c.job.ID] = c
		s.countInQuotas(c, 1)
	}
	s.resumeLanes() // wake lanes that were parked here although attempts have ended since slots was called
}

// abandonClaim frees the lane of a claim that has lapsed while its Work is still running.
func (s *scheduler) abandonClaim(id string, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[id]; c != nil && c.job.Attempt == attempt {
		s.releaseClaim(c)
	}
}

// timeLeft returns the remaining time of a claim; 0 or less if it has lapsed or is unknown.
func (s *scheduler) timeLeft(id string, attempt int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[id]; c != nil && c.job.Attempt == attempt {
		return time.Until(c.expires)
	}
	return 0
}

// finishClaim records that the Work of a claim has returned.
func (s *scheduler) finishClaim(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.countInQuotas(c, -1)
	c.ended = true
	defer s.resumeLanes()
	if s.claims[c.job.ID] == c {
		s.releaseClaim(c)
	}
}

// mayChain reports whether the worker of a claim may continue with the lane's next job. It may not
// if a lane waits for a worker or for the claim's place in a quota.
func (s *scheduler) mayChain(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.lane.due && s.first == nil && !s.isQuotaWanted(c) && s.claims[c.job.ID] == c
}

// replaceClaim replaces an ended claim by the next one of the lane. It does not change the lane's
// due flag.
func (s *scheduler) replaceClaim(ended, next *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, ended.job.ID)
	s.claims[next.job.ID] = next
	s.countInQuotas(ended, -1)
	ended.ended = true
	s.countInQuotas(next, 1)
}

func (s *scheduler) releaseClaim(c *claim) {
	delete(s.claims, c.job.ID)
	c.lane.running--
	s.reschedule(c.lane)
}

// cancelWork ends the ctx of the job's Work if the job is running.
func (s *scheduler) cancelWork(id string) {
	s.mu.Lock()
	c := s.claims[id]
	s.mu.Unlock()
	if c != nil {
		c.cancel(errCancelled)
	}
}

// A claimSlot is a lane's turn in one transaction of claims.
type claimSlot struct {
	lane      *lane
	kept      []quotaKey // the quotas that keep a place for the lane's next job
	running   int        // running jobs of the lane at the start of the slot
	taken     int        // jobs claimed for the lane so far
	limit     int        // maximum number of running jobs of the lane
	more      bool       // more jobs are due than were taken
	exhausted bool       // no more jobs can be taken
	full      *fullQuota // the quota without room for the next job, or nil
}

// A claim is one attempt of one job, from the transaction that starts it to the one that ends it.
type claim struct {
	job      *store.Job
	kind     *Kind
	lane     *lane
	base     context.Context // ends when the queue stops, after Grace
	ctx      context.Context // ends with base, and when the job is cancelled
	cancel   context.CancelCauseFunc
	expires  time.Time // end of the claim by the monotonic clock; Due is by the wall clock, which may be set
	progress progress
	cleanup  cleanup

	// Guarded by scheduler.mu.
	ended        bool // Work has returned
	suspectFreed bool // it is a suspect that has run for suspectFor
}
