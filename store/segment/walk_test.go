package segment

import "fmt"

// dirty reports whether an append may not be on disk yet.
func (s *Store) dirty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written != s.synced
}

// Error describes the first range.
func (d *damageReport) Error() string {
	first := d.Ranges[0]
	return fmt.Sprintf("segment %08x: %d damaged ranges, the first of %d bytes at %d", d.Segment, len(d.Ranges)+d.More, first.Length, first.Offset)
}

// Unwrap returns ErrDamaged.
func (d *damageReport) Unwrap() error { return ErrDamaged }

// each verifies the records of a segment and calls fn with them in the order of the file, up to
// those appended when it began. env is valid only during the call. It stops at fn's first error. It
// skips damage and returns it at the end as a *damageReport.
func (s *Store) each(segment uint32, fn func(ref Ref, seq uint64, env []byte) error) error {
	sf, err := s.files.acquire(segment)
	if err != nil {
		return err
	}
	defer s.files.release(sf)
	w := newScanner(sf.f, sf.size.Load(), sf.head.mark)
	damage := &damageReport{Segment: segment}
	if sf.head.number != segment {
		damage.add(0, fileHeadSize)
	}
	_, err = w.walk(damage, func(off int64, rec record) error {
		return fn(Ref{Segment: segment, Offset: uint32(off), Head: rec.head, Length: uint32(rec.body)}, rec.seq, w.env)
	})
	if err == nil && len(damage.Ranges) > 0 {
		err = damage
	}
	return err
}
