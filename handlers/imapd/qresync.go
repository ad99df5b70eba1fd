package imapd

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/inbox"
)

// qresyncParams are the parameters of SELECT (QRESYNC …): what the client knows of the folder (RFC
// 7162 section 3.2.5).
type qresyncParams struct {
	validity   uint32    // UIDVALIDITY
	modSeq     uint64    // the last mod-sequence that the client knows
	known      uidRanges // UIDs that the client knows; nil: all
	seqs, uids uidRanges // some messages that the client knows, by sequence number and by UID
}

// uidRanges are ranges of UIDs or sequence numbers. They are ascending and neither touch nor
// overlap, except those that parseRanges returns.
type uidRanges []inbox.UIDRange

// parseQResync parses (uidvalidity modseq [known-uids] [(known-sequence-set known-uid-set)]).
func parseQResync(p *wire.Command) *qresyncParams {
	r := new(qresyncParams)
	p.Expect('(')
	r.validity = p.Number()
	p.Space()
	r.modSeq = p.ModSeq()
	if !p.Next(')') {
		p.Space()
	}
	if !p.Next('(') && !p.Next(')') {
		r.known = parseRanges(p).merged()
		if !p.Next(')') {
			p.Space()
		}
	}
	if p.Skip('(') {
		r.seqs = parseRanges(p)
		p.Space()
		r.uids = parseRanges(p)
		p.Expect(')')
		if !r.seqs.isAscending() || !r.uids.isAscending() || r.seqs.count() != r.uids.count() {
			p.Fail(wire.Bad("The sequence numbers and UIDs of QRESYNC do not belong together"))
		}
	}
	p.Expect(')')
	if r.validity == 0 || r.modSeq == 0 {
		p.Fail(wire.Bad("UIDVALIDITY and mod-sequence are not 0"))
	}
	return r
}

// parseRanges parses a set without "*". It keeps the ranges in the client's order.
func parseRanges(p *wire.Command) uidRanges {
	var out uidRanges
	for part := range strings.SplitSeq(p.SetText(), ",") {
		first, last, isRange := strings.Cut(part, ":")
		if !isRange {
			last = first
		}
		a, err1 := strconv.ParseUint(first, 10, 32)
		b, err2 := strconv.ParseUint(last, 10, 32)
		if err1 != nil || err2 != nil || a == 0 || b == 0 {
			p.Fail(wire.Bad("The UIDs that are known are numbers and ranges of them"))
			return nil
		}
		out = append(out, inbox.UIDRange{First: uint32(min(a, b)), Last: uint32(max(a, b))})
	}
	return out
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

// isAscending reports whether each range begins after the end of the previous one.
func (r uidRanges) isAscending() bool {
	for i := 1; i < len(r); i++ {
		if r[i].First <= r[i-1].Last {
			return false
		}
	}
	return true
}

// count returns how many numbers the ranges have.
func (r uidRanges) count() (n uint64) {
	for _, one := range r {
		n += uint64(one.Last) - uint64(one.First) + 1
	}
	return n
}

// overlap returns the numbers that are in both r and other. Both must be ascending.
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

// resync tells the client what has changed in the selected folder since the state that the client
// knows: first the expunged messages, then the changed flags.
func (ss *session) resync(r *qresyncParams) error {
	sel := ss.selected
	if r.modSeq == sel.modSeq {
		return nil
	}
	if err := ss.writeVanishedSince(r.modSeq, r.known, sel.view.unchangedUpTo(r.seqs, r.uids)); err != nil {
		return err
	}
	uids := []uint32(sel.view)
	if r.known != nil {
		uids = sel.view.uidsOf(r.known.set(), nil)
	}
	since := r.modSeq
	if since > sel.modSeq { // the store was restored from a backup
		since = 0
	}
	_, err := ss.writeAttributes(uids, attributes{modSeq: true, uid: true, flags: true}, since)
	return err
}

// set returns the ranges as a set of UIDs.
func (r uidRanges) set() imap.UIDSet {
	set := make(imap.UIDSet, 0, len(r))
	for _, one := range r {
		set = append(set, imap.UIDRange{Start: imap.UID(one.First), Stop: imap.UID(one.Last)})
	}
	return set
}

// unchangedUpTo compares the sequence numbers and UIDs that the client knew with the view. It
// returns the last of these UIDs that still has its sequence number. No message up to it was
// expunged since then (RFC 7162 section 3.2.5.2).
func (v view) unchangedUpTo(seqs, uids uidRanges) (upTo uint32) {
	seqs, uids = slices.Clone(seqs), slices.Clone(uids)
	for len(seqs) > 0 && int64(seqs[0].First) <= int64(len(v)) {
		seq, uid := seqs[0].First, uids[0].First
		n := min(seqs[0].Last-seq, uids[0].Last-uid) // the numbers after seq and uid in both ranges
		// The UIDs of the view grow by at least one from position to position, those of the client
		// by exactly one. So once a UID of the view is greater than the client's, it stays greater.
		there := min(int64(n)+1, int64(len(v))-int64(seq)+1)
		i := sort.Search(int(there), func(i int) bool { return uint64(v[int(seq)-1+i]) > uint64(uid)+uint64(i) })
		if i > 0 && uint64(v[int(seq)+i-2]) == uint64(uid)+uint64(i-1) {
			upTo = v[int(seq)+i-2]
		}
		seqs, uids = seqs.cutFirst(n), uids.cutFirst(n)
	}
	return upTo
}

// cutFirst removes the first n+1 numbers of the first range. It changes r.
func (r uidRanges) cutFirst(n uint32) uidRanges {
	if r[0].Last-r[0].First == n {
		return r[1:]
	}
	r[0].First += n + 1
	return r
}

// writeVanishedSince reports the UIDs that were expunged from the folder after the mod-sequence
// since. known are the UIDs that the client knows; nil means all. If the store no longer has the
// expunged UIDs, it reports every known UID above upTo that the folder does not have. UIDs that are
// still in the view are reported later.
func (ss *session) writeVanishedSince(since uint64, known uidRanges, upTo uint32) error {
	sel := ss.selected
	list, exact, err := ss.server.Service.Inbox.Expunged(ss.ctx, ss.user, sel.folder, since)
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

// writeVanishedInSet is writeVanishedSince for the set of a UID FETCH. "*" means the highest UID
// that the folder has assigned.
func (ss *session) writeVanishedInSet(set imap.NumSet, since uint64) error {
	var known uidRanges
	uids, _ := set.(imap.UIDSet)
	for _, r := range uids {
		lo, hi := rangeBounds(uint32(r.Start), uint32(r.Stop), ss.selected.uidNext-1)
		known = append(known, inbox.UIDRange{First: max(lo, 1), Last: hi})
	}
	known = known.merged()
	if known == nil {
		return nil // the set is "$", whose messages are all in the view
	}
	return ss.writeVanishedSince(since, known, 0)
}
