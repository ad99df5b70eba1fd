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
	smallBody   = 64 << 10        // Open reads and verifies a body up to this size at once, in bytes
	verifiedFor = 5 * time.Minute // how long a larger body is not verified again
	maxVerified = 4096            // most bodies that are remembered as verified
)

// A Blob is a stored message, open for reading. It is safe for concurrent use until Close. It stays
// readable while its segment is removed.
type Blob struct {
	files  *fileSet
	sf     *segmentFile
	rec    record
	start  int64  // offset of the body in the file
	whole  []byte // the body, if it is small; otherwise nil
	closed atomic.Bool
}

// Open returns the message at ref, verified. The error is ErrDamaged if the record differs from
// what was stored, and fs.ErrNotExist if the segment does not exist.
func (s *Store) Open(ref Ref) (*Blob, error) {
	blob, _, err := s.openHead(ref)
	if err != nil {
		return nil, err
	}
	if blob.rec.body > smallBody && s.verified.has(ref) {
		return blob, nil
	}
	err = blob.verify()
	if err != nil {
		blob.Close()
		return nil, fmt.Errorf("read message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	if blob.whole == nil {
		s.verified.add(ref)
	}
	return blob, nil
}

// verify reads the body and compares its checksum. It keeps a small body in memory.
func (b *Blob) verify() error {
	buf := make([]byte, min(b.rec.body, chunkSize))
	sum, err := checksum(io.NewSectionReader(b.sf.f, b.start, b.rec.body), buf, b.rec.body)
	if err == nil && sum != b.rec.bodySum {
		err = fmt.Errorf("body checksum: %w", ErrDamaged)
	}
	if err == nil && b.rec.body <= smallBody {
		b.whole = buf
	}
	return err
}

// verifiedRefs remembers which large bodies were verified recently, since mail clients read them in
// many pieces.
type verifiedRefs struct {
	mu    sync.Mutex
	until map[Ref]time.Time
}

func (r *verifiedRefs) has(ref Ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.until[ref])
}

func (r *verifiedRefs) add(ref Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil || len(r.until) >= maxVerified {
		r.until = map[Ref]time.Time{}
	}
	r.until[ref] = time.Now().Add(verifiedFor)
}

// openHead opens the record at ref and returns its head. It does not verify the body.
func (s *Store) openHead(ref Ref) (*Blob, []byte, error) {
	sf, err := s.files.acquire(ref.Segment)
	if err != nil {
		return nil, nil, err
	}
	rec, head, err := sf.readHead(ref)
	if err != nil {
		s.files.release(sf)
		return nil, nil, fmt.Errorf("read message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	return &Blob{files: s.files, sf: sf, rec: rec, start: int64(ref.Offset) + int64(ref.Head)}, head, nil
}

// readHead reads and verifies the head of the record at ref.
func (sf *segmentFile) readHead(ref Ref) (record, []byte, error) {
	if ref.Head < recordHeadSize || ref.Head > maxHead || int64(ref.Offset)+ref.Size() > sf.size.Load() {
		return record{}, nil, fmt.Errorf("the reference points outside the segment: %w", ErrDamaged)
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
		return record{}, nil, fmt.Errorf("lengths in the record head differ from the reference: %w", ErrDamaged)
	}
	return rec, head, verifyHead(head)
}

// Size returns the length of the message in bytes.
func (b *Blob) Size() int64 { return b.rec.body }

// ReadAt implements io.ReaderAt. After Close it returns os.ErrClosed.
func (b *Blob) ReadAt(p []byte, off int64) (int, error) {
	if b.closed.Load() {
		return 0, os.ErrClosed
	}
	if b.whole != nil {
		return bytes.NewReader(b.whole).ReadAt(p, off)
	}
	return io.NewSectionReader(b.sf.f, b.start, b.rec.body).ReadAt(p, off)
}

// Close releases the segment. It is safe to call twice.
func (b *Blob) Close() error {
	if !b.closed.Swap(true) {
		b.files.release(b.sf)
	}
	return nil
}

// Verify reads the whole record at ref. The error is ErrDamaged if it differs from what was stored.
func (s *Store) Verify(ref Ref) error {
	blob, _, err := s.openHead(ref)
	if err != nil {
		return err
	}
	defer blob.Close()
	if err := blob.verify(); err != nil {
		return fmt.Errorf("read message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	return nil
}
