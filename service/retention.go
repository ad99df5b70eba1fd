package service

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

const (
	mappingKept  = 90 * 24 * time.Hour
	pruneAtATime = 500
)

// retentionKind deletes what is kept for a time only, once an hour, a bounded number in each transaction.
func (s *Service) retentionKind() jobs.Kind {
	return jobs.Kind{Name: "retention", Work: s.prune, Timeout: 30 * time.Minute}
}

// compactKind gives the room of deleted messages back.
func (s *Service) compactKind() jobs.Kind {
	return jobs.Kind{
		Name: "compact", Timeout: time.Hour,
		Work: func(ctx context.Context, _ *store.Job) (jobs.Writes, error) { return nil, s.Store.Compact(ctx) },
	}
}

const threadsAtATime = 5000 // rows that are looked at in one view

// threadPruneKind forgets the rows of threads that no message has had to do with for long.
func (s *Service) threadPruneKind() jobs.Kind {
	return jobs.Kind{Name: "thread_prune", Work: s.pruneThreads, Timeout: 30 * time.Minute}
}

func (s *Service) pruneThreads(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	var next []byte
	for {
		var old [][]byte
		err := s.Store.View(func(tx *store.Tx) (err error) {
			old, next, err = tx.OldThreads(next, threadsAtATime)
			return err
		})
		if err != nil {
			return nil, err
		}
		for some := range slices.Chunk(old, pruneAtATime) {
			if err := s.Store.Update(func(tx *store.Tx) error { return tx.DropThreads(some) }); err != nil {
				return nil, err
			}
		}
		if next == nil || ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (s *Service) prune(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	now := s.now()
	for _, step := range []func(tx *store.Tx) (int, error){
		func(tx *store.Tx) (int, error) {
			return pruneByID(tx, store.Events, func(e *store.Event) bool { return now.Sub(e.Created) > logKept }, func(e *store.Event) string { return e.ID })
		},
		func(tx *store.Tx) (int, error) {
			return pruneByID(tx, store.Deliveries, func(d *store.Delivery) bool { return now.Sub(d.At) > logKept }, func(d *store.Delivery) string { return d.ID })
		},
		func(tx *store.Tx) (int, error) {
			return pruneByID(tx, store.Mappings, func(m *store.Mapping) bool { return now.Sub(m.RelayedAt) > mappingKept }, func(m *store.Mapping) string { return m.ID })
		},
		func(tx *store.Tx) (int, error) {
			return pruneByID(tx, store.Outgoings, func(o *store.Outgoing) bool { return now.Sub(o.QueuedAt) > mappingKept && !o.Waits() }, func(o *store.Outgoing) string { return o.ID })
		},
		func(tx *store.Tx) (int, error) {
			return pruneByID(tx, store.Exports, func(e *store.Export) bool { return !now.Before(e.ExpiresAt) }, func(e *store.Export) string { return e.ID })
		},
		func(tx *store.Tx) (int, error) {
			return pruneByID(tx, store.Reports, func(r *store.Report) bool { return now.Sub(r.ReceivedAt) > reportsKept }, func(r *store.Report) string { return r.ID })
		},
		func(tx *store.Tx) (int, error) { return pruneReplays(tx, now) },
		func(tx *store.Tx) (int, error) { return pruneSessions(tx, now) },
		s.pruneScreened,
		func(tx *store.Tx) (int, error) { return tx.PruneSubjects(pruneAtATime) },
	} {
		if err := s.pruneAll(ctx, step); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// pruneAll runs a step until it finds nothing more to delete.
func (s *Service) pruneAll(ctx context.Context, step func(*store.Tx) (int, error)) error {
	for ctx.Err() == nil {
		n := 0
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			n, err = step(tx)
			return err
		})
		if err != nil || n < pruneAtATime {
			return err
		}
	}
	return ctx.Err()
}

// pruneByID deletes the first records of a table whose ids rise with time, as long as they are old.
func pruneByID[T any](tx *store.Tx, table *store.Table[T], old func(*T) bool, id func(*T) string) (int, error) {
	var ids []string
	for rec := range table.All(tx) {
		if len(ids) == pruneAtATime || !old(rec) {
			break
		}
		ids = append(ids, id(rec))
	}
	return len(ids), deleteAll(tx, table, ids)
}

func deleteAll[T any](tx *store.Tx, table *store.Table[T], ids []string) error {
	for _, id := range ids {
		if err := table.Delete(tx, id); err != nil {
			return err
		}
	}
	return nil
}

func pruneReplays(tx *store.Tx, now time.Time) (int, error) {
	var ids []string
	for key, id := range store.IdempotencyByTime.Keys(tx, "", "") {
		if len(ids) == pruneAtATime || now.Sub(store.KeyTime(key)) < replayFor {
			break
		}
		ids = append(ids, id)
	}
	return len(ids), deleteAll(tx, store.Idempotencies, ids)
}

// pruneSessions deletes sessions that have lasted as long as any may. Those that ended before have gone already, but for
// idle ones.
func pruneSessions(tx *store.Tx, now time.Time) (int, error) {
	var ids []string
	for key, id := range store.SessionsByTime.Keys(tx, "", "") {
		if len(ids) == pruneAtATime || now.Sub(store.KeyTime(key)) < SessionLife {
			break
		}
		ids = append(ids, id)
	}
	return len(ids), deleteAll(tx, store.Tokens, ids)
}
