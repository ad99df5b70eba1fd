package imapd

import (
	"slices"
	"sort"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/service/inbox"
)

// A view lists the UIDs of a folder's messages as one client knows them, ascending. The sequence
// number of a message is its position, counted from 1. An expunged message keeps its position until
// it is reported to the client (RFC 3501 section 5.5).
type view []uint32

// seq returns the sequence number of a message, 0 if the view does not have the message.
func (v view) seq(uid uint32) uint32 {
	i, found := slices.BinarySearch(v, uid)
	if !found {
		return 0
	}
	return uint32(i + 1)
}

// seqAfter returns the same as seq. It is faster for a caller that goes through messages in
// ascending order: it first tries the message after the one with sequence number last.
func (v view) seqAfter(last, uid uint32) uint32 {
	if int(last) < len(v) && v[last] == uid {
		return last + 1
	}
	return v.seq(uid)
}

// A viewRange is the range of positions from <= i < to in a view, counted from 0.
type viewRange struct{ from, to int }

// uidsOf returns the UIDs of the messages of the view that are in the set, ascending. saved are the
// UIDs of "$" (RFC 5182). It works on ranges, because a set may be 1:4294967295.
func (v view) uidsOf(set imap.NumSet, saved []uint32) []uint32 {
	if imap.IsSearchRes(set) {
		return v.intersect(saved)
	}
	var ranges []viewRange
	switch set := set.(type) {
	case imap.SeqSet:
		for _, r := range set {
			lo, hi := rangeBounds(r.Start, r.Stop, uint32(len(v)))
			ranges = append(ranges, viewRange{int(max(lo, 1)) - 1, int(min(hi, uint32(len(v))))})
		}
	case imap.UIDSet:
		for _, r := range set {
			lo, hi := rangeBounds(uint32(r.Start), uint32(r.Stop), v.lastUID())
			from, _ := slices.BinarySearch(v, lo)
			to, found := slices.BinarySearch(v, hi)
			if found {
				to++
			}
			ranges = append(ranges, viewRange{from, to})
		}
	}
	return v.uidsInRanges(ranges)
}

// rangeBounds returns the lower and the upper end of a range. A start or stop of 0 means "*", which
// is last (RFC 3501 section 9, seq-range).
func rangeBounds(start, stop, last uint32) (lo, hi uint32) {
	if start == 0 {
		start = last
	}
	if stop == 0 {
		stop = last
	}
	return min(start, stop), max(start, stop)
}

// lastUID returns the highest UID of the view, 0 if the view is empty.
func (v view) lastUID() uint32 {
	if len(v) == 0 {
		return 0
	}
	return v[len(v)-1]
}

// uidsInRanges returns the UIDs in all ranges, each once.
func (v view) uidsInRanges(ranges []viewRange) []uint32 {
	sort.Slice(ranges, func(i, j int) bool { return ranges[i].from < ranges[j].from })
	var out []uint32
	next := 0
	for _, s := range ranges {
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

// removeUIDs removes ascending UIDs from the view. It changes v.
func (v view) removeUIDs(gone []uint32) view {
	return slices.DeleteFunc(v, func(uid uint32) bool {
		for len(gone) > 0 && gone[0] < uid {
			gone = gone[1:]
		}
		return len(gone) > 0 && gone[0] == uid
	})
}

// uidSet returns ascending UIDs as a set of ranges.
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

// seqSet returns ascending sequence numbers as a set of ranges.
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

// A selectedFolder is the state of the folder that a session has selected.
type selectedFolder struct {
	folder   uint32 // its number
	readOnly bool
	view     view
	// Ascending UIDs in view that were expunged and are not reported to the client yet.
	expunged []uint32
	uidNext  uint32
	modSeq   uint64 // of the folder when its changes were last read
	// The mod-sequence up to which every change has been reported to the client.
	reportedUpTo uint64
	// New mod-sequences of the messages that this session has changed after modSeq, by UID.
	ownModSeqs      map[uint32]uint64
	ownExpunged     int      // how many messages this session has expunged after modSeq
	commandExpunged bool     // the current command has expunged messages
	keywords        []string // keywords that the client knows
	saved           []uint32 // UIDs of "$", the result of SEARCH RETURN (SAVE)
}

// knownFolder returns what this session knows of the folder, to ask for later changes.
func (sel *selectedFolder) knownFolder() inbox.KnownFolder {
	return inbox.KnownFolder{
		Folder: sel.folder, UIDs: sel.view, UIDNext: sel.uidNext, ModSeq: sel.modSeq, OwnChanges: len(sel.ownModSeqs) + sel.ownExpunged,
	}
}

// recordOwnChanges records changes that this session has made, so that they are not reported to the
// same client again.
func (sel *selectedFolder) recordOwnChanges(rows []inbox.MessageRow) {
	for _, row := range rows {
		// A message that another session has changed before, after sel.modSeq, must still be
		// reported.
		if row.ModSeq != row.OldModSeq && row.OldModSeq <= sel.modSeq {
			sel.ownModSeqs[row.UID] = row.ModSeq
		}
	}
}
