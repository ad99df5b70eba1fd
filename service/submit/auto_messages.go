package submit

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// maxForwardRows is how many rows of the sending log are examined for earlier forwards of a
// message. They all have its Message-ID, and anyone can reuse that of a message with very many
// recipients.
const maxForwardRows = 1000

func (s *Service) forwardKind() jobs.Kind {
	return jobs.Kind{Name: outbound.KindForward, Work: s.forwardMessage, Timeout: time.Minute}
}

// forwardMessage is the job that forwards a message. With Once, it skips each recipient to whom the
// mailbox has forwarded the message before: the message may have come back.
func (s *Service) forwardMessage(_ context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[outbound.ForwardArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	sent, facts := map[string]bool{}, map[string]*agents.Message{}
	err = s.Store.View(func(tx *store.Tx) error {
		clear(sent)
		sub, err := store.Submissions.Find(tx, args.SubmissionID)
		if sub == nil || err != nil {
			return err
		}
		mb, err := store.Mailboxes.FindShared(tx, sub.MailboxID)
		for i := 0; i < len(args.To) && err == nil; i++ {
			facts[args.To[i]], err = s.CollectFacts(tx, mb, args.To[i], false, nil)
		}
		if err != nil || !args.Once || sub.MessageID == "" {
			return err
		}
		looked := 0
		for _, row := range store.OutgoingsByMessageID.Desc(tx, sub.AccountID+sub.MessageID+"\x00", "") {
			if looked++; looked > maxForwardRows {
				break
			}
			if row.MailboxID == sub.MailboxID {
				sent[strings.ToLower(row.Recipient)] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func(tx *store.Tx, _ *store.Job) error {
		planned, err := store.Submissions.Find(tx, args.SubmissionID)
		if planned == nil || err != nil {
			return err
		}
		d, err := store.Domains.Read(tx, planned.DomainID)
		if err != nil && !core.IsGone(err) {
			return err
		}
		var mb *store.Mailbox
		gone := err != nil || d.Gone()
		if planned.MailboxID != "" && !gone {
			mb, err = core.LiveMailbox(tx, planned.MailboxID)
			if err != nil {
				return err
			}
			gone = mb == nil
		}
		for _, to := range args.To {
			if gone || sent[strings.ToLower(to)] {
				continue
			}
			sub := *planned
			if err := s.SendAutoMessage(tx, mb, outbound.AutoMessage{Sub: &sub, Domain: d, To: outbound.Rcpt{Address: to}, Since: args.Since, Once: args.Once, Facts: facts[to]}); err != nil {
				return err
			}
		}
		planned.Waiting = 0
		return outbound.PutOrDeleteSubmission(tx, planned)
	}, nil
}

// CollectFacts collects the facts that the policy of a mailbox needs about an automatic message to
// the address to. isReply says that the message is a reply; people are then the people of the
// message that it answers. CollectFacts returns nil if the mailbox has no policy. It must not run
// in a write transaction, since it may take long.
func (s *Service) CollectFacts(tx *store.Tx, mb *store.Mailbox, to string, isReply bool, people []string) (*agents.Message, error) {
	if mb == nil || mb.SendPolicy.IsDefault() {
		return nil, nil
	}
	email, err := msg.NormalizeEmail(to)
	if err != nil {
		email = agents.Unreadable
	}
	m := &agents.Message{Mailbox: mb, To: []string{email}, Answers: isReply, People: people}
	return m, s.rooms.Policies.Reach(tx, m)
}

// SendAutoMessage queues an automatic message of the mailbox mb. mb is nil for a message of a
// domain. If mb's policy requires approval, the message is held; if it refuses the message, that is
// logged and the message is dropped. If the policy needs facts that m does not have, a job collects
// them for a forward. For other messages the error is then errNeedFacts.
func (s *Service) SendAutoMessage(tx *store.Tx, mb *store.Mailbox, m outbound.AutoMessage) error {
	held := ""
	if mb != nil && !mb.SendPolicy.IsDefault() {
		switch {
		case m.Facts == nil && m.Sub.Forward:
			return s.rooms.Outbound.PlanForward(tx, m.Sub, outbound.ForwardArgs{To: []string{m.To.Address}, Since: m.Since, Once: m.Once}, time.Time{})
		case m.Facts == nil:
			return errNeedFacts
		}
		m.Facts.Mailbox = mb
		var err error
		held, _, err = s.rooms.Policies.Admit(tx, agents.Holder{}, m.Facts)
		if err != nil {
			s.Log.Info("the sending policy of a mailbox refused its automatic message", "mailbox_id", mb.ID)
			return nil
		}
	}
	if held != "" {
		return s.queueAutoHold(tx, m)
	}
	kind := reputation.AutomaticReply
	switch {
	case m.Sub.Required:
		kind = reputation.AutomaticRequired
	case m.Sub.Forward:
		kind = reputation.AutomaticForward
	}
	return s.rooms.Outbound.SendAutomatic(tx, outbound.AutomaticMail{Kind: kind, Mailbox: mb, Domain: m.Domain, Sub: m.Sub, To: []outbound.Rcpt{m.To}, Since: m.Since, Once: m.Once})
}

const kindAutoHold = "hold_by_itself"

// autoHoldArgs are the arguments of a job that holds an automatic message for approval.
type autoHoldArgs struct {
	SubmissionID string        `json:"submission_id"`
	To           outbound.Rcpt `json:"to"`
}

// queueAutoHold queues a job that holds a message for approval, since the message must be read
// outside of tx. Until the job runs, the submission has no rows.
func (s *Service) queueAutoHold(tx *store.Tx, m outbound.AutoMessage) error {
	m.Sub.ID, m.Sub.CreatedAt, m.Sub.Waiting = tx.NewID("sub"), tx.Now(), 1
	if err := errors.Join(store.SubmissionBlobs.Ref(tx, m.Sub.Blob, m.Sub.ID), store.Submissions.Put(tx, m.Sub)); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{AccountID: m.Sub.AccountID, Kind: kindAutoHold, Lane: "hold " + m.Sub.AccountID, Args: autoHoldArgs{m.Sub.ID, m.To}})
	return err
}

func (s *Service) autoHoldKind() jobs.Kind {
	return jobs.Kind{Name: kindAutoHold, Work: s.holdAutoMessage, Timeout: 10 * time.Minute}
}

func (s *Service) holdAutoMessage(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[autoHoldArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var sub *store.Submission
	err = s.Store.View(func(tx *store.Tx) (err error) {
		sub, err = store.Submissions.Find(tx, args.SubmissionID)
		return err
	})
	if sub == nil || err != nil {
		return nil, err
	}
	blob, err := s.Store.OpenBlob(sub.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	content, err := s.composeAutoHold(ctx, sub, args.To, blob)
	if refused := new(core.SMTPError); errors.As(err, &refused) && refused.Code >= 500 {
		s.Log.Info("an automatic message of a mailbox cannot be shown for approval and is dropped", "mailbox_id", sub.MailboxID, "error", err)
		return func(tx *store.Tx, _ *store.Job) error { return dropSubmission(tx, args.SubmissionID) }, nil
	}
	if err != nil {
		return nil, err
	}
	jobs.Finally(ctx, func() { s.Store.Release(content.blob) }) // no effect if the message is held
	return func(tx *store.Tx, _ *store.Job) error {
		sub, err := store.Submissions.Find(tx, args.SubmissionID)
		if sub == nil || err != nil {
			return err
		}
		d, err := store.Domains.Find(tx, sub.DomainID)
		if err != nil {
			return err
		}
		full := checkHeldLimit(tx, sub.AccountID) // strangers can cause automatic mail, which must not exceed the limit
		if full != nil {
			tx.After(func() {
				s.Log.Warn(outbound.PastLimit, "kind", "held", "account_id", sub.AccountID, "mailbox_id", sub.MailboxID, "waits", false, "limit", full.Error())
			})
		}
		if d != nil && full == nil {
			held := *sub
			if _, _, err := s.holdForApproval(tx, &held, d, []outbound.Rcpt{args.To}, HoldDetails{Reason: agents.HeldByPolicy, Via: store.ApprovalViaRule, Content: content}); err != nil {
				return err
			}
		}
		return dropSubmission(tx, sub.ID)
	}, nil
}

// dropSubmission deletes a submission that has no rows.
func dropSubmission(tx *store.Tx, id string) error {
	sub, err := store.Submissions.Find(tx, id)
	if sub == nil || err != nil {
		return err
	}
	return errors.Join(store.SubmissionBlobs.Unref(tx, sub.Blob, sub.ID), store.Submissions.Delete(tx, sub.ID))
}

// composeAutoHold composes an automatic message again, for approval. The mailbox becomes the author
// of a forward, since the original author's signature does not cover the new message.
func (s *Service) composeAutoHold(ctx context.Context, sub *store.Submission, to outbound.Rcpt, blob msg.Source) (*heldContent, error) {
	w := rewriter{automatic: true}
	if sub.Forward {
		var mb *store.Mailbox
		if err := s.Store.View(func(tx *store.Tx) (err error) {
			mb, err = store.Mailboxes.Find(tx, sub.MailboxID)
			return err
		}); err != nil {
			return nil, err
		}
		if mb == nil {
			return nil, errNotShowable()
		}
		local, domain, _ := msg.SplitEmail(mb.Email)
		w.forwarding = msg.Address{Mailbox: local, Host: domain}
	}
	return s.composeHeld(ctx, inbox.Envelope{From: sub.Sender}, []outbound.Rcpt{to}, blob, w)
}
