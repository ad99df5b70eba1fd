package imapd

import (
	"fmt"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
)

// selectFolder answers SELECT and EXAMINE (RFC 9051 sections 6.3.2 and 6.3.3).
func (ss *session) selectFolder(p *wire.Command) error {
	readOnly := p.Name == "EXAMINE"
	condStore := false
	var known *qresyncParams
	p.Space()
	name := p.Folder()
	if p.More() {
		p.Space()
		empty := true
		p.ReadList(func() {
			empty = false
			switch word := p.Word(); {
			case word == "CONDSTORE": // RFC 7162 section 3.1.8
				condStore = true
			case word == "QRESYNC" && known == nil:
				p.Space()
				known = parseQResync(p)
			default:
				p.Fail(wire.Bad("%s does not know that parameter", p.Name))
			}
		})
		if empty {
			p.Fail(wire.Bad("A list of parameters has at least one"))
		}
	}
	if err := p.End(); err != nil {
		return err
	}
	if known != nil && !ss.qresync { // RFC 7162 section 3.2.3
		return wire.Bad("Send ENABLE QRESYNC first")
	}
	ss.condStore = ss.condStore || condStore
	if ss.selected != nil {
		ss.selected = nil
		ss.conn.WriteLine("* OK [CLOSED] Previous mailbox is now closed")
	}
	ss.server.Service.Inbound.WaitFiled(ss.ctx, ss.user.Mailbox)
	s, err := ss.server.Service.Inbox.SelectFolder(ss.ctx, ss.user, name)
	if err != nil {
		return err
	}
	sel := &selectedFolder{
		folder: s.Folder.ID, readOnly: readOnly, view: s.UIDs, uidNext: s.Folder.UIDNext, modSeq: s.Folder.ModSeq, reportedUpTo: s.Folder.ModSeq,
		ownModSeqs: map[uint32]uint64{}, keywords: s.Keywords,
	}
	ss.selected = sel
	ss.writeHighestModSeq(s.Folder.ModSeq)
	ss.conn.WriteLine("* OK [%s] Ok", mailboxIDCode(&s.Folder))
	ss.conn.WriteLine("* %d EXISTS", len(s.UIDs))
	if !ss.rev2 { // RFC 3501 section 6.3.1; RFC 9051 no longer has them
		ss.conn.WriteLine("* 0 RECENT")
		if s.FirstUnseen != 0 {
			ss.conn.WriteLine("* OK [UNSEEN %d] First unseen message", sel.view.seq(s.FirstUnseen))
		}
	}
	ss.conn.WriteLine("* OK [UIDVALIDITY %d] UIDs valid", s.Folder.UIDValidity)
	ss.conn.WriteLine("* OK [UIDNEXT %d] Predicted next UID", s.Folder.UIDNext)
	flags := folderFlags(s.Keywords)
	ss.conn.WriteLine("* FLAGS (%s)", flags)
	if readOnly {
		ss.conn.WriteLine("* OK [PERMANENTFLAGS ()] Permanent flags")
	} else {
		ss.conn.WriteLine(`* OK [PERMANENTFLAGS (%s \*)] Permanent flags`, flags)
	}
	if ss.rev2 {
		ss.writeFolder("LIST", "", s.Folder.Name, "")
	}
	if known != nil && known.validity == s.Folder.UIDValidity {
		if err := ss.resync(known); err != nil {
			return ss.closeWithError(err)
		}
	}
	ss.code = "READ-WRITE"
	if readOnly {
		ss.code = "READ-ONLY"
	}
	return nil
}

// unselect answers UNSELECT (RFC 9051 section 6.4.2).
func (ss *session) unselect(p *wire.Command) error {
	if err := p.End(); err != nil {
		return err
	}
	ss.selected = nil
	return nil
}

// closeFolder answers CLOSE (RFC 9051 section 6.4.1). It expunges messages without reporting them,
// unless the folder is open for reading only.
func (ss *session) closeFolder(p *wire.Command) error {
	if err := p.End(); err != nil {
		return err
	}
	sel := ss.selected
	if !sel.readOnly {
		if err := ss.checkTaintedClose(); err != nil {
			return err
		}
		gone, err := ss.server.Service.Inbox.ExpungeMessages(ss.ctx, ss.user, sel.folder, sel.view)
		if err != nil {
			return err
		}
		if ss.qresync && len(gone) > 0 {
			if err := ss.setModSeqOfClose(gone); err != nil {
				return err
			}
		}
	}
	ss.selected = nil
	return nil
}

// setModSeqOfClose puts into the tagged OK of a CLOSE the mod-sequence up to which the client knows
// every change. It is the mod-sequence of the CLOSE itself, unless other sessions have changed the
// folder (RFC 7162 section 3.2.8).
func (ss *session) setModSeqOfClose(gone []uint32) error {
	sel := ss.selected
	waiting := len(sel.expunged) > 0
	sel.ownExpunged += len(gone)
	known := sel.knownFolder()
	c, err := ss.server.Service.Inbox.FolderChanges(ss.ctx, ss.user, known)
	if err != nil {
		return err
	}
	if !waiting && c.Folder.ModSeq == sel.modSeq+uint64(known.OwnChanges) {
		sel.reportedUpTo = c.Folder.ModSeq
	}
	ss.code = fmt.Sprintf("HIGHESTMODSEQ %d", sel.reportedUpTo)
	return nil
}
