package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mailstead/mailstead/internal/killpoint"
)

// A Disk is the file operations that a full or dying disk makes fail; tests replace them.
type Disk interface {
	WriteAt(f *os.File, p []byte, off int64) (int, error)
	Datasync(f *os.File) error // puts the file's bytes and length on disk
	SyncDir(dir string) error  // puts a directory's entries on disk
}

// osDisk is the operating system's.
type osDisk struct{}

func (osDisk) WriteAt(f *os.File, p []byte, off int64) (int, error) { return f.WriteAt(p, off) }

func (osDisk) Datasync(f *os.File) error { return datasync(f) }

// SyncDir does nothing on Windows, which cannot open directories for it, and journals them itself.
func (osDisk) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// An UnsyncedDisk is the operating system's, without a sync.
type UnsyncedDisk struct{}

// WriteAt writes to the file.
func (UnsyncedDisk) WriteAt(f *os.File, p []byte, off int64) (int, error) { return f.WriteAt(p, off) }

// Datasync does nothing.
func (UnsyncedDisk) Datasync(*os.File) error { return nil }

// SyncDir does nothing.
func (UnsyncedDisk) SyncDir(string) error { return nil }

// makeDir makes dir if it is missing, and puts its name on disk.
func makeDir(dir string, disk Disk) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(dir))
}

// maxIdle bounds the file descriptors that are kept open for the next reader.
const maxIdle = 64

// A segmentFile is one segment, opened while someone uses it and for a while longer.
type segmentFile struct {
	number uint32
	size   atomic.Int64 // bytes that readers may see

	// Guarded by fileSet.mu; f and head do not change while refs > 0.
	f    *os.File
	head header
	refs int
	gone bool // unlinked: closed with its last reader
}

// A fileSet knows every segment of a directory and shares their open files.
type fileSet struct {
	dir string

	mu    sync.Mutex
	known map[uint32]*segmentFile
	idle  []*segmentFile // open without users, longest first
}

const (
	fileSuffix = ".seg"
	tempSuffix = ".tmp"
)

func (s *fileSet) path(number uint32) string {
	return filepath.Join(s.dir, FileName(number))
}

// find makes the segments in the directory known and removes those that were not finished.
func (s *fileSet) find() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.findOne(e); err != nil {
			return err
		}
	}
	return nil
}

func (s *fileSet) findOne(e fs.DirEntry) error {
	name, temp := strings.CutSuffix(e.Name(), tempSuffix)
	if temp {
		_, temp = parseNumber(name)
	}
	if temp {
		return os.Remove(filepath.Join(s.dir, e.Name()))
	}
	name, found := strings.CutSuffix(e.Name(), fileSuffix)
	number, valid := parseNumber(name)
	if !found || !valid {
		return nil
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	sf := &segmentFile{number: number}
	sf.size.Store(info.Size())
	s.known[number] = sf
	return nil
}

// parseNumber reads the 8 hexadecimal digits of a segment's name.
func parseNumber(name string) (uint32, bool) {
	number, err := strconv.ParseUint(name, 16, 32)
	return uint32(number), err == nil && number != 0 && name == fmt.Sprintf("%08x", number)
}

// acquire opens a segment for reading or shares its open file; release must follow.
func (s *fileSet) acquire(number uint32) (*segmentFile, error) { return s.open(number, os.O_RDONLY) }

func (s *fileSet) open(number uint32, flag int) (*segmentFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sf := s.known[number]
	if sf == nil {
		return nil, &fs.PathError{Op: "open", Path: s.path(number), Err: fs.ErrNotExist}
	}
	if sf.f == nil {
		if err := s.openLocked(sf, flag); err != nil {
			return nil, err
		}
	}
	s.holdLocked(sf)
	return sf, nil
}

func (s *fileSet) openLocked(sf *segmentFile, flag int) error {
	f, err := os.OpenFile(s.path(sf.number), flag, 0)
	if err != nil {
		return err
	}
	head, err := readHeader(f)
	if err != nil {
		f.Close()
		return fmt.Errorf("open %s: %w", s.path(sf.number), err)
	}
	sf.f, sf.head = f, head
	return nil
}

// readHeader reads a file's header. If that is damaged, the mark is taken from the first record,
// if that is whole; number is then 0.
func readHeader(f io.ReaderAt) (header, error) {
	var b [fileHead + recordHead]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return header{}, err
	}
	head, err := parseHeader(b[:min(n, fileHead)])
	if !errors.Is(err, ErrDamaged) || n < len(b) {
		return head, err
	}
	mark := fileMark(b[fileHead:])
	rec, recErr := parseRecord(mark, b[fileHead:])
	if recErr != nil {
		return header{}, err
	}
	record := make([]byte, rec.head)
	if _, readErr := f.ReadAt(record, fileHead); readErr != nil || verifyHead(record) != nil {
		return header{}, err
	}
	return header{mark: mark}, nil
}

// hold takes one more use of a segment that is in use.
func (s *fileSet) hold(sf *segmentFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdLocked(sf)
}

func (s *fileSet) holdLocked(sf *segmentFile) {
	if sf.refs == 0 {
		s.idle = slices.DeleteFunc(s.idle, func(other *segmentFile) bool { return other == sf })
	}
	sf.refs++
}

func (s *fileSet) release(sf *segmentFile) {
	if f := s.unhold(sf); f != nil {
		f.Close()
	}
}

// unhold ends one use and gives the file that is to be closed for it: closing the last use of an
// unlinked segment frees its blocks, which is too slow for the lock.
func (s *fileSet) unhold(sf *segmentFile) *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	sf.refs--
	switch {
	case sf.refs > 0:
		return nil
	case sf.gone:
		return sf.f
	}
	s.idle = append(s.idle, sf)
	if len(s.idle) <= maxIdle {
		return nil
	}
	f := s.idle[0].f
	s.idle[0].f = nil
	s.idle = slices.Delete(s.idle, 0, 1)
	return f
}

// add makes a new file known. The caller holds its first use.
func (s *fileSet) add(f *os.File, head header, size int64) *segmentFile {
	sf := &segmentFile{number: head.number, f: f, head: head, refs: 1}
	sf.size.Store(size)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[head.number] = sf
	return sf
}

// unlink removes a segment's name; its bytes go with its last reader.
func (s *fileSet) unlink(number uint32) error {
	s.mu.Lock()
	sf := s.known[number]
	delete(s.known, number)
	s.mu.Unlock()
	if sf == nil {
		return &fs.PathError{Op: "remove", Path: s.path(number), Err: fs.ErrNotExist}
	}
	err := os.Remove(s.path(number))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.known[number] = sf
		return err
	}
	s.forgetLocked(sf)
	return nil
}

func (s *fileSet) forgetLocked(sf *segmentFile) {
	sf.gone = true
	if sf.refs == 0 && sf.f != nil {
		s.idle = slices.DeleteFunc(s.idle, func(other *segmentFile) bool { return other == sf })
		sf.f.Close()
	}
}

// close forgets every segment; files in use are closed by their last user.
func (s *fileSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sf := range s.known {
		s.forgetLocked(sf)
	}
	clear(s.known)
}

// numbers gives the numbers of all segments, ascending.
func (s *fileSet) numbers() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]uint32, 0, len(s.known))
	for number := range s.known {
		out = append(out, number)
	}
	slices.Sort(out)
	return out
}

// An Info is one segment as List gives it.
type Info struct {
	Number uint32
	Size   int64 // bytes, file header included
	Active bool  // takes the next message; cannot be removed
}

// List gives all segments, ascending by number.
func (s *Store) List() []Info {
	s.mu.Lock()
	active := s.active
	s.mu.Unlock()
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	out := make([]Info, 0, len(s.files.known))
	for number, sf := range s.files.known {
		out = append(out, Info{Number: number, Size: sf.size.Load(), Active: sf == active})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Number < out[j].Number })
	return out
}

// Remove unlinks a segment; readers that hold it go on reading. The active one is refused with
// ErrActive.
func (s *Store) Remove(number uint32) error {
	s.mu.Lock()
	err := s.failure()
	if err == nil && s.active != nil && s.active.number == number {
		err = fmt.Errorf("remove segment %08x: %w", number, ErrActive)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	killpoint.At("segment.unlink")
	if err := s.files.unlink(number); err != nil {
		return err
	}
	killpoint.At("segment.unlinked")
	if err := s.disk.SyncDir(s.files.dir); err != nil {
		return s.fail(err)
	}
	return nil
}
