package store

import (
	"io"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/segment"
)

// Entries returns the entries of the commits after the number `after`. It stops at about `most`
// bytes, but returns at least one entry if there is one. The entries contain the bytes of new
// messages of up to entry.MaxMessage bytes. It returns ErrGap if the next entry is not kept.
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

// Apply applies the next entry: if this store is at commit N, it becomes equal to the source of the
// entry at commit N+1. Applying an entry again changes nothing. For an entry that is not the next
// one, Apply returns ErrGap. Messages that the entry does not contain must be written first. A
// store that applies entries accepts no messages of its own until it is opened again.
func (s *Store) Apply(e *Entry) error {
	if err := e.WriteMessages(s.seg); err != nil {
		return err
	}
	killpoint.At("restore.messages")
	return s.db.Apply(e)
}

// WriteMessage writes the segment record of a message, which its entry does not contain, at ref.
// head is the header of the segment file.
func (s *Store) WriteMessage(head [segment.HeaderSize]byte, ref BlobRef, record io.ReaderAt) error {
	return s.seg.WriteRecord(head, ref, record)
}

// ReadMessage returns the verified segment record of a message, and the header of its segment file.
func (s *Store) ReadMessage(ref BlobRef) (head [segment.HeaderSize]byte, record []byte, err error) {
	return s.seg.ReadRecord(ref)
}
