package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/reports"
	"github.com/mailstead/mailstead/service/signin"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/recordid"
)

const (
	statisticsKept = 400 * 24 * time.Hour
	auditKept      = 400 * 24 * time.Hour
	endedKept      = 90 * 24 * time.Hour // how long tokens are kept after their expiry, and refused purchases

	revokedKept = 7 * 24 * time.Hour // how long a token is kept after it was revoked, so that the error can say why it is refused
	pruneRows   = 5000               // rows read in one transaction
)

// retentionKind is the kind of the job that deletes old records once an hour, some per transaction.
func (s *Service) retentionKind() jobs.Kind {
	return jobs.Kind{Name: "retention", Work: s.Prune, Timeout: 30 * time.Minute}
}

// compactKind is the kind of the job that frees the disk space of deleted messages.
func (s *Service) compactKind() jobs.Kind {
	return jobs.Kind{
		Name: "compact", Timeout: time.Hour,
		Work: func(ctx context.Context, _ *store.Job) (jobs.Writes, error) { return nil, s.Core.Store.Compact(ctx) },
	}
}

const threadsAtATime = 5000 // rows read in one transaction

// threadPruneKind is the kind of the job that deletes rows of old threads. It also deletes old
// lists of expunged messages, in folders from which nothing was expunged since.
func (s *Service) threadPruneKind() jobs.Kind {
	work := func(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
		return nil, errors.Join(s.pruneThreads(ctx), s.pruneExpunged(ctx))
	}
	return jobs.Kind{Name: "thread_prune", Work: work, Timeout: 30 * time.Minute}
}

func (s *Service) pruneExpunged(ctx context.Context) error {
	var next []byte
	for {
		var old [][]byte
		err := s.Core.Store.View(func(tx *store.Tx) (err error) {
			old, next, err = tx.FoldersWithOldExpunged(next, threadsAtATime)
			return err
		})
		if err != nil {
			return err
		}
		for _, folder := range old {
			for done := false; !done; {
				err := s.Core.Store.Update(func(tx *store.Tx) (err error) {
					done, err = tx.DropOldExpunged(folder, core.PruneAtATime)
					return err
				})
				if err != nil {
					return err
				}
			}
		}
		if next == nil || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (s *Service) pruneThreads(ctx context.Context) error {
	var next []byte
	for {
		var old [][]byte
		err := s.Core.Store.View(func(tx *store.Tx) (err error) {
			old, next, err = tx.OldThreads(next, threadsAtATime)
			return err
		})
		if err != nil {
			return err
		}
		for some := range slices.Chunk(old, core.PruneAtATime) {
			if err := s.Core.Store.Update(func(tx *store.Tx) error { return tx.DropThreads(some) }); err != nil {
				return err
			}
		}
		if next == nil || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Prune is the job that deletes old records, one table after the other.
func (s *Service) Prune(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	now := s.Core.Now()
	for _, step := range []func() error{
		func() error {
			return pruneByID(ctx, s, store.Events, events.DeliveryLogTTL, func(e *store.Event) (string, bool) { return e.ID, now.Sub(e.Created) > events.DeliveryLogTTL })
		},
		func() error {
			return pruneByID(ctx, s, store.Deliveries, events.DeliveryLogTTL, func(d *store.Delivery) (string, bool) { return d.ID, now.Sub(d.At) > events.DeliveryLogTTL })
		},
		func() error {
			return pruneByID(ctx, s, store.Mappings, core.SendingLogTTL, func(m *store.MessageIDMapping) (string, bool) { return m.ID, now.Sub(m.RelayedAt) > core.SendingLogTTL })
		},
		func() error {
			return pruneByID(ctx, s, store.Outgoings, core.SendingLogTTL, func(o *store.Outgoing) (string, bool) {
				return o.ID, now.Sub(o.QueuedAt) > core.SendingLogTTL && !o.Waits()
			})
		},
		func() error {
			return pruneByID(ctx, s, store.Exports, mailboxes.LinkTTL, func(e *store.Export) (string, bool) { return e.ID, !now.Before(e.ExpiresAt) })
		},
		func() error {
			return pruneByID(ctx, s, store.Reports, reports.ReportsKept, func(r *store.Report) (string, bool) { return r.ID, now.Sub(r.ReceivedAt) > reports.ReportsKept })
		},
		func() error {
			return pruneByID(ctx, s, store.Tokens, revokedKept, func(t *store.Token) (string, bool) {
				expired := !t.ExpiresAt.IsZero() && now.Sub(t.ExpiresAt) > endedKept
				return t.ID, expired || !t.RevokedAt.IsZero() && now.Sub(t.RevokedAt) > revokedKept
			})
		},
		func() error {
			return pruneByID(ctx, s, store.Audits, auditKept, func(a *store.Audit) (string, bool) { return a.ID, now.Sub(a.CreatedAt) > auditKept })
		},
		func() error { // kept for endedKept, by the time in the id
			return pruneByID(ctx, s, store.Purchases, endedKept, func(p *store.Purchase) (string, bool) { return p.ID, p.State == store.PurchaseRefused })
		},
		func() error { return s.pruneDays(ctx) },
		func() error { return s.pruneAll(ctx, func(tx *store.Tx) (int, error) { return pruneReplays(tx, now) }) },
		func() error {
			return s.pruneAll(ctx, func(tx *store.Tx) (int, error) { return pruneSessions(tx, now) })
		},
		func() error {
			return pruneByID(ctx, s, store.OAuthClients, signin.OAuthClientKept, func(c *store.OAuthClient) (string, bool) { return c.ID, signin.IsOAuthClientExpired(c, now) })
		},
		func() error { return s.pruneAll(ctx, s.Signin.PruneOAuth) },
		func() error { return s.pruneAll(ctx, s.Inbound.PruneScreened) },
		func() error { return s.pruneAll(ctx, s.Transfer.PruneImported) },
		func() error { return s.pruneAll(ctx, s.Rules.PruneReplies) },
		func() error { return s.pruneAll(ctx, s.Submit.PruneApprovals) },
		func() error { return s.pruneAll(ctx, s.Reputation.Prune) },
		s.Mailboxes.DropUploads,
		func() error { return s.Outbound.DiscardHeld(ctx) },
		func() error { return s.Inbox.EmptyOld(ctx) },
		func() error { return s.Inbox.EmptyWarmup(ctx) },
		func() error { return s.Requests.Prune(ctx) },
		func() error {
			return s.pruneAll(ctx, func(tx *store.Tx) (int, error) { return tx.PruneSubjects(core.PruneAtATime) })
		},
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// pruneAll repeats a step until it finds nothing more to delete.
func (s *Service) pruneAll(ctx context.Context, step func(*store.Tx) (int, error)) error {
	for ctx.Err() == nil {
		n := 0
		err := s.Core.Store.Update(func(tx *store.Tx) (err error) {
			n, err = step(tx)
			return err
		})
		if err != nil || n < core.PruneAtATime {
			return err
		}
	}
	return ctx.Err()
}

// pruneByID deletes the records of a table that are older than kept and for which old returns true.
// Ids rise with time, so it stops at the first id that is younger than kept. An id from the future
// does not stop it: then the clock was set back.
func pruneByID[T any](ctx context.Context, s *Service, table *store.Table[T], kept time.Duration, old func(*T) (id string, is bool)) error {
	walk := func(tx *store.Tx, after string, see func(id string, is bool) bool) {
		for rec := range table.After(tx, after) {
			if !see(old(rec)) {
				return
			}
		}
	}
	isOld := func(tx *store.Tx, id string) (bool, error) {
		rec, err := table.Get(tx, id)
		if err != nil {
			return false, err
		}
		_, is := old(rec)
		return is, nil
	}
	return s.pruneOld(ctx, kept, walk, isOld, func(tx *store.Tx, id string) error { return table.Delete(tx, id) })
}

// pruneOld does the work of pruneByID with functions instead of the table, since it does not know
// the type of the records.
func (s *Service) pruneOld(ctx context.Context, kept time.Duration, walk func(tx *store.Tx, after string, see func(id string, is bool) bool),
	isOld func(tx *store.Tx, id string) (bool, error), remove func(tx *store.Tx, id string) error) error {
	now := s.Core.Now()
	newest := now.Add(-kept)
	for after, more := "", true; more; {
		var ids []string
		err := s.Core.Store.View(func(tx *store.Tx) error {
			looked := 0
			more = false
			walk(tx, after, func(id string, is bool) bool {
				if made, ok := recordid.Time(id); ok && made.After(newest) && !made.After(now) {
					return false
				}
				if looked == pruneRows || len(ids) == core.PruneAtATime {
					more = true
					return false
				}
				looked++
				after = id
				if is {
					ids = append(ids, id)
				}
				return true
			})
			return nil
		})
		if err == nil && len(ids) > 0 {
			err = s.Core.Store.Update(func(tx *store.Tx) error { return deleteOld(tx, ids, isOld, remove) })
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// deleteOld deletes those records for which isOld still returns true.
func deleteOld(tx *store.Tx, ids []string, isOld func(tx *store.Tx, id string) (bool, error), remove func(tx *store.Tx, id string) error) error {
	for _, id := range ids {
		is, err := isOld(tx, id)
		if core.IsGone(err) {
			continue
		}
		if err == nil && is {
			err = remove(tx, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pruneDays deletes the statistics of old days. It reads only the oldest days of each account.
func (s *Service) pruneDays(ctx context.Context) error {
	first := s.Core.Now().UTC().Add(-statisticsKept).Format(time.DateOnly)
	for after, more := "", true; more; {
		var ids []string
		err := s.Core.Store.View(func(tx *store.Tx) error {
			more = false
			for looked := 0; looked < pruneRows && len(ids) < core.PruneAtATime; looked++ {
				more = false
				for d := range store.DayStats.After(tx, after) {
					more = true
					after = d.AccountID + d.Date
					if d.Date < first {
						ids = append(ids, after)
					} else {
						after = d.AccountID + "\xff" // after its last day
					}
					break
				}
				if !more {
					break
				}
			}
			return nil
		})
		if err == nil && len(ids) > 0 {
			err = s.Core.Store.Update(func(tx *store.Tx) error { return core.DeleteAll(tx, store.DayStats, ids) })
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

func pruneReplays(tx *store.Tx, now time.Time) (int, error) {
	var ids []string
	for key, id := range store.IdempotencyByTime.Keys(tx, "", "") {
		if len(ids) == core.PruneAtATime || now.Sub(store.KeyTime(key)) < once.AnswerTTL {
			break
		}
		ids = append(ids, id)
	}
	return len(ids), core.DeleteAll(tx, store.Idempotencies, ids)
}

// pruneSessions deletes sessions that began more than SessionLife ago. Those that ended earlier are
// deleted already, except idle ones.
func pruneSessions(tx *store.Tx, now time.Time) (int, error) {
	var ids []string
	for key, id := range store.SessionsByTime.Keys(tx, "", "") {
		if len(ids) == core.PruneAtATime || now.Sub(store.KeyTime(key)) < accounts.SessionLife {
			break
		}
		ids = append(ids, id)
	}
	return len(ids), core.DeleteAll(tx, store.Tokens, ids)
}
