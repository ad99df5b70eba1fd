package mta

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// forwardsWait is how long a forward waits for the limits of who sends it on.
const forwardsWait = 5 * 24 * time.Hour

// forwardsSpread is over how much of a day those that waited for it go out.
const forwardsSpread = 2 * time.Hour

// sentBefore is how many rows are looked at for where a message was sent on to before: anybody may
// have given it the Message-ID of a message to very many.
const sentBefore = 1000

// A startedMail is a message that a program of ours starts.
type startedMail struct {
	kind    reputation.Automatic
	mailbox *store.Mailbox // nil: none starts it
	domain  *store.Domain
	account string // that a letter or an alert is about
	sub     *store.Submission
	to      []Rcpt
	since   time.Time // when a forward began to wait; zero: it has not
	once    bool      // see forwardArgs
}

// start queues what a program of ours starts. All such mail goes through here: it counts against
// the limits of who sends it, and of what its recipients get from programs of ours. What is past
// them is dropped, and the log tells. A forward waits for the next day, where not too many do. A
// letter that is dropped is an error, so that its transaction fails, and an alert comes later.
func (s *Service) start(tx *store.Tx, m startedMail) error {
	var to []Rcpt
	for _, r := range m.to {
		suppressed, err := isSuppressed(tx, m.sub, r.Address)
		if err != nil {
			return err
		}
		if suppressed || s.Simulates(r.Address) {
			to = append(to, r) // which has a row that says so, or stays here
			continue
		}
		err = s.reputation.AdmitAutomatic(tx, m.kind, m.mailbox, m.domain, cmp.Or(m.account, m.sub.AccountID), strings.ToLower(r.Address))
		past := new(core.SMTPError)
		switch {
		case err == nil:
			to = append(to, r)
			continue
		case !errors.As(err, &past):
			return err
		case m.kind == reputation.AutomaticLetter:
			s.Log.Warn(pastLimit, "kind", m.kind.String(), "account_id", m.account, "limit", past.Message)
			return jobs.Permanent(err)
		case m.kind == reputation.AutomaticAlert:
			s.Log.Warn(pastLimit, "kind", m.kind.String(), "account_id", m.account, "waits", true, "limit", past.Message)
			return jobs.Snooze(m.kind.Again(tx))
		}
		waits := false
		if m.kind == reputation.AutomaticForward || m.kind == reputation.AutomaticRequired {
			if m.since.IsZero() {
				m.since = tx.Now()
			}
			if tx.Now().Sub(m.since) < forwardsWait {
				waits, err = s.reputation.MayWait(tx, m.kind, m.sub.AccountID)
				if err != nil {
					return err
				}
			}
		}
		if waits {
			again := m.kind.Again(tx).Add(time.Duration(s.Queue.Rand() * float64(forwardsSpread)))
			if err := s.planForward(tx, m.sub, forwardArgs{To: []string{r.Address}, Since: m.since, Once: m.once}, again); err != nil {
				return err
			}
		}
		tx.After(func() {
			s.Log.Warn(pastLimit, "kind", m.kind.String(), "account_id", m.sub.AccountID, "mailbox_id", m.sub.MailboxID, "waits", waits, "limit", past.Message)
		})
	}
	if len(to) == 0 {
		return nil
	}
	_, err := s.Enqueue(tx, m.sub, m.domain, to)
	return err
}

const pastLimit = "a program's mail is past a limit"

const kindForward = "forward"

// forwardArgs is the job of sending a message on.
type forwardArgs struct {
	SubmissionID string    `json:"submission_id"` // has the bytes, and no rows
	To           []string  `json:"to"`
	Once         bool      `json:"once,omitempty"` // not where the mailbox has sent it before
	Since        time.Time `json:"since,omitzero"` // when it began to wait for a limit
}

// planForward has a job send a message on, at a time or, where that is zero, now.
func (s *Service) planForward(tx *store.Tx, like *store.Submission, args forwardArgs, due time.Time) error {
	sub := *like
	sub.ID, sub.CreatedAt, sub.Waiting = tx.NewID("sub"), tx.Now(), 1
	if err := errors.Join(tx.RefBlob(sub.Blob, sub.ID), store.Submissions.Put(tx, &sub)); err != nil {
		return err
	}
	lane := "forward " + cmp.Or(sub.MailboxID, sub.AccountID) // one after the other: each sees what those before it sent
	args.SubmissionID = sub.ID
	_, err := s.Queue.Add(tx, jobs.New{AccountID: sub.AccountID, Kind: kindForward, Lane: lane, Args: args, Due: due})
	return err
}

// planForwards has a job send a message on to addresses that rules of its mailbox say.
func (s *Service) planForwards(tx *store.Tx, a arrival, to []string) error {
	if len(to) == 0 {
		return nil
	}
	sum := a.stored.Summary
	sub := &store.Submission{
		AccountID: a.to.Mailbox.AccountID, DomainID: a.to.domain.ID, MailboxID: a.to.Mailbox.ID, MessageID: sum.MessageID, Sender: a.sender,
		Subject: sum.Subject, Blob: a.stored.Blob, Forward: true, EightBit: true, RequireTLS: a.requireTLS,
	}
	if a.genuine {
		sub.ReportTo = a.sender
	}
	return s.planForward(tx, sub, forwardArgs{To: to, Once: true}, time.Time{})
}

func (s *Service) forwardKind() jobs.Kind {
	return jobs.Kind{Name: kindForward, Work: s.forward, Timeout: time.Minute}
}

// forward sends a message on, by a rule only to where its mailbox has not sent it before: it may
// have come back.
func (s *Service) forward(_ context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[forwardArgs](j)
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
			asked[args.To[i]], err = s.askAbout(tx, mb, args.To[i], false, nil)
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
			if err := s.sendByItself(tx, mb, byItself{sub: &sub, domain: d, to: Rcpt{Address: to}, since: args.Since, once: args.Once, asked: asked[to]}); err != nil {
				return err
			}
		}
		planned.Waiting = 0
		return keepSubmission(tx, planned)
	}, nil
}
