package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store"
)

const (
	recurringKey  = "every" // key of the single job of a recurring kind
	pruneKind     = "prune_jobs"
	pruneInterval = 6 * time.Hour
	pruneChunk    = 256                 // maximum number of jobs deleted in one transaction
	endedKeptFor  = 30 * 24 * time.Hour // how long an ended job is kept
)

// Every makes a kind recurring: one job of the kind, without arguments, runs again and again, also
// across restarts. It runs for the first time within one interval, and again an interval (±10 %)
// after each end. Every is called before Run; the kind must be registered with Handle by then.
func (q *Queue) Every(kind string, interval time.Duration) { q.intervals[kind] = interval }

// seedRecurring ensures that a job of each recurring kind is queued. A new one is due within its
// interval.
func (q *Queue) seedRecurring() error {
	for kind, interval := range q.intervals {
		wait := time.Duration(q.Rand() * float64(interval))
		err := q.Store.Update(func(tx *store.Tx) error {
			tx.MayUseReserve()
			_, err := q.Add(tx, New{Kind: kind, Key: recurringKey, Due: tx.Now().Add(wait)})
			return err
		})
		if err != nil && !isUnread(err) { // an unreadable row stops only that job
			return fmt.Errorf("add recurring job: %w", err)
		}
	}
	return nil
}

// scheduleNext adds the next job of a recurring kind after one has ended.
func (q *Queue) scheduleNext(tx *store.Tx, ended *store.Job) error {
	interval := q.intervals[ended.Kind]
	if interval == 0 || ended.Key != recurringKey {
		return nil
	}
	_, err := q.Add(tx, New{Kind: ended.Kind, Key: recurringKey, Due: tx.Now().Add(Jitter(interval, q.Rand()))})
	return err
}

// Prune deletes jobs that ended more than 30 days ago, at most pruneChunk in one transaction.
func (q *Queue) Prune(ctx context.Context) error {
	before := store.TimeKey(q.Store.Now().Add(-endedKeptFor))
	for {
		var old []string
		err := q.Store.Update(func(tx *store.Tx) error {
			old = old[:0]
			for key, id := range store.JobsEnded.Keys(tx, "", "") {
				if key >= before || len(old) == pruneChunk {
					break
				}
				old = append(old, id)
			}
			for _, id := range old {
				if err := store.Jobs.Delete(tx, id); err != nil {
					return err
				}
			}
			if len(old) == 0 {
				return errNothingToDo
			}
			return nil
		})
		if err != nil && !errors.Is(err, errNothingToDo) {
			return fmt.Errorf("prune jobs: %w", err)
		}
		if len(old) < pruneChunk {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (q *Queue) prune(ctx context.Context, _ *store.Job) (Writes, error) { return nil, q.Prune(ctx) }
