package segment

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	wholeBody = 64 << 10        // a body up to this size is read and verified by Open
	soundFor  = 5 * time.Minute // how long a larger one is not verified again
	soundMost = 4096
)

// A Blob is the bytes of one stored message. Any number of goroutines may read it until it is
// closed; its bytes stay readable while the segment around it is removed.
type Blob struct {
	files  *fileSet
	sf     *segmentFile
	rec    record
	start  int64  // of the body in the file
	whole  []byte // the body, if it is small
	closed atomic.Bool
}

// Open gives the message at ref, verified: where the record is not what was stored the error is
// ErrDamaged, where there is no such segment fs.ErrNotExist.
func (s *Store) Open(ref Ref) (*Blob, error) {
	blob, _, err := s.openHead(ref)
	if err != nil {
		return nil, err
	}
	if blob.rec.body > wholeBody && s.sound.has(ref) {
		return blob, nil
	}
	err = blob.verify()
	if err != nil {
		blob.Close()
		return nil, fmt.Errorf("message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	if blob.whole == nil {
		s.sound.add(ref)
	}
	return blob, nil
}

// verify reads the body, and keeps a small one.
func (b *Blob) verify() error {
	buf := make([]byte, min(b.rec.body, chunkSize))
	sum, err := checksum(io.NewSectionReader(b.sf.f, b.start, b.rec.body), buf, b.rec.body)
	if err == nil && sum != b.rec.bodySum {
		err = fmt.Errorf("body checksum: %w", ErrDamaged)
	}
	if err == nil && b.rec.body <= wholeBody {
		b.whole = buf
	}
	return err
}

// soundRefs remembers which large records were found whole, since mail clients read them in many
// pieces.
type soundRefs struct {
	mu    sync.Mutex
	until map[Ref]time.Time
}

func (r *soundRefs) has(ref Ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.until[ref])
}

func (r *soundRefs) add(ref Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil || len(r.until) >= soundMost {
		r.until = map[Ref]time.Time{}
	}
	r.until[ref] = time.Now().Add(soundFor)
}

// openHead opens the record at ref and gives its head. Its body is not verified.
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
	if b.whole != nil {
		return bytes.NewReader(b.whole).ReadAt(p, off)
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
	blob, _, err := s.openHead(ref)
	if err != nil {
		return err
	}
	defer blob.Close()
	if err := blob.verify(); err != nil {
		return fmt.Errorf("message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	return nil
}
