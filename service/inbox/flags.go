package inbox

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/store"
)

// Flags are the system flags of a message.
type Flags = store.Flags

// HasKeyword reports whether the list contains the keyword, ignoring case (RFC 9051 section 2.3.2).
func HasKeyword(list []string, keyword string) bool {
	return slices.ContainsFunc(list, func(k string) bool { return strings.EqualFold(k, keyword) })
}

// The system flags of IMAP that mail clients set.
const (
	FlagSeen     = store.FlagSeen
	FlagAnswered = store.FlagAnswered
	FlagFlagged  = store.FlagFlagged
	FlagDeleted  = store.FlagDeleted
	FlagDraft    = store.FlagDraft
)

const (
	MaxKeywords = 50  // keywords of one message
	MaxKeyword  = 100 // bytes of one keyword
)

// A FlagChange is a change of the flags and keywords of messages.
type FlagChange struct {
	Op       FlagOp
	Flags    Flags
	Keywords []string
	// UnchangedSince is a mod-sequence. Unless nil, messages with a greater MODSEQ are not changed
	// (RFC 7162 section 3.1.3).
	UnchangedSince *uint64
}

// A FlagOp is one of the three operations of IMAP STORE: replace, add or remove flags.
type FlagOp int

// The operations of a FlagChange.
const (
	ReplaceFlags FlagOp = iota
	AddFlags
	RemoveFlags
)

// apply returns the new flags and keywords of a message. Keywords are compared without regard to
// case, and the spelling that was set first is kept.
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

// DistinctKeywords returns the list without keywords that differ from an earlier one only in case.
func DistinctKeywords(list []string) []string {
	var out []string
	for _, k := range list {
		if !HasKeyword(out, k) {
			out = append(out, k)
		}
	}
	return out
}
