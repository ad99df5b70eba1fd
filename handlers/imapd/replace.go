package imapd

import (
	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/inbox"
)

// replace answers REPLACE (RFC 8508). It stores a message and deletes another, or does neither. It
// receives the message only if it can store it (section 3.4).
func (ss *session) replace(p *wire.Command) error {
	sel := ss.selected
	p.Space()
	number := p.NumberOrStar()
	p.Space()
	folder := p.Folder()
	p.Space()
	m := parseNewMessage(p)
	if err := p.Err(); err != nil {
		return err
	}
	if sel.readOnly {
		return errReadOnly
	}
	old := sel.view.uidOf(number, p.UID())
	if old == 0 {
		return wire.No("", "There is no such message")
	}
	if err := ss.server.Service.Inbox.CheckReplace(ss.ctx, ss.user, sel.folder, old, folder, m.size); err != nil {
		return ss.withTryCreate(err)
	}
	flags, keywords, err := parseFlags(m.flags)
	if err != nil {
		return err
	}
	body := ss.server.Service.Core.NewSpool(AppendLimit)
	defer body.Close()
	if err := m.receive(p, body); err != nil {
		return err
	}
	if err := p.End(); err != nil {
		return err
	}
	validity, uid, err := ss.server.Service.Inbox.ReplaceMessage(ss.ctx, ss.user, sel.folder, old, folder,
		inbox.Append{Flags: flags, Keywords: keywords, Received: m.date, Body: body})
	if err != nil {
		return ss.withTryCreate(err)
	}
	// The answer comes before the EXPUNGE, so that the client learns of the new message before
	// the old one disappears (RFC 8508 section 4.3).
	ss.conn.WriteLine("* OK [APPENDUID %d %d] Replacement message ready", validity, uid)
	sel.expunged = union(sel.expunged, []uint32{old})
	sel.ownExpunged++
	sel.commandExpunged = true
	ss.text = "REPLACE completed"
	return nil
}

// uidOf returns the UID of the message with the given UID or sequence number. 0 stands for "*", the
// last message. uidOf returns 0 if the view does not have the message.
func (v view) uidOf(number uint32, isUID bool) uint32 {
	switch {
	case number == 0:
		return v.lastUID()
	case !isUID && int64(number) <= int64(len(v)):
		return v[number-1]
	case isUID && v.seq(number) != 0:
		return number
	}
	return 0
}
