package jobs

import (
	"context"
	"sync"

	"github.com/mailstead/mailstead/store"
)

// watches wakes those who wait for a change of a job.
type watches struct {
	mu   sync.Mutex
	jobs map[string]map[chan struct{}]struct{}
}

func (w *watches) watch(id string) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs[id] == nil {
		w.jobs[id] = map[chan struct{}]struct{}{}
	}
	w.jobs[id][ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.jobs[id], ch)
		if len(w.jobs[id]) == 0 {
			delete(w.jobs, id)
		}
	}
}

func (w *watches) changed(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.jobs[id] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Wait returns the job once it has ended, or as it is when ctx ends. It returns store.ErrNotFound for what is not there,
// or is there no more: a job that is not Visible goes when it ends.
func (q *Queue) Wait(ctx context.Context, id string) (*store.Job, error) {
	changed, stop := q.watches.watch(id)
	defer stop()
	for {
		var j *store.Job
		err := q.Store.View(func(tx *store.Tx) (err error) {
			j, err = store.Jobs.Get(tx, id)
			return err
		})
		if err != nil || j.Ended() || ctx.Err() != nil {
			return j, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
