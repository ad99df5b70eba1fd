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

// pullArgs is the job of looking at one mailbox.
type pullArgs struct {
	UserID string `json:"user_id"`
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{
		s.WhileActive(s.answerKind()),
		s.WhileActive(jobs.Kind{Name: kindInboxSync, Work: s.syncInbox, Max: 4, Timeout: pullTimeout, Lanes: PullsPerHost, Most: pullsMost, MostEach: pullsEach,
			Backoff: FailureWait, Visible: true}),
		{Name: kindExternals, Work: s.planRemainingSyncs, Timeout: pullTimeout, Most: inbox.ArrivalsMost},
		s.EndsInactive(jobs.Kind{Name: kindInboxPoll, Work: s.pollInbox, Timeout: pullTimeout, Lanes: PullsPerHost, Most: pullsMost, MostEach: pullsEach}),
	}
}

// planRemainingSyncs goes on where BeginExternals ended, some mailboxes in each transaction.
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
		core.Sleep(ctx, time.Since(began)) // others go first
	}
	return nil, nil
}

// inBackground reports whether a mailbox is to be synced without anybody asking.
func inBackground(tx *store.Tx, id string) (*store.Mailbox, error) {
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

// wanted is inBackground in a snapshot of its own, with the mailbox's state.
func (s *Service) wanted(id string) (mb *store.Mailbox, box *store.RemoteBox, err error) {
	err = s.Store.View(func(tx *store.Tx) (err error) {
		mb, err = inBackground(tx, id)
		if mb == nil || err != nil {
			return err
		}
		box, err = core.RemoteBox(tx, mb)
		return err
	})
	return mb, box, err
}

// pollInbox syncs a mailbox in the background, and says when to do so again.
func (s *Service) pollInbox(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[pullArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	mb, _, err := s.wanted(args.UserID)
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
	kept := err == nil && box != nil && s.idleOn(mb, box, session)
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

// syncInbox is a sync that somebody asked for, or the first.
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
		return nil, s.syncFailure(ctx, err)
	}
	return func(tx *store.Tx, j *store.Job) error {
		if mb, err := store.Mailboxes.Get(tx, args.UserID); err == nil { // all is compared, whoever did it
			f, err := tx.Folder(mb.Num, store.InboxID)
			if err != nil {
				return err
			}
			j.Completed, j.Total = int(f.Messages), int(f.Messages)
		}
		mb, err := inBackground(tx, args.UserID)
		if mb == nil || err != nil {
			return err
		}
		return s.addPoll(tx, mb, tx.Now())
	}, nil
}

// DownUntil says up to when the server of a mailbox is left alone; zero: it is not.
func (s *Service) DownUntil(id string) time.Time {
	v, err := s.newSyncRun(id, false)
	if v == nil || err != nil {
		return time.Time{} // which the sync itself will find
	}
	until := s.hosts.until(listenerOf(v.mb.External.IMAP), s.Now())
	if until.IsZero() {
		return until
	}
	return until.Add(time.Duration(s.Rand() * float64(10*time.Second)))
}

// syncFailure is the error of a job, for people; trying again does not help where a log-in is
// refused.
func (s *Service) syncFailure(ctx context.Context, err error) error {
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

// wakePolls sees to it at a start that every mailbox is synced soon, spread a little: what idled
// before does no more.
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
			mb, err := inBackground(tx, id)
			if mb == nil || err != nil {
				return err
			}
			return s.addPoll(tx, mb, tx.Now().Add(time.Duration(min(i, 600))*100*time.Millisecond))
		})
	}
	return err
}
