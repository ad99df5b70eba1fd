package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/store"
)

// A ledger counts what was committed, in the committer, and what was asked for.
type ledger struct {
	mu        sync.Mutex
	committed map[string]int
	lanes     map[string]int
	most      int
}

func (l *ledger) enter(lane string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lanes[lane] += n
	l.most = max(l.most, l.lanes[lane])
}

// TestEveryJobIsDoneOnceUnderFire adds and wakes jobs while the queue stops and starts and attempts
// fail, panic, snooze and are cut: in the end every job's writes were committed once.
func TestEveryJobIsDoneOnceUnderFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs, restarts = 600, 6
		s := openStore(t, t.TempDir(), nil)
		dice := rand.New(rand.NewPCG(1, 2))
		l := &ledger{committed: map[string]int{}, lanes: map[string]int{}}
		var added []string
		for round := range restarts {
			q := newQueue(s)
			q.Workers = 16
			q.Grace = 5 * time.Second
			q.Rand = rand.Float64
			q.Handle(Kind{Name: "k", Visible: true, PerLane: 2, Timeout: 20 * time.Second, Work: l.misbehave})
			stop := start(t, q)
			for i := range jobs / restarts {
				n := New{Kind: "k", Lane: fmt.Sprint(dice.IntN(8)), Args: dice.IntN(100)}
				if dice.IntN(3) == 0 {
					n.Lane = ""
				}
				if dice.IntN(5) == 0 {
					n.Due = time.Now().Add(time.Duration(dice.IntN(600)) * time.Second)
				}
				added = append(added, add(t, q, n).ID)
				if i%7 == 0 {
					update(t, q, func(tx *store.Tx) error { return q.Wake(tx, added[dice.IntN(len(added))], time.Time{}) })
				}
				time.Sleep(time.Duration(dice.IntN(400)) * time.Millisecond)
			}
			if round == restarts-1 {
				time.Sleep(24 * time.Hour)
			}
			stop()
		}
		for _, id := range added {
			if l.committed[id] != 1 {
				t.Errorf("%s was committed %d times", id, l.committed[id])
			}
		}
		if l.most > 2 {
			t.Errorf("%d of a lane ran at a time", l.most)
		}
	})
}

// misbehave is a Work that does, by its arguments and its attempt, everything that a Work may do.
func (l *ledger) misbehave(ctx context.Context, j *store.Job) (Writes, error) {
	n, err := Args[int](j)
	if err != nil {
		return nil, err
	}
	if j.Lane != "" {
		l.enter(j.Lane, 1)
		defer l.enter(j.Lane, -1)
	}
	Progress(ctx, n, 100, "")
	select {
	case <-time.After(time.Duration(n) * 20 * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if j.Attempt == 1 {
		switch n % 6 {
		case 0:
			return nil, errors.New("no luck")
		case 1:
			panic("no care")
		case 2:
			if time.Now().Before(j.CreatedAt.Add(10 * time.Minute)) {
				return nil, Snooze(j.CreatedAt.Add(10 * time.Minute))
			}
		case 3:
			return nil, RetryAt(time.Now().Add(time.Second), errors.New("later"))
		}
	}
	return func(tx *store.Tx, j *store.Job) error {
		id := j.ID
		tx.After(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.committed[id]++
		})
		return nil
	}, nil
}
