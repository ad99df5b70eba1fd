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
	defaultSegmentSize = 64 << 20
	chunkSize          = 256 << 10 // large messages are copied in pieces of this size
	aheadSize          = 256 << 10 // zeros are written this far ahead of the records
)

// Options configure Open. The zero value has the defaults.
type Options struct {
	Size int64        // size in bytes after which a new segment begins, at most 4 GiB - 1; 0: 64 MiB
	Log  *slog.Logger // logs what recovery cut off or found damaged; nil: no log
	Disk Disk         // nil: the operating system's

	// LastUsed finds the newest segment that has a record to which something refers, among those
	// with numbers up to upTo. It returns the number of the segment, and the end of the last such
	// record in it. It returns 0 if there is none. nil means that nothing refers to any record.
	LastUsed func(upTo uint32) (segment uint32, end int64, err error)
}

// A Store stores messages in append-only files, the segments. A segment is appended to until it is
// full and never changes after that. Compaction copies the records that are still referred to into
// newer segments and deletes the old file; segment numbers are never reused. Records are appended
// one at a time under a lock, so a crash can tear only the end of the newest file. A message larger
// than an eighth of a segment gets a segment of its own, written outside the lock, so that it does
// not delay others. All methods are safe for concurrent use.
type Store struct {
	size int64
	log  *slog.Logger
	disk Disk
	// findLastUsed is Options.LastUsed.
	findLastUsed func(upTo uint32) (segment uint32, end int64, err error)
	lost         []error // see LostMessages
	files        *fileSet
	verified     verifiedRefs
	zeros        []byte

	writers sync.Pool // pool of *recordWriter
	failed  atomic.Pointer[error]

	syncing sync.Mutex // one sync at a time; taken before mu

	mu        sync.Mutex
	active    *segmentFile // the segment that is appended to; nil until the first append to an empty directory
	end       int64        // offset of the next record in active
	zeroed    int64        // active is filled with zeros up to this offset
	next      uint32       // number of the next segment
	seq       uint64       // sequence number of the next record
	written   uint64       // number of appends to active segments so far
	isReplica bool         // the store copies another one: only WriteRecord may write
	synced    uint64       // how many of the appends in written are on disk
}

// Open opens the segments of the data directory dir, in dir/segments, which it creates if missing.
// It scans the newest segment, and cuts off and logs an unfinished record at its end. It does not
// read the others; see Verify. Only one process may have a directory open.
func Open(dir string, o Options) (*Store, error) {
	dir = filepath.Join(dir, "segments")
	s := &Store{
		size:         min(o.Size, math.MaxUint32),
		log:          o.Log,
		disk:         o.Disk,
		findLastUsed: o.LastUsed,
		files:        &fileSet{dir: dir, known: map[uint32]*segmentFile{}},
		zeros:        make([]byte, aheadSize),
		next:         1,
		seq:          1,
	}
	s.writers.New = func() any { return new(recordWriter) }
	if s.size == 0 {
		s.size = defaultSegmentSize
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
	if err := s.files.loadSegments(); err != nil {
		return nil, err
	}
	if err := s.resumeAppends(); err != nil {
		s.files.close()
		return nil, err
	}
	return s, nil
}

// failure returns the error that stopped all writes; nil if there was none.
func (s *Store) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// LostMessages returns an error if the disk had lost messages that something refers to when the
// segments were opened; nil otherwise.
func (s *Store) LostMessages() error { return errors.Join(s.lost...) }

// fail stops all appends and syncs until the store is opened again. It returns the error of the
// first call.
func (s *Store) fail(cause error) error {
	err := fmt.Errorf("%w: %w", ErrFailed, cause)
	s.failed.CompareAndSwap(nil, &err)
	return s.failure()
}

// A Body provides the bytes of a message to store: a Spool, a part of one, or a Blob.
type Body interface {
	io.ReaderAt
	Size() int64
}

// Append stores a message with its envelope, at most 64 KiB of opaque bytes. The message is on disk
// after the next Sync, or at once if it has a segment of its own. After an error, such as a full
// disk, nothing is stored and later appends may succeed, unless the error is ErrFailed.
func (s *Store) Append(envelope []byte, body Body) (Ref, error) {
	if spool, ok := body.(*Spool); ok && spool.err != nil {
		return Ref{}, spool.err
	}
	return s.appendFrom(envelope, record{body: body.Size()}, body)
}

// AppendAccepted is Append for a message that is acknowledged after the next Sync, before anything
// refers to it. After a crash, EachAccepted finds it.
func (s *Store) AppendAccepted(envelope []byte, body *Spool) (Ref, error) {
	if body.err != nil {
		return Ref{}, body.err
	}
	return s.appendFrom(envelope, record{body: body.Size(), flags: flagAccepted}, body)
}

// Copy appends the record at ref again, with its envelope and sequence number, and verifies it.
// After a crash, two records with the same sequence number are copies of one message.
func (s *Store) Copy(ref Ref) (Ref, error) {
	blob, head, err := s.openHead(ref)
	if err != nil {
		return Ref{}, err
	}
	defer blob.Close()
	blob.rec.flags = 0 // a reference exists, so the copy is not an accepted record to file
	copied, err := s.appendFrom(head[recordHeadSize:], blob.rec, blob)
	if err != nil {
		return Ref{}, fmt.Errorf("copy record: %w", err)
	}
	return copied, nil
}

// appendFrom appends a record. If its sequence number is 0, it assigns one and computes the body's
// checksum; otherwise it verifies the checksum.
func (s *Store) appendFrom(envelope []byte, rec record, body io.ReaderAt) (Ref, error) {
	switch {
	case len(envelope) > maxEnvelope:
		return Ref{}, ErrEnvelope
	case rec.body > maxBody:
		return Ref{}, ErrTooLarge
	}
	s.mu.Lock()
	err := s.failure()
	if err == nil && s.isReplica {
		err = ErrReplica
	}
	s.mu.Unlock()
	if err != nil {
		return Ref{}, err
	}
	w := s.writers.Get().(*recordWriter)
	defer s.writers.Put(w)
	defer w.releaseBody()
	if err := w.prepare(envelope, rec, body); err != nil {
		return Ref{}, err
	}
	if w.rec.size() > s.size/8 {
		return s.appendToOwnSegment(w)
	}
	return s.appendToActiveSegment(w)
}

// appendToActiveSegment appends a record to the active segment.
func (s *Store) appendToActiveSegment(w *recordWriter) (Ref, error) {
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
		return Ref{}, s.undoAppend(err)
	}
	killpoint.At("segment.appended")
	ref := w.ref(s.active.number, s.end)
	s.seq = next
	s.end += w.rec.size()
	s.active.size.Store(s.end)
	s.written++
	if w.rec.size() <= aheadSize/8 {
		s.writeZerosAhead()
	}
	return ref, nil
}

// undoAppend truncates the file to its last record after a failed write. If truncating fails too,
// the next record overwrites the rest.
func (s *Store) undoAppend(cause error) error {
	s.zeroed = s.end
	return errors.Join(fmt.Errorf("append to segment %08x: %w", s.active.number, cause), s.active.f.Truncate(s.end))
}

// writeZerosAhead writes zeros after the records if the file has none there: a sync that does not
// change the file's length needs no journal commit, which halves its time on ext4. If the disk has
// no room, records extend the file instead.
func (s *Store) writeZerosAhead() {
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

// makeRoom starts a new segment if there is none or the active one has no room for n bytes. It
// first syncs the old one, so that a crash can tear only the newest.
func (s *Store) makeRoom(n int64) error {
	if s.active != nil && s.end+n <= s.size {
		return nil
	}
	if s.active != nil {
		if err := s.finishActive(); err != nil {
			return err
		}
	}
	number := s.next
	s.next++
	sf, err := s.createSegment(header{number: number, firstSeq: s.seq}, nil)
	if err != nil {
		return err
	}
	if s.active != nil {
		s.files.release(s.active)
	}
	s.active, s.end, s.zeroed = sf, fileHeadSize, fileHeadSize
	return nil
}

// finishActive cuts the zeros after the last record from the active segment and syncs it.
func (s *Store) finishActive() error {
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

// appendToOwnSegment writes a large message to a segment of its own and syncs it.
func (s *Store) appendToOwnSegment(w *recordWriter) (Ref, error) {
	s.mu.Lock()
	number := s.next
	s.next++
	if w.rec.seq == 0 {
		w.rec.seq = s.seq
		s.seq++
	}
	s.mu.Unlock()
	sf, err := s.createSegment(header{number: number, single: true, firstSeq: w.rec.seq}, w)
	if err != nil {
		return Ref{}, err
	}
	s.files.release(sf)
	return w.ref(number, fileHeadSize), nil
}

// createSegment creates a segment file, with the record of w unless w is nil. The file gets its
// name when it is complete and on disk. The caller must release the segment.
func (s *Store) createSegment(head header, w *recordWriter) (*segmentFile, error) {
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
	size := int64(fileHeadSize)
	if w != nil {
		size += w.rec.size()
	}
	return s.files.add(f, head, size), nil
}

// writeFile writes and syncs a segment file under a temporary name.
func (s *Store) writeFile(path string, head header, w *recordWriter) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := s.disk.WriteAt(f, head.appendTo(nil), 0); err != nil {
		return fmt.Errorf("write header of segment %08x: %w", head.number, err)
	}
	killpoint.At("segment.file_begun")
	if w != nil {
		if err := w.writeTo(s.disk, &segmentFile{f: f, head: head}, fileHeadSize); err != nil {
			return fmt.Errorf("write segment %08x: %w", head.number, err)
		}
	}
	if err := s.disk.Datasync(f); err != nil {
		return s.fail(err)
	}
	return nil
}

// removeTemp removes an unfinished file, if it exists.
func removeTemp(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Sync writes to disk all appends that returned before the call. Concurrent calls share syncs: all
// calls that wait while a sync runs need only one more. After an error, all later appends and syncs
// return ErrFailed.
func (s *Store) Sync() error {
	s.mu.Lock()
	mine := s.written
	s.mu.Unlock()
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	err, done, target, sf := s.failure(), mine <= s.synced, s.written, s.active
	if err == nil && !done {
		s.files.addUser(sf)
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
	// The system reports a lost write to one sync only, which may have been that of finishActive.
	return s.failure()
}

// Close syncs and closes the store. Open blobs stay readable until they are closed.
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
		err = s.finishActive()
	}
	if s.active != nil {
		s.files.release(s.active)
		s.active = nil
	}
	s.files.close()
	closed := fmt.Errorf("message segments are closed: %w", os.ErrClosed)
	s.failed.Store(&closed)
	return err
}
