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

// pullArgs are the arguments of a job that syncs one mailbox.
type pullArgs struct {
	UserID string `json:"user_id"`
}

// Kinds lists the kinds of jobs of this package.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{
		s.WhileActive(s.answerKind()),
		s.WhileActive(jobs.Kind{Name: kindInboxSync, Work: s.syncInbox, Max: 4, Timeout: pullTimeout, Lanes: PullsPerHost, Most: maxPulls, MostEach: maxPullsPerAccount,
			Backoff: FailureWait, Visible: true}),
		{Name: kindExternals, Work: s.planRemainingSyncs, Timeout: pullTimeout, Most: inbox.ArrivalsMost},
		s.EndIfInactive(jobs.Kind{Name: kindInboxPoll, Work: s.pollInbox, Timeout: pullTimeout, Lanes: PullsPerHost, Most: maxPulls, MostEach: maxPullsPerAccount}),
	}
}

// planRemainingSyncs continues what BeginExternals began, some mailboxes in each transaction.
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
		core.Sleep(ctx, time.Since(began)) // let other writers go first
	}
	return nil, nil
}

// syncedInBackground returns the mailbox if it is to be synced in the background; otherwise nil.
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

// backgroundMailbox is syncedInBackground in its own snapshot, with the state of the sync.
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

// pollInbox syncs a mailbox in the background, and reschedules itself.
func (s *Service) pollInbox(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[pullArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	mb, _, err := s.backgroundMailbox(args.UserID)
	if mb == nil || err != nil {
		return nil, err
	}
	if s.idles.has(mb.ID) {
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
	case errors.Is(err, errUnwanted), box == nil && err == nil:
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

// syncInbox is the first sync of a mailbox, or one on request.
func (s *Service) syncInbox(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[pullArgs](j)
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
	if errors.Is(err, errUnwanted) || err == nil && box == nil {
		return nil, nil
	}
	if err != nil {
		return nil, s.jobError(ctx, err)
	}
	return func(tx *store.Tx, j *store.Job) error {
		if mb, err := store.Mailboxes.Get(tx, args.UserID); err == nil { // everything is compared, even if another job did part of it
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

// DownUntil returns until when the server of a mailbox is not contacted; zero if it may be.
func (s *Service) DownUntil(id string) time.Time {
	v, err := s.newSyncRun(id, false)
	if v == nil || err != nil {
		return time.Time{} // the sync itself reports the error
	}
	until := s.hosts.until(serverKey(v.mb.External.IMAP), s.Now())
	if until.IsZero() {
		return until
	}
	return until.Add(time.Duration(s.Rand() * float64(10*time.Second)))
}

// jobError returns the error of a sync job in a form for people. A refused login is permanent,
// since a retry does not help.
func (s *Service) jobError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	var f *pullFailure
	if !errors.As(err, &f) {
		return err
	}
	public := core.Errorf("upstream_error", "%s", f.text)
	if errors.Is(err, pull.ErrLogin) {
		return jobs.Permanent(public)
	}
	return public
}

// wakePolls plans a sync of every mailbox soon after a start, slightly spread out, since IDLE
// sessions of the last process have ended.
func (s *Service) wakePolls() error {
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
