package store

import (
	"io"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/segment"
)

// Entries returns the entries after a number, up to about `most` bytes, but at least one if there
// is any. Messages of up to entry.MaxMessage are included. It returns ErrGap if the next entry is
// not kept.
func (s *Store) Entries(after uint64, most int) ([]*Entry, error) {
	list, err := s.db.Entries(after, most)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if err := e.ReadMessages(s.seg); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Apply applies the next entry: this store, at number N, becomes what the store that made the entry
// was at N+1. An entry that was applied before changes nothing; an entry that is not the next one
// returns ErrGap. Messages that are not part of the entry must be written first. A store that
// applies entries takes no messages of its own until it is opened again.
func (s *Store) Apply(e *Entry) error {
	if err := e.WriteMessages(s.seg); err != nil {
		return err
	}
	killpoint.At("restore.messages")
	return s.db.Apply(e)
}

// WriteMessage writes the record of a message that is not part of its entry to its place ref. head
// is the header of the segment's file.
func (s *Store) WriteMessage(head [segment.HeaderSize]byte, ref BlobRef, record io.ReaderAt) error {
	return s.seg.WriteRecord(head, ref, record)
}

// ReadMessage returns the record of a message, verified, and the header of its segment's file.
func (s *Store) ReadMessage(ref BlobRef) (head [segment.HeaderSize]byte, record []byte, err error) {
	return s.seg.ReadRecord(ref)
}
