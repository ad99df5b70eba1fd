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
	// HeldFor is how long what a deleted mailbox had waiting is kept for somebody to release it.
	HeldFor = 14 * 24 * time.Hour

	pausedLook = 12 * time.Hour // between two looks whether sending goes on, beside the one that resuming begins
	KindHold   = "hold"
)

// loadSender looks whether the sender of a message may send, and whether it is held.
func (s *Service) loadSender(tx *store.Tx, d *delivery) error {
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
		d.orphaned = h == nil && d.row.HeldAt.IsZero() // else somebody released it
		return nil
	}
	if d.domain == nil {
		return nil
	}
	d.paused = reputation.PausedError(mb, d.domain)
	return nil
}

// MailboxDeleted is why the mail of a deleted mailbox is cancelled.
const MailboxDeleted = "its mailbox was deleted before it was sent"

// waitPaused is for a message whose sender may not send now. It waits without its days passing.
func (s *Service) waitPaused(d *delivery) (jobs.Writes, error) {
	at := d.now.Add(pausedLook).Truncate(time.Millisecond)
	text := "waiting: " + pausedNow
	return func(tx *store.Tx, _ *store.Job) error {
		row, err := waitingRow(tx, d.row.ID)
		if row == nil {
			return err
		}
		if row.Status == store.OutgoingScheduled {
			row.Status = store.OutgoingQueued // its time has come
		}
		row.NextAt, row.TriedFrom, row.LastResponse, row.UpdatedAt = at, tx.Now(), text, tx.Now()
		return store.Outgoings.Put(tx, row)
	}, jobs.Snooze(at)
}

const pausedNow = "sending is paused until an owner or admin resumes it"

// holdRow has a message wait until somebody releases it. Its job ends. One that somebody has
// released since the attempt began gets another.
func (s *Service) holdRow(d *delivery) jobs.Writes {
	return func(tx *store.Tx, _ *store.Job) error {
		row, err := waitingRow(tx, d.row.ID)
		if row == nil || row.Status == store.OutgoingHeld {
			return err
		}
		h, err := store.Holds.Find(tx, row.MailboxID)
		switch {
		case err != nil:
			return err
		case h == nil || !h.Holds(row):
			return s.AddDeliveryOf(tx, row)
		}
		return putHeld(tx, row)
	}
}

func putHeld(tx *store.Tx, row *store.Outgoing) error {
	row.Status, row.HeldAt, row.JobID, row.NextAt, row.UpdatedAt = store.OutgoingHeld, tx.Now(), "", time.Time{}, tx.Now()
	return store.Outgoings.Put(tx, row)
}

// HoldArgs is the job of having the rows of a mailbox say that they are held.
type HoldArgs struct {
	MailboxID string `json:"mailbox_id"`
}

func (s *Service) holdKinds() []jobs.Kind {
	return []jobs.Kind{
		{Name: KindHold, Work: s.holdWaiting, Timeout: time.Hour},
		{Name: reputation.KindResume, Work: s.resumeWaiting, Timeout: time.Hour},
	}
}

func (s *Service) holdWaiting(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[HoldArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	return nil, s.holdAll(ctx, j.AccountID, args.MailboxID)
}

// holdAll has all rows of a mailbox that its Hold is about say that they are held. What is being
// delivered ends as it ends.
func (s *Service) holdAll(ctx context.Context, accountID, mailboxID string) error {
	return s.eachWaiting(ctx, accountID, func(o *store.Outgoing) bool { return o.MailboxID == mailboxID && o.Status != store.OutgoingHeld }, func(tx *store.Tx, row *store.Outgoing) error {
		h, err := store.Holds.Find(tx, mailboxID)
		if h == nil || err != nil || !h.Holds(row) || row.Status == store.OutgoingHeld {
			return err
		}
		if running, err := s.wakeAfter(tx, row); running || err != nil {
			return err // holdRow holds it, unless it arrives
		}
		if err := s.Queue.Cancel(tx, row.JobID); err != nil && !core.IsGone(err) {
			return err
		}
		return putHeld(tx, row)
	})
}

func (s *Service) resumeWaiting(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	paused := func(o *store.Outgoing) bool { return o.LastResponse == "waiting: "+pausedNow }
	return nil, s.eachWaiting(ctx, j.AccountID, paused, func(tx *store.Tx, row *store.Outgoing) error {
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
	Action string `json:"action" required:"true" enum:"release|discard"` // `release` sends what is held, `discard` cancels it.
}

// Released counts what was released or discarded, in rows of the sending log.
type Released struct {
	Released  int `json:"released"`
	Discarded int `json:"discarded"`
}

const discardedText = "it was held, and then discarded"

// ReleaseHeldMessages has what is held of a mailbox leave, or discards it. The mailbox may be gone
// for up to 14 days.
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
	if err := s.settleHeld(ctx, who.AccountID, in.UserID, in.Action == "release", out); err != nil {
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

// settleHeld releases or discards what is held of a mailbox, and counts that. What its Hold is
// about and is being delivered at that moment goes on as released, or is taken back unless it
// arrives.
func (s *Service) settleHeld(ctx context.Context, accountID, mailboxID string, release bool, out *Released) error {
	for again := true; again; {
		again = false
		var h *store.Hold
		if err := s.Store.View(func(tx *store.Tx) (err error) {
			h, err = store.Holds.Find(tx, mailboxID)
			return err
		}); err != nil {
			return err
		}
		if err := s.holdAll(ctx, accountID, mailboxID); err != nil {
			return err
		}
		concerns := func(o *store.Outgoing) bool {
			held := o.Status == store.OutgoingHeld && !o.AwaitsApproval()
			return o.MailboxID == mailboxID && (held || h != nil && h.Holds(o) && o.Stop == "")
		}
		err := s.eachWaiting(ctx, accountID, concerns, func(tx *store.Tx, row *store.Outgoing) error {
			if !concerns(row) {
				return nil
			}
			if row.Status == store.OutgoingHeld {
				return s.settleRow(tx, row, release, out)
			}
			running, err := s.wakeAfter(tx, row)
			if err != nil || !running { // it has begun to wait since it was looked at
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

// settleRow releases or discards one row that is held, and counts it.
func (s *Service) settleRow(tx *store.Tx, row *store.Outgoing, release bool, out *Released) error {
	if !release {
		row.LastResponse = withDoubt(row, discardedText)
		tx.After(func() { out.Discarded++ })
		return s.CloseRow(tx, row, store.OutgoingCancelled)
	}
	row.Status, row.TriedFrom, row.UpdatedAt = store.OutgoingQueued, tx.Now(), tx.Now() // HeldAt stays: it was released
	if row.SendAt.After(tx.Now()) {
		row.Status, row.TriedFrom = store.OutgoingScheduled, row.SendAt
	}
	tx.After(func() { out.Released++ })
	return s.AddDeliveryOf(tx, row)
}

// DiscardHeld discards what is held of mailboxes that are gone since HeldFor. It is for retention.
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
			if err := s.settleHeld(ctx, h.AccountID, h.MailboxID, false, &Released{}); err != nil {
				return err
			}
		}
		if err := s.Store.Update(func(tx *store.Tx) error {
			if there { // it stays, and is looked at again
				h.Until = tx.Now().Add(HeldFor)
				return store.Holds.Put(tx, h)
			}
			return store.Holds.Delete(tx, h.MailboxID)
		}); err != nil {
			return err
		}
	}
}
