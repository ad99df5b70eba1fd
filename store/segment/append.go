package segment

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

	"github.com/mailstead/mailstead/internal/killpoint"
)

const (
	defaultSize = 64 << 20
	chunkSize   = 256 << 10 // messages are copied in pieces of this size
	aheadSize   = 256 << 10 // zeros written before the records that replace them
)

// Options are the choices of Open; the zero value is right for a store.
type Options struct {
	Size int64        // bytes at which the next segment begins, at most 4 GiB - 1; 64 MiB if 0
	Log  *slog.Logger // told about what recovery cut or found damaged; silent if nil
	Disk Disk         // the operating system's if nil

	// LastUsed gives the newest segment that anything refers to, up to the segment `most`, and
	// where the last record of it that is referred to ends. It is 0 where there is none; nil if
	// nothing refers to anything.
	LastUsed func(most uint32) (segment uint32, end int64, err error)
}

// A Store keeps message bytes in append-only files, the segments. A segment is written to until it
// is full, and never after that. Compaction copies what is still referred to into newer segments,
// and then the old file is deleted; its number is not used again. Records are written one after the
// other under a lock, so that a crash can tear only the end of the newest file; a message over an
// eighth of a segment is written to a file of its own, outside the lock, so that it holds no other
// up. All methods may be called concurrently.
type Store struct {
	size  int64
	log   *slog.Logger
	disk  Disk
	used  func(most uint32) (segment uint32, end int64, err error)
	lost  []error // see Lost
	files *fileSet
	sound soundRefs
	zeros []byte

	writers sync.Pool // of *recordWriter
	failed  atomic.Pointer[error]

	syncing sync.Mutex // one sync at a time; taken before mu

	mu      sync.Mutex
	active  *segmentFile // nil until the first append to an empty directory
	end     int64        // where the next record goes in active
	zeroed  int64        // active is filled with zeros up to here
	next    uint32       // number of the next file
	seq     uint64       // sequence of the next record
	written uint64       // appends to active files so far
	follows bool         // it takes records of another store, see WriteRecord
	synced  uint64       // how many of them are on disk
}

// Open opens the segments of the data directory dir; they are in dir/segments, which is made if it
// is missing. The newest segment is scanned: an unfinished record at its end is cut and reported to
// the log. Others are trusted until Verify reads them. One process may have a directory open.
func Open(dir string, o Options) (*Store, error) {
	dir = filepath.Join(dir, "segments")
	s := &Store{
		size:  min(o.Size, math.MaxUint32),
		log:   o.Log,
		disk:  o.Disk,
		used:  o.LastUsed,
		files: &fileSet{dir: dir, known: map[uint32]*segmentFile{}},
		zeros: make([]byte, aheadSize),
		next:  1,
		seq:   1,
	}
	s.writers.New = func() any { return new(recordWriter) }
	if s.size == 0 {
		s.size = defaultSize
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.disk == nil {
		s.disk = osDisk{}
	}
	if err := makeDir(dir, s.disk); err != nil {
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

func (s *Store) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Lost says what the disk had lost, when the segments were opened, of messages that something
// refers to; nil if nothing.
func (s *Store) Lost() error { return errors.Join(s.lost...) }

// fail ends all appends and syncs for good. The first cause stays.
func (s *Store) fail(cause error) error {
	err := fmt.Errorf("%w: %w", ErrFailed, cause)
	s.failed.CompareAndSwap(nil, &err)
	return s.failure()
}

// A Body is the bytes of a message that is to be stored: a Spool, a part of one, or a Blob.
type Body interface {
	io.ReaderAt
	Size() int64
}

// Append stores one message with its envelope, at most 64 KiB that mean nothing to this code. It is
// on disk after the next Sync, or at once if it has a segment of its own. An error, a full disk for
// one, leaves nothing behind and later appends may succeed, unless it is ErrFailed.
func (s *Store) Append(env []byte, body Body) (Ref, error) {
	if spool, ok := body.(*Spool); ok && spool.err != nil {
		return Ref{}, spool.err
	}
	return s.appendFrom(env, record{body: body.Size()}, body)
}

// AppendAccepted is Append for a message that is acknowledged, after the next Sync, before anything
// refers to it. After a crash Accepted gives it.
func (s *Store) AppendAccepted(env []byte, body *Spool) (Ref, error) {
	if body.err != nil {
		return Ref{}, body.err
	}
	return s.appendFrom(env, record{body: body.Size(), flags: flagAccepted}, body)
}

// Copy appends the record at ref once more, verified on the way, with its envelope and its
// sequence: after a crash both copies have the same sequence.
func (s *Store) Copy(ref Ref) (Ref, error) {
	blob, head, err := s.openHead(ref)
	if err != nil {
		return Ref{}, err
	}
	defer blob.Close()
	blob.rec.flags = 0 // whatever was to be made of it refers to it
	copied, err := s.appendFrom(head[recordHead:], blob.rec, blob)
	if err != nil {
		return Ref{}, fmt.Errorf("copy record: %w", err)
	}
	return copied, nil
}

// appendFrom appends a record; its sequence and its body's checksum are filled in if the sequence
// is 0, else the checksum is verified.
func (s *Store) appendFrom(env []byte, rec record, body io.ReaderAt) (Ref, error) {
	switch {
	case len(env) > maxEnvelope:
		return Ref{}, ErrEnvelope
	case rec.body > maxBody:
		return Ref{}, ErrTooLarge
	}
	s.mu.Lock()
	err := s.failure()
	if err == nil && s.follows {
		err = ErrFollows
	}
	s.mu.Unlock()
	if err != nil {
		return Ref{}, err
	}
	w := s.writers.Get().(*recordWriter)
	defer s.writers.Put(w)
	defer w.drop()
	if err := w.fill(env, rec, body); err != nil {
		return Ref{}, err
	}
	if w.rec.size() > s.size/8 {
		return s.appendSingle(w)
	}
	return s.appendActive(w)
}

func (s *Store) appendActive(w *recordWriter) (Ref, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failure(); err != nil {
		return Ref{}, err
	}
	if err := s.makeRoom(w.rec.size()); err != nil {
		return Ref{}, err
	}
	next := s.seq
	if w.rec.seq == 0 {
		w.rec.seq = s.seq
		next++
	}
	killpoint.At("segment.append")
	if err := w.writeTo(s.disk, s.active, s.end); err != nil {
		return Ref{}, s.retract(err)
	}
	killpoint.At("segment.appended")
	ref := w.ref(s.active.number, s.end)
	s.seq = next
	s.end += w.rec.size()
	s.active.size.Store(s.end)
	s.written++
	if w.rec.size() <= aheadSize/8 {
		s.zeroAhead()
	}
	return ref, nil
}

// retract takes back what a failed write has left behind the last record. Should even that fail,
// the next record replaces it.
func (s *Store) retract(cause error) error {
	s.zeroed = s.end
	return errors.Join(fmt.Errorf("append to segment %08x: %w", s.active.number, cause), s.active.f.Truncate(s.end))
}

// zeroAhead fills the file with zeros ahead of the records: a sync of bytes within the file's
// length needs no journal commit, which halves its time on ext4. Without room for them on the disk,
// records simply lengthen the file.
func (s *Store) zeroAhead() {
	ahead := min(s.end+aheadSize, s.size)
	if s.end <= s.zeroed || ahead <= s.end {
		return
	}
	s.zeroed = ahead
	if _, err := s.disk.WriteAt(s.active.f, s.zeros[:ahead-s.end], s.end); err == nil {
		return
	}
	if s.active.f.Truncate(s.end) == nil {
		s.zeroed = s.end
	}
}

// makeRoom begins a new segment if there is none or the active one has no room for n bytes. The old
// one is on disk before, so that only the newest can be torn.
func (s *Store) makeRoom(n int64) error {
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
	sf, err := s.create(header{number: number, firstSeq: s.seq}, nil)
	if err != nil {
		return err
	}
	if s.active != nil {
		s.files.release(s.active)
	}
	s.active, s.end, s.zeroed = sf, fileHead, fileHead
	return nil
}

// seal puts the active segment on disk, without the zeros behind its last record.
func (s *Store) seal() error {
	if s.zeroed > s.end {
		if err := s.active.f.Truncate(s.end); err != nil {
			return err
		}
		s.zeroed = s.end
	}
	killpoint.At("segment.seal")
	if err := s.disk.Datasync(s.active.f); err != nil {
		return s.fail(err)
	}
	s.synced = s.written
	killpoint.At("segment.sealed")
	return nil
}

// appendSingle writes a large message to a file of its own, which is on disk when it is done.
func (s *Store) appendSingle(w *recordWriter) (Ref, error) {
	s.mu.Lock()
	number := s.next
	s.next++
	if w.rec.seq == 0 {
		w.rec.seq = s.seq
		s.seq++
	}
	s.mu.Unlock()
	sf, err := s.create(header{number: number, single: true, firstSeq: w.rec.seq}, w)
	if err != nil {
		return Ref{}, err
	}
	s.files.release(sf)
	return w.ref(number, fileHead), nil
}

// create makes a segment file, with the record of w if that is not nil, and gives it its name when
// it is whole and on disk. The caller has its first use.
func (s *Store) create(head header, w *recordWriter) (*segmentFile, error) {
	rand.Read(head.mark[:])
	path := s.files.path(head.number)
	temp := path[:len(path)-len(fileSuffix)] + tempSuffix
	if err := s.writeFile(temp, head, w); err != nil {
		return nil, errors.Join(err, removeTemp(temp))
	}
	killpoint.At("segment.file_whole")
	if err := os.Rename(temp, path); err != nil {
		return nil, errors.Join(err, removeTemp(temp))
	}
	killpoint.At("segment.file_named")
	if err := s.disk.SyncDir(s.files.dir); err != nil {
		return nil, s.fail(err)
	}
	killpoint.At("segment.directory_synced")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	size := int64(fileHead)
	if w != nil {
		size += w.rec.size()
	}
	return s.files.add(f, head, size), nil
}

func (s *Store) writeFile(path string, head header, w *recordWriter) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := s.disk.WriteAt(f, head.appendTo(nil), 0); err != nil {
		return fmt.Errorf("begin segment %08x: %w", head.number, err)
	}
	killpoint.At("segment.file_begun")
	if w != nil {
		if err := w.writeTo(s.disk, &segmentFile{f: f, head: head}, fileHead); err != nil {
			return fmt.Errorf("write segment %08x: %w", head.number, err)
		}
	}
	if err := s.disk.Datasync(f); err != nil {
		return s.fail(err)
	}
	return nil
}

func removeTemp(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Sync puts on disk every append that returned before the call. Concurrent calls share a sync:
// those that wait for one in progress need a single further one, whatever is appended meanwhile.
// When it fails, the segments have failed for good.
func (s *Store) Sync() error {
	s.mu.Lock()
	mine := s.written
	s.mu.Unlock()
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	err, done, target, sf := s.failure(), mine <= s.synced, s.written, s.active
	if err == nil && !done {
		s.files.hold(sf)
	}
	s.mu.Unlock()
	if err != nil || done {
		return err
	}
	defer s.files.release(sf)
	killpoint.At("segment.sync")
	if err := s.disk.Datasync(sf.f); err != nil {
		return s.fail(err)
	}
	killpoint.At("segment.synced")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = max(s.synced, target)
	// The system reports a lost write to one sync only, which may have been that of seal.
	return s.failure()
}

// Close syncs and closes. Blobs that are open stay readable until they are closed.
func (s *Store) Close() error {
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
