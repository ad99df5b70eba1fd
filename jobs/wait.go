package jobs

import (
	"context"

	"github.com/mailstead/mailstead/store"
)

// Wait waits until the job has ended or ctx ends, and returns the job. It returns store.ErrNotFound
// if there is no such job. A job that is not Visible is deleted when it ends.
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
