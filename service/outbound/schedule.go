package outbound

import (
	"context"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// UpdateScheduledIn is the request of update_scheduled_message.
type UpdateScheduledIn struct {
	ID     string     `path:"id" example:"msg_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	SendAt *core.Time `json:"send_at" required:"true" log:"true"` // The new time to send it.
}

// UpdateScheduledMessage changes the send time of a scheduled message for one recipient. The error
// is not_scheduled if the message is not scheduled or is being sent.
func (s *Service) UpdateScheduledMessage(_ context.Context, who core.Actor, in UpdateScheduledIn) (*SentMessage, error) {
	at, err := core.ParseSendAt(s.Now(), in.SendAt)
	if err != nil {
		return nil, err
	}
	if at.IsZero() {
		return nil, core.Invalid("send_at", "required", "must be a time; to send the message now, name the next second")
	}
	return s.changeRow(who, in.ID, func(tx *store.Tx, row *store.Outgoing) error {
		refused := core.Errorf("not_scheduled", "The message is %s; only the time of a scheduled message can be changed.", row.Status)
		if row.Status != store.OutgoingScheduled {
			return refused
		}
		j, err := store.Jobs.Find(tx, row.JobID)
		if err != nil {
			return err
		}
		if j != nil {
			if j.State != store.JobQueued || !tx.Now().Before(row.NextAt) {
				return core.Errorf("not_scheduled", "The message is being sent at this moment.")
			}
			if err := s.Queue.Cancel(tx, j.ID); err != nil {
				return err
			}
		}
		row.SendAt, row.TriedFrom, row.UpdatedAt = at, at, tx.Now()
		if err := s.PutRowWithJob(tx, row); err != nil {
			return err
		}
		return core.Audit(tx, who, store.AuditTarget{Type: "message", ID: row.ID, Name: row.Recipient})
	})
}

// PutRowWithJob writes a pending row with a new job on its current route.
func (s *Service) PutRowWithJob(tx *store.Tx, row *store.Outgoing) error {
	sub, err := store.Submissions.Get(tx, row.SubmissionID)
	if err != nil {
		return err
	}
	d, err := store.Domains.Find(tx, sub.DomainID)
	if err != nil {
		return err
	}
	r, err := s.RouteOf(tx, d, row)
	if err != nil {
		return err
	}
	row.Transport = r.Transport
	return s.putWithJob(tx, row, r)
}

// withSentCopy extends the writes of an attempt: for a submission whose Sent copy is filed when it
// is sent, the first attempt for any of its recipients files the copy.
func (s *Service) withSentCopy(d *delivery, writes jobs.Writes) (jobs.Writes, error) {
	if !d.sub.FileSent || d.damaged || writes == nil {
		return writes, nil
	}
	stored, err := inbox.ReadMessage(d.blob, d.blob.Size(), d.sub.Sender)
	if err != nil {
		return nil, err
	}
	stored.Blob, stored.Meta.Bcc = d.sub.Blob, d.sub.Bcc
	var mb *store.Mailbox
	if err := s.Store.View(func(tx *store.Tx) (err error) {
		mb, err = core.LiveMailbox(tx, d.sub.MailboxID)
		return err
	}); err != nil {
		return nil, err
	}
	if mb == nil {
		return writes, nil
	}
	answered, err := s.inbox.FindAnswered(mb, d.sub.Answers)
	if err != nil {
		return nil, err
	}
	return func(tx *store.Tx, j *store.Job) error {
		sub, err := store.Submissions.Find(tx, d.sub.ID)
		if err != nil {
			return err
		}
		if sub != nil && sub.FileSent {
			if err := s.fileSent(tx, sub, stored, answered); err != nil {
				return err
			}
		}
		return writes(tx, j)
	}, nil
}

// fileSent files the Sent copy of a submission as read, and marks the messages that the submission
// answers. If the storage of the account is full, the message leaves without a copy.
func (s *Service) fileSent(tx *store.Tx, sub *store.Submission, stored *inbox.StoredMessage, answered []inbox.AnsweredMessage) error {
	sub.FileSent = false
	if err := store.Submissions.Put(tx, sub); err != nil {
		return err
	}
	mb, err := core.LiveMailbox(tx, sub.MailboxID)
	if mb == nil || err != nil {
		return err
	}
	stored.Origin = agents.OriginOf(mb.AccountID, sub)
	left, err := tx.StorageLeft(mb.AccountID)
	if err != nil {
		return err
	}
	if left < int64(stored.Blob.Length) {
		tx.After(func() {
			s.Log.Warn("a message has no copy in Sent: the storage of its account is full", "message_id", sub.ID, "account_id", mb.AccountID)
		})
		return s.inbox.MarkAnswered(tx, mb, answered, sub.AnsweredBy)
	}
	return s.FileSentCopy(tx, mb, stored, answered, sub.AnsweredBy)
}

// FileSentCopy files a message in the Sent folder as read, and marks the messages that it answers.
// answeredBy is who answers them; see AnsweredBy in store.Meta. The caller checks the storage of
// the account; the quota of the mailbox does not count.
func (s *Service) FileSentCopy(tx *store.Tx, mb *store.Mailbox, stored *inbox.StoredMessage, answered []inbox.AnsweredMessage, answeredBy string) error {
	folder, err := s.inbox.SentFolder(tx, mb)
	if err != nil {
		return err
	}
	if _, err := s.inbox.File(tx, mb, stored, inbox.Filing{Folder: folder, Received: tx.Now(), Flags: store.FlagSeen}); err != nil {
		return err
	}
	return s.inbox.MarkAnswered(tx, mb, answered, answeredBy)
}
