package imapd

import (
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/inbox"
)

// reportChanges tells the client what other sessions have changed in the selected folder. If
// withExpunges is false, expunged messages are not reported yet. If the changes cannot be read, it
// ends the connection.
func (ss *session) reportChanges(withExpunges bool) error {
	sel := ss.selected
	if sel == nil {
		return nil
	}
	c, err := ss.server.Service.Inbox.FolderChanges(ss.ctx, ss.user, sel.knownFolder())
	if err != nil {
		return ss.closeWithError(err)
	}
	changed := sel.applyChanges(c)
	if withExpunges {
		ss.writeExpunges()
	}
	if len(c.New) > 0 {
		ss.conn.WriteLine("* %d EXISTS", len(sel.view))
	}
	if err := ss.reportFlags(changed, attributes{modSeq: ss.condStore, uid: true, flags: true}); err != nil {
		return ss.closeWithError(err)
	}
	ss.reportModSeq()
	return nil
}

// applyChanges adds changes to the state of the folder. Expunged messages stay in the view until
// they are reported. toReport are the rows of messages whose changes the client does not know yet.
func (sel *selectedFolder) applyChanges(c *inbox.FolderChanges) (toReport []inbox.MessageRow) {
	toReport = slices.DeleteFunc(c.Changed, func(row inbox.MessageRow) bool { return sel.ownModSeqs[row.UID] == row.ModSeq })
	sel.view = append(sel.view, c.New...)
	if len(c.Gone) > 0 {
		sel.expunged = c.Gone
	}
	sel.uidNext, sel.modSeq, sel.ownExpunged = c.Folder.UIDNext, c.Folder.ModSeq, 0
	clear(sel.ownModSeqs)
	return toReport
}

// writeExpunges reports the expunged messages. If the client has enabled QRESYNC, it reports them
// by UID (RFC 7162 section 3.2.10). Otherwise it reports them by sequence number, from the last to
// the first, so that each number is still valid when it is sent.
func (ss *session) writeExpunges() {
	sel := ss.selected
	if ss.qresync {
		out := vanishedWriter{conn: ss.conn, head: "* VANISHED "}
		for _, r := range uidSet(sel.expunged) {
			out.add(uint32(r.Start), uint32(r.Stop))
		}
		out.end()
	} else {
		for _, uid := range slices.Backward(sel.expunged) {
			ss.conn.WriteLine("* %d EXPUNGE", sel.view.seq(uid))
		}
	}
	sel.view = sel.view.removeUIDs(sel.expunged)
	sel.expunged = nil
}

// reportExpunged reports messages that this session has expunged, together with those in
// sel.expunged that are not reported yet. Every command that removes messages from the selected
// folder must call it.
func (ss *session) reportExpunged(gone []uint32) {
	sel := ss.selected
	sel.ownExpunged += len(gone)
	sel.expunged = union(sel.expunged, gone)
	sel.commandExpunged = sel.commandExpunged || len(gone) > 0
	ss.writeExpunges()
}

// reportModSeq tells a client that has enabled QRESYNC the mod-sequence up to which every change
// has been reported to it. It is called after changes of other sessions were reported.
//
// While an expunged message is not reported, that mod-sequence is written at once, since the last
// FETCH answer may have had a higher one (RFC 5162 erratum 1810). After a command that removed
// messages, it is put into the tagged OK (RFC 7162 sections 3.2.7 and 3.2.9).
func (ss *session) reportModSeq() {
	sel := ss.selected
	if len(sel.expunged) == 0 {
		sel.reportedUpTo = sel.modSeq
	}
	switch {
	case !ss.qresync:
	case len(sel.expunged) > 0:
		ss.writeHighestModSeq(sel.reportedUpTo)
	case sel.commandExpunged:
		ss.code = fmt.Sprintf("HIGHESTMODSEQ %d", sel.reportedUpTo)
	}
	sel.commandExpunged = false
}

// writeNewKeywords writes a FLAGS answer if some of the keywords are new to the client. It must
// come before a FETCH answer that has them (RFC 9051 section 7.3.5).
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
	if len(sel.keywords) > known {
		ss.conn.WriteLine("* FLAGS (%s)", folderFlags(sel.keywords))
	}
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

// reportFlags writes FETCH answers for messages that have changed. It leaves out messages that the
// client does not know.
func (ss *session) reportFlags(rows []inbox.MessageRow, shown attributes) error {
	if shown.flags {
		ss.writeNewKeywords(keywordsOf(rows))
	}
	var out attributeWriter
	for i := range rows {
		seq := ss.selected.view.seq(rows[i].UID)
		if seq == 0 {
			continue
		}
		if err := out.writeAnswer(seq, &rows[i], shown); err != nil {
			return err
		}
		if len(out.b) >= fetchBufferSize {
			ss.conn.WriteAnswer(out.b)
			out.b = out.b[:0]
		}
	}
	return ss.conn.WriteAnswer(out.b)
}

// union merges two ascending lists into one, without duplicates.
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

// maxVanishedBytes is the length in bytes at which a VANISHED answer ends. Further UIDs go into
// another answer.
const maxVanishedBytes = 8000

// A vanishedWriter writes UIDs as VANISHED answers of limited length (RFC 7162 section 3.2.10).
type vanishedWriter struct {
	conn *wire.Conn
	head string // the beginning of each answer
	b    []byte // the answer that is not sent yet
}

// add adds the UIDs from first to last. It does nothing if last is less than first.
func (v *vanishedWriter) add(first, last uint32) error {
	if first > last {
		return nil
	}
	if len(v.b) == 0 {
		v.b = append(v.b, v.head...)
	} else {
		v.b = append(v.b, ',')
	}
	v.b = strconv.AppendUint(v.b, uint64(first), 10)
	if last > first {
		v.b = strconv.AppendUint(append(v.b, ':'), uint64(last), 10)
	}
	if len(v.b) < maxVanishedBytes {
		return nil
	}
	return v.end()
}

// end sends the UIDs that were added and not sent yet.
func (v *vanishedWriter) end() error {
	if len(v.b) == 0 {
		return nil
	}
	err := v.conn.WriteAnswer(append(v.b, "\r\n"...))
	v.b = v.b[:0]
	return err
}

// enableCondStore turns CONDSTORE on. From then on every FETCH answer that reports a change has a
// MODSEQ (RFC 7162 section 3.1). If a folder is selected, the client gets its mod-sequence.
func (ss *session) enableCondStore() {
	if !ss.condStore && ss.selected != nil {
		ss.writeHighestModSeq(ss.selected.modSeq)
	}
	ss.condStore = true
}

func (ss *session) writeHighestModSeq(modSeq uint64) {
	ss.conn.WriteLine("* OK [HIGHESTMODSEQ %d] Highest", modSeq)
}

// maxListedKeywords is the maximum number of keywords in a FLAGS answer.
const maxListedKeywords = 200
