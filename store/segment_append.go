package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

const (
	segDefaultSize = 64 << 20
	segChunk       = 256 << 10 // messages are copied in pieces of this size
	segAhead       = 256 << 10 // zeros written before the records that replace them
)

// segOptions are the choices of openSegments; the zero value is right for a store.
type segOptions struct {
	size int64        // bytes at which the next segment begins, at most 4 GiB - 1; 64 MiB if 0
	log  *slog.Logger // told about what recovery cut or found damaged; silent if nil
	disk segDisk      // the operating system's if zero

	// lastUsed gives the newest segment that anything refers to, up to the segment `most`, and
	// where the last record of it that is referred to ends. It is 0 where there is none; nil if
	// nothing refers to anything.
	lastUsed func(most uint32) (segment uint32, end int64, err error)
}

// segments keeps message bytes in append-only files. Records are written one after the other under
// a lock, so that a crash can tear only the end of the newest file; a message over an eighth of a
// segment is written to a file of its own, outside the lock, so that it holds no other up. All
// methods may be called concurrently.
type segments struct {
	size  int64
	log   *slog.Logger
	disk  segDisk
	used  func(most uint32) (segment uint32, end int64, err error)
	lost  []error // what the disk has not kept; of openSegments
	files *segFiles
	zeros []byte

	drafts sync.Pool // of *segDraft
	failed atomic.Pointer[error]

	syncing sync.Mutex // one sync at a time; taken before mu

	mu      sync.Mutex
	active  *segFile // nil until the first append to an empty directory
	end     int64    // where the next record goes in active
	zeroed  int64    // active is filled with zeros up to here
	next    uint32   // number of the next file
	seq     uint64   // sequence of the next record
	written uint64   // appends to active files so far
	synced  uint64   // how many of them are on disk
}

// openSegments opens the segments of the data directory dir; they are in dir/segments, which is
// made if it is missing. The newest segment is scanned: an unfinished record at its end is cut and
// reported to the log. Others are trusted until each or verify reads them. One process may have a
// directory open.
func openSegments(dir string, o segOptions) (*segments, error) {
	dir = filepath.Join(dir, "segments")
	s := &segments{
		size:  min(o.size, math.MaxUint32),
		log:   o.log,
		disk:  o.disk,
		used:  o.lastUsed,
		files: &segFiles{dir: dir, known: map[uint32]*segFile{}},
		zeros: make([]byte, segAhead),
		next:  1,
		seq:   1,
	}
	s.drafts.New = func() any { return new(segDraft) }
	if s.size == 0 {
		s.size = segDefaultSize
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.disk.writeAt == nil {
		s.disk = segOSDisk()
	}
	if err := segMakeDir(dir, s.disk); err != nil {
		return nil, err
	}
	if err := s.files.find(); err != nil {
		return nil, err
	}
	if err := s.resume(); err != nil {
		s.files.close()
		return nil, err
	}
	return s, nil
}

func (s *segments) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// fail ends all appends and syncs for good. The first cause stays.
func (s *segments) fail(cause error) error {
	err := fmt.Errorf("%w: %w", errSegFailed, cause)
	s.failed.CompareAndSwap(nil, &err)
	return s.failure()
}

// append stores one message with its envelope, at most 64 KiB that mean nothing to this code. It is
// on disk after the next sync, or at once if it has a segment of its own. An error, a full disk for
// one, leaves nothing behind and later appends may succeed, unless it is errSegFailed.
func (s *segments) append(env []byte, body *Spool) (BlobRef, error) {
	if body.err != nil {
		return BlobRef{}, body.err
	}
	return s.appendFrom(env, segRecord{body: body.Size()}, body)
}

// copyRecord appends the record at ref once more, verified on the way, with its envelope and its
// sequence: after a crash both copies have the same sequence.
func (s *segments) copyRecord(ref BlobRef) (BlobRef, error) {
	blob, head, err := s.openHead(ref)
	if err != nil {
		return BlobRef{}, err
	}
	defer blob.Close()
	copied, err := s.appendFrom(head[segRecordHead:], blob.rec, blob)
	if err != nil {
		return BlobRef{}, fmt.Errorf("copy record: %w", err)
	}
	return copied, nil
}

// appendFrom appends a record; its sequence and its body's checksum are filled in if the sequence
// is 0, else the checksum is verified.
func (s *segments) appendFrom(env []byte, rec segRecord, body io.ReaderAt) (BlobRef, error) {
	switch {
	case len(env) > segMaxEnv:
		return BlobRef{}, errSegEnvelope
	case rec.body > segMaxBody:
		return BlobRef{}, ErrTooLarge
	}
	if err := s.failure(); err != nil {
		return BlobRef{}, err
	}
	d := s.drafts.Get().(*segDraft)
	defer s.drafts.Put(d)
	defer d.drop()
	if err := d.fill(env, rec, body); err != nil {
		return BlobRef{}, err
	}
	if d.rec.size() > s.size/8 {
		return s.appendSingle(d)
	}
	return s.appendActive(d)
}

func (s *segments) appendActive(d *segDraft) (BlobRef, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failure(); err != nil {
		return BlobRef{}, err
	}
	if err := s.makeRoom(d.rec.size()); err != nil {
		return BlobRef{}, err
	}
	next := s.seq
	if d.rec.seq == 0 {
		d.rec.seq = s.seq
		next++
	}
	if err := d.writeTo(s.disk, s.active, s.end); err != nil {
		return BlobRef{}, s.retract(err)
	}
	ref := d.ref(s.active.number, s.end)
	s.seq = next
	s.end += d.rec.size()
	s.active.size.Store(s.end)
	s.written++
	if d.rec.size() <= segAhead/8 {
		s.zeroAhead()
	}
	return ref, nil
}

// retract takes back what a failed write has left behind the last record. Should even that fail,
// the next record replaces it.
func (s *segments) retract(cause error) error {
	s.zeroed = s.end
	return errors.Join(fmt.Errorf("append to segment %08x: %w", s.active.number, cause), s.active.f.Truncate(s.end))
}

// zeroAhead fills the file with zeros ahead of the records: a sync of bytes within the file's
// length needs no journal commit, which halves its time on ext4. Without room for them on the disk,
// records simply lengthen the file.
func (s *segments) zeroAhead() {
	ahead := min(s.end+segAhead, s.size)
	if s.end <= s.zeroed || ahead <= s.end {
		return
	}
	s.zeroed = ahead
	if _, err := s.disk.writeAt(s.active.f, s.zeros[:ahead-s.end], s.end); err == nil {
		return
	}
	if s.active.f.Truncate(s.end) == nil {
		s.zeroed = s.end
	}
}

// makeRoom begins a new segment if there is none or the active one has no room for n bytes. The old
// one is on disk before, so that only the newest can be torn.
func (s *segments) makeRoom(n int64) error {
	if s.active != nil && s.end+n <= s.size {
		return nil
	}
	if s.active != nil {
		if err := s.seal(); err != nil {
			return err
		}
	}
	number := s.next
	s.next++
	sf, err := s.create(segHeader{number: number, firstSeq: s.seq}, nil)
	if err != nil {
		return err
	}
	if s.active != nil {
		s.files.release(s.active)
	}
	s.active, s.end, s.zeroed = sf, segFileHead, segFileHead
	return nil
}

// seal puts the active segment on disk, without the zeros behind its last record.
func (s *segments) seal() error {
	if s.zeroed > s.end {
		if err := s.active.f.Truncate(s.end); err != nil {
			return err
		}
		s.zeroed = s.end
	}
	if err := s.disk.datasync(s.active.f); err != nil {
		return s.fail(err)
	}
	s.synced = s.written
	return nil
}

// appendSingle writes a large message to a file of its own, which is on disk when it is done.
func (s *segments) appendSingle(d *segDraft) (BlobRef, error) {
	s.mu.Lock()
	number := s.next
	s.next++
	if d.rec.seq == 0 {
		d.rec.seq = s.seq
		s.seq++
	}
	s.mu.Unlock()
	sf, err := s.create(segHeader{number: number, single: true, firstSeq: d.rec.seq}, d)
	if err != nil {
		return BlobRef{}, err
	}
	s.files.release(sf)
	return d.ref(number, segFileHead), nil
}

// create makes a segment file, with the record of d if that is not nil, and gives it its name when
// it is whole and on disk. The caller has its first use.
func (s *segments) create(head segHeader, d *segDraft) (*segFile, error) {
	rand.Read(head.mark[:])
	path := s.files.path(head.number)
	draft := path[:len(path)-len(segSuffix)] + segDraftSuffix
	if err := s.writeFile(draft, head, d); err != nil {
		return nil, errors.Join(err, segRemoveDraft(draft))
	}
	if err := os.Rename(draft, path); err != nil {
		return nil, errors.Join(err, segRemoveDraft(draft))
	}
	if err := s.disk.syncDir(s.files.dir); err != nil {
		return nil, s.fail(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	size := int64(segFileHead)
	if d != nil {
		size += d.rec.size()
	}
	return s.files.add(f, head, size), nil
}

func (s *segments) writeFile(path string, head segHeader, d *segDraft) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := s.disk.writeAt(f, head.appendTo(nil), 0); err != nil {
		return fmt.Errorf("begin segment %08x: %w", head.number, err)
	}
	if d != nil {
		if err := d.writeTo(s.disk, &segFile{f: f, head: head}, segFileHead); err != nil {
			return fmt.Errorf("write segment %08x: %w", head.number, err)
		}
	}
	if err := s.disk.datasync(f); err != nil {
		return s.fail(err)
	}
	return nil
}

func segRemoveDraft(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// sync puts on disk every append that returned before the call. Concurrent calls share one sync
// where they can. When it fails, the segments have failed for good.
func (s *segments) sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	err, clean, target, sf := s.failure(), s.written == s.synced, s.written, s.active
	if err == nil && !clean {
		s.files.hold(sf)
	}
	s.mu.Unlock()
	if err != nil || clean {
		return err
	}
	defer s.files.release(sf)
	if err := s.disk.datasync(sf.f); err != nil {
		return s.fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = max(s.synced, target)
	// The system reports a lost write to one sync only, which may have been that of seal.
	return s.failure()
}

// close syncs and closes. Blobs that are open stay readable until they are closed.
func (s *segments) close() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.failure()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	if s.active != nil && err == nil {
		err = s.seal()
	}
	if s.active != nil {
		s.files.release(s.active)
		s.active = nil
	}
	s.files.close()
	closed := fmt.Errorf("message segments: %w", os.ErrClosed)
	s.failed.Store(&closed)
	return err
}
