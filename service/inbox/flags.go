package inbox

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/store"
)

// Flags are the system flags of a message.
type Flags = store.Flags

// HasKeyword reports whether the list has the keyword, in any case (RFC 9051 section 2.3.2).
func HasKeyword(list []string, keyword string) bool {
	return slices.ContainsFunc(list, func(k string) bool { return strings.EqualFold(k, keyword) })
}

// The flags that mail clients set.
const (
	FlagSeen     = store.FlagSeen
	FlagAnswered = store.FlagAnswered
	FlagFlagged  = store.FlagFlagged
	FlagDeleted  = store.FlagDeleted
	FlagDraft    = store.FlagDraft
)

const (
	MaxKeywords = 50  // on one message
	MaxKeyword  = 100 // bytes
)

// A FlagChange says what to do to the flags and keywords of messages.
type FlagChange struct {
	Op       FlagOp
	Flags    Flags
	Keywords []string
	// UnchangedSince, unless nil, makes the change skip messages with a greater MODSEQ (RFC 7162
	// section 3.1.3).
	UnchangedSince *uint64
}

// A FlagOp is one of the three ways in which IMAP changes flags.
type FlagOp int

// The operations of a FlagChange.
const (
	ReplaceFlags FlagOp = iota
	AddFlags
	RemoveFlags
)

// apply returns the flags and keywords of a message after the change. Keywords compare without
// regard to case; the first spelling is kept.
func (c FlagChange) apply(flags Flags, keywords []string) (Flags, []string) {
	switch c.Op {
	case AddFlags:
		out := slices.Clone(keywords)
		for _, k := range c.Keywords {
			if !HasKeyword(out, k) {
				out = append(out, k)
			}
		}
		return flags | c.Flags, out
	case RemoveFlags:
		var out []string
		for _, k := range keywords {
			if !HasKeyword(c.Keywords, k) {
				out = append(out, k)
			}
		}
		return flags &^ c.Flags, out
	}
	return c.Flags, DistinctKeywords(c.Keywords)
}

// DistinctKeywords removes keywords that differ from an earlier one only in case.
func DistinctKeywords(list []string) []string {
	var out []string
	for _, k := range list {
		if !HasKeyword(out, k) {
			out = append(out, k)
		}
	}
	return out
}
