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

// A Disk has the file operations that fail on a full or broken disk. Tests replace it.
type Disk interface {
	WriteAt(f *os.File, p []byte, off int64) (int, error)
	Datasync(f *os.File) error // writes the file's content and length to disk
	SyncDir(dir string) error  // writes the directory's entries to disk
}

// osDisk is the operating system's Disk.
type osDisk struct{}

func (osDisk) WriteAt(f *os.File, p []byte, off int64) (int, error) { return f.WriteAt(p, off) }

func (osDisk) Datasync(f *os.File) error { return datasync(f) }

// SyncDir does nothing on Windows, which cannot open directories for syncing and journals their
// entries itself.
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

// An UnsyncedDisk is the operating system's Disk without syncs.
type UnsyncedDisk struct{}

// WriteAt writes p to the file at off.
func (UnsyncedDisk) WriteAt(f *os.File, p []byte, off int64) (int, error) { return f.WriteAt(p, off) }

// Datasync does nothing.
func (UnsyncedDisk) Datasync(*os.File) error { return nil }

// SyncDir does nothing.
func (UnsyncedDisk) SyncDir(string) error { return nil }

// makeDir creates dir if it is missing, and syncs its parent directory.
func makeDir(dir string, disk Disk) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(dir))
}

// maxIdleFiles is how many files without users stay open for the next reader.
const maxIdleFiles = 64

// A segmentFile is one segment. Its file is open while the segment has users, and for some time
// after.
type segmentFile struct {
	number uint32
	size   atomic.Int64 // readers may read up to this size

	// Guarded by fileSet.mu. f and head do not change while users > 0.
	f        *os.File
	head     header
	users    int  // how many use the file
	unlinked bool // the file is deleted; its last user closes it
}

// A fileSet holds all segments of a directory and shares their open files.
type fileSet struct {
	dir string

	mu    sync.Mutex
	known map[uint32]*segmentFile
	idle  []*segmentFile // open files without users, the longest idle first
}

const (
	fileSuffix = ".seg"
	tempSuffix = ".tmp"
)

// path returns the path of a segment's file.
func (s *fileSet) path(number uint32) string {
	return filepath.Join(s.dir, FileName(number))
}

// loadSegments adds the segments in the directory, and removes unfinished files.
func (s *fileSet) loadSegments() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.loadDirEntry(e); err != nil {
			return err
		}
	}
	return nil
}

// loadDirEntry adds the segment of a directory entry. If the entry is an unfinished file, it
// removes the file.
func (s *fileSet) loadDirEntry(e fs.DirEntry) error {
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

// parseNumber parses the name of a segment file without its suffix: 8 hexadecimal digits.
func parseNumber(name string) (uint32, bool) {
	number, err := strconv.ParseUint(name, 16, 32)
	return uint32(number), err == nil && number != 0 && name == fmt.Sprintf("%08x", number)
}

// acquire opens a segment for reading, or adds a user to its open file. The caller must release it.
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
	s.addUserLocked(sf)
	return sf, nil
}

// openLocked opens the file of a segment. The caller holds mu.
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

// readHeader reads the header of a file. If it is damaged but the first record is intact, the
// result has the record's mark and the number 0.
func readHeader(f io.ReaderAt) (header, error) {
	var b [fileHeadSize + recordHeadSize]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return header{}, err
	}
	head, err := parseHeader(b[:min(n, fileHeadSize)])
	if !errors.Is(err, ErrDamaged) || n < len(b) {
		return head, err
	}
	mark := fileMark(b[fileHeadSize:])
	rec, recErr := parseRecord(mark, b[fileHeadSize:])
	if recErr != nil {
		return header{}, err
	}
	record := make([]byte, rec.head)
	if _, readErr := f.ReadAt(record, fileHeadSize); readErr != nil || verifyHead(record) != nil {
		return header{}, err
	}
	return header{mark: mark}, nil
}

// addUser adds a user to a segment that already has one.
func (s *fileSet) addUser(sf *segmentFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addUserLocked(sf)
}

func (s *fileSet) addUserLocked(sf *segmentFile) {
	if sf.users == 0 {
		s.idle = slices.DeleteFunc(s.idle, func(other *segmentFile) bool { return other == sf })
	}
	sf.users++
}

// release removes a user, and closes the file if necessary.
func (s *fileSet) release(sf *segmentFile) {
	if f := s.removeUser(sf); f != nil {
		f.Close()
	}
}

// removeUser removes a user. It returns the file that the caller must close; nil if none. Closing a
// deleted file frees its blocks, which is too slow to do under the lock.
func (s *fileSet) removeUser(sf *segmentFile) *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	sf.users--
	switch {
	case sf.users > 0:
		return nil
	case sf.unlinked:
		return sf.f
	}
	s.idle = append(s.idle, sf)
	if len(s.idle) <= maxIdleFiles {
		return nil
	}
	f := s.idle[0].f
	s.idle[0].f = nil
	s.idle = slices.Delete(s.idle, 0, 1)
	return f
}

// add adds a new segment with one user, the caller.
func (s *fileSet) add(f *os.File, head header, size int64) *segmentFile {
	sf := &segmentFile{number: head.number, f: f, head: head, users: 1}
	sf.size.Store(size)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[head.number] = sf
	return sf
}

// unlink deletes the file of a segment. Its space is freed when the last user has released it.
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

// forgetLocked marks a segment as deleted, and closes its file if it has no users. The caller holds
// mu.
func (s *fileSet) forgetLocked(sf *segmentFile) {
	sf.unlinked = true
	if sf.users == 0 && sf.f != nil {
		s.idle = slices.DeleteFunc(s.idle, func(other *segmentFile) bool { return other == sf })
		sf.f.Close()
	}
}

// close forgets all segments. The last user of each file closes it.
func (s *fileSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sf := range s.known {
		s.forgetLocked(sf)
	}
	clear(s.known)
}

// numbers returns the numbers of all segments, ascending.
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

// An Info describes a segment.
type Info struct {
	Number uint32
	Size   int64 // bytes, file header included
	Active bool  // the active segment, which takes the next message and cannot be removed
}

// List returns all segments, ascending by number.
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

// Remove deletes a segment. Readers that have it open continue. The error for the active segment is
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
