package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store"
)

// A claimBatch holds the claims of one transaction.
type claimBatch struct {
	q      *Queue
	tx     *store.Tx
	now    time.Time
	budget int              // how many more jobs may be changed
	used   map[quotaKey]int // attempts that run, or were claimed, by quota
	slots  []claimSlot
	jobs   []claimedJob
}

// A claimedJob is a job that was claimed, with its lane.
type claimedJob struct {
	job  *store.Job
	lane *lane
}

// fillSlots claims one job for each slot in turn, round after round, until the budget is used up or
// no slot can take another job.
func (b *claimBatch) fillSlots() error {
	for progress := true; progress && b.budget > 0; {
		progress = false
		for i := range b.slots {
			if b.tx.IsLarge() {
				b.budget = 0 // claim the rest in the next transaction
			}
			t := &b.slots[i]
			if t.exhausted || b.budget == 0 {
				continue
			}
			if err := b.claimNext(t); err != nil {
				return err
			}
			progress = progress || !t.exhausted
		}
	}
	for i := range b.slots {
		t := &b.slots[i]
		t.more = b.firstDueID(t.lane.name) != ""
	}
	return nil
}

// firstDueID returns the id of the first job of the lane with a readable row. It returns "" if that
// job is not due, or if there is no such job.
func (b *claimBatch) firstDueID(lane string) string {
	prefix := lane + "\x00"
	for key, id := range store.JobsByLane.Keys(b.tx, prefix, "") {
		if key[len(prefix):len(prefix)+8] > store.TimeKey(b.now) {
			break
		}
		if !b.q.isUnreadable(id) {
			return id
		}
	}
	return ""
}

// claimNext claims the first job of the slot's lane, or sets exhausted if the slot can take no
// more.
func (b *claimBatch) claimNext(t *claimSlot) error {
	id := b.firstDueID(t.lane.name)
	if id == "" {
		t.exhausted = true
		return nil
	}
	j, err := store.Jobs.Get(b.tx, id)
	if err != nil {
		if isUnread(err) {
			b.q.recordUnread(id, err) // firstDueID skips it from now on
			return nil
		}
		return err
	}
	k := b.q.kinds[j.Kind]
	if k == nil { // perhaps of a newer version: keep it, but let other jobs pass
		b.q.recordUnread(j.ID, fmt.Errorf("no handler for jobs of kind %s", j.Kind))
		b.budget--
		j.Due = b.now.Add(unhandledWait)
		return b.q.put(b.tx, j)
	}
	t.limit = k.PerLane
	if j.Lane == "" {
		t.limit = b.q.Workers
	}
	if t.running+t.taken >= t.limit {
		t.exhausted = true
		return nil
	}
	t.full = b.takeQuota(t, j, k)
	if t.full != nil {
		t.exhausted = true
		return nil
	}
	b.budget--
	t.taken++
	b.jobs = append(b.jobs, claimedJob{j, t.lane})
	return b.startAttempt(j, k)
}

// startAttempt starts an attempt: it increments Attempt and sets Due to the end of the claim.
func (b *claimBatch) startAttempt(j *store.Job, k *Kind) error {
	j.State = store.JobRunning
	j.Attempt++
	j.Due = b.now.Add(k.Timeout + claimSlack).Truncate(time.Millisecond)
	if j.StartedAt.IsZero() {
		j.StartedAt = b.now
	}
	return b.q.put(b.tx, j)
}

// launchWorkers starts a worker for each claimed job.
func (d *dispatcher) launchWorkers(b *claimBatch) {
	claims := make([]*claim, len(b.jobs))
	for i, t := range b.jobs {
		claims[i] = d.newClaim(t.job, t.lane)
	}
	d.scheduler.recordClaims(b.slots, claims)
	d.running.Add(len(claims))
	for _, c := range claims {
		if c.job.Crashes > 0 {
			time.AfterFunc(suspectFor, func() { d.freeSuspectQuota(c) })
		}
		go d.work(c)
	}
}

func (d *dispatcher) newClaim(j *store.Job, l *lane) *claim {
	ctx, cancel := context.WithCancelCause(d.base)
	k := d.kinds[j.Kind]
	return &claim{job: j, kind: k, lane: l, base: d.base, ctx: ctx, cancel: cancel, expires: time.Now().Add(k.Timeout + claimSlack)}
}

// claimNextOf claims the next job of c's lane in the transaction that ends c, if that job is due
// and of the same kind. The new claim takes the place of c, so the number of running jobs in the
// lane stays the same. claimNextOf calls begun with the new claim after the commit.
func (d *dispatcher) claimNextOf(tx *store.Tx, c *claim, begun func(*claim)) error {
	b := &claimBatch{q: d.Queue, tx: tx, now: tx.Now()}
	id := b.firstDueID(c.lane.name)
	if id == "" {
		return nil
	}
	j, err := store.Jobs.Get(tx, id)
	if err != nil || j.Kind != c.kind.Name || j.Crashes > 0 || c.kind.MostEach > 0 && j.AccountID != c.job.AccountID {
		return nil // leave problems with the next job to the dispatcher: c must not fail because of them
	}
	tx.After(func() {
		n := d.newClaim(j, c.lane)
		d.scheduler.replaceClaim(c, n)
		begun(n)
	})
	return b.startAttempt(j, c.kind)
}
