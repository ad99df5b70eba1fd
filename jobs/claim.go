package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store"
)

// A batch is one transaction of claims.
type batch struct {
	q      *Queue
	tx     *store.Tx
	now    time.Time
	budget int // how many more jobs may be touched
	used   map[quotaKey]int
	slots  []slot
	jobs   []claimedJob
}

// A claimedJob is a job that was claimed in a slot.
type claimedJob struct {
	job  *store.Job
	lane *lane
}

// fill claims one job for each lane, and goes round again while workers are free.
func (b *batch) fill() error {
	for progress := true; progress && b.budget > 0; {
		progress = false
		for i := range b.slots {
			if b.tx.Large() {
				b.budget = 0 // the others are claimed in the next transaction
			}
			t := &b.slots[i]
			if t.over || b.budget == 0 {
				continue
			}
			if err := b.take(t); err != nil {
				return err
			}
			progress = progress || !t.over
		}
	}
	for i := range b.slots {
		t := &b.slots[i]
		t.more = b.head(t.lane.name) != ""
	}
	return nil
}

// head is the id of the first job of the lane whose row can be read, if that is due; else "".
func (b *batch) head(lane string) string {
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

// take claims the first job of the slot's lane, or finds that the slot is over.
func (b *batch) take(t *slot) error {
	id := b.head(t.lane.name)
	if id == "" {
		t.over = true
		return nil
	}
	j, err := store.Jobs.Get(b.tx, id)
	if err != nil {
		if isUnread(err) {
			b.q.noteUnread(id, err) // head passes over it from now on
			return nil
		}
		return err
	}
	k := b.q.kinds[j.Kind]
	if k == nil { // of a newer version, perhaps: to be kept, and out of the others' way
		b.q.noteUnread(j.ID, fmt.Errorf("nobody handles jobs of kind %s", j.Kind))
		b.budget--
		j.Due = b.now.Add(unhandledWait)
		return b.q.put(b.tx, j)
	}
	t.limit = k.Lanes
	if j.Lane == "" {
		t.limit = b.q.Workers
	}
	if t.running+t.taken >= t.limit {
		t.over = true
		return nil
	}
	t.full = b.takeQuota(j, k)
	if t.full != nil {
		t.over = true
		return nil
	}
	b.budget--
	t.taken++
	b.jobs = append(b.jobs, claimedJob{j, t.lane})
	return b.claim(j, k)
}

// claim counts an attempt, and moves the due of the job to the end of its claim.
func (b *batch) claim(j *store.Job, k *Kind) error {
	j.State = store.JobRunning
	j.Attempt++
	j.Due = b.now.Add(k.Timeout + slack).Truncate(time.Millisecond)
	if j.StartedAt.IsZero() {
		j.StartedAt = b.now
	}
	return b.q.put(b.tx, j)
}

// launch sets to work what was claimed.
func (d *dispatcher) launch(b *batch) {
	claims := make([]*claim, len(b.jobs))
	for i, t := range b.jobs {
		claims[i] = d.newClaim(t.job, t.lane)
	}
	d.scheduler.start(b.slots, claims)
	d.running.Add(len(claims))
	for _, c := range claims {
		if c.job.Crashes > 0 {
			time.AfterFunc(suspectFor, func() { d.acquit(c) })
		}
		go d.work(c)
	}
}

func (d *dispatcher) newClaim(j *store.Job, l *lane) *claim {
	ctx, cancel := context.WithCancelCause(d.base)
	k := d.kinds[j.Kind]
	return &claim{job: j, kind: k, lane: l, base: d.base, ctx: ctx, cancel: cancel, over: time.Now().Add(k.Timeout + slack)}
}

// chain claims the first job of the lane of a claim that ends in the same transaction, if it is
// due and of the same kind. As it takes that claim's place, no more of the lane run than before.
// begun is called once that is committed.
func (d *dispatcher) chain(tx *store.Tx, c *claim, begun func(*claim)) error {
	b := &batch{q: d.Queue, tx: tx, now: tx.Now()}
	id := b.head(c.lane.name)
	if id == "" {
		return nil
	}
	j, err := store.Jobs.Get(tx, id)
	if err != nil || j.Kind != c.kind.Name || j.Crashes > 0 || c.kind.MostEach > 0 && j.AccountID != c.job.AccountID {
		return nil // what is wrong with the next job, the dispatcher will meet; it is not this one's concern
	}
	tx.After(func() {
		n := d.newClaim(j, c.lane)
		d.scheduler.chain(c, n)
		begun(n)
	})
	return b.claim(j, c.kind)
}
