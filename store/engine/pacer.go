package engine

import (
	"cmp"
	"context"
	"sync"
	"syscall"
	"time"
)

// workPeriod is how long background work runs between two pauses. A pause takes shortRestRatio
// times the time worked. If the rest of the process used more than busyShare of one processor
// during the pause, the pause is extended to longRestRatio times the time worked.
const (
	workPeriod     = 20 * time.Millisecond
	shortRestRatio = 1.0 / 8
	longRestRatio  = 4
	busyShare      = 1.0 / 4
	// maxWorkPeriods limits the time worked, in units of workPeriod, since one step may have waited
	// long for a slow disk.
	maxWorkPeriods = 10
)

// A Pacer slows down work that is not urgent, such as compaction and backups, while the process is
// busy. The work then gets a fifth of the time, otherwise nearly all of it. The zero value is ready
// for use by one goroutine. A nil Pacer never rests.
type Pacer struct {
	Work  time.Duration // time of work between two pauses; 0: 20 ms
	began time.Time
}

// Rest is called between steps of the work. It sleeps if a pause is due: first briefly, to measure
// whether the process is busy without this work, and longer if it is. It returns the error of ctx.
func (p *Pacer) Rest(ctx context.Context) error {
	if p == nil {
		return ctx.Err()
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	work := cmp.Or(p.Work, workPeriod)
	worked := min(time.Since(p.began), maxWorkPeriods*work)
	if worked < work {
		return ctx.Err()
	}
	before, rested := processorTime(), time.Now()
	err := sleep(ctx, time.Duration(shortRestRatio*float64(worked)))
	if others := processorTime() - before; err == nil && float64(others) > busyShare*float64(time.Since(rested)) {
		err = sleep(ctx, longRestRatio*worked-time.Since(rested))
	}
	p.began = time.Now()
	return err
}

// A background paces work of several goroutines that ends with ctx.
type background struct {
	ctx  context.Context
	mu   sync.Mutex
	pace Pacer
}

// rest is called between steps of the work. It returns the error of ctx.
func (b *background) rest() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pace.Rest(b.ctx)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// processorTime returns the CPU time that this process has used in all threads.
func processorTime() time.Duration {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
