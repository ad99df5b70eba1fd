package store

import (
	"context"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/textindex"
)

// Types of the text index; see package textindex.
type (
	// A TextTerm is a word in messages or, with Prefix, the beginning of a word.
	TextTerm = textindex.Term
	// A TextBatch collects the words of messages of one account, which become searchable in one
	// transaction.
	TextBatch = textindex.Batch
	// TextWork is a set of messages to be indexed together, with the queue entries that are done
	// then.
	TextWork = textindex.Work
	// TextLimits limit the size of a TextWork.
	TextLimits = textindex.Limits
	// An InboxSearch iterates over the messages of an InboxQuery that contain the searched words,
	// newest first.
	InboxSearch = textindex.Search
)

var (
	// ErrTextDamaged is returned for invalid rows of the text index; ResetText repairs it.
	ErrTextDamaged = textindex.ErrDamaged
	// ErrTextOrder is returned if the messages of a batch are not added newest first, or are too
	// many.
	ErrTextOrder = textindex.ErrOrder
)

// NewTextBatch returns an empty batch for the messages of an account.
func NewTextBatch(account uint32) *TextBatch { return textindex.NewBatch(account) }

// TextWake returns a channel that receives a value after messages to be indexed were added.
func (s *Store) TextWake() <-chan struct{} { return s.index.TextWake }

// TextWork selects the messages of an account that are indexed next.
func (tx *Tx) TextWork(account uint32, l TextLimits) (*TextWork, error) {
	return textindex.PickWork(&tx.Tx, account, l)
}

// SearchInbox begins a search for words in the messages of a query, see textindex.NewSearch.
func (tx *Tx) SearchInbox(q InboxQuery, terms [][]TextTerm, cost int) (*InboxSearch, error) {
	return textindex.NewSearch(&tx.Tx, q, terms, cost)
}

// AddText makes the messages of the batch searchable and removes the entries `done` from the queue.
// If `also` is not nil, AddText runs it in the same transaction.
func (s *Store) AddText(b *TextBatch, done []TextTodo, also func(*Tx) error) error {
	batch, err := b.Prepare()
	if err != nil {
		return err
	}
	killpoint.At("text.add")
	return s.Update(func(tx *Tx) error {
		for _, t := range done {
			if err := tx.MarkIndexed(t); err != nil {
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

// PurgeText rewrites runs that contain deleted messages, see textindex.Index.Purge.
func (s *Store) PurgeText(ctx context.Context) error { return s.textIndex().Purge(ctx) }

// ResetText deletes the text index and queues all messages again, see textindex.Index.Reset.
func (s *Store) ResetText() error { return s.textIndex().Reset() }

func (s *Store) textIndex() *textindex.Index { return &textindex.Index{Index: s.index} }
