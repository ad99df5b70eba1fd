package store

import "fmt"

// dirty says whether an append is not known to be on disk yet.
func (s *segments) dirty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written != s.synced
}

// Error names the first range.
func (d *segDamage) Error() string {
	first := d.Ranges[0]
	return fmt.Sprintf("segment %08x: %d damaged ranges, the first of %d bytes at %d", d.Segment, len(d.Ranges)+d.More, first.Length, first.Offset)
}

// Unwrap gives errSegDamaged.
func (d *segDamage) Unwrap() error { return errSegDamaged }

// each walks the records of a segment in the order of the file and verifies all of each before it
// calls fn, up to what was appended when it began. env is valid during the call only. It ends with
// fn's first error. Damage is skipped and given at the end as *segDamage.
func (s *segments) each(segment uint32, fn func(ref BlobRef, seq uint64, env []byte) error) error {
	sf, err := s.files.acquire(segment)
	if err != nil {
		return err
	}
	defer s.files.release(sf)
	w := newSegWalk(sf.f, sf.size.Load(), sf.head.mark)
	damage := &segDamage{Segment: segment}
	if sf.head.number != segment {
		damage.add(0, segFileHead)
	}
	_, err = w.walk(damage, func(off int64, rec segRecord) error {
		return fn(BlobRef{Segment: segment, Offset: uint32(off), Head: rec.head, Length: uint32(rec.body)}, rec.seq, w.env)
	})
	if err == nil && len(damage.Ranges) > 0 {
		err = damage
	}
	return err
}
