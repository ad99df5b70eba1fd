package store

import (
	"context"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/textindex"
)

// The text index, see package textindex.
type (
	// A TextTerm is a word that messages have, or, with Prefix, how a word of theirs begins.
	TextTerm = textindex.Term
	// A TextBatch gathers the words of messages of one account, which become searchable together.
	TextBatch = textindex.Batch
	// A TextWork is some messages that are to be indexed together, and what that leaves to do.
	TextWork = textindex.Work
	// TextLimits bound a TextWork.
	TextLimits = textindex.Limits
	// An InboxSearch walks the messages of an InboxQuery that have words, newest first.
	InboxSearch = textindex.Search
)

var (
	// ErrTextDamaged is returned for rows of the text index that cannot have been written;
	// ResetText helps.
	ErrTextDamaged = textindex.ErrDamaged
	// ErrTextOrder is returned for messages of a batch that do not come newest first, or are too
	// many.
	ErrTextOrder = textindex.ErrOrder
)

// NewTextBatch begins a batch.
func NewTextBatch(account uint32) *TextBatch { return textindex.NewBatch(account) }

// TextWake gives a value some time after mail has come that is to be indexed.
func (s *Store) TextWake() <-chan struct{} { return s.index.TextWake }

// TextWork picks what of an account is indexed next.
func (tx *Tx) TextWork(account uint32, l TextLimits) (*TextWork, error) {
	return textindex.PickWork(&tx.Tx, account, l)
}

// SearchInbox begins a search, see textindex.NewSearch.
func (tx *Tx) SearchInbox(q InboxQuery, terms [][]TextTerm, cost int) (*InboxSearch, error) {
	return textindex.NewSearch(&tx.Tx, q, terms, cost)
}

// AddText makes the messages of the batch searchable and notes what that leaves to do. What also
// writes, if it is not nil, goes with it.
func (s *Store) AddText(b *TextBatch, done []TextTodo, also func(*Tx) error) error {
	batch, err := b.Prepare()
	if err != nil {
		return err
	}
	killpoint.At("text.add")
	return s.Update(func(tx *Tx) error {
		for _, t := range done {
			if err := tx.TextDone(t); err != nil {
				return err
			}
		}
		if also != nil {
			if err := also(tx); err != nil {
				return err
			}
		}
		return batch.Write(&tx.Tx)
	})
}

// TidyText merges the runs of an account, see textindex.Index.Tidy.
func (s *Store) TidyText(ctx context.Context, account uint32) error {
	return s.textIndex().Tidy(ctx, account)
}

// PurgeText rewrites runs of which messages are gone, see textindex.Index.Purge.
func (s *Store) PurgeText(ctx context.Context) error { return s.textIndex().Purge(ctx) }

// ResetText forgets the text index, see textindex.Index.Reset.
func (s *Store) ResetText() error { return s.textIndex().Reset() }

func (s *Store) textIndex() *textindex.Index { return &textindex.Index{Index: s.index} }
