package outbound

import (
	"cmp"
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

// An AutomaticMail is a message that this server sends by itself.
type AutomaticMail struct {
	Kind    reputation.Automatic
	Mailbox *store.Mailbox // nil: none starts it
	Domain  *store.Domain
	account string // that a letter or an alert is about
	Sub     *store.Submission
	To      []Rcpt
	Since   time.Time // when a forward began to wait; zero: it has not
	Once    bool      // see ForwardArgs
}

// SendAutomatic queues what a program of ours starts. All such mail goes through here: it counts
// against the limits of who sends it, and of what its recipients get from programs of ours. What is
// past them is dropped, and the log tells. A forward waits for the next day, where not too many do.
// A letter that is dropped is an error, so that its transaction fails, and an alert comes later.
func (s *Service) SendAutomatic(tx *store.Tx, m AutomaticMail) error {
	var to []Rcpt
	for _, r := range m.To {
		suppressed, err := isSuppressed(tx, m.Sub, r.Address)
		if err != nil {
			return err
		}
		if suppressed || s.Simulates(r.Address) {
			to = append(to, r) // which has a row that says so, or stays here
			continue
		}
		err = s.reputation.AdmitAutomatic(tx, m.Kind, m.Mailbox, m.Domain, cmp.Or(m.account, m.Sub.AccountID), strings.ToLower(r.Address))
		past := new(core.SMTPError)
		switch {
		case err == nil:
			to = append(to, r)
			continue
		case !errors.As(err, &past):
			return err
		case m.Kind == reputation.AutomaticLetter:
			s.Log.Warn(PastLimit, "kind", m.Kind.String(), "account_id", m.account, "limit", past.Message)
			return jobs.Permanent(err)
		case m.Kind == reputation.AutomaticAlert:
			s.Log.Warn(PastLimit, "kind", m.Kind.String(), "account_id", m.account, "waits", true, "limit", past.Message)
			return jobs.Snooze(m.Kind.Again(tx))
		}
		waits := false
		if m.Kind == reputation.AutomaticForward || m.Kind == reputation.AutomaticRequired {
			if m.Since.IsZero() {
				m.Since = tx.Now()
			}
			if tx.Now().Sub(m.Since) < forwardsWait {
				waits, err = s.reputation.MayWait(tx, m.Kind, m.Sub.AccountID)
				if err != nil {
					return err
				}
			}
		}
		if waits {
			again := m.Kind.Again(tx).Add(time.Duration(s.Queue.Rand() * float64(forwardsSpread)))
			if err := s.PlanForward(tx, m.Sub, ForwardArgs{To: []string{r.Address}, Since: m.Since, Once: m.Once}, again); err != nil {
				return err
			}
		}
		tx.After(func() {
			s.Log.Warn(PastLimit, "kind", m.Kind.String(), "account_id", m.Sub.AccountID, "mailbox_id", m.Sub.MailboxID, "waits", waits, "limit", past.Message)
		})
	}
	if len(to) == 0 {
		return nil
	}
	_, err := s.Enqueue(tx, m.Sub, m.Domain, to)
	return err
}

// PastLimit is the line of the log about mail that a limit stops.
const PastLimit = "a program's mail is past a limit"

// KindForward is the kind of the jobs that PlanForward adds; submit does them, since policies bound
// them.
const KindForward = "forward"

// ForwardArgs is the job of sending a message on.
type ForwardArgs struct {
	SubmissionID string    `json:"submission_id"` // has the bytes, and no rows
	To           []string  `json:"to"`
	Once         bool      `json:"once,omitempty"` // not where the mailbox has sent it before
	Since        time.Time `json:"since,omitzero"` // when it began to wait for a limit
}

// PlanForward has a job send a message on, at a time or, where that is zero, now.
func (s *Service) PlanForward(tx *store.Tx, like *store.Submission, args ForwardArgs, due time.Time) error {
	sub := *like
	sub.ID, sub.CreatedAt, sub.Waiting = tx.NewID("sub"), tx.Now(), 1
	if err := errors.Join(tx.RefBlob(sub.Blob, sub.ID), store.Submissions.Put(tx, &sub)); err != nil {
		return err
	}
	lane := "forward " + cmp.Or(sub.MailboxID, sub.AccountID) // one after the other: each sees what those before it sent
	args.SubmissionID = sub.ID
	_, err := s.Queue.Add(tx, jobs.New{AccountID: sub.AccountID, Kind: KindForward, Lane: lane, Args: args, Due: due})
	return err
}

// A ByItself is a message that a mailbox sends by itself.
type ByItself struct {
	Sub    *store.Submission
	Domain *store.Domain
	To     Rcpt
	Since  time.Time       // when a forward began to wait for a limit
	Once   bool            // see ForwardArgs
	Asked  *agents.Message // what the policy of the mailbox is asked; nil: nobody has found out
}
