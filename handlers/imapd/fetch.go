package imapd

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

// fetch answers FETCH (RFC 9051 section 6.4.5). It reads a batch of messages from the store, ends
// the transaction, and then writes the answers. So no transaction waits for a slow client.
func (ss *session) fetch(p *wire.Command) error {
	items := fetchItems{}
	var since uint64
	vanished := false
	p.Space()
	set := p.Set()
	p.Space()
	if p.Next('(') {
		p.ReadList(func() { items.parse(p, p.ReadWhile("an item", isItemNameByte)) })
	} else {
		switch name := strings.ToUpper(p.ReadWhile("an item", isItemNameByte)); name {
		case "ALL":
			items.flags, items.internalDate, items.size, items.envelope = true, true, true, true
		case "FAST":
			items.flags, items.internalDate, items.size = true, true, true
		case "FULL":
			items.flags, items.internalDate, items.size, items.envelope, items.body = true, true, true, true, true
		default:
			items.parse(p, name)
		}
	}
	if p.More() {
		p.Space()
		p.ReadList(func() {
			switch word := p.Word(); {
			case word == "CHANGEDSINCE" && since == 0: // RFC 7162 section 3.1.4.1
				p.Space()
				since = p.ModSeq()
			case word == "VANISHED" && p.UID() && !vanished: // RFC 7162 section 3.2.6
				vanished = true
			default:
				p.Fail(wire.Bad("%s does not know that modifier", p.Name))
			}
		})
		if since == 0 {
			p.Fail(wire.Bad("CHANGEDSINCE is missing, or 0"))
		}
		items.modSeq = true
	}
	if err := p.End(); err != nil {
		return err
	}
	if vanished && !ss.qresync {
		return wire.Bad("Send ENABLE QRESYNC first")
	}
	items.uid = items.uid || p.UID()
	items.utf8 = ss.conn.UTF8()
	if items.modSeq {
		ss.enableCondStore()
	}
	uids := ss.selected.view.uidsOf(set, ss.selected.saved)
	if err := ss.taintByFetch(uids, items.needsBytes() || items.needsStructure() || items.preview); err != nil {
		return err
	}
	if vanished {
		if err := ss.writeVanishedInSet(set, since); err != nil {
			return err
		}
	}
	found, err := 0, error(nil)
	if items.needsBytes() {
		found, err = ss.writeSections(uids, &items, since)
	} else {
		found, err = ss.writeAttributes(uids, items.attributes, since)
	}
	if err == nil && since == 0 && found < len(uids) {
		ss.setExpungeIssued(set)
	}
	return err
}

// writeAttributes answers a FETCH that needs only the rows of messages. It appends each answer to a
// buffer within the store's transaction, so that it need not copy the row. found is how many of the
// messages exist.
func (ss *session) writeAttributes(uids []uint32, shown attributes, since uint64) (found int, err error) {
	q := shown.rowQuery(since)
	var out attributeWriter
	last := uint32(0)
	for len(uids) > 0 {
		var failed error
		var keywords [][]string
		rest, err := ss.server.Service.Inbox.EachRow(ss.ctx, ss.user, ss.selected.folder, uids, q, func(row *inbox.MessageRow) bool {
			last = ss.selected.view.seqAfter(last, row.UID)
			if failed = out.writeAnswer(last, row, shown); failed != nil {
				return false
			}
			found++
			if shown.flags && len(row.Keywords) > 0 {
				keywords = append(keywords, row.Keywords)
			}
			return len(out.b) < fetchBufferSize
		})
		out.view.Clear()
		if err != nil {
			return found, err
		}
		ss.writeNewKeywords(slices.Values(keywords))
		if err := ss.conn.WriteAnswer(out.b); err != nil || failed != nil {
			return found, errors.Join(failed, err)
		}
		uids, out.b = rest, out.b[:0]
	}
	return found, nil
}

// A sectionFetch is the state of a FETCH of sections of messages.
type sectionFetch struct {
	session *session
	items   *fetchItems
	out     attributeWriter
	answer  []byte // the part of the answer that is not sent yet
	last    uint32 // sequence number of the previous message
	unsent  int64  // bytes that may still be read or decoded without being sent
}

// writeSections answers a FETCH of sections of the messages, together with items from their rows.
// found is how many of the messages exist.
func (ss *session) writeSections(uids []uint32, items *fetchItems, since uint64) (found int, err error) {
	f := &sectionFetch{session: ss, items: items, unsent: ss.server.MaxUnsent}
	var damaged []string // UIDs
	marks := !ss.selected.readOnly && items.setsSeen()
	q := items.rowQuery(since)
	q.Structure = true
	for len(uids) > 0 {
		rows, rest, err := ss.server.Service.Inbox.MessageRows(ss.ctx, ss.user, ss.selected.folder, uids, q)
		if err != nil {
			return found, err
		}
		uids, found = rest, found+len(rows)
		seen := map[uint32]inbox.MessageRow{}
		if marks {
			seen, err = ss.markSeen(rows)
			if err != nil {
				return found, err
			}
		}
		if items.flags || len(seen) > 0 {
			ss.writeNewKeywords(keywordsOf(rows))
		}
		for i := range rows {
			err := f.writeMessage(&rows[i], seen)
			if inbox.IsDamaged(err) { // skip it, and send the other messages
				ss.server.Log.Error("FETCH left out a message that is damaged on the disk", "mailbox", ss.user.Email, "folder", ss.selected.folder, "uid", rows[i].UID, "error", err)
				damaged = append(damaged, strconv.Itoa(int(rows[i].UID)))
				continue
			}
			if err != nil {
				return found, err
			}
		}
	}
	if len(damaged) > 0 {
		return found, wire.No(imap.ResponseCodeCorruption,
			"Messages that are damaged on the server's disk were left out: UID "+strings.Join(damaged[:min(len(damaged), 20)], ", "))
	}
	return found, nil
}

// markSeen sets \Seen on the messages that do not have it, and returns their changed rows by UID.
// It skips messages that cannot be read, since the client does not get them.
func (ss *session) markSeen(rows []inbox.MessageRow) (map[uint32]inbox.MessageRow, error) {
	var unseen []uint32
	for _, row := range rows {
		if row.Flags&inbox.FlagSeen != 0 {
			continue
		}
		blob, err := ss.server.Service.Inbox.OpenMessage(ss.ctx, ss.user, ss.selected.folder, row.UID)
		if err != nil {
			continue // writeMessage reports the error
		}
		blob.Close()
		unseen = append(unseen, row.UID)
	}
	if len(unseen) == 0 {
		return nil, nil
	}
	changed, err := ss.server.Service.Inbox.ChangeFlags(ss.ctx, ss.user, ss.selected.folder, unseen,
		inbox.FlagChange{Op: inbox.AddFlags, Flags: inbox.FlagSeen})
	if err != nil {
		return nil, err
	}
	ss.selected.recordOwnChanges(changed)
	out := make(map[uint32]inbox.MessageRow, len(changed))
	for _, row := range changed {
		out[row.UID] = row
	}
	return out, nil
}

// countUnsent counts n bytes that are read or decoded but not sent. It returns an error if the
// FETCH has more of them than Server.MaxUnsent.
func (f *sectionFetch) countUnsent(n int64) error {
	f.unsent -= n
	if f.unsent < 0 {
		return wire.No(imap.ResponseCodeLimit, "This asks for too much decoding; ask for fewer messages or parts")
	}
	return nil
}

// writeMessage writes the FETCH answer of one message. seen has the rows of the messages that this
// command has marked \Seen, by UID. Everything that can fail is done before the first byte is
// written, so that the command can still be refused.
func (f *sectionFetch) writeMessage(row *inbox.MessageRow, seen map[uint32]inbox.MessageRow) error {
	ss := f.session
	root, err := msg.DecodePart(row.Structure)
	if err != nil {
		return err
	}
	blob, err := ss.server.Service.Inbox.OpenMessage(ss.ctx, ss.user, ss.selected.folder, row.UID)
	if inbox.IsNotFound(err) {
		return nil // deleted since its row was read
	}
	if err != nil {
		return err
	}
	defer blob.Close()
	s := &messageSource{root: root, blob: blob, countUnsent: f.countUnsent}
	ranges, sections, err := s.sectionAnswers(f.items)
	if err != nil {
		return err
	}
	shown := f.items.attributes
	shown.uid = shown.uid || len(ranges) > 0
	if now, ok := seen[row.UID]; ok {
		now.Structure, now.EmailID, now.ThreadID, now.Preview = row.Structure, row.EmailID, row.ThreadID, row.Preview
		row = &now
		shown.modSeq = shown.modSeq || !shown.flags && ss.condStore
		shown.flags = true
	}
	f.last = ss.selected.view.seqAfter(f.last, row.UID)
	out := &f.out
	out.b = out.b[:0]
	if err := out.writeItems(row, shown); err != nil {
		return err
	}
	f.answer = append(strconv.AppendUint(append(f.answer[:0], "* "...), uint64(f.last), 10), " FETCH ("...)
	if err := f.writeSectionAnswers(ranges); err != nil {
		return err
	}
	f.answer = append(f.answer, out.b...)
	if err := f.writeSectionAnswers(sections); err != nil {
		return err
	}
	f.answer = append(bytes.TrimSuffix(f.answer, []byte(" ")), ")\r\n"...)
	return ss.conn.WriteAnswer(f.answer)
}

// writeSectionAnswers writes the answers for a list of sections, each followed by a space.
func (f *sectionFetch) writeSectionAnswers(list []sectionAnswer) error {
	for _, c := range list {
		f.answer = append(append(f.answer, c.label...), ' ')
		if c.r == nil {
			f.answer = append(strconv.AppendInt(f.answer, c.size, 10), ' ')
			continue
		}
		if c.binary {
			f.answer = append(f.answer, '~') // a literal8 (RFC 3516 section 4.2)
		}
		f.answer = append(strconv.AppendInt(append(f.answer, '{'), c.size, 10), "}\r\n"...)
		if err := f.session.conn.WriteAnswer(f.answer); err != nil {
			return err
		}
		if err := f.session.conn.Copy(c.r, c.size); err != nil {
			return err
		}
		f.answer = append(f.answer[:0], ' ')
	}
	return nil
}
