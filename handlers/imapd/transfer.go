package imapd

import (
	"fmt"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/inbox"
)

// copy answers COPY (RFC 9051 section 6.4.7). It copies all messages or none.
func (ss *session) copy(p *wire.Command) error {
	p.Space()
	set := p.Set()
	p.Space()
	folder := p.Folder()
	if err := p.End(); err != nil {
		return err
	}
	sel := ss.selected
	copied, err := ss.server.Service.Inbox.CopyMessages(ss.ctx, ss.user, sel.folder, sel.view.uidsOf(set, sel.saved), folder)
	if err != nil {
		return ss.withTryCreate(err)
	}
	ss.code = copyUIDCode(copied)
	return nil
}

// copyUIDCode returns the response code COPYUID. It returns "" if nothing was copied, because the
// sets of COPYUID cannot be empty (RFC 4315 section 3).
func copyUIDCode(c *inbox.Copied) string {
	if c == nil || len(c.From) == 0 {
		return ""
	}
	return fmt.Sprintf("COPYUID %d %s %s", c.UIDValidity, uidSet(c.From), uidSet(c.To))
}

// move answers MOVE (RFC 9051 section 6.4.8). If it fails halfway, it reports the messages that
// were moved.
func (ss *session) move(p *wire.Command) error {
	p.Space()
	set := p.Set()
	p.Space()
	folder := p.Folder()
	if err := p.End(); err != nil {
		return err
	}
	sel := ss.selected
	if sel.readOnly {
		return errReadOnly
	}
	moved, err := ss.server.Service.Inbox.MoveMessages(ss.ctx, ss.user, sel.folder, sel.view.uidsOf(set, sel.saved), folder)
	if code := copyUIDCode(moved); code != "" {
		ss.conn.WriteLine("* OK [%s] COPY completed", code)
		ss.reportExpunged(moved.From)
	}
	sel.commandExpunged = sel.commandExpunged && err == nil
	return ss.withTryCreate(err)
}

// expunge answers EXPUNGE (RFC 9051 section 6.4.3) and UID EXPUNGE (section 6.4.9). It removes the
// messages that have the flag \Deleted.
func (ss *session) expunge(p *wire.Command) error {
	sel := ss.selected
	uids := []uint32(sel.view)
	if p.UID() {
		p.Space()
		uids = sel.view.uidsOf(p.UIDSet(), sel.saved)
	}
	if err := p.End(); err != nil {
		return err
	}
	if sel.readOnly {
		return errReadOnly
	}
	gone, err := ss.server.Service.Inbox.ExpungeMessages(ss.ctx, ss.user, sel.folder, uids)
	ss.reportExpunged(gone)
	sel.commandExpunged = sel.commandExpunged && err == nil
	return err
}
