package jobs

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/store"
)

// A batch is one transaction of claims.
type batch struct {
	q      *Queue
	tx     *store.Tx
	now    time.Time
	budget int // how many more jobs may be touched
	turns  []turn
	jobs   []taken
}

// taken is a job that was claimed in a turn.
type taken struct {
	job  *store.Job
	lane *lane
}

// fill claims one job for each lane, and goes round again while workers are free.
func (b *batch) fill() error {
	for progress := true; progress && b.budget > 0; {
		progress = false
		for i := range b.turns {
			t := &b.turns[i]
			if t.over || b.budget == 0 {
				continue
			}
			if err := b.take(t); err != nil {
				return err
			}
			progress = progress || !t.over
		}
	}
	for i := range b.turns {
		t := &b.turns[i]
		t.more = b.head(t.lane.name) != ""
	}
	return nil
}

// head is the id of the first job of the lane, if that is due; else "".
func (b *batch) head(lane string) string {
	prefix := lane + "\x00"
	for key, id := range store.JobsByLane.Keys(b.tx, prefix, "") {
		if key[len(prefix):len(prefix)+8] <= store.TimeKey(b.now) {
			return id
		}
		break
	}
	return ""
}

// take claims the first job of the turn's lane, or finds that the turn is over.
func (b *batch) take(t *turn) error {
	id := b.head(t.lane.name)
	if id == "" {
		t.over = true
		return nil
	}
	j, err := store.Jobs.Get(b.tx, id)
	if err != nil {
		return err
	}
	k := b.q.kinds[j.Kind]
	if k == nil { // of a newer version, perhaps: to be kept, and out of the others' way
		b.q.Log.Warn("nobody handles this kind of job", "job", j.ID, "kind", j.Kind)
		b.budget--
		j.Due = b.now.Add(putOff)
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
	b.budget--
	t.taken++
	j.State = store.JobRunning
	j.Attempt++
	j.Due = b.now.Add(k.Timeout + slack).Truncate(time.Millisecond)
	if j.StartedAt.IsZero() {
		j.StartedAt = b.now
	}
	b.jobs = append(b.jobs, taken{j, t.lane})
	return b.q.put(b.tx, j)
}

// launch sets to work what was claimed.
func (d *dispatcher) launch(b *batch) {
	claims := make([]*claim, len(b.jobs))
	for i, t := range b.jobs {
		ctx, cancel := context.WithCancelCause(d.base)
		claims[i] = &claim{job: t.job, kind: d.kinds[t.job.Kind], lane: t.lane, base: d.base, ctx: ctx, cancel: cancel}
	}
	d.round.start(b.turns, claims)
	d.running.Add(len(claims))
	for _, c := range claims {
		go d.work(c)
	}
}
