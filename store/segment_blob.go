package store

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// Blob is the bytes of one stored message. Any number of goroutines may read it until it is closed;
// its bytes stay readable while the segment around it is removed.
type Blob struct {
	files  *segFiles
	sf     *segFile
	rec    segRecord
	start  int64 // of the body in the file
	closed atomic.Bool
}

// open gives the message at ref. The record's head and bounds are verified, its body is not (verify
// does that). Where there is no such record the error is errSegDamaged, where there is no such
// segment fs.ErrNotExist.
func (s *segments) open(ref BlobRef) (*Blob, error) {
	blob, _, err := s.openHead(ref)
	return blob, err
}

// openHead is open that also gives the record's head.
func (s *segments) openHead(ref BlobRef) (*Blob, []byte, error) {
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

func (sf *segFile) readHead(ref BlobRef) (segRecord, []byte, error) {
	if ref.Head < segRecordHead || ref.Head > segMaxHead || int64(ref.Offset)+ref.Size() > sf.size.Load() {
		return segRecord{}, nil, fmt.Errorf("reference out of bounds: %w", errSegDamaged)
	}
	head := make([]byte, ref.Head)
	if err := segReadFull(sf.f, head, int64(ref.Offset)); err != nil {
		return segRecord{}, nil, err
	}
	rec, err := parseSegRecord(sf.head.mark, head)
	if err != nil {
		return segRecord{}, nil, err
	}
	if rec.head != ref.Head || rec.body != int64(ref.Length) {
		return segRecord{}, nil, fmt.Errorf("lengths differ from the reference: %w", errSegDamaged)
	}
	return rec, head, verifySegHead(head)
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

// verify reads the whole record at ref; where it is not what was stored the error is errSegDamaged.
func (s *segments) verify(ref BlobRef) error {
	blob, err := s.open(ref)
	if err != nil {
		return err
	}
	defer blob.Close()
	sum, err := segSum(blob, make([]byte, max(1, min(blob.rec.body, segChunk))), blob.rec.body)
	if err != nil {
		return fmt.Errorf("message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	if sum != blob.rec.bodySum {
		return fmt.Errorf("message at %d in segment %08x: body checksum: %w", ref.Offset, ref.Segment, errSegDamaged)
	}
	return nil
}
