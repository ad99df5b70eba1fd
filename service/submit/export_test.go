package submit

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// Internals that external tests use.

// SubmitHeld submits a message like Submit, and holds it for approval.
func (s *Service) SubmitHeld(u core.MailboxUser, in Submission, h HoldDetails) (rows []*store.Outgoing, a *store.Approval, err error) {
	as, err := s.sendersOf(u)
	if err != nil {
		return nil, nil, err
	}
	l, err := s.checkSubmission(as, sentByLogin(u), in)
	if err != nil {
		return nil, nil, err
	}
	defer l.body.Close()
	stored, err := s.rooms.Inbox.Prepare(l.body, inbox.Envelope{From: l.Sender, To: l.addresses(), Received: s.Now(), Outgoing: true})
	if err != nil {
		return nil, nil, err
	}
	defer s.rooms.Inbox.Release(stored)
	h.Content, err = s.composeHeld(context.Background(), inbox.Envelope{From: l.Sender}, l.to, l.body, rewriter{})
	if err != nil {
		return nil, nil, err
	}
	defer s.Store.Release(h.Content.blob)
	return rows, a, s.Store.Update(func(tx *store.Tx) error {
		mb, d, err := senderOf(tx, u)
		if err != nil {
			return err
		}
		sub := &store.Submission{
			AccountID: u.AccountID, MailboxID: u.MailboxID, DomainID: d.ID, MessageID: l.MessageID, Sender: l.Sender, Subject: l.Subject, Blob: stored.Blob,
			EightBit: l.EightBit, EnvelopeID: l.EnvelopeID, Ret: l.Ret, SendAt: l.SendAt, Checked: true, Program: mb == nil,
		}
		if mb == nil {
			sub.ReportTo = l.Sender
		}
		rows, a, err = s.holdForApproval(tx, sub, d, l.to, h)
		return err
	})
}
