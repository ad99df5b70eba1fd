package segment

import "errors"

// A Found is a record that a walk over a segment met.
type Found struct {
	Ref      Ref
	Sequence uint64 // a copy of a record has its sequence
	Accepted bool
	Envelope []byte // valid during the call only
}

// Records calls fn for each record of a segment whose head is whole, in the order of the file.
// Bodies are not verified. Damage, and what a newer version has written, is passed by.
func (s *Store) Records(segment uint32, fn func(Found) error) error {
	sf, err := s.files.acquire(segment)
	if errors.Is(err, ErrDamaged) { // a file whose header says nothing has no records that can be told
		return nil
	}
	if err != nil {
		return err
	}
	defer s.files.release(sf)
	w := newScanner(sf.f, sf.size.Load(), sf.head.mark)
	for off := int64(fileHead); off < w.size; {
		rec, err := w.head(off)
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) {
			off, err = w.skip(off, record{})
			if err != nil {
				return err
			}
			continue
		}
		if err == nil {
			ref := Ref{segment, uint32(off), rec.head, uint32(rec.body)}
			err = fn(Found{ref, rec.seq, rec.flags&flagAccepted != 0, w.env})
		}
		if err != nil {
			return err
		}
		off += rec.size()
	}
	return nil
}

// Envelope gives the envelope of the record at ref.
func (s *Store) Envelope(ref Ref) ([]byte, error) {
	blob, head, err := s.openHead(ref)
	if err != nil {
		return nil, err
	}
	return head[recordHead:], blob.Close()
}
