package outbound

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/external"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

const (
	KindRemoteCopy = "remote_copy"

	copyTries   = 12 // attempts, over about seven hours
	copyTimeout = 10 * time.Minute
	maxCopies   = 1000            // copies queued for one account
	copyDelay   = 5 * time.Second // how long to wait after sending: a server that files sent mail itself has then done so
)

// copyArgs are the arguments of a job that copies a message to an external mailbox.
type copyArgs struct {
	CopyID string `json:"copy_id"`
}

// copyKind is the kind of the jobs that append messages to folders of external mailboxes, as mail
// clients do.
func (s *Service) copyKind() jobs.Kind {
	return jobs.Kind{
		Name: KindRemoteCopy, Work: s.appendCopy, Max: copyTries, Timeout: copyTimeout, PerLane: external.PullsPerHost, Most: external.MaxCopies, MostEach: external.MaxCopiesPerAccount,
		Backoff: external.FailureWait,
		Failed: func(tx *store.Tx, j *store.Job, _ error) error {
			args, err := jobs.Args[copyArgs](j)
			if err != nil {
				return nil // invalid arguments: no copy to drop
			}
			return dropCopy(tx, args.CopyID)
		},
	}
}

// queueSentCopy queues a copy for the Sent folder of an external mailbox, after the mailbox's own
// server has accepted the message. It queues one copy for all recipients. An error in copying does
// not affect sending.
func (s *Service) queueSentCopy(tx *store.Tx, submissionID string) error {
	sub, err := store.Submissions.Get(tx, submissionID)
	if core.IsGone(err) || err == nil && sub.Copied {
		return nil
	}
	if err != nil {
		return err
	}
	mb, err := core.LiveMailbox(tx, sub.MailboxID)
	if mb == nil || err != nil {
		return err
	}
	sub.Copied = true
	if err := store.Submissions.Put(tx, sub); err != nil {
		return err
	}
	return s.queueCopy(tx, mb, store.RemoteCopy{MessageID: sub.MessageID, Sent: true, Blob: sub.Blob}, copyDelay)
}

// queueCopy queues a copy of a message for a folder of an external mailbox. It does nothing if the
// account already has maxCopies queued.
func (s *Service) queueCopy(tx *store.Tx, mb *store.Mailbox, c store.RemoteCopy, wait time.Duration) error {
	if store.RemoteCopiesByAccount.Count(tx, mb.AccountID, maxCopies) == maxCopies {
		return nil
	}
	c.ID, c.AccountID, c.MailboxID, c.CreatedAt = tx.NewID("rcp"), mb.AccountID, mb.ID, tx.Now()
	if err := store.CopyBlobs.Ref(tx, c.Blob, c.ID); err != nil {
		return err
	}
	if err := store.RemoteCopies.Put(tx, &c); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: KindRemoteCopy, Lane: "copy " + mb.External.IMAP.Host, Args: copyArgs{c.ID}, Due: tx.Now().Add(wait),
	})
	return err
}

func dropCopy(tx *store.Tx, id string) error {
	c, err := store.RemoteCopies.Get(tx, id)
	if core.IsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := store.CopyBlobs.Unref(tx, c.Blob, c.ID); err != nil {
		return err
	}
	return store.RemoteCopies.Delete(tx, c.ID)
}

// appendCopy appends the message to its folder unless it is there already: the server may have
// filed it itself, or an interrupted attempt may have appended it.
func (s *Service) appendCopy(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[copyArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var c *store.RemoteCopy
	var mb *store.Mailbox
	err = s.Store.View(func(tx *store.Tx) (err error) {
		c, err = store.RemoteCopies.Get(tx, args.CopyID)
		if err == nil {
			mb, err = core.LiveMailbox(tx, c.MailboxID)
		}
		return err
	})
	if core.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	drop := func(tx *store.Tx, _ *store.Job) error { return dropCopy(tx, c.ID) }
	if mb == nil || mb.External == nil {
		return drop, nil
	}
	if err := s.appendCopyOnce(ctx, mb, c); err != nil {
		if errors.Is(err, pull.ErrLogin) || errors.Is(err, pull.ErrRefused) {
			err = jobs.Permanent(err)
		}
		return nil, err
	}
	return drop, nil
}

// appendCopyOnce makes one attempt to append a copy to its folder of the external mailbox. It does
// nothing if the folder already has the message.
func (s *Service) appendCopyOnce(ctx context.Context, mb *store.Mailbox, c *store.RemoteCopy) error {
	session, err := s.servers.Connect(ctx, mb)
	if err != nil {
		return err
	}
	defer session.Close()
	folder := inbox.InboxName
	if c.Sent {
		if session.StoresSentMail() {
			return nil
		}
		folder, err = session.SentFolder(ctx)
		if err != nil || folder == "" {
			return err
		}
	}
	if c.MessageID != "" {
		if held, err := session.Holds(ctx, folder, c.MessageID); held || err != nil {
			return err
		}
	}
	blob, err := s.Store.OpenBlob(c.Blob)
	if err != nil {
		return fmt.Errorf("open message to copy: %w", err)
	}
	defer blob.Close()
	return session.Append(ctx, folder, c.Sent, c.CreatedAt, blob.Size(), msg.Whole(blob))
}
