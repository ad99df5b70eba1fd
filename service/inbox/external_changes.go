package inbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	changeTimeout  = 60 * time.Second // of a change by the API on a server
	changesAtOnce  = 8                // of one request
	messageUnknown = "The mail server has renumbered the mailbox. Read the inbox again."
)

// onServer changes something on the server of an external mailbox. fn runs in the mailbox's turn,
// so that no comparison takes what it changes back; what it returns is the answer, and nothing that
// is stored has changed before. A server that does not do it is a 502.
func (s *Service) onServer(ctx context.Context, mb *store.Mailbox, fn func(context.Context, *pull.Session) error) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	host := mb.External.IMAP.Host
	release, err := s.externals.changeSlots.Acquire(ctx, mb.AccountID)
	if err != nil {
		return upstreamError(host, err)
	}
	defer release()
	session, err := s.Connect(ctx, mb)
	if err != nil {
		return upstreamError(host, err)
	}
	defer session.Close()
	done, err := s.externals.changeLocks.Lock(ctx, mb.ID)
	if err != nil {
		return upstreamError(host, err)
	}
	defer done()
	remote, err := session.Select(ctx)
	if err != nil {
		return upstreamError(host, err)
	}
	err = s.Store.View(func(tx *store.Tx) error {
		box, err := remoteBox(tx, mb)
		if err == nil && box.UIDValidity != remote.UIDValidity {
			return core.Errorf("not_found", "%s", messageUnknown)
		}
		return err
	})
	if err == nil {
		err = fn(ctx, session)
	}
	if _, ours := core.AsError(err); err == nil || ours || isStoreError(err) {
		return err
	}
	return upstreamError(host, err)
}

// upstreamError is the answer for a server elsewhere that did not do what was asked.
func upstreamError(host string, err error) *core.Error {
	var f *pullFailure
	if !errors.As(err, &f) {
		f = explainPull(host, err)
	}
	return core.Errorf("upstream_error", "%s Nothing was changed here.", f.text).With(host, "upstream_error", "the mailbox's server").Because(err)
}

// markRemote marks messages of an external mailbox, there first, and gives the rows of those that
// are there as they are then.
func (s *Service) markRemote(ctx context.Context, mb *store.Mailbox, uids []uint32, m pull.FlagChange) (rows map[uint32]pull.Row, err error) {
	err = s.onServer(ctx, mb, func(ctx context.Context, session *pull.Session) error {
		found, err := session.ChangeFlags(ctx, uids, m)
		if err != nil {
			return err
		}
		rows = map[uint32]pull.Row{}
		for _, r := range found {
			rows[r.UID] = r
		}
		gone := slices.DeleteFunc(slices.Clone(uids), func(uid uint32) bool { return rows[uid].UID != 0 })
		return s.Store.Update(func(tx *store.Tx) error {
			s.changed(tx, mb.Num)
			for _, r := range found {
				if err := setRow(tx, mb, r); err != nil {
					return err
				}
			}
			return removeUIDs(tx, mb, gone)
		})
	})
	return rows, err
}

// markRemoteOne is markRemote for one message, and gives its flags.
func (s *Service) markRemoteOne(ctx context.Context, mb *store.Mailbox, uid uint32, marks MessageMarks) (Flags, error) {
	rows, err := s.markRemote(ctx, mb, []uint32{uid}, marks.remote())
	if err != nil {
		return 0, err
	}
	if e := notMarked(mb, []uint32{uid}, rows, marks.remote())[uid]; e != nil {
		return 0, e
	}
	flags, _ := remoteFlags(rows[uid].Flags)
	return flags, nil
}

// deleteRemote deletes messages of an external mailbox, there first, and says which its server
// keeps all the same.
func (s *Service) deleteRemote(ctx context.Context, who core.Actor, mb *store.Mailbox, uids []uint32) (left []uint32, err error) {
	err = s.onServer(ctx, mb, func(ctx context.Context, session *pull.Session) (err error) {
		left, err = session.Delete(ctx, uids)
		if err != nil {
			return err
		}
		kept := map[uint32]bool{}
		for _, uid := range left {
			kept[uid] = true
		}
		var gone []uint32
		for _, uid := range uids {
			if !kept[uid] {
				gone = append(gone, uid)
			}
		}
		return s.Store.Update(func(tx *store.Tx) error {
			tx.After(func() { s.Hub.Changed(mb.Num) })
			if err := removeUIDs(tx, mb, gone); err != nil || len(gone) == 0 {
				return err
			}
			return auditDeleted(tx, who, mb, gone...)
		})
	})
	return left, err
}

// notDeleted is said of a message that a server was told to delete and still has.
func notDeleted(mb *store.Mailbox) *core.Error {
	host := mb.External.IMAP.Host
	return core.Errorf("upstream_error", "%s did not delete the message. Nothing was changed here.", host).With(host, "upstream_error", "the mailbox's server")
}

// findExternal is find in a snapshot of its own; external says that the message is to be changed on
// its server.
func (s *Service) findExternal(p messagePicker) (mb *store.Mailbox, f *Folder, m *store.Message, external bool, err error) {
	err = s.Store.View(func(tx *store.Tx) (err error) {
		mb, f, m, err = p.find(tx)
		return err
	})
	return mb, f, m, err == nil && mb.External != nil && m.Folder == store.InboxID, err
}
