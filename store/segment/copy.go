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

// A store that follows another one has the same segments: each record stands at the same offset of
// a file with the same number and mark. What the other one wrote and never referred to is missing
// there, as zeros.

// HeaderSize is how many bytes a segment file begins with.
const HeaderSize = fileHead

// A File is one segment that is being copied. It must be closed.
type File struct {
	*io.SectionReader // its bytes: of the active one those that were there when it was opened
	Mark              [8]byte
	store             *Store
	sf                *segmentFile
}

// OpenFile opens a segment. Where there is none the error is fs.ErrNotExist.
func (s *Store) OpenFile(number uint32) (*File, error) {
	sf, err := s.files.acquire(number)
	if err != nil {
		return nil, err
	}
	return &File{io.NewSectionReader(sf.f, 0, sf.size.Load()), sf.head.mark, s, sf}, nil
}

// Close lets the segment go.
func (f *File) Close() error {
	f.store.files.release(f.sf)
	return nil
}

// FileName is the name of a segment's file in its directory, "segments".
func FileName(number uint32) string { return fmt.Sprintf("%08x%s", number, fileSuffix) }

// ReadRecord reads the whole record at ref, verified, and the header of the file that it stands in.
// Where the record is not what was stored the error is ErrDamaged, where there is no such segment
// fs.ErrNotExist.
func (s *Store) ReadRecord(ref Ref) (head [HeaderSize]byte, raw []byte, err error) {
	blob, first, err := s.openHead(ref)
	if err != nil {
		return head, nil, err
	}
	defer blob.Close()
	if err := blob.verify(); err != nil {
		return head, nil, fmt.Errorf("message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	raw = make([]byte, ref.Size())
	copy(raw, first)
	if err := readFull(blob, raw[ref.Head:], 0); err != nil {
		return head, nil, err
	}
	copy(head[:], blob.sf.head.appendTo(nil))
	return head, raw, nil
}

// WriteRecord puts a record of another store where it stands there: ref says where, head is the
// header of its file. It is on disk when WriteRecord returns. Writing what is there already changes
// nothing, and a file with another header is refused. A store that takes records of another one
// appends none of its own until it is opened again.
func (s *Store) WriteRecord(head [HeaderSize]byte, ref Ref, record io.ReaderAt) error {
	h, err := parseHeader(head[:])
	if err == nil && h.number != ref.Segment {
		err = fmt.Errorf("a header of segment %08x: %w", h.number, ErrDamaged)
	}
	if err != nil {
		return fmt.Errorf("record of segment %08x: %w", ref.Segment, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follows = true
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
			return fmt.Errorf("begin segment %08x: %w", ref.Segment, err)
		}
		if err := s.disk.SyncDir(s.files.dir); err != nil {
			return s.fail(err)
		}
	case !bytes.Equal(there, head[:]):
		return fmt.Errorf("segment %08x is of another store: %w", ref.Segment, ErrDamaged)
	}
	if err := s.writeAll(f, record, int64(ref.Offset), ref.Size()); err != nil {
		return fmt.Errorf("write to segment %08x: %w", ref.Segment, err)
	}
	if err := s.disk.Datasync(f); err != nil {
		return s.fail(err)
	}
	s.files.grow(ref.Segment, int64(ref.Offset)+ref.Size())
	s.next = max(s.next, ref.Segment+1)
	return nil
}

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

// grow makes a segment known, and what stands in it up to size readable.
func (s *fileSet) grow(number uint32, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sf := s.known[number]
	if sf == nil {
		sf = &segmentFile{number: number}
		s.known[number] = sf
	}
	sf.size.Store(max(sf.size.Load(), size))
}

// Files lists the segments of a data directory that no process has open: those that do not change
// any more, and those to which the next process may append.
func Files(dir string) (full, open []uint32, err error) {
	set := &fileSet{dir: filepath.Join(dir, "segments")}
	list, err := os.ReadDir(set.dir)
	if err != nil {
		return nil, nil, err
	}
	newest := -1 // in full, of those that take messages one after the other
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
			open = append(open, number) // whoever opens it decides
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

// Sum gives what the record at ref says of itself: the lengths, its sequence and its checksum, all
// of which a copy of the file keeps. dir is the data directory.
func Sum(dir string, ref Ref) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, "segments", FileName(ref.Segment)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, recordHead)
	if _, err := f.ReadAt(head, int64(ref.Offset)); err != nil {
		return nil, fmt.Errorf("message at %d in segment %08x: %w", ref.Offset, ref.Segment, err)
	}
	return head[12:36], nil
}

// VerifyFile reads every record of a segment's file. The error, ErrDamaged, says where bytes are no
// whole record; zeros are unused space.
func VerifyFile(f io.ReaderAt, size int64) error {
	head, err := readHeader(f)
	if err == nil && head.number == 0 {
		err = fmt.Errorf("file header: %w", ErrDamaged)
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
		zero, err := w.zero(r.Offset, r.Offset+r.Length)
		if err == nil && !zero {
			err = fmt.Errorf("segment %08x, %d bytes at %d: %w", head.number, r.Length, r.Offset, ErrDamaged)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
