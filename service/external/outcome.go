package external

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// syncMailbox syncs a mailbox with its server. It opens a new session, which the caller must close.
// box is nil if the mailbox was deleted or closed. progress may be nil: then it is a background
// sync.
func (s *Service) syncMailbox(ctx context.Context, id string, progress func(done, total int)) (*pull.Session, *store.RemoteBox, error) {
	done, err := s.syncLocks.Lock(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	v, err := s.newSyncRun(id, progress == nil)
	if v == nil || err != nil {
		return nil, nil, err
	}
	v.progress = progress
	v.session, err = s.Connect(ctx, v.mb)
	if err == nil {
		if err = s.prover.ProveByLogin(ctx, v.mb, v.session.RemoteAddr()); err == nil {
			err = v.run(ctx)
		}
	}
	box, kept := s.saveSync(ctx, v, err)
	if kept != nil {
		err = errors.Join(err, kept)
	}
	return v.session, box, err
}

// newSyncRun prepares a sync. It returns nil if the mailbox was deleted or closed or, for a
// background sync, must not be synced in the background.
func (s *Service) newSyncRun(id string, background bool) (*syncRun, error) {
	v := &syncRun{s: s, id: id, background: background}
	err := s.Store.View(func(tx *store.Tx) (err error) {
		v.mb, err = v.currentMailbox(tx)
		if v.mb == nil || err != nil {
			return err
		}
		v.box, err = core.RemoteBox(tx, v.mb)
		return err
	})
	if v.mb == nil || err != nil {
		return nil, err
	}
	return v, nil
}

// currentMailbox returns the mailbox with the data in tx; nil if it must not be synced any more.
func (v *syncRun) currentMailbox(tx *store.Tx) (*store.Mailbox, error) {
	if v.background {
		return syncedInBackground(tx, v.id)
	}
	mb, err := store.Mailboxes.Find(tx, v.id)
	if err != nil {
		return nil, err
	}
	if mb == nil || !mb.MayFetch() {
		return nil, nil
	}
	a, err := store.Accounts.Read(tx, mb.AccountID)
	if err != nil || !a.MayAct() {
		return nil, err
	}
	return mb, nil
}

// saveSync records the result of a sync in the mailbox and in its RemoteBox. cause is nil for a
// successful sync.
func (s *Service) saveSync(ctx context.Context, v *syncRun, cause error) (box *store.RemoteBox, err error) {
	if errors.Is(cause, errNotSynced) || ctx.Err() != nil && cause != nil {
		return nil, nil
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Find(tx, v.id)
		if err != nil {
			return err
		}
		if mb == nil || mb.External == nil {
			box = nil
			return nil
		}
		state := *v.box
		box = &state
		if cause == nil {
			return s.recordSuccess(tx, mb, box, v)
		}
		return s.recordFailure(tx, mb, box, cause)
	})
	return box, err
}

// recordSuccess records a successful sync.
func (s *Service) recordSuccess(tx *store.Tx, mb *store.Mailbox, box *store.RemoteBox, v *syncRun) error {
	box.Fails, box.Refusals = 0, 0
	box.Wait = min(max(box.Wait+box.Wait/2, minPollWait), maxPollWait)
	if v.found > 0 {
		box.ActiveAt, box.Wait = tx.Now(), minPollWait
	}
	if err := store.RemoteBoxes.Put(tx, box); err != nil {
		return err
	}
	if mb.Status == store.MailboxError {
		mb.Status = store.MailboxActive
	}
	mb.ErrorCode, mb.ErrorText, mb.LastSyncAt = "", "", tx.Now()
	if err := store.Mailboxes.Put(tx, mb); err != nil {
		return err
	}
	a, err := store.Accounts.Get(tx, mb.AccountID)
	if err != nil {
		return err
	}
	a.SyncedAt = tx.Now()
	return store.Accounts.Put(tx, a)
}

// SyncFailedText is the error text of a sync that failed because of an error of this installation.
const SyncFailedText = "The mailbox could not be read. See the log of this installation."

// recordFailure records a failed sync. If the server has definitely refused the login, the mailbox
// is synced again only on request, because servers lock out clients that try repeatedly.
func (s *Service) recordFailure(tx *store.Tx, mb *store.Mailbox, box *store.RemoteBox, cause error) error {
	box.Fails++
	mb.ErrorCode, mb.ErrorText = "internal_error", SyncFailedText
	var f *serverError
	if errors.As(cause, &f) {
		mb.ErrorCode, mb.ErrorText = "upstream_error", f.text
	} else if e, ok := core.AsError(cause); ok {
		mb.ErrorCode, mb.ErrorText = e.Code, e.Message
	}
	var login *pull.LoginError
	if errors.As(cause, &login) {
		box.Refusals++
		if mb.Status == store.MailboxActive && (login.Final || box.Refusals >= maxRefusals) {
			mb.Status = store.MailboxError
		}
	}
	if err := store.RemoteBoxes.Put(tx, box); err != nil {
		return err
	}
	return store.Mailboxes.Put(tx, mb)
}
