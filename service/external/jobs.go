package external

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// syncArgs are the arguments of a job that syncs one mailbox.
type syncArgs struct {
	UserID string `json:"user_id"`
}

// Kinds returns the kinds of jobs that this package works on.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{
		s.WhileActive(s.answerKind()),
		s.WhileActive(jobs.Kind{Name: kindInboxSync, Work: s.syncInbox, Max: 4, Timeout: syncTimeout, PerLane: PullsPerHost, Most: maxSyncs, MostEach: maxSyncsPerAccount,
			Backoff: FailureWait, Visible: true}),
		{Name: kindExternals, Work: s.planRemainingSyncs, Timeout: syncTimeout, Most: inbox.MaxFilingJobs},
		s.EndIfInactive(jobs.Kind{Name: kindInboxPoll, Work: s.pollInbox, Timeout: syncTimeout, PerLane: PullsPerHost, Most: maxSyncs, MostEach: maxSyncsPerAccount}),
	}
}

// planRemainingSyncs works on an externals job: it queues the syncs that BeginExternals has not
// queued, several in each transaction.
func (s *Service) planRemainingSyncs(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[externalsArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for args.After != "" {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		began := time.Now()
		next := ""
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			next, err = s.planSyncs(tx, args)
			return err
		})
		if err != nil {
			return nil, err
		}
		args.After = next
		core.Sleep(ctx, time.Since(began)) // let other writers run
	}
	return nil, nil
}

// syncedInBackground returns a mailbox if it must be synced in the background, and otherwise nil.
func syncedInBackground(tx *store.Tx, id string) (*store.Mailbox, error) {
	mb, err := store.Mailboxes.Find(tx, id)
	if err != nil {
		return nil, err
	}
	if mb == nil || mb.External == nil || mb.Status != store.MailboxActive {
		return nil, nil
	}
	a, err := store.Accounts.Get(tx, mb.AccountID)
	if err != nil || !a.UniversalInbox || !a.MayAct() {
		return nil, err
	}
	return mb, nil
}

// backgroundMailbox is like syncedInBackground, in a snapshot of its own. It also returns the state
// of the sync.
func (s *Service) backgroundMailbox(id string) (mb *store.Mailbox, box *store.RemoteBox, err error) {
	err = s.Store.View(func(tx *store.Tx) (err error) {
		mb, err = syncedInBackground(tx, id)
		if mb == nil || err != nil {
			return err
		}
		box, err = core.RemoteBox(tx, mb)
		return err
	})
	return mb, box, err
}

// pollInbox works on an inbox_poll job: it syncs a mailbox in the background and snoozes the job
// until the next sync.
func (s *Service) pollInbox(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[syncArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	mb, _, err := s.backgroundMailbox(args.UserID)
	if mb == nil || err != nil {
		return nil, err
	}
	if s.idles.hasSession(mb.ID) {
		return nil, jobs.Snooze(s.Now().Add(pollWhileIdle))
	}
	if until := s.DownUntil(mb.ID); !until.IsZero() {
		return nil, jobs.Snooze(until)
	}
	session, box, err := s.syncMailbox(ctx, mb.ID, nil)
	kept := err == nil && box != nil && s.keepIdle(mb, box, session)
	if session != nil && !kept {
		session.Close()
	}
	switch {
	case errors.Is(err, errNotSynced), box == nil && err == nil:
		return nil, nil
	case err != nil && (ctx.Err() != nil || box == nil):
		return nil, err
	case err != nil:
		return nil, jobs.Snooze(s.Now().Add(FailureWait(box.Fails, s.Rand())))
	case kept:
		return nil, jobs.Snooze(s.Now().Add(pollWhileIdle))
	}
	return nil, jobs.Snooze(s.Now().Add(jobs.Jitter(box.Wait, s.Rand())))
}

// syncInbox works on an inbox_sync job: it syncs a mailbox for the first time, or because somebody
// has asked for it.
func (s *Service) syncInbox(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[syncArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	if until := s.DownUntil(args.UserID); !until.IsZero() {
		return nil, jobs.Snooze(until)
	}
	session, box, err := s.syncMailbox(ctx, args.UserID, func(done, total int) {
		jobs.Progress(ctx, done, total, fmt.Sprintf("%d of %d messages compared", done, total))
	})
	if session != nil {
		session.Close()
	}
	if errors.Is(err, errNotSynced) || err == nil && box == nil {
		return nil, nil
	}
	if err != nil {
		return nil, s.jobError(ctx, err)
	}
	return func(tx *store.Tx, j *store.Job) error {
		if mb, err := store.Mailboxes.Get(tx, args.UserID); err == nil { // show all messages as compared, even if another job has compared some of them
			f, err := tx.Folder(mb.Num, store.InboxID)
			if err != nil {
				return err
			}
			j.Completed, j.Total = int(f.Messages), int(f.Messages)
		}
		mb, err := syncedInBackground(tx, args.UserID)
		if mb == nil || err != nil {
			return err
		}
		return s.addPoll(tx, mb, tx.Now())
	}, nil
}

// DownUntil returns the time until which the server of a mailbox is not contacted; zero if it may
// be contacted now.
func (s *Service) DownUntil(id string) time.Time {
	v, err := s.newSyncRun(id, false)
	if v == nil || err != nil {
		return time.Time{} // if there was an error, the sync reports it
	}
	until := s.outages.downUntil(serverKey(v.mb.External.IMAP), s.Now())
	if until.IsZero() {
		return until
	}
	return until.Add(time.Duration(s.Rand() * float64(10*time.Second)))
}

// jobError converts the error of a sync to the error of a job, with a text for people. If the
// server refused the login, the error is permanent, because a retry does not help.
func (s *Service) jobError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	var f *serverError
	if !errors.As(err, &f) {
		return err
	}
	public := core.Errorf("upstream_error", "%s", f.text)
	if errors.Is(err, pull.ErrLogin) {
		return jobs.Permanent(public)
	}
	return public
}

// planAllPolls schedules a sync of every external mailbox soon after a start, because the IDLE
// sessions of the earlier process have ended. The syncs are spread over up to a minute.
func (s *Service) planAllPolls() error {
	var ids []string
	err := s.Store.View(func(tx *store.Tx) error {
		for box := range store.RemoteBoxes.All(tx) {
			ids = append(ids, box.MailboxID)
		}
		return nil
	})
	for i, id := range ids {
		if err != nil {
			return err
		}
		err = s.Store.Update(func(tx *store.Tx) error {
			mb, err := syncedInBackground(tx, id)
			if mb == nil || err != nil {
				return err
			}
			return s.addPoll(tx, mb, tx.Now().Add(time.Duration(min(i, 600))*100*time.Millisecond))
		})
	}
	return err
}
