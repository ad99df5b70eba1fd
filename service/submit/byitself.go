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

// sentBefore is how many rows are looked at for where a message was sent on to before: anybody may
// have given it the Message-ID of a message to very many.
const sentBefore = 1000

func (s *Service) forwardKind() jobs.Kind {
	return jobs.Kind{Name: outbound.KindForward, Work: s.forward, Timeout: time.Minute}
}

// forward sends a message on, by a rule only to where its mailbox has not sent it before: it may
// have come back.
func (s *Service) forward(_ context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[outbound.ForwardArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	sent, asked := map[string]bool{}, map[string]*agents.Message{}
	err = s.Store.View(func(tx *store.Tx) error {
		clear(sent)
		sub, err := store.Submissions.Find(tx, args.SubmissionID)
		if sub == nil || err != nil {
			return err
		}
		mb, err := store.Mailboxes.FindShared(tx, sub.MailboxID)
		for i := 0; i < len(args.To) && err == nil; i++ {
			asked[args.To[i]], err = s.AskAbout(tx, mb, args.To[i], false, nil)
		}
		if err != nil || !args.Once || sub.MessageID == "" {
			return err
		}
		looked := 0
		for _, row := range store.OutgoingsByMessageID.Desc(tx, sub.AccountID+sub.MessageID+"\x00", "") {
			if looked++; looked > sentBefore {
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
			if err := s.SendByItself(tx, mb, outbound.ByItself{Sub: &sub, Domain: d, To: outbound.Rcpt{Address: to}, Since: args.Since, Once: args.Once, Asked: asked[to]}); err != nil {
				return err
			}
		}
		planned.Waiting = 0
		return outbound.KeepSubmission(tx, planned)
	}, nil
}

// AskAbout finds out what the policy of a mailbox wants to know of what it sends by itself; nil
// where there is none. It is no work for a transaction that writes.
func (s *Service) AskAbout(tx *store.Tx, mb *store.Mailbox, to string, answers bool, people []string) (*agents.Message, error) {
	if mb == nil || mb.SendPolicy.IsDefault() {
		return nil, nil
	}
	email, err := msg.NormalizeEmail(to)
	if err != nil {
		email = agents.Unreadable
	}
	m := &agents.Message{Mailbox: mb, To: []string{email}, Answers: answers, People: people}
	return m, s.rooms.Policies.Reach(tx, m)
}

// SendByItself queues what a mailbox sends by itself, nil for none, if its policy lets it. What
// must be approved is held; what is refused is not sent, which the log tells. Where a policy is to
// be asked and nobody has found out about what, a job does that for a forward; else it is errFacts.
func (s *Service) SendByItself(tx *store.Tx, mb *store.Mailbox, m outbound.ByItself) error {
	held := ""
	if mb != nil && !mb.SendPolicy.IsDefault() {
		switch {
		case m.Asked == nil && m.Sub.Forward:
			return s.rooms.Outbound.PlanForward(tx, m.Sub, outbound.ForwardArgs{To: []string{m.To.Address}, Since: m.Since, Once: m.Once}, time.Time{})
		case m.Asked == nil:
			return errFacts
		}
		m.Asked.Mailbox = mb
		var err error
		held, _, err = s.rooms.Policies.Admit(tx, agents.Holder{}, m.Asked)
		if err != nil {
			s.Log.Info("a mailbox does not send by itself what its sending policy refuses", "mailbox_id", mb.ID)
			return nil
		}
	}
	if held != "" {
		return s.holdByItself(tx, m)
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

const kindHoldByItself = "hold_by_itself"

// holdByItselfArgs is the job of holding a message that a mailbox sends by itself until a person
// approves it.
type holdByItselfArgs struct {
	SubmissionID string        `json:"submission_id"`
	To           outbound.Rcpt `json:"to"`
}

// holdByItself has a job hold a message, which is read for that, and so not in tx. Until then its
// submission has no rows.
func (s *Service) holdByItself(tx *store.Tx, m outbound.ByItself) error {
	m.Sub.ID, m.Sub.CreatedAt, m.Sub.Waiting = tx.NewID("sub"), tx.Now(), 1
	if err := errors.Join(tx.RefBlob(m.Sub.Blob, m.Sub.ID), store.Submissions.Put(tx, m.Sub)); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{AccountID: m.Sub.AccountID, Kind: kindHoldByItself, Lane: "hold " + m.Sub.AccountID, Args: holdByItselfArgs{m.Sub.ID, m.To}})
	return err
}

func (s *Service) holdByItselfKind() jobs.Kind {
	return jobs.Kind{Name: kindHoldByItself, Work: s.readByItself, Timeout: 10 * time.Minute}
}

func (s *Service) readByItself(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[holdByItselfArgs](j)
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
	content, err := s.makeHeldByItself(ctx, sub, args.To, blob)
	if refused := new(core.SMTPError); errors.As(err, &refused) && refused.Code >= 500 {
		s.Log.Info("a mailbox does not send by itself what nobody can be shown for approval", "mailbox_id", sub.MailboxID, "error", err)
		return func(tx *store.Tx, _ *store.Job) error { return dropByItself(tx, args.SubmissionID) }, nil
	}
	if err != nil {
		return nil, err
	}
	jobs.Finally(ctx, func() { s.Store.Release(content.blob) }) // does nothing for what is held
	return func(tx *store.Tx, _ *store.Job) error {
		sub, err := store.Submissions.Find(tx, args.SubmissionID)
		if sub == nil || err != nil {
			return err
		}
		d, err := store.Domains.Find(tx, sub.DomainID)
		if err != nil {
			return err
		}
		full := mayHold(tx, sub.AccountID) // whoever writes to the mailbox has it hold something
		if full != nil {
			tx.After(func() {
				s.Log.Warn(outbound.PastLimit, "kind", "held", "account_id", sub.AccountID, "mailbox_id", sub.MailboxID, "waits", false, "limit", full.Error())
			})
		}
		if d != nil && full == nil {
			held := *sub
			if _, _, err := s.holdForApproval(tx, &held, d, []outbound.Rcpt{args.To}, WhyHeld{Reason: agents.HeldByPolicy, Via: store.ApprovalViaRule, Content: content}); err != nil {
				return err
			}
		}
		return dropByItself(tx, sub.ID)
	}, nil
}

// dropByItself ends a submission that has no rows.
func dropByItself(tx *store.Tx, id string) error {
	sub, err := store.Submissions.Find(tx, id)
	if sub == nil || err != nil {
		return err
	}
	return errors.Join(tx.UnrefBlob(sub.Blob, sub.ID), store.Submissions.Delete(tx, sub.ID))
}

// makeHeldByItself makes a message again that a mailbox sends by itself. What it passes on becomes
// its own, since the author's signature does not hold for the new one.
func (s *Service) makeHeldByItself(ctx context.Context, sub *store.Submission, to outbound.Rcpt, blob msg.Source) (*heldContent, error) {
	w := rewriting{byItself: true}
	if sub.Forward {
		var mb *store.Mailbox
		if err := s.Store.View(func(tx *store.Tx) (err error) {
			mb, err = store.Mailboxes.Find(tx, sub.MailboxID)
			return err
		}); err != nil {
			return nil, err
		}
		if mb == nil {
			return nil, unshowable()
		}
		local, domain, _ := msg.SplitEmail(mb.Email)
		w.forwarding = msg.Address{Mailbox: local, Host: domain}
	}
	return s.makeHeld(ctx, inbox.Envelope{From: sub.Sender}, []outbound.Rcpt{to}, blob, w)
}
