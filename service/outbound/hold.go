package outbound

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

const (
	// KeepHeldMailFor is how long the held messages of a deleted mailbox are kept for release.
	KeepHeldMailFor = 14 * 24 * time.Hour

	pausedRecheck = 12 * time.Hour // how often a paused message checks whether sending was resumed; resuming also wakes it
	KindHold      = "hold"
)

// loadSenderState determines whether the sender of a message may send, and whether the message is
// held.
func (s *Service) loadSenderState(tx *store.Tx, d *delivery) error {
	if d.row.Program && d.domain != nil {
		d.paused = reputation.PausedError(nil, d.domain)
	}
	if d.row.MailboxID == "" || d.sub.Forward {
		return nil
	}
	h, err := store.Holds.Find(tx, d.row.MailboxID)
	if err != nil {
		return err
	}
	d.held = d.row.Status == store.OutgoingHeld || h != nil && h.Holds(d.row)
	mb, err := store.Mailboxes.Read(tx, d.row.MailboxID)
	if err != nil && !core.IsGone(err) {
		return err
	}
	if err != nil || mb.Gone() {
		d.orphaned = h == nil && d.row.HeldAt.IsZero() // HeldAt is set if somebody released it
		return nil
	}
	if d.domain == nil {
		return nil
	}
	d.paused = reputation.PausedError(mb, d.domain)
	return nil
}

// MailboxDeleted is the reason that is recorded when the mail of a deleted mailbox is cancelled.
const MailboxDeleted = "its mailbox was deleted before it was sent"

// deferWhilePaused reschedules a message whose sender is paused. The pause does not count
// towards GiveUpAfter.
func (s *Service) deferWhilePaused(d *delivery) (jobs.Writes, error) {
	at := d.now.Add(pausedRecheck).Truncate(time.Millisecond)
	text := "waiting: " + pausedText
	return func(tx *store.Tx, _ *store.Job) error {
		row, err := pendingRow(tx, d.row.ID)
		if row == nil {
			return err
		}
		if row.Status == store.OutgoingScheduled {
			row.Status = store.OutgoingQueued // its send time has come
		}
		row.NextAt, row.TriedFrom, row.LastResponse, row.UpdatedAt = at, tx.Now(), text, tx.Now()
		return store.Outgoings.Put(tx, row)
	}, jobs.Snooze(at)
}

const pausedText = "sending is paused until an owner or admin resumes it"

// holdRow marks a message as held until somebody releases it, and ends its job. If it has been
// released since the attempt began, it gets a new job.
func (s *Service) holdRow(d *delivery) jobs.Writes {
	return func(tx *store.Tx, _ *store.Job) error {
		row, err := pendingRow(tx, d.row.ID)
		if row == nil || row.Status == store.OutgoingHeld {
			return err
		}
		h, err := store.Holds.Find(tx, row.MailboxID)
		switch {
		case err != nil:
			return err
		case h == nil || !h.Holds(row):
			return s.PutRowWithJob(tx, row)
		}
		return putHeldRow(tx, row)
	}
}

func putHeldRow(tx *store.Tx, row *store.Outgoing) error {
	row.Status, row.HeldAt, row.JobID, row.NextAt, row.UpdatedAt = store.OutgoingHeld, tx.Now(), "", time.Time{}, tx.Now()
	return store.Outgoings.Put(tx, row)
}

// HoldArgs are the arguments of a job that marks the pending rows of a mailbox as held.
type HoldArgs struct {
	MailboxID string `json:"mailbox_id"`
}

func (s *Service) holdKinds() []jobs.Kind {
	return []jobs.Kind{
		{Name: KindHold, Work: s.holdWaitingMail, Timeout: time.Hour},
		{Name: reputation.KindResume, Work: s.resumeWaitingMail, Timeout: time.Hour},
	}
}

func (s *Service) holdWaitingMail(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[HoldArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	return nil, s.holdPendingRows(ctx, j.AccountID, args.MailboxID)
}

// holdPendingRows marks as held all pending rows that the Hold of a mailbox covers. It does not
// interrupt a running attempt.
func (s *Service) holdPendingRows(ctx context.Context, accountID, mailboxID string) error {
	return s.eachPending(ctx, accountID, func(o *store.Outgoing) bool { return o.MailboxID == mailboxID && o.Status != store.OutgoingHeld }, func(tx *store.Tx, row *store.Outgoing) error {
		h, err := store.Holds.Find(tx, mailboxID)
		if h == nil || err != nil || !h.Holds(row) || row.Status == store.OutgoingHeld {
			return err
		}
		if running, err := s.wakeAfterAttempt(tx, row); running || err != nil {
			return err // holdRow holds it after the attempt, unless it is delivered
		}
		if err := s.Queue.Cancel(tx, row.JobID); err != nil && !core.IsGone(err) {
			return err
		}
		return putHeldRow(tx, row)
	})
}

func (s *Service) resumeWaitingMail(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	paused := func(o *store.Outgoing) bool { return o.LastResponse == "waiting: "+pausedText }
	return nil, s.eachPending(ctx, j.AccountID, paused, func(tx *store.Tx, row *store.Outgoing) error {
		if !paused(row) || row.Status == store.OutgoingHeld {
			return nil
		}
		if err := s.Queue.Wake(tx, row.JobID, tx.Now()); err != nil && !core.IsGone(err) {
			return err
		}
		row.NextAt, row.TriedFrom, row.LastResponse, row.UpdatedAt = tx.Now(), tx.Now(), "", tx.Now()
		return store.Outgoings.Put(tx, row)
	})
}

// ReleaseIn is the request of release_held_messages.
type ReleaseIn struct {
	UserID string `path:"user_id"`
	Action string `json:"action" required:"true" enum:"release|discard" log:"true"` // `release` sends what is held, `discard` cancels it.
}

// Released counts the released and the discarded rows of the sending log.
type Released struct {
	Released  int `json:"released"`
	Discarded int `json:"discarded"`
}

const discardedText = "it was held, and then discarded"

// ReleaseHeldMessages sends or discards the held messages of a mailbox. The mailbox may have been
// deleted up to 14 days ago.
func (s *Service) ReleaseHeldMessages(ctx context.Context, who core.Actor, in ReleaseIn) (*Released, error) {
	var target store.AuditTarget
	err := s.Store.View(func(tx *store.Tx) error {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err == nil {
			target = core.MailboxTarget(mb)
			return nil
		}
		h, herr := store.Holds.Find(tx, in.UserID)
		if herr != nil {
			return herr
		}
		if h == nil || h.AccountID != who.AccountID {
			return err
		}
		target = store.AuditTarget{Type: "email_user", ID: in.UserID, Name: in.UserID}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &Released{}
	if err := s.settleHeldRows(ctx, who.AccountID, in.UserID, in.Action == "release", out); err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := store.Holds.Delete(tx, in.UserID); err != nil {
			return err
		}
		return core.Audit(tx, who, target)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// settleHeldRows releases or discards the held rows of a mailbox, and counts them. A row that the
// Hold covers may be in a running attempt. On release, the attempt goes on. On discard, the row is
// cancelled after the attempt unless it was delivered.
func (s *Service) settleHeldRows(ctx context.Context, accountID, mailboxID string, release bool, out *Released) error {
	for again := true; again; {
		again = false
		var h *store.Hold
		if err := s.Store.View(func(tx *store.Tx) (err error) {
			h, err = store.Holds.Find(tx, mailboxID)
			return err
		}); err != nil {
			return err
		}
		if err := s.holdPendingRows(ctx, accountID, mailboxID); err != nil {
			return err
		}
		concerns := func(o *store.Outgoing) bool {
			held := o.Status == store.OutgoingHeld && !o.AwaitsApproval()
			return o.MailboxID == mailboxID && (held || h != nil && h.Holds(o) && o.Stop == "")
		}
		err := s.eachPending(ctx, accountID, concerns, func(tx *store.Tx, row *store.Outgoing) error {
			if !concerns(row) {
				return nil
			}
			if row.Status == store.OutgoingHeld {
				return s.settleHeldRow(tx, row, release, out)
			}
			running, err := s.wakeAfterAttempt(tx, row)
			if err != nil || !running { // its attempt has ended since the row was selected
				tx.After(func() { again = true })
				return err
			}
			row.UpdatedAt = tx.Now()
			if release {
				row.HeldAt = tx.Now()
			} else {
				row.Stop = discardedText
			}
			return store.Outgoings.Put(tx, row)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// settleHeldRow releases or discards one held row, and counts it.
func (s *Service) settleHeldRow(tx *store.Tx, row *store.Outgoing, release bool, out *Released) error {
	if !release {
		row.LastResponse = withUnknownOutcome(row, discardedText)
		tx.After(func() { out.Discarded++ })
		return s.CloseRow(tx, row, store.OutgoingCancelled)
	}
	row.Status, row.TriedFrom, row.UpdatedAt = store.OutgoingQueued, tx.Now(), tx.Now() // HeldAt stays set and shows that the row was released
	if row.SendAt.After(tx.Now()) {
		row.Status, row.TriedFrom = store.OutgoingScheduled, row.SendAt
	}
	tx.After(func() { out.Released++ })
	return s.PutRowWithJob(tx, row)
}

// DiscardHeld discards the held messages of mailboxes that were deleted more than KeepHeldMailFor
// ago. Retention calls it.
func (s *Service) DiscardHeld(ctx context.Context) error {
	for {
		var h *store.Hold
		err := s.Store.View(func(tx *store.Tx) error {
			h = nil
			for key, one := range store.HoldsByTime.Asc(tx, "", "") {
				if store.KeyTime(key).After(tx.Now()) {
					break
				}
				h = one
				break
			}
			return nil
		})
		if h == nil || err != nil {
			return err
		}
		there := false
		if err := s.Store.View(func(tx *store.Tx) error {
			mb, err := store.Mailboxes.Find(tx, h.MailboxID)
			there = mb != nil && !mb.Gone()
			return err
		}); err != nil {
			return err
		}
		if !there {
			if err := s.settleHeldRows(ctx, h.AccountID, h.MailboxID, false, &Released{}); err != nil {
				return err
			}
		}
		if err := s.Store.Update(func(tx *store.Tx) error {
			if there { // the mailbox exists: check again later
				h.Until = tx.Now().Add(KeepHeldMailFor)
				return store.Holds.Put(tx, h)
			}
			return store.Holds.Delete(tx, h.MailboxID)
		}); err != nil {
			return err
		}
	}
}
