package jobs

import (
	"context"

	"github.com/mailstead/mailstead/store"
)

// Wait returns the job once it has ended, or as it is when ctx ends. It returns store.ErrNotFound
// for what is not there, or is there no more: a job that is not Visible goes when it ends.
func (q *Queue) Wait(ctx context.Context, id string) (*store.Job, error) {
	changed, stop := q.watches.Watch(id)
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
