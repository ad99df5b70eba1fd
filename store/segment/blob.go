package segment

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// A Blob is the bytes of one stored message. Any number of goroutines may read it until it is
// closed; its bytes stay readable while the segment around it is removed.
type Blob struct {
	files  *fileSet
	sf     *segmentFile
	rec    record
	start  int64 // of the body in the file
	closed atomic.Bool
}

// Open gives the message at ref. The record's head and bounds are verified, its body is not (Verify
// does that). Where there is no such record the error is ErrDamaged, where there is no such
// segment fs.ErrNotExist.
func (s *Store) Open(ref Ref) (*Blob, error) {
	blob, _, err := s.openHead(ref)
	return blob, err
}

// openHead is Open that also gives the record's head.
func (s *Store) openHead(ref Ref) (*Blob, []byte, error) {
	sf, err := s.files.acquire(ref.Segment)
	if err != nil {
		return nil, nil, err
	}
	rec, head, err := sf.readHead(ref)
	if err != nil {
		s.files.release(sf)
		return nil, nil, fmt.Errorf("message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	return &Blob{files: s.files, sf: sf, rec: rec, start: int64(ref.Offset) + int64(ref.Head)}, head, nil
}

func (sf *segmentFile) readHead(ref Ref) (record, []byte, error) {
	if ref.Head < recordHead || ref.Head > maxHead || int64(ref.Offset)+ref.Size() > sf.size.Load() {
		return record{}, nil, fmt.Errorf("reference out of bounds: %w", ErrDamaged)
	}
	head := make([]byte, ref.Head)
	if err := readFull(sf.f, head, int64(ref.Offset)); err != nil {
		return record{}, nil, err
	}
	rec, err := parseRecord(sf.head.mark, head)
	if err != nil {
		return record{}, nil, err
	}
	if rec.head != ref.Head || rec.body != int64(ref.Length) {
		return record{}, nil, fmt.Errorf("lengths differ from the reference: %w", ErrDamaged)
	}
	return rec, head, verifyHead(head)
}

// Size is the message's length in bytes.
func (b *Blob) Size() int64 { return b.rec.body }

// ReadAt reads from the message as io.ReaderAt asks.
func (b *Blob) ReadAt(p []byte, off int64) (int, error) {
	if b.closed.Load() {
		return 0, os.ErrClosed
	}
	return io.NewSectionReader(b.sf.f, b.start, b.rec.body).ReadAt(p, off)
}

// Close lets go of the segment. Closing again does nothing.
func (b *Blob) Close() error {
	if !b.closed.Swap(true) {
		b.files.release(b.sf)
	}
	return nil
}

// Verify reads the whole record at ref; where it is not what was stored the error is ErrDamaged.
func (s *Store) Verify(ref Ref) error {
	blob, err := s.Open(ref)
	if err != nil {
		return err
	}
	defer blob.Close()
	sum, err := checksum(blob, make([]byte, max(1, min(blob.rec.body, chunkSize))), blob.rec.body)
	if err != nil {
		return fmt.Errorf("message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	if sum != blob.rec.bodySum {
		return fmt.Errorf("message at %d in segment %08x: body checksum: %w", ref.Offset, ref.Segment, ErrDamaged)
	}
	return nil
}
