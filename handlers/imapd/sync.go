package imapd

import (
	"errors"
	"slices"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/service"
)

// Poll tells the client what others have done to the folder. go-imap allows expunges where RFC 3501
// section 7.4.1 does.
func (ss *session) Poll(w *imapserver.UpdateWriter, allowExpunge bool) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.poll(w, allowExpunge)
}

// Idle tells it as it happens, until stop is closed.
func (ss *session) Idle(w *imapserver.UpdateWriter, stop <-chan struct{}) error {
	ss.mu.Lock()
	mailbox, closed := ss.user.Mailbox, ss.closed
	ss.mu.Unlock()
	if closed {
		return nil
	}
	changes, end := ss.server.Service.Watch(ss.wire.ctx, mailbox)
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

// pollIdle is Poll for as long as the client idles.
func (ss *session) pollIdle(w *imapserver.UpdateWriter, stop <-chan struct{}) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	select {
	case <-stop:
		return nil
	default:
	}
	if ss.selected == nil {
		if err := ss.server.Service.MailboxOpen(ss.wire.ctx, ss.user); err != nil {
			return ss.cut(err)
		}
	}
	return ss.poll(w, true)
}

func (ss *session) poll(w *imapserver.UpdateWriter, allowExpunge bool) error {
	sel := ss.selected
	if sel == nil || ss.closed {
		return nil
	}
	c, err := ss.server.Service.FolderChanges(ss.wire.ctx, ss.user, sel.known())
	if err != nil {
		return ss.cut(err)
	}
	changed := sel.take(c)
	if allowExpunge {
		if err := sel.tellGone(w.WriteExpunge); err != nil {
			return err
		}
	}
	if len(c.New) > 0 {
		if err := w.WriteNumMessages(uint32(len(sel.view))); err != nil {
			return err
		}
	}
	return ss.tellFlags(w, changed)
}

// cut ends the connection, as go-imap does after any error of Poll; first the client is told why.
func (ss *session) cut(err error) error {
	err = ss.answer(err)
	why := "[UNAVAILABLE] The folder cannot be read"
	var given *imap.Error
	if errors.As(err, &given) {
		why = "[UNAVAILABLE] " + given.Text
	}
	ss.wire.stop(why)
	return ss.wire.bye(why)
}

// take brings the view up to date, but for messages that are gone, and gives the rows that the
// client has not seen.
func (sel *selected) take(c *service.FolderChanges) []service.MessageRow {
	changed := slices.DeleteFunc(c.Changed, func(row service.MessageRow) bool { return sel.own[row.UID] == row.ModSeq })
	sel.view = append(sel.view, c.New...)
	if len(c.Gone) > 0 {
		sel.gone = c.Gone
	}
	sel.uidNext, sel.modSeq, sel.expunged = c.Folder.UIDNext, c.Folder.ModSeq, 0
	clear(sel.own)
	return changed
}

// tellGone tells the client of messages that are gone, the last first, so that each number is right
// when it comes.
func (sel *selected) tellGone(write func(seq uint32) error) error {
	for _, uid := range slices.Backward(sel.gone) {
		if err := write(sel.view.seq(uid)); err != nil {
			return err
		}
	}
	sel.view = sel.view.without(sel.gone)
	sel.gone = nil
	return nil
}

// announce tells the client of keywords that are new to it, before a FETCH answer uses them (RFC
// 3501 section 7.2.6).
func (ss *session) announce(rows []service.MessageRow) {
	sel := ss.selected
	known := len(sel.keywords)
	for _, row := range rows {
		for _, k := range row.Keywords {
			if len(sel.keywords) < maxToldKeywords && !service.HasKeyword(sel.keywords, k) {
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
	ss.wire.tell("* FLAGS (%s)", strings.Join(names, " "))
}

func (ss *session) tellFlags(w *imapserver.UpdateWriter, rows []service.MessageRow) error {
	sel := ss.selected
	ss.announce(rows)
	for _, row := range rows {
		seq := sel.view.seq(row.UID)
		if seq == 0 {
			continue
		}
		if ss.condStore {
			ss.wire.amendFetch(modSeqItem(row.ModSeq))
		}
		if err := w.WriteMessageFlags(seq, imap.UID(row.UID), flagsOf(&row)); err != nil {
			return err
		}
	}
	return nil
}
