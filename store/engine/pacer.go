package engine

import (
	"cmp"
	"context"
	"syscall"
	"time"
)

// How long background work works between two rests, how long a rest is at least and at most, as
// shares of that, and what of a processor others take who are busy.
const (
	paceWork  = 20 * time.Millisecond
	paceShort = 1.0 / 8
	paceLong  = 4
	paceBusy  = 1.0 / 4
	// paceMost is what of one step counts, which may have waited for a slow disk, in turns of work.
	paceMost = 10
)

// A Pacer keeps work that may wait, such as compaction and backups, out of the way of what the
// process does for others: it has a fifth of the time while they are busy, and nearly all of
// it while they are not. The zero value is ready for one goroutine, and a nil Pacer never rests.
type Pacer struct {
	Work  time.Duration // between two rests; 0: 20 ms
	began time.Time
}

// Rest is called between steps of the work. It rests when that is due: first shortly, to see
// whether the process is busy though this work rests, and if so longer. The error is that of ctx.
func (p *Pacer) Rest(ctx context.Context) error {
	if p == nil {
		return ctx.Err()
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	work := cmp.Or(p.Work, paceWork)
	worked := min(time.Since(p.began), paceMost*work)
	if worked < work {
		return ctx.Err()
	}
	before, rested := processorTime(), time.Now()
	err := sleep(ctx, time.Duration(paceShort*float64(worked)))
	if others := processorTime() - before; err == nil && float64(others) > paceBusy*float64(time.Since(rested)) {
		err = sleep(ctx, paceLong*worked-time.Since(rested))
	}
	p.began = time.Now()
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// processorTime is what this process has used, in all threads.
func processorTime() time.Duration {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
