package submit

import (
	"context"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/store"
)

// CancelMessage cancels a pending message. If it is being delivered at this moment, it is cancelled
// after the attempt, unless the attempt delivers it. A message that waits for approval is rejected,
// for all of its recipients.
func (s *Service) CancelMessage(ctx context.Context, who core.Actor, in outbound.SentMessageIn) (*outbound.SentMessage, error) {
	rejected, err := s.cancelHeld(ctx, who, in.ID)
	switch {
	case err != nil:
		return nil, err
	case rejected:
		return s.rooms.Outbound.ShowRow(who, in.ID)
	}
	return s.rooms.Outbound.CancelRow(who, in.ID)
}

// CancelMailOfMailbox cancels the pending mail of a deleted mailbox, unless it is held. Mail that
// waits for approval is rejected.
func (s *Service) CancelMailOfMailbox(ctx context.Context, mb *store.Mailbox) error {
	if err := s.rejectApprovals(ctx, mb.AccountID, outbound.MailboxDeleted, func(a *store.Approval) bool { return a.MailboxID == mb.ID }); err != nil {
		return err
	}
	held := false
	if err := s.Store.View(func(tx *store.Tx) error {
		h, err := store.Holds.Find(tx, mb.ID)
		held = h != nil
		return err
	}); err != nil || held {
		return err
	}
	return s.rooms.Outbound.CancelWaiting(ctx, mb.AccountID, outbound.MailboxDeleted, func(o *store.Outgoing) bool { return o.MailboxID == mb.ID && o.HeldAt.IsZero() })
}

// Hold keeps the pending mail of a mailbox from being sent until somebody releases it. It takes
// effect with this transaction; a job marks the rows as held.
func (s *Service) Hold(tx *store.Tx, mb *store.Mailbox) error {
	if err := store.Holds.Put(tx, &store.Hold{MailboxID: mb.ID, AccountID: mb.AccountID, At: tx.Now(), Until: tx.Now().Add(outbound.KeepHeldMailFor)}); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{AccountID: mb.AccountID, Kind: outbound.KindHold, Key: "hold " + mb.ID, Lane: "hold " + mb.AccountID, Args: outbound.HoldArgs{MailboxID: mb.ID}})
	return err
}

// CancelMailOf cancels the pending mail of a deleted domain, since it can no longer be signed and
// the name may soon belong to another account.
func (s *Service) CancelMailOf(ctx context.Context, d *store.Domain) error {
	if err := s.rejectApprovals(ctx, d.AccountID, outbound.DomainDeleted, func(a *store.Approval) bool { return a.DomainID == d.ID }); err != nil {
		return err
	}
	return s.rooms.Outbound.CancelWaiting(ctx, d.AccountID, outbound.DomainDeleted, func(o *store.Outgoing) bool { return o.Domain == d.Name })
}
