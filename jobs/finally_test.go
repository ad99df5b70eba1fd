package jobs

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/store"
)

// TestFinallyRunsOnceWhateverBecomesOfWrites: committed, refused, dropped since the job is gone,
// and after a panic.
func TestFinallyRunsOnceWhateverBecomesOfWrites(t *testing.T) {
	for name, work := range map[string]func(*Queue, *store.Job) (Writes, error){
		"committed": func(*Queue, *store.Job) (Writes, error) {
			return func(*store.Tx, *store.Job) error { return nil }, nil
		},
		"refused": func(*Queue, *store.Job) (Writes, error) {
			return func(*store.Tx, *store.Job) error { return errors.New("no") }, nil
		},
		"dropped": func(q *Queue, j *store.Job) (Writes, error) {
			return nil, q.Store.Update(func(tx *store.Tx) error { return store.Jobs.Delete(tx, j.ID) })
		},
		"panic": func(*Queue, *store.Job) (Writes, error) { panic("bug") },
	} {
		in(t, func(t *testing.T, q *Queue) {
			var kept, ended atomic.Int32
			q.Handle(Kind{Name: "k", Max: 1, Work: func(ctx context.Context, j *store.Job) (Writes, error) {
				Finally(ctx, func() { ended.Add(1) })
				w, err := work(q, j)
				if w == nil {
					return nil, err
				}
				return func(tx *store.Tx, j *store.Job) error {
					kept.Add(ended.Load())
					return w(tx, j)
				}, err
			}})
			start(t, q)
			add(t, q, New{Kind: "k"})
			time.Sleep(time.Minute)
			synctest.Wait()
			if ended.Load() != 1 || kept.Load() != 0 {
				t.Errorf("%s: ended %d times, before its Writes %d times", name, ended.Load(), kept.Load())
			}
		})
	}
}
