package segment

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A store can be a replica of another store. It has the same segments: each record is at the same
// offset of a file with the same number and mark. Records that nothing ever referred to are missing
// in the replica, which has zeros in their place.

// HeaderSize is the size of a segment file's header in bytes.
const HeaderSize = fileHeadSize

// A File is a segment file, open for copying. The caller must close it.
type File struct {
	*io.SectionReader // the content; of the active segment, what it had when it was opened
	Mark              [8]byte
	store             *Store
	sf                *segmentFile
}

// OpenFile opens a segment. The error is fs.ErrNotExist if it does not exist.
func (s *Store) OpenFile(number uint32) (*File, error) {
	sf, err := s.files.acquire(number)
	if err != nil {
		return nil, err
	}
	return &File{io.NewSectionReader(sf.f, 0, sf.size.Load()), sf.head.mark, s, sf}, nil
}

// Close releases the segment.
func (f *File) Close() error {
	f.store.files.release(f.sf)
	return nil
}

// FileName returns the name of a segment's file in the directory "segments".
func FileName(number uint32) string { return fmt.Sprintf("%08x%s", number, fileSuffix) }

// ReadRecord returns the whole record at ref, verified, and the header of its file. The error is
// ErrDamaged if the record differs from what was stored, and fs.ErrNotExist if the segment does not
// exist.
func (s *Store) ReadRecord(ref Ref) (head [HeaderSize]byte, raw []byte, err error) {
	blob, first, err := s.openHead(ref)
	if err != nil {
		return head, nil, err
	}
	defer blob.Close()
	if err := blob.verify(); err != nil {
		return head, nil, fmt.Errorf("read message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	raw = make([]byte, ref.Size())
	copy(raw, first)
	if err := readFull(blob, raw[ref.Head:], 0); err != nil {
		return head, nil, err
	}
	copy(head[:], blob.sf.head.appendTo(nil))
	return head, raw, nil
}

// WriteRecord writes a record of another store to the same place: ref is its place, head the header
// of its file. The record is on disk when WriteRecord returns. Writing an existing record again
// changes nothing. A file with another header is refused with ErrDamaged. After WriteRecord,
// appends return ErrReplica until the store is opened again.
func (s *Store) WriteRecord(head [HeaderSize]byte, ref Ref, record io.ReaderAt) error {
	h, err := parseHeader(head[:])
	if err == nil && h.number != ref.Segment {
		err = fmt.Errorf("the file header names segment %08x: %w", h.number, ErrDamaged)
	}
	if err != nil {
		return fmt.Errorf("copy record to segment %08x: %w", ref.Segment, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isReplica = true
	path := s.files.path(ref.Segment)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	there := make([]byte, HeaderSize)
	n, err := f.ReadAt(there, 0)
	switch {
	case err != nil && err != io.EOF:
		return err
	case n == 0 || bytes.Equal(there, make([]byte, HeaderSize)): // new, or cut off by a crash
		if _, err := s.disk.WriteAt(f, head[:], 0); err != nil {
			return fmt.Errorf("write header of segment %08x: %w", ref.Segment, err)
		}
		if err := s.disk.SyncDir(s.files.dir); err != nil {
			return s.fail(err)
		}
	case !bytes.Equal(there, head[:]):
		return fmt.Errorf("the file of segment %08x is of another store: %w", ref.Segment, ErrDamaged)
	}
	if err := s.writeAll(f, record, int64(ref.Offset), ref.Size()); err != nil {
		return fmt.Errorf("write to segment %08x: %w", ref.Segment, err)
	}
	if err := s.disk.Datasync(f); err != nil {
		return s.fail(err)
	}
	s.files.extendTo(ref.Segment, int64(ref.Offset)+ref.Size())
	s.next = max(s.next, ref.Segment+1)
	return nil
}

// writeAll copies size bytes to the file at off.
func (s *Store) writeAll(f *os.File, from io.ReaderAt, off, size int64) error {
	buf := make([]byte, min(size, chunkSize))
	for done := int64(0); done < size; done += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), size-done)]
		if err := readFull(from, buf, done); err != nil {
			return err
		}
		if _, err := s.disk.WriteAt(f, buf, off+done); err != nil {
			return err
		}
	}
	return nil
}

// extendTo adds a segment if it is new, and makes it readable up to size.
func (s *fileSet) extendTo(number uint32, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sf := s.known[number]
	if sf == nil {
		sf = &segmentFile{number: number}
		s.known[number] = sf
	}
	sf.size.Store(max(sf.size.Load(), size))
}

// Files returns the numbers of the segments in a data directory that no process uses. The full
// segments do not change any more. The next process may append to the open ones, or repair them.
func Files(dir string) (full, open []uint32, err error) {
	set := &fileSet{dir: filepath.Join(dir, "segments")}
	list, err := os.ReadDir(set.dir)
	if err != nil {
		return nil, nil, err
	}
	newest := -1 // index in full of the newest segment that may take more messages; -1: none
	for _, e := range list {
		name, found := strings.CutSuffix(e.Name(), fileSuffix)
		number, valid := parseNumber(name)
		if !found || !valid {
			continue
		}
		f, err := os.Open(set.path(number))
		if err != nil {
			return nil, nil, err
		}
		head, err := readHeader(f)
		f.Close()
		if err != nil {
			open = append(open, number) // its header is damaged: the process that opens the store decides
			continue
		}
		full = append(full, number)
		if !head.single {
			newest = len(full) - 1
		}
	}
	if newest >= 0 {
		open = append(open, full[newest])
		full = slices.Delete(full, newest, newest+1)
	}
	return full, open, nil
}

// RecordIdentity returns the part of the record head at ref that identifies the record: its
// lengths, sequence number and body checksum. These bytes are the same in each copy of the file.
// dir is the data directory.
func RecordIdentity(dir string, ref Ref) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, "segments", FileName(ref.Segment)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, recordHeadSize)
	if _, err := f.ReadAt(head, int64(ref.Offset)); err != nil {
		return nil, fmt.Errorf("read message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	return head[12:36], nil
}

// VerifyFile reads all records of a segment file. It returns an ErrDamaged error with the place of
// bytes that are not part of an intact record. Zeros are unused space.
func VerifyFile(f io.ReaderAt, size int64) error {
	head, err := readHeader(f)
	if err == nil && head.number == 0 {
		err = fmt.Errorf("segment file header: %w", ErrDamaged)
	}
	if err != nil {
		return err
	}
	w := newScanner(f, size, head.mark)
	damage := &damageReport{Segment: head.number}
	if _, err := w.walk(damage, func(int64, record) error { return nil }); err != nil {
		return err
	}
	for _, r := range damage.Ranges {
		zero, err := w.isAllZero(r.Offset, r.Offset+r.Length)
		if err == nil && !zero {
			err = fmt.Errorf("segment %08x: %d bytes at offset %d: %w", head.number, r.Length, r.Offset, ErrDamaged)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
