package imapd

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/service/inbox"
)

// maxVanished is the length in bytes at which a VANISHED reply ends; the remaining UIDs go into the
// next one.
const maxVanished = 8000

// A resync is the argument of SELECT (QRESYNC …): what the client knows of the folder (RFC 7162
// section 3.2.5).
type resync struct {
	validity   uint32
	modSeq     uint64
	known      uidRanges // UIDs that the client knows; nil means all
	seqs, uids uidRanges // some messages that the client knows, by sequence number and by UID
}

// uidRanges are ranges of UIDs or sequence numbers. They ascend and neither touch nor overlap,
// except as read from a client by parseRanges.
type uidRanges []inbox.UIDRange

// selectParams parses SELECT box (CONDSTORE QRESYNC (…)).
func (p *commandEditor) selectParams(at int, a *extensions) bool {
	last := len(p.tokens) - 1
	if !p.is(at+1, '(') || at+2 >= last || !p.is(last, ')') {
		return false
	}
	for i := at + 2; i < last; i++ {
		switch {
		case p.word(i) == "CONDSTORE":
			a.enable = true
		case p.word(i) == "QRESYNC" && a.resync == nil:
			end, ok := p.closing(i + 1)
			if !ok || end >= last {
				return false
			}
			a.resync = p.resyncParam(i+1, end)
			if a.resync == nil {
				return false
			}
			i = end
		default:
			return false
		}
	}
	p.remove(at+1, last)
	return true
}

// resyncParam parses (uidvalidity modseq [known-uids] [(known-sequence-set known-uid-set)]), the
// tokens from `from` to `to`. It returns nil if they are malformed.
func (p *commandEditor) resyncParam(from, to int) *resync {
	if !p.is(from, '(') || !p.is(from+1, 'a') || to < from+3 {
		return nil
	}
	r := new(resync)
	validity, err := strconv.ParseUint(p.raw(from+1), 10, 32)
	modSeq, ok := p.modSeqAt(from + 2)
	if err != nil || validity == 0 || !ok || modSeq == 0 {
		return nil
	}
	r.validity, r.modSeq = uint32(validity), modSeq
	i := from + 3
	if p.is(i, 'a') {
		known, ok := parseRanges(p.raw(i))
		if !ok {
			return nil
		}
		r.known = known.merged()
		i++
	}
	if p.is(i, '(') {
		if to != i+4 || !p.is(i+1, 'a') || !p.is(i+2, 'a') || !p.is(i+3, ')') {
			return nil
		}
		seqs, ok1 := parseRanges(p.raw(i + 1))
		uids, ok2 := parseRanges(p.raw(i + 2))
		if !ok1 || !ok2 || !seqs.ascend() || !uids.ascend() || seqs.count() != uids.count() {
			return nil
		}
		r.seqs, r.uids = seqs, uids
		i += 4
	}
	if i != to {
		return nil
	}
	return r
}

// fetchModifiers parses (CHANGEDSINCE n VANISHED), which begins at token i. VANISHED is allowed in
// UID FETCH only (RFC 7162 section 3.2.6).
func (p *commandEditor) fetchModifiers(i int, a *extensions) bool {
	end, ok := p.closing(i)
	if !ok || !p.is(i, '(') || end != len(p.tokens)-1 {
		return false
	}
	for j := i + 1; j < end; j++ {
		switch word := p.word(j); {
		case word == "CHANGEDSINCE" && a.changedSince == 0:
			j++
			a.changedSince, ok = p.modSeqAt(j)
			if !ok {
				return false
			}
		case word == "VANISHED" && a.verb == "UID FETCH" && !a.vanished:
			a.vanished = true
		default:
			return false
		}
	}
	if a.changedSince == 0 {
		return false
	}
	p.remove(i, end)
	a.modSeq = true
	return true
}

// parseRanges parses a set without "*"; it keeps the order of the ranges.
func parseRanges(text string) (uidRanges, bool) {
	var out uidRanges
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, ":")
		if !isRange {
			last = first
		}
		a, err1 := strconv.ParseUint(first, 10, 32)
		b, err2 := strconv.ParseUint(last, 10, 32)
		if err1 != nil || err2 != nil || a == 0 || b == 0 {
			return nil, false
		}
		out = append(out, inbox.UIDRange{First: uint32(min(a, b)), Last: uint32(max(a, b))})
	}
	return out, true
}

// merged returns the same numbers as ascending ranges that neither touch nor overlap. It sorts r.
func (r uidRanges) merged() (out uidRanges) {
	slices.SortFunc(r, func(a, b inbox.UIDRange) int { return cmp.Compare(a.First, b.First) })
	for _, one := range r {
		if last := len(out) - 1; last >= 0 && uint64(one.First) <= uint64(out[last].Last)+1 {
			out[last].Last = max(out[last].Last, one.Last)
			continue
		}
		out = append(out, one)
	}
	return out
}

// ascend reports whether each range begins after the end of the previous one.
func (r uidRanges) ascend() bool {
	for i := 1; i < len(r); i++ {
		if r[i].First <= r[i-1].Last {
			return false
		}
	}
	return true
}

func (r uidRanges) count() (n uint64) {
	for _, one := range r {
		n += uint64(one.Last) - uint64(one.First) + 1
	}
	return n
}

// overlap returns the numbers that are in both r and other, whose ranges must ascend.
func (r uidRanges) overlap(other uidRanges) (out uidRanges) {
	for len(r) > 0 && len(other) > 0 {
		if first, last := max(r[0].First, other[0].First), min(r[0].Last, other[0].Last); first <= last {
			out = append(out, inbox.UIDRange{First: first, Last: last})
		}
		if r[0].Last < other[0].Last {
			r = r[1:]
		} else {
			other = other[1:]
		}
	}
	return out
}

// enables records an extension that ENABLE names.
func (a *extensions) enables(name string) {
	if !strings.Contains(a.enabled, " "+name) {
		a.enabled += " " + name
	}
	a.enable, a.qresync = true, a.qresync || name == "QRESYNC"
}

// checkResync refuses QRESYNC and VANISHED before ENABLE QRESYNC (RFC 7162 section 3.2.3).
func (ss *session) checkResync(a extensions) error {
	if (a.resync != nil || a.vanished) && !ss.qresync {
		return badCommand("Send ENABLE QRESYNC first")
	}
	return nil
}

// A heldReply is the tagged OK of a command, held back until `before` has written other replies.
type heldReply struct {
	line   []byte
	before func() error
}

// holdTaggedOK holds back the tagged OK of the parser's command until `before` has written its
// replies. The OK is recognized by begin, the text after its tag. go-imap does not call the session
// meanwhile.
func (w *protocolConn) holdTaggedOK(begin string, before func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patch = &replyPatch{prefix: w.tag + " " + begin, suffix: "\r\n", hold: true}
	w.held = heldReply{before: before}
}

// releaseTaggedOK writes the held tagged OK; it is called when the parser wants another command.
func (w *protocolConn) releaseTaggedOK() error {
	w.mu.Lock()
	held := w.held
	w.held = heldReply{}
	w.mu.Unlock()
	if held.line == nil {
		return nil
	}
	if err := held.before(); err != nil {
		return err
	}
	return w.writeAnswers(held.line)
}

// resync reports how the selected folder has changed since the client last knew it: expunged
// messages first, then changed flags.
func (ss *session) resync(r *resync) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel := ss.selected
	if sel == nil || ss.closed || r.modSeq == sel.modSeq {
		return nil
	}
	err := ss.writeVanishedSince(r.modSeq, r.known, sel.view.matching(r.seqs, r.uids))
	if err != nil {
		return ss.closeWithError(err)
	}
	uids := []uint32(sel.view)
	if r.known != nil {
		uids = sel.view.uidsOf(r.known.set(), nil)
	}
	ss.extensions.changedSince = r.modSeq
	// It belongs to another history: the store was restored from a backup.
	if r.modSeq > sel.modSeq {
		ss.extensions.changedSince = 0
	}
	f := &fetch{session: ss, shown: attributes{modSeq: true, uid: true, flags: true}}
	if err := f.attributes(uids); err != nil {
		return ss.closeWithError(err)
	}
	return nil
}

func (r uidRanges) set() imap.UIDSet {
	set := make(imap.UIDSet, 0, len(r))
	for _, one := range r {
		set = append(set, imap.UIDRange{Start: imap.UID(one.First), Stop: imap.UID(one.Last)})
	}
	return set
}

// matching returns the UID up to which no message can have been expunged since the client knew
// these UIDs by these sequence numbers: the last UID that still has its number (RFC 7162 section
// 3.2.5.2).
func (v view) matching(seqs, uids uidRanges) (upTo uint32) {
	seqs, uids = slices.Clone(seqs), slices.Clone(uids)
	for len(seqs) > 0 && int64(seqs[0].First) <= int64(len(v)) {
		seq, uid := seqs[0].First, uids[0].First
		n := min(seqs[0].Last-seq, uids[0].Last-uid) // numbers after the first in both ranges
		// UIDs of the view grow by at least one per position, so the positions that match form a
		// prefix.
		there := min(int64(n)+1, int64(len(v))-int64(seq)+1)
		i := sort.Search(int(there), func(i int) bool { return uint64(v[int(seq)-1+i]) > uint64(uid)+uint64(i) })
		if i > 0 && uint64(v[int(seq)+i-2]) == uint64(uid)+uint64(i-1) {
			upTo = v[int(seq)+i-2]
		}
		seqs, uids = seqs.cutFirst(n), uids.cutFirst(n)
	}
	return upTo
}

// cutFirst cuts the first n+1 numbers off the first range, in place.
func (r uidRanges) cutFirst(n uint32) uidRanges {
	if r[0].Last-r[0].First == n {
		return r[1:]
	}
	r[0].First += n + 1
	return r
}

// writeVanishedSince reports which of the known UIDs (nil means all) were expunged from the folder
// since a mod-sequence. If the store no longer knows that, it reports every UID above upTo that the
// folder does not have. UIDs that are still in the view are reported later.
func (ss *session) writeVanishedSince(since uint64, known uidRanges, upTo uint32) error {
	sel := ss.selected
	list, exact, err := ss.server.Service.Inbox.Expunged(ss.conn.ctx, ss.user, sel.folder, since)
	if err != nil {
		return err
	}
	if sel.uidNext <= 1 {
		return nil
	}
	all := uidRanges{{First: 1, Last: sel.uidNext - 1}}
	gone := uidRanges(list).merged().overlap(all)
	if !exact {
		gone = nil
		if upTo < sel.uidNext-1 {
			gone = uidRanges{{First: upTo + 1, Last: sel.uidNext - 1}}
		}
	}
	if known != nil {
		gone = gone.overlap(known)
	}
	out := vanishedWriter{conn: ss.conn, head: "* VANISHED (EARLIER) "}
	for _, r := range gone {
		next := r.First
		i, _ := slices.BinarySearch(sel.view, r.First)
		for ; i < len(sel.view) && sel.view[i] <= r.Last; i++ {
			if err := out.add(next, sel.view[i]-1); err != nil {
				return err
			}
			next = sel.view[i] + 1
		}
		if err := out.add(next, r.Last); err != nil {
			return err
		}
	}
	return out.end()
}

// writeVanishedOf is writeVanishedSince for the set of a UID FETCH. "*" means the highest UID that
// the folder has assigned.
func (ss *session) writeVanishedOf(set imap.NumSet) error {
	var known uidRanges
	uids, _ := set.(imap.UIDSet)
	for _, r := range uids {
		lo, hi := bounds(uint32(r.Start), uint32(r.Stop), ss.selected.uidNext-1)
		known = append(known, inbox.UIDRange{First: max(lo, 1), Last: hi})
	}
	known = known.merged()
	if known == nil {
		return nil // a saved search result ("$"): its messages are all in the view
	}
	return ss.writeVanishedSince(ss.extensions.changedSince, known, 0)
}

// A vanishedWriter writes UIDs as VANISHED replies of limited length.
type vanishedWriter struct {
	conn *protocolConn
	head string
	b    []byte
}

// add adds the UIDs from first to last; it does nothing if last is less than first.
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
	if len(v.b) < maxVanished {
		return nil
	}
	return v.end()
}

func (v *vanishedWriter) end() error {
	if len(v.b) == 0 {
		return nil
	}
	err := v.conn.writeAnswers(append(v.b, "\r\n"...))
	v.b = v.b[:0]
	return err
}

// writeExpunges reports the expunged messages: by UID once the client has enabled QRESYNC (RFC 7162
// section 3.2.10), else by sequence number, the last first, so that each number is still valid when
// it is sent.
func (ss *session) writeExpunges(write func(seq uint32) error) error {
	sel := ss.selected
	if ss.qresync {
		out := vanishedWriter{conn: ss.conn, head: "* VANISHED "}
		for _, r := range uidSet(sel.gone) {
			if err := out.add(uint32(r.Start), uint32(r.Stop)); err != nil {
				return err
			}
		}
		if err := out.end(); err != nil {
			return err
		}
	} else {
		for _, uid := range slices.Backward(sel.gone) {
			if err := write(sel.view.seq(uid)); err != nil {
				return err
			}
		}
	}
	sel.view = sel.view.without(sel.gone)
	sel.gone = nil
	return nil
}

// expunge reports messages that this session has expunged, together with those that wait in
// sel.gone. Every command that removes messages of the selected folder must call it.
func (ss *session) expunge(gone []uint32, write func(seq uint32) error) error {
	sel := ss.selected
	sel.ownExpunged += len(gone)
	sel.gone = union(sel.gone, gone)
	sel.removed = sel.removed || len(gone) > 0
	return ss.writeExpunges(write)
}

// reportModSeq reports, at the end of a poll, the mod-sequence up to which the client knows every
// change. A FETCH may have had a higher one while an expunge is not yet reported (RFC 5162 erratum
// 1810). A command that has removed messages has it in its tagged OK (RFC 7162 sections 3.2.7 and
// 3.2.9).
func (ss *session) reportModSeq() {
	sel := ss.selected
	if len(sel.gone) == 0 {
		sel.reportedUpTo = sel.modSeq
	}
	switch {
	case !ss.qresync:
	case len(sel.gone) > 0:
		ss.writeHighestModSeq(sel.reportedUpTo)
	case sel.removed:
		ss.patchModSeq(sel.reportedUpTo)
	}
	sel.removed = false
}

// patchModSeq adds HIGHESTMODSEQ to the tagged OK of the parser's command.
func (ss *session) patchModSeq(modSeq uint64) {
	verb := ss.extensions.verb
	if isReplace(verb) {
		verb = "REPLACE"
	}
	ss.conn.patchEnd(ss.conn.tag+" OK ", verb+" completed\r\n", "[HIGHESTMODSEQ "+strconv.FormatUint(modSeq, 10)+"] ")
}

// closeSilently is expunge for CLOSE, which does not report the messages. Its tagged OK has the
// mod-sequence up to which the client knows every change: that of the CLOSE, unless other sessions
// have changed the folder (RFC 7162 section 3.2.8).
func (ss *session) closeSilently(gone []uint32) error {
	sel := ss.selected
	if !ss.qresync || len(gone) == 0 {
		return nil
	}
	waiting := len(sel.gone) > 0
	sel.ownExpunged += len(gone)
	known := sel.known()
	c, err := ss.server.Service.Inbox.FolderChanges(ss.conn.ctx, ss.user, known)
	if err != nil {
		return err
	}
	if !waiting && c.Folder.ModSeq == sel.modSeq+uint64(known.Own) {
		sel.reportedUpTo = c.Folder.ModSeq
	}
	ss.patchModSeq(sel.reportedUpTo)
	return nil
}
