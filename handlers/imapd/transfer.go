package imapd

import (
	"errors"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/service/inbox"
)

// Copy copies messages to another folder, all or none.
func (ss *session) Copy(set imap.NumSet, dest string) (*imap.CopyData, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel := ss.selected
	copied, err := ss.server.Service.Inbox.CopyMessages(ss.conn.ctx, ss.user, sel.folder, sel.view.uidsOf(set, sel.saved), dest)
	if err != nil {
		return nil, ss.tryCreate(err)
	}
	return copyData(copied), nil
}

// copyData returns nil if nothing was copied, since COPYUID cannot be empty (RFC 4315 section 3).
func copyData(c *inbox.Copied) *imap.CopyData {
	if c == nil || len(c.From) == 0 {
		return nil
	}
	return &imap.CopyData{UIDValidity: c.UIDValidity, SourceUIDs: uidSet(c.From), DestUIDs: uidSet(c.To)}
}

// Move moves messages to another folder (RFC 6851). It reports messages that were moved before an
// error.
func (ss *session) Move(w *imapserver.MoveWriter, set imap.NumSet, dest string) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel := ss.selected
	if sel.readOnly {
		return errReadOnly
	}
	moved, err := ss.server.Service.Inbox.MoveMessages(ss.conn.ctx, ss.user, sel.folder, sel.view.uidsOf(set, sel.saved), dest)
	if data := copyData(moved); data != nil {
		if err := w.WriteCopyData(data); err != nil {
			return err
		}
		if err := ss.expunge(moved.From, w.WriteExpunge); err != nil {
			return err
		}
	}
	sel.removed = sel.removed && err == nil
	return ss.tryCreate(err)
}

// union returns the union of two ascending lists, ascending.
func union(a, b []uint32) []uint32 {
	out := make([]uint32, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			out, a = append(out, a[0]), a[1:]
		case a[0] > b[0]:
			out, b = append(out, b[0]), b[1:]
		default:
			out, a, b = append(out, a[0]), a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// Expunge removes the messages that have \Deleted. go-imap also calls it for CLOSE, with an empty
// writer.
func (ss *session) Expunge(w *imapserver.ExpungeWriter, uids *imap.UIDSet) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel := ss.selected
	closing := *w == imapserver.ExpungeWriter{}
	if sel.readOnly && closing {
		return nil // RFC 3501 section 6.4.2
	}
	if sel.readOnly {
		return errReadOnly
	}
	if closing {
		if err := ss.checkClose(); err != nil {
			return ss.replyError(err)
		}
	}
	of := []uint32(sel.view)
	if uids != nil {
		of = sel.view.uidsOf(*uids, sel.saved)
	}
	gone, err := ss.server.Service.Inbox.ExpungeMessages(ss.conn.ctx, ss.user, sel.folder, of)
	if closing {
		return ss.replyError(errors.Join(ss.closeSilently(gone), err))
	}
	err = errors.Join(ss.expunge(gone, w.WriteExpunge), err)
	sel.removed = sel.removed && err == nil
	return ss.replyError(err)
}
