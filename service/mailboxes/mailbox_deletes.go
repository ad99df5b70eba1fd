package mailboxes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// eraseChunk is how many messages one transaction of a deletion takes, so that others wait for
// milliseconds only.
const eraseChunk = 200

// eraseArgs is the job of deleting mailboxes that are marked already.
type eraseArgs struct {
	UserIDs []string `json:"user_ids"`
}

func (s *Service) eraseKind(name string) jobs.Kind {
	return jobs.Kind{Name: name, Work: s.eraseMailboxes, Timeout: time.Hour, Lanes: 2, Visible: true}
}

// EmailUserDeleted says which job deletes a mailbox.
type EmailUserDeleted struct {
	Message string `json:"message" words:"ours"`
	UserID  string `json:"user_id" words:"ours"`
	JobID   string `json:"job_id" words:"ours"`
}

// DeleteEmailUser takes a mailbox out of use at once; a job deletes its mail and then its record. A
// second request answers the same job.
func (s *Service) DeleteEmailUser(_ context.Context, who core.Actor, in core.EmailUserIn) (*EmailUserDeleted, error) {
	out := &EmailUserDeleted{UserID: in.UserID}
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.MailboxOf(tx, who, in.UserID)
		if err != nil {
			return err
		}
		out.Message = fmt.Sprintf("%s no longer takes mail or log-ins. Its mail is deleted in the background.", mb.Email)
		if mb.Status == "deleting" {
			out.JobID = mb.JobID
			return nil
		}
		j, err := s.Queue.Add(tx, jobs.New{
			AccountID: who.AccountID, Kind: "email_user_delete", Lane: "erase " + who.AccountID, CreatedBy: who.UserID,
			Args: eraseArgs{[]string{mb.ID}}, Resource: store.JobResource{Type: "email_user", ID: mb.ID, Name: mb.Email}, Total: 1,
		})
		if err != nil {
			return err
		}
		out.JobID = j.ID
		return s.DeleteMailbox(tx, mb, j.ID)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DeleteMailbox takes a mailbox out of use and frees its address. The job calls eraseMailbox for
// the rest.
func (s *Service) DeleteMailbox(tx *store.Tx, mb *store.Mailbox, jobID string) error {
	tx.MayUseReserve() // the mail goes later, by the job
	mb.Status, mb.JobID, mb.UpdatedAt = "deleting", jobID, tx.Now()
	tx.After(func() {
		s.Hub.Changed(mb.Num)
		s.inbox.EndIdle(mb.ID)
	})
	return store.Mailboxes.Put(tx, mb)
}

// eraseMailboxes is the work of both kinds of jobs. Begun again after a crash it goes on where it
// was.
func (s *Service) eraseMailboxes(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[eraseArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for i, id := range args.UserIDs {
		if err := s.EraseMailbox(ctx, id); err != nil {
			return nil, fmt.Errorf("delete mailbox %s: %w", id, err)
		}
		jobs.Progress(ctx, i+1, len(args.UserIDs), "")
	}
	return nil, nil
}

// EraseMailbox deletes the mail of a marked mailbox a bounded number at a time, and with the last
// of it the record, and tells of it. What is not there is erased.
func (s *Service) EraseMailbox(ctx context.Context, id string) error {
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Store.Update(func(tx *store.Tx) error {
			mb, err := store.Mailboxes.Find(tx, id)
			if err != nil {
				return err
			}
			if mb == nil {
				done = true
				return nil
			}
			done, err = tx.DropMailbox(mb.AccountNum, mb.Num, eraseChunk)
			if err != nil || !done {
				return err
			}
			tx.After(func() { s.Hub.Changed(mb.Num) })
			if err := errors.Join(store.RemoteBoxes.Delete(tx, id), store.Mailboxes.Delete(tx, id)); err != nil {
				return err
			}
			return s.emitMailbox(tx, events.EventEmailUserDeleted, mb)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
