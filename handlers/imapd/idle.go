package imapd

import (
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/service/inbox"
)

// Poll reports changes to the folder by other sessions. go-imap sets allowExpunge where RFC 3501
// section 7.4.1 allows an EXPUNGE.
func (ss *session) Poll(w *imapserver.UpdateWriter, allowExpunge bool) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.server.Service.Inbound.WaitFiled(ss.conn.ctx, ss.user.Mailbox)
	return ss.poll(w, allowExpunge)
}

// Idle reports changes as they happen, until stop is closed.
func (ss *session) Idle(w *imapserver.UpdateWriter, stop <-chan struct{}) error {
	ss.mu.Lock()
	mailbox, closed := ss.user.Mailbox, ss.closed
	ss.mu.Unlock()
	if closed {
		return nil
	}
	changes, end := ss.server.Service.Inbox.Watch(ss.conn.ctx, mailbox)
	defer end()
	for {
		if err := ss.pollIdle(w, stop); err != nil {
			return err
		}
		select {
		case <-changes:
		case <-stop:
			return nil
		}
	}
}

// pollIdle polls once, unless IDLE has ended.
func (ss *session) pollIdle(w *imapserver.UpdateWriter, stop <-chan struct{}) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	select {
	case <-stop:
		return nil
	default:
	}
	if ss.selected == nil {
		if err := ss.server.Service.Accounts.MailboxOpen(ss.conn.ctx, ss.user); err != nil {
			return ss.closeWithError(err)
		}
	}
	return ss.poll(w, true)
}

func (ss *session) poll(w *imapserver.UpdateWriter, allowExpunge bool) error {
	sel := ss.selected
	if sel == nil || ss.closed {
		return nil
	}
	c, err := ss.server.Service.Inbox.FolderChanges(ss.conn.ctx, ss.user, sel.known())
	if err != nil {
		return ss.closeWithError(err)
	}
	changed := sel.update(c)
	if allowExpunge {
		if err := ss.writeExpunges(w.WriteExpunge); err != nil {
			return err
		}
	}
	if len(c.New) > 0 {
		if err := w.WriteNumMessages(uint32(len(sel.view))); err != nil {
			return err
		}
	}
	if err := ss.writeFlagUpdates(w, changed); err != nil {
		return err
	}
	ss.reportModSeq()
	return nil
}

// closeWithError ends the connection because of an error; go-imap ends it after any error of Poll.
// It sends the reason in a BYE first.
func (ss *session) closeWithError(err error) error {
	err = ss.replyError(err)
	why := "[UNAVAILABLE] The folder cannot be read"
	var given *imap.Error
	if errors.As(err, &given) {
		why = "[UNAVAILABLE] " + given.Text
	}
	ss.conn.stop(why)
	return ss.conn.closeWith(why)
}

// update brings the view up to date, except that expunged messages stay in it. It returns the
// changed rows that the client does not know yet.
func (sel *selected) update(c *inbox.FolderChanges) []inbox.MessageRow {
	changed := slices.DeleteFunc(c.Changed, func(row inbox.MessageRow) bool { return sel.ownChanges[row.UID] == row.ModSeq })
	sel.view = append(sel.view, c.New...)
	if len(c.Gone) > 0 {
		sel.gone = c.Gone
	}
	sel.uidNext, sel.modSeq, sel.ownExpunged = c.Folder.UIDNext, c.Folder.ModSeq, 0
	clear(sel.ownChanges)
	return changed
}

// writeNewKeywords writes a FLAGS reply if keywords are new to the client, before a FETCH reply
// uses them (RFC 3501 section 7.2.6).
func (ss *session) writeNewKeywords(lists iter.Seq[[]string]) {
	sel := ss.selected
	known := len(sel.keywords)
	for keywords := range lists {
		for _, k := range keywords {
			if len(sel.keywords) < maxListedKeywords && !inbox.HasKeyword(sel.keywords, k) {
				sel.keywords = append(sel.keywords, k)
			}
		}
	}
	if len(sel.keywords) == known {
		return
	}
	var names []string
	for _, f := range folderFlags(sel.keywords) {
		names = append(names, string(f))
	}
	ss.conn.writeReply("* FLAGS (%s)", strings.Join(names, " "))
}

func keywordsOf(rows []inbox.MessageRow) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for i := range rows {
			if !yield(rows[i].Keywords) {
				return
			}
		}
	}
}

func (ss *session) writeFlagUpdates(w *imapserver.UpdateWriter, rows []inbox.MessageRow) error {
	sel := ss.selected
	ss.writeNewKeywords(keywordsOf(rows))
	for _, row := range rows {
		seq := sel.view.seq(row.UID)
		if seq == 0 {
			continue
		}
		if ss.condStore {
			ss.conn.patchFetch(modSeqItem(row.ModSeq))
		}
		if err := w.WriteMessageFlags(seq, imap.UID(row.UID), flagsOf(&row)); err != nil {
			return err
		}
	}
	return nil
}
