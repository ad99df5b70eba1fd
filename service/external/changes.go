package external

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

const (
	changeTimeout     = 60 * time.Second // time limit for a change on a server that an API request makes
	mailboxRenumbered = "The mail server has renumbered the mailbox. Read the inbox again."
)

// withServer calls fn with a session on the server of an external mailbox, to change messages
// there. While fn runs, it holds the mailbox's change lock, so that a sync cannot revert the
// changes. Errors of the server become upstream_error (502); other errors of fn are returned
// unchanged. If withServer returns an error before fn runs, nothing has changed here.
func (s *Servers) withServer(ctx context.Context, mb *store.Mailbox, fn func(context.Context, *pull.Session) error) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	host := mb.External.IMAP.Host
	release, err := s.changeSlots.Acquire(ctx, mb.AccountID)
	if err != nil {
		return upstreamError(host, err)
	}
	defer release()
	session, err := s.Connect(ctx, mb)
	if err != nil {
		return upstreamError(host, err)
	}
	defer session.Close()
	done, err := s.changeLocks.Lock(ctx, mb.ID)
	if err != nil {
		return upstreamError(host, err)
	}
	defer done()
	remote, err := session.Select(ctx)
	if err != nil {
		return upstreamError(host, err)
	}
	err = s.Store.View(func(tx *store.Tx) error {
		box, err := core.RemoteBox(tx, mb)
		if err == nil && box.UIDValidity != remote.UIDValidity {
			return core.Errorf("not_found", "%s", mailboxRenumbered)
		}
		return err
	})
	if err == nil {
		err = fn(ctx, session)
	}
	if _, ours := core.AsError(err); err == nil || ours || core.IsStoreError(err) {
		return err
	}
	return upstreamError(host, err)
}

// upstreamError returns the error for a request that an external server has not carried out.
func upstreamError(host string, err error) *core.Error {
	var f *serverError
	if !errors.As(err, &f) {
		f = explainServerError(host, err)
	}
	return core.Errorf("upstream_error", "%s Nothing was changed here.", f.text).With(host, "upstream_error", "the mailbox's server").Because(err)
}

// Mark changes flags of messages of an external mailbox, first on its server and then here. It
// returns maps by UID: marked has the new flags of each changed message, and failures the error of
// each other message.
func (s *Servers) Mark(ctx context.Context, mb *store.Mailbox, uids []uint32, m pull.FlagChange) (marked map[uint32]inbox.Flags, failures map[uint32]*core.Error, err error) {
	rows := map[uint32]pull.Row{}
	err = s.withServer(ctx, mb, func(ctx context.Context, session *pull.Session) error {
		found, err := session.ChangeFlags(ctx, uids, m)
		if err != nil {
			return err
		}
		for _, r := range found {
			rows[r.UID] = r
		}
		gone := slices.DeleteFunc(slices.Clone(uids), func(uid uint32) bool { return rows[uid].UID != 0 })
		return s.Store.Update(func(tx *store.Tx) error {
			tx.After(func() { s.Hub.Changed(mb.Num) })
			for _, r := range found {
				if err := setRemoteFlags(tx, mb, r); err != nil {
					return err
				}
			}
			return removeUIDs(tx, mb, gone)
		})
	})
	if err != nil {
		return nil, nil, err
	}
	marked, failures = map[uint32]inbox.Flags{}, map[uint32]*core.Error{}
	for _, uid := range uids {
		row, found := rows[uid]
		switch {
		case !found:
			failures[uid] = core.NotFound("message")
		case !m.IsSatisfiedBy(row.Flags):
			failures[uid] = upstreamError(mb.External.IMAP.Host, fmt.Errorf("change flags of message %d: %w: the server did not change them", uid, pull.ErrRefused))
		default:
			marked[uid], _ = remoteFlags(row.Flags)
		}
	}
	return marked, failures, nil
}

// Delete deletes messages of an external mailbox, first on its server and then here. failures has
// an error, by UID, for each message that the server did not delete.
func (s *Servers) Delete(ctx context.Context, who core.Actor, mb *store.Mailbox, uids []uint32) (failures map[uint32]*core.Error, err error) {
	err = s.withServer(ctx, mb, func(ctx context.Context, session *pull.Session) error {
		left, err := session.Delete(ctx, uids)
		if err != nil {
			return err
		}
		failures = map[uint32]*core.Error{}
		for _, uid := range left {
			failures[uid] = notDeletedError(mb)
		}
		var gone []uint32
		for _, uid := range uids {
			if failures[uid] == nil {
				gone = append(gone, uid)
			}
		}
		return s.Store.Update(func(tx *store.Tx) error {
			tx.After(func() { s.Hub.Changed(mb.Num) })
			if err := removeUIDs(tx, mb, gone); err != nil || len(gone) == 0 {
				return err
			}
			return inbox.AuditDeleted(tx, who, mb, gone...)
		})
	})
	return failures, err
}

// notDeletedError returns the error for a message that a server did not delete.
func notDeletedError(mb *store.Mailbox) *core.Error {
	host := mb.External.IMAP.Host
	return core.Errorf("upstream_error", "%s did not delete the message. Nothing was changed here.", host).With(host, "upstream_error", "the mailbox's server")
}
