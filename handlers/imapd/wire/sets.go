package wire

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/emersion/go-imap/v2"
)

// A numberRange is a range in a set. 0 means "*", the largest number in use.
type numberRange struct{ first, last uint32 }

// comparableEnds returns the ends of the range as numbers that can be compared. "*" is larger than
// all numbers.
func (r numberRange) comparableEnds() (first, last uint64) {
	first, last = uint64(r.first), uint64(r.last)
	if r.first == 0 {
		first = math.MaxUint32 + 1
	}
	if r.last == 0 {
		last = math.MaxUint32 + 1
	}
	return first, last
}

// parseSet parses a sequence-set without "$" (RFC 9051 section 9). The ranges that it returns are
// ascending and do not overlap.
func parseSet(text string) (list []numberRange, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, ":")
		a, okA := parseSetNumber(first)
		b, okB := a, okA
		if isRange {
			b, okB = parseSetNumber(last)
		}
		if !okA || !okB {
			return nil, false
		}
		if a == 0 || b != 0 && b < a {
			a, b = b, a
		}
		list = append(list, numberRange{a, b})
	}
	slices.SortFunc(list, func(a, b numberRange) int {
		firstA, _ := a.comparableEnds()
		firstB, _ := b.comparableEnds()
		return cmp.Compare(firstA, firstB)
	})
	merged := list[:1]
	for _, r := range list[1:] {
		first, last := r.comparableEnds()
		_, end := merged[len(merged)-1].comparableEnds()
		switch {
		case first > end:
			merged = append(merged, r)
		case last > end:
			merged[len(merged)-1].last = r.last
		}
	}
	return merged, true
}

// parseSetNumber parses a number without leading zeros, or "*", for which it returns 0 (RFC 9051
// section 9, seq-number).
func parseSetNumber(text string) (number uint32, ok bool) {
	if text == "*" {
		return 0, true
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && text[0] >= '1' && text[0] <= '9'
}

func seqSet(list []numberRange) imap.SeqSet {
	set := make(imap.SeqSet, len(list))
	for i, r := range list {
		set[i] = imap.SeqRange{Start: r.first, Stop: r.last}
	}
	return set
}

func uidSet(list []numberRange) imap.UIDSet {
	set := make(imap.UIDSet, len(list))
	for i, r := range list {
		set[i] = imap.UIDRange{Start: imap.UID(r.first), Stop: imap.UID(r.last)}
	}
	return set
}
