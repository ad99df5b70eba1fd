package store

import (
	"io"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/segment"
)

// Entries gives the entries after a number, up to about so many bytes, but at least one if there is
// one, with the bytes of their messages of up to entry.MaxMessage. It returns ErrGap if the next is
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

// Apply makes the changes of the entry that comes next: a store at N becomes what the store that
// made the entry was at N+1. An entry that was applied before changes nothing, and one that does
// not come next is ErrGap. The messages that are not part of the entry must have been written
// before. A store that applies entries takes no messages of its own until it is opened again.
func (s *Store) Apply(e *Entry) error {
	if err := e.WriteMessages(s.seg); err != nil {
		return err
	}
	killpoint.At("restore.messages")
	return s.db.Apply(e)
}

// WriteMessage writes the record of a message that is not part of its entry; ref says where it
// stood, and head is the header of its segment's file.
func (s *Store) WriteMessage(head [segment.HeaderSize]byte, ref BlobRef, record io.ReaderAt) error {
	return s.seg.WriteRecord(head, ref, record)
}

// ReadMessage gives the record of a message, verified, and the header of its segment's file.
func (s *Store) ReadMessage(ref BlobRef) (head [segment.HeaderSize]byte, record []byte, err error) {
	return s.seg.ReadRecord(ref)
}
