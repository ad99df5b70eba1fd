package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// segDisk is the file operations that a full or dying disk makes fail; tests replace them.
type segDisk struct {
	writeAt  func(f *os.File, p []byte, off int64) (int, error)
	datasync func(f *os.File) error
	syncDir  func(dir string) error
	room     func(dir string) (free, total int64, err error)
}

func segOSDisk() segDisk {
	return segDisk{writeAt: (*os.File).WriteAt, datasync: segDatasync, syncDir: segSyncDir, room: diskRoom}
}

// segSyncDir puts a directory's entries on disk. Windows cannot open directories for it, and
// journals them itself.
func segSyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// segMakeDir makes dir if it is missing, and puts its name on disk.
func segMakeDir(dir string, disk segDisk) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return disk.syncDir(filepath.Dir(dir))
}

// segMaxIdle bounds the file descriptors that are kept open for the next reader.
const segMaxIdle = 64

// segFile is one segment, opened while someone uses it and for a while longer.
type segFile struct {
	number uint32
	size   atomic.Int64 // bytes that readers may see

	// Guarded by segFiles.mu; f and head do not change while refs > 0.
	f    *os.File
	head segHeader
	refs int
	gone bool // unlinked: closed with its last reader
}

// segFiles knows every segment of a directory and shares their open files.
type segFiles struct {
	dir string

	mu    sync.Mutex
	known map[uint32]*segFile
	idle  []*segFile // open without users, longest first
}

const (
	segSuffix      = ".seg"
	segDraftSuffix = ".tmp"
)

func (s *segFiles) path(number uint32) string {
	return filepath.Join(s.dir, fmt.Sprintf("%08x%s", number, segSuffix))
}

// find makes the segments in the directory known and removes those that were not finished.
func (s *segFiles) find() error {
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

func (s *segFiles) findOne(e fs.DirEntry) error {
	name, draft := strings.CutSuffix(e.Name(), segDraftSuffix)
	if draft {
		_, draft = segNumber(name)
	}
	if draft {
		return os.Remove(filepath.Join(s.dir, e.Name()))
	}
	name, found := strings.CutSuffix(e.Name(), segSuffix)
	number, valid := segNumber(name)
	if !found || !valid {
		return nil
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	sf := &segFile{number: number}
	sf.size.Store(info.Size())
	s.known[number] = sf
	return nil
}

// segNumber reads the 8 hexadecimal digits of a segment's name.
func segNumber(name string) (uint32, bool) {
	number, err := strconv.ParseUint(name, 16, 32)
	return uint32(number), err == nil && number != 0 && name == fmt.Sprintf("%08x", number)
}

// acquire opens a segment for reading or shares its open file; release must follow.
func (s *segFiles) acquire(number uint32) (*segFile, error) { return s.open(number, os.O_RDONLY) }

func (s *segFiles) open(number uint32, flag int) (*segFile, error) {
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

func (s *segFiles) openLocked(sf *segFile, flag int) error {
	f, err := os.OpenFile(s.path(sf.number), flag, 0)
	if err != nil {
		return err
	}
	head, err := readSegHeader(f)
	if err != nil {
		f.Close()
		return fmt.Errorf("open %s: %w", s.path(sf.number), err)
	}
	sf.f, sf.head = f, head
	return nil
}

// readSegHeader reads a file's header. If that is damaged, the mark is taken from the first record,
// if that is whole; number is then 0.
func readSegHeader(f io.ReaderAt) (segHeader, error) {
	var b [segFileHead + segRecordHead]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return segHeader{}, err
	}
	head, err := parseSegHeader(b[:min(n, segFileHead)])
	if !errors.Is(err, errSegDamaged) || n < len(b) {
		return head, err
	}
	mark := segMark(b[segFileHead:])
	rec, recErr := parseSegRecord(mark, b[segFileHead:])
	if recErr != nil {
		return segHeader{}, err
	}
	record := make([]byte, rec.head)
	if _, readErr := f.ReadAt(record, segFileHead); readErr != nil || verifySegHead(record) != nil {
		return segHeader{}, err
	}
	return segHeader{mark: mark}, nil
}

// hold takes one more use of a segment that is in use.
func (s *segFiles) hold(sf *segFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdLocked(sf)
}

func (s *segFiles) holdLocked(sf *segFile) {
	if sf.refs == 0 {
		s.idle = slices.DeleteFunc(s.idle, func(other *segFile) bool { return other == sf })
	}
	sf.refs++
}

func (s *segFiles) release(sf *segFile) {
	if f := s.unhold(sf); f != nil {
		f.Close()
	}
}

// unhold ends one use and gives the file that is to be closed for it: closing the last use of an
// unlinked segment frees its blocks, which is too slow for the lock.
func (s *segFiles) unhold(sf *segFile) *os.File {
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
	if len(s.idle) <= segMaxIdle {
		return nil
	}
	f := s.idle[0].f
	s.idle[0].f = nil
	s.idle = slices.Delete(s.idle, 0, 1)
	return f
}

// add makes a new file known. The caller holds its first use.
func (s *segFiles) add(f *os.File, head segHeader, size int64) *segFile {
	sf := &segFile{number: head.number, f: f, head: head, refs: 1}
	sf.size.Store(size)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[head.number] = sf
	return sf
}

// unlink removes a segment's name; its bytes go with its last reader.
func (s *segFiles) unlink(number uint32) error {
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

func (s *segFiles) forgetLocked(sf *segFile) {
	sf.gone = true
	if sf.refs == 0 && sf.f != nil {
		s.idle = slices.DeleteFunc(s.idle, func(other *segFile) bool { return other == sf })
		sf.f.Close()
	}
}

// close forgets every segment; files in use are closed by their last user.
func (s *segFiles) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sf := range s.known {
		s.forgetLocked(sf)
	}
	clear(s.known)
}

// numbers gives the numbers of all segments, ascending.
func (s *segFiles) numbers() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]uint32, 0, len(s.known))
	for number := range s.known {
		out = append(out, number)
	}
	slices.Sort(out)
	return out
}

// segInfo is one segment as list gives it.
type segInfo struct {
	Number uint32
	Size   int64 // bytes, file header included
	Active bool  // takes the next message; cannot be removed
}

// list gives all segments, ascending by number.
func (s *segments) list() []segInfo {
	s.mu.Lock()
	active := s.active
	s.mu.Unlock()
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	out := make([]segInfo, 0, len(s.files.known))
	for number, sf := range s.files.known {
		out = append(out, segInfo{Number: number, Size: sf.size.Load(), Active: sf == active})
	}
	slices.SortFunc(out, func(a, b segInfo) int { return int(int64(a.Number) - int64(b.Number)) })
	return out
}

// remove unlinks a segment; readers that hold it go on reading. The active one is refused with
// errSegActive.
func (s *segments) remove(number uint32) error {
	s.mu.Lock()
	err := s.failure()
	if err == nil && s.active != nil && s.active.number == number {
		err = fmt.Errorf("remove segment %08x: %w", number, errSegActive)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.files.unlink(number); err != nil {
		return err
	}
	if err := s.disk.syncDir(s.files.dir); err != nil {
		return s.fail(err)
	}
	return nil
}
