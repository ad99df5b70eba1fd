package inbox

import (
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Flags are the system flags of a message.
type Flags = store.Flags

// The flags that mail clients set.
const (
	FlagSeen     = store.FlagSeen
	FlagAnswered = store.FlagAnswered
	FlagFlagged  = store.FlagFlagged
	FlagDeleted  = store.FlagDeleted
	FlagDraft    = store.FlagDraft
)

const (
	maxKeywords = 50  // on one message
	maxKeyword  = 100 // bytes
)

// HasKeyword tells whether the list has the keyword, in any case (RFC 9051 section 2.3.2).
func HasKeyword(list []string, keyword string) bool {
	return slices.ContainsFunc(list, func(k string) bool { return strings.EqualFold(k, keyword) })
}

// A FlagChange says what to do to the flags and keywords of messages.
type FlagChange struct {
	Op       FlagOp
	Flags    Flags
	Keywords []string
	// UnchangedSince, unless nil, keeps messages whose MODSEQ is greater as they are (RFC 7162
	// section 3.1.3).
	UnchangedSince *uint64
}

// A FlagOp is one of the three ways in which IMAP changes flags.
type FlagOp int

// What a FlagChange does.
const (
	ReplaceFlags FlagOp = iota
	AddFlags
	RemoveFlags
)

// apply gives the flags and keywords that a message has after the change. Keywords are the same in
// any case; the first spelling stays.
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
	return c.Flags, distinctKeywords(c.Keywords)
}

func distinctKeywords(list []string) []string {
	var out []string
	for _, k := range list {
		if !HasKeyword(out, k) {
			out = append(out, k)
		}
	}
	return out
}

func checkKeywords(list []string) error {
	if len(list) > maxKeywords || slices.ContainsFunc(list, func(k string) bool { return k == "" || len(k) > maxKeyword }) {
		return core.Errorf(CodeKeywords, "A message has at most %d keywords of at most %d bytes.", maxKeywords, maxKeyword)
	}
	return nil
}

// ChangeFlags changes the flags of the messages, whose UIDs ascend, and gives their rows as they
// are then. Messages that are gone are left out; those that UnchangedSince has kept from the change
// are marked.
func (s *Service) ChangeFlags(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32, c FlagChange) ([]MessageRow, error) {
	if err := checkKeywords(c.Keywords); err != nil {
		return nil, err
	}
	rows := make([]MessageRow, 0, len(uids))
	for batch := range slices.Chunk(uids, perWrite) {
		var changed []MessageRow
		err := s.Store.Update(func(tx *store.Tx) error {
			changed = changed[:0]
			messages, err := s.messagesToChange(tx, u, folder, batch)
			if err != nil {
				return err
			}
			if c.Flags&store.FlagDeleted != 0 { // which comes before EXPUNGE
				tx.MayUseReserve()
			}
			for _, m := range messages {
				if c.UnchangedSince != nil && m.ModSeq > *c.UnchangedSince {
					row := rowOf(m)
					row.Was, row.Kept = m.ModSeq, true
					changed = append(changed, row)
					continue
				}
				flags, keywords := c.apply(m.Flags, m.Keywords)
				if err := checkKeywords(keywords); err != nil {
					return err
				}
				was := m.ModSeq
				if err := tx.SetFlags(m, flags, keywords); err != nil {
					return err
				}
				row := rowOf(m)
				row.Was = was
				changed = append(changed, row)
			}
			return nil
		})
		if err != nil {
			return rows, err
		}
		rows = append(rows, changed...)
	}
	return rows, nil
}

// messagesToChange reads those of the messages that are there, and sees to it that watchers are
// told.
func (s *Service) messagesToChange(tx *store.Tx, u core.MailboxUser, folder uint32, uids []uint32) ([]*store.Message, error) {
	if _, err := core.OpenMailbox(tx, u); err != nil {
		return nil, err
	}
	s.changed(tx, u.Mailbox)
	messages := make([]*store.Message, 0, len(uids))
	for m, err := range pick(tx, u.Mailbox, folder, uids) {
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}
