package store

import (
	"bytes"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/store/postings"
)

// ErrTextOrder is returned for messages of a batch that do not come newest first, or are too many.
var ErrTextOrder = errors.New("messages of a text batch come newest first, at most 30000")

// A TextBatch gathers the words of messages in INBOX folders of one account, which become
// searchable together.
type TextBatch struct {
	account uint32
	places  []textPlace
	index   map[string]int
	numbers [][]uint16 // of the messages that have each word
	err     error
}

// NewTextBatch begins a batch.
func NewTextBatch(account uint32) *TextBatch {
	return &TextBatch{account: account, index: map[string]int{}}
}

// Message says which message the words that follow are of. Messages come newest first, in the order
// of InboxPos.
func (b *TextBatch) Message(at InboxPos) {
	place := at.place()
	if n := len(b.places); n == textRunDocs || n > 0 && bytes.Compare(place[:], b.places[n-1][:]) >= 0 {
		b.err = ErrTextOrder
		return
	}
	b.places = append(b.places, place)
}

// Word adds a word of the message, of which the first 255 bytes count. It may come as often as it
// likes.
func (b *TextBatch) Word(word []byte) {
	if len(b.places) == 0 || len(word) == 0 {
		return
	}
	word = word[:min(len(word), postings.MaxWord)]
	number := uint16(len(b.places) - 1)
	i, known := b.index[string(word)]
	if !known {
		b.index[string(word)] = len(b.numbers)
		b.numbers = append(b.numbers, []uint16{number})
		return
	}
	if list := b.numbers[i]; list[len(list)-1] != number {
		b.numbers[i] = append(list, number)
	}
}

// Len is how many messages the batch has.
func (b *TextBatch) Len() int { return len(b.places) }

// run does what can be done before the transaction.
func (b *TextBatch) run() *textRunData {
	words := make([]string, 0, len(b.index))
	for word := range b.index {
		words = append(words, word)
	}
	slices.Sort(words)
	var w postings.BlockWriter
	for _, word := range words {
		w.Add([]byte(word), b.numbers[b.index[word]])
	}
	d := &textRunData{account: b.account, places: b.places}
	d.blocks, d.size = w.Finish()
	return d
}

// AddText makes the messages of the batch searchable and notes what that leaves to do. What also
// writes, if it is not nil, goes with it.
func (s *Store) AddText(b *TextBatch, done []TextTodo, also func(*Tx) error) error {
	if b.err != nil {
		return b.err
	}
	d := b.run()
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
		if len(d.places) == 0 {
			return nil
		}
		run, err := d.start(tx, textReady)
		if err != nil {
			return err
		}
		return tx.putTextRows(d.all(run))
	})
}
