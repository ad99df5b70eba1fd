package segment

import "errors"

// A FoundRecord is a record that EachRecord has found.
type FoundRecord struct {
	Ref      Ref
	Sequence uint64 // the copies of a record have the same number
	Accepted bool   // appended by AppendAccepted
	Envelope []byte // valid only during the call
}

// EachRecord calls fn with each record of a segment that has an intact head, in the order of the
// file. It does not verify bodies. It skips damage and records in a newer format.
func (s *Store) EachRecord(segment uint32, fn func(FoundRecord) error) error {
	sf, err := s.files.acquire(segment)
	if errors.Is(err, ErrDamaged) { // without an intact header no record can be recognised
		return nil
	}
	if err != nil {
		return err
	}
	defer s.files.release(sf)
	w := newScanner(sf.f, sf.size.Load(), sf.head.mark)
	for off := int64(fileHeadSize); off < w.size; {
		rec, err := w.readHead(off)
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) {
			off, err = w.nextOffset(off, record{})
			if err != nil {
				return err
			}
			continue
		}
		if err == nil {
			ref := Ref{segment, uint32(off), rec.head, uint32(rec.body)}
			err = fn(FoundRecord{ref, rec.seq, rec.flags&flagAccepted != 0, w.env})
		}
		if err != nil {
			return err
		}
		off += rec.size()
	}
	return nil
}

// Envelope returns the envelope of the record at ref.
func (s *Store) Envelope(ref Ref) ([]byte, error) {
	blob, head, err := s.openHead(ref)
	if err != nil {
		return nil, err
	}
	return head[recordHeadSize:], blob.Close()
}
