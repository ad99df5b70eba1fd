package imapd

import (
	"slices"
	"sort"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/service/inbox"
)

// A view is the messages of a folder as one client knows them: the sequence number of a message is
// its position, from 1. A message that is gone keeps its position until the client has been told
// (RFC 3501 section 5.5).
type view []uint32

// seq gives the sequence number of a message, 0 if the view has no such message.
func (v view) seq(uid uint32) uint32 {
	i, found := slices.BinarySearch(v, uid)
	if !found {
		return 0
	}
	return uint32(i + 1)
}

// seqBehind is seq for a walk upwards: most often the message is the one behind that with the
// sequence number last.
func (v view) seqBehind(last, uid uint32) uint32 {
	if int(last) < len(v) && v[last] == uid {
		return last + 1
	}
	return v.seq(uid)
}

// A span is a range of a view, without the position to.
type span struct{ from, to int }

// uidsOf returns the UIDs, ascending, of the messages of the view that the set names. saved is what
// "$" stands for (RFC 5182). Sets are resolved as ranges, since 1:4294967295 is one.
func (v view) uidsOf(set imap.NumSet, saved []uint32) []uint32 {
	if imap.IsSearchRes(set) {
		return v.intersect(saved)
	}
	var spans []span
	switch set := set.(type) {
	case imap.SeqSet:
		for _, r := range set {
			lo, hi := bounds(r.Start, r.Stop, uint32(len(v)))
			spans = append(spans, span{int(max(lo, 1)) - 1, int(min(hi, uint32(len(v))))})
		}
	case imap.UIDSet:
		for _, r := range set {
			lo, hi := bounds(uint32(r.Start), uint32(r.Stop), v.last())
			from, _ := slices.BinarySearch(v, lo)
			to, found := slices.BinarySearch(v, hi)
			if found {
				to++
			}
			spans = append(spans, span{from, to})
		}
	}
	return v.join(spans)
}

// bounds puts a range in order; 0 is "*", the largest number in use (RFC 3501 section 9,
// seq-range).
func bounds(start, stop, last uint32) (lo, hi uint32) {
	if start == 0 {
		start = last
	}
	if stop == 0 {
		stop = last
	}
	return min(start, stop), max(start, stop)
}

func (v view) last() uint32 {
	if len(v) == 0 {
		return 0
	}
	return v[len(v)-1]
}

// join returns the messages of all spans, each once.
func (v view) join(spans []span) []uint32 {
	sort.Slice(spans, func(i, j int) bool { return spans[i].from < spans[j].from })
	var out []uint32
	next := 0
	for _, s := range spans {
		if from := max(s.from, next); from < s.to {
			out = append(out, v[from:s.to]...)
			next = s.to
		}
	}
	return out
}

// intersect returns those of the ascending UIDs that the view has.
func (v view) intersect(uids []uint32) []uint32 {
	out := make([]uint32, 0, len(uids))
	for _, uid := range uids {
		if v.seq(uid) != 0 {
			out = append(out, uid)
		}
	}
	return out
}

// without removes ascending UIDs from the view.
func (v view) without(gone []uint32) view {
	return slices.DeleteFunc(v, func(uid uint32) bool {
		for len(gone) > 0 && gone[0] < uid {
			gone = gone[1:]
		}
		return len(gone) > 0 && gone[0] == uid
	})
}

// uidSet writes ascending UIDs as a set.
func uidSet(uids []uint32) imap.UIDSet {
	set := imap.UIDSet{}
	for _, n := range uids {
		uid := imap.UID(n)
		if last := len(set) - 1; last >= 0 && set[last].Stop+1 == uid {
			set[last].Stop = uid
			continue
		}
		set = append(set, imap.UIDRange{Start: uid, Stop: uid})
	}
	return set
}

// seqSet writes ascending sequence numbers as a set.
func seqSet(seqs []uint32) imap.SeqSet {
	set := imap.SeqSet{}
	for _, n := range seqs {
		if last := len(set) - 1; last >= 0 && set[last].Stop+1 == n {
			set[last].Stop = n
			continue
		}
		set = append(set, imap.SeqRange{Start: n, Stop: n})
	}
	return set
}

// selected is the folder that a session has open.
type selected struct {
	folder      uint32
	readOnly    bool
	view        view
	gone        []uint32 // of the view, ascending: the client has not been told
	uidNext     uint32
	modSeq      uint64
	told        uint64            // up to which mod-sequence the client has been told everything
	ownChanges  map[uint32]uint64 // messages that this session has changed since modSeq, and the MODSEQ they got
	ownExpunged int               // messages that it has deleted since
	removed     bool              // the command has removed messages, and go-imap will poll
	keywords    []string          // that the client has been told
	saved       []uint32          // the result of SEARCH RETURN (SAVE)
}

func (sel *selected) known() inbox.Known {
	return inbox.Known{
		Folder: sel.folder, UIDs: sel.view, UIDNext: sel.uidNext, ModSeq: sel.modSeq, Own: len(sel.ownChanges) + sel.ownExpunged,
	}
}

// noteOwnChanges remembers changes that this session has made, so that its client does not get them
// again.
func (sel *selected) noteOwnChanges(rows []inbox.MessageRow) {
	for _, row := range rows {
		// Changes of others before ours are still to be reported.
		if row.ModSeq != row.Was && row.Was <= sel.modSeq {
			sel.ownChanges[row.UID] = row.ModSeq
		}
	}
}
