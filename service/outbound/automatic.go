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

// maxForwardWait is the longest time that a forward waits until the limits of its sender allow it.
const maxForwardWait = 5 * 24 * time.Hour

// forwardsSpread is the time at the beginning of a day over which the forwards that waited for that
// day are spread.
const forwardsSpread = 2 * time.Hour

// An AutomaticMail is a message that this server sends without a person's request.
type AutomaticMail struct {
	Kind    reputation.Automatic
	Mailbox *store.Mailbox // the mailbox that causes it, or nil
	Domain  *store.Domain
	account string // the account that a HostMail or an alert is about
	Sub     *store.Submission
	To      []Rcpt
	Since   time.Time // when a forward began to wait; zero if it has not waited
	Once    bool      // see ForwardArgs
}

// SendAutomatic queues automatic mail. All automatic mail goes through here: it counts against the
// limits of its sender, and against the limits of automatic mail to each of its recipients. Mail
// above a limit is dropped and logged. A forward waits for the next day instead, unless too many
// wait. A HostMail above a limit is an error, so that its transaction fails; an alert is retried
// later.
func (s *Service) SendAutomatic(tx *store.Tx, m AutomaticMail) error {
	var to []Rcpt
	for _, r := range m.To {
		suppressed, err := isSuppressed(tx, m.Sub, r.Address)
		if err != nil {
			return err
		}
		if suppressed || s.Simulates(r.Address) {
			to = append(to, r) // addDelivery records the suppression, and simulated mail stays here
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
		case m.Kind == reputation.AutomaticHostMail:
			s.Log.Warn(PastLimit, "kind", m.Kind.String(), "account_id", m.account, "limit", past.Message)
			return jobs.Permanent(err)
		case m.Kind == reputation.AutomaticAlert:
			s.Log.Warn(PastLimit, "kind", m.Kind.String(), "account_id", m.account, "waits", true, "limit", past.Message)
			return jobs.Snooze(m.Kind.NextReset(tx))
		}
		waits := false
		if m.Kind == reputation.AutomaticForward || m.Kind == reputation.AutomaticRequired {
			if m.Since.IsZero() {
				m.Since = tx.Now()
			}
			if tx.Now().Sub(m.Since) < maxForwardWait {
				waits, err = s.reputation.MayWait(tx, m.Kind, m.Sub.AccountID)
				if err != nil {
					return err
				}
			}
		}
		if waits {
			again := m.Kind.NextReset(tx).Add(time.Duration(s.Queue.Rand() * float64(forwardsSpread)))
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

// PastLimit is the log line for automatic mail that a limit stops.
const PastLimit = "a program's mail is past a limit"

// KindForward is the kind of the jobs that PlanForward adds. Package submit handles them, since
// policies apply to them.
const KindForward = "forward"

// ForwardArgs are the arguments of a job that forwards a message.
type ForwardArgs struct {
	SubmissionID string    `json:"submission_id"` // the submission with the bytes; it has no rows
	To           []string  `json:"to"`
	Once         bool      `json:"once,omitempty"` // skip recipients to whom the mailbox has forwarded it before
	Since        time.Time `json:"since,omitzero"` // when it began to wait for a limit
}

// PlanForward stores a copy of original, with a new ID, and queues a job that forwards it. The job
// starts at due, or now if due is zero.
func (s *Service) PlanForward(tx *store.Tx, original *store.Submission, args ForwardArgs, due time.Time) error {
	sub := *original
	sub.ID, sub.CreatedAt, sub.Waiting = tx.NewID("sub"), tx.Now(), 1
	if err := errors.Join(store.SubmissionBlobs.Ref(tx, sub.Blob, sub.ID), store.Submissions.Put(tx, &sub)); err != nil {
		return err
	}
	lane := "forward " + cmp.Or(sub.MailboxID, sub.AccountID) // one at a time, so that each sees what earlier ones have sent
	args.SubmissionID = sub.ID
	_, err := s.Queue.Add(tx, jobs.New{AccountID: sub.AccountID, Kind: KindForward, Lane: lane, Args: args, Due: due})
	return err
}

// An AutoMessage is an automatic message of a mailbox, such as a reply or a forward.
type AutoMessage struct {
	Sub    *store.Submission
	Domain *store.Domain
	To     Rcpt
	Since  time.Time       // when a forward began to wait for a limit; zero if it has not waited
	Once   bool            // see ForwardArgs
	Facts  *agents.Message // for the policy of the mailbox; nil if it has none, or if the facts are not collected yet
}
