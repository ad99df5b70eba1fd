package segment

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"slices"
)

// A byteRange is a range of a segment that is not part of an intact record.
type byteRange struct {
	Offset, Length int64
}

const maxRanges = 100 // limit of damaged ranges in a report; more are only counted

// A damageReport lists the damage found by a scan of a segment. The scan has found all records
// outside the ranges intact. If no reference points into a range, its bytes were never
// acknowledged.
type damageReport struct {
	Segment uint32
	Ranges  []byteRange // ascending, at most maxRanges
	More    int         // number of further ranges
}

// add adds a range, which may continue the last one.
func (d *damageReport) add(off, length int64) {
	if n := len(d.Ranges); n > 0 && d.More == 0 && d.Ranges[n-1].Offset+d.Ranges[n-1].Length == off {
		d.Ranges[n-1].Length += length
		return
	}
	if len(d.Ranges) == maxRanges {
		d.More++
		return
	}
	d.Ranges = append(d.Ranges, byteRange{off, length})
}

// A scanner reads the records of a segment file through a buffer.
type scanner struct {
	r    io.ReaderAt
	size int64
	mark fileMark
	env  []byte // envelope of the last head that was read
	buf  []byte
	at   int64 // offset of buf in the file
}

func newScanner(r io.ReaderAt, size int64, mark fileMark) *scanner {
	return &scanner{r: r, size: size, mark: mark, buf: make([]byte, 0, chunkSize)}
}

// window returns the n bytes at off, or fewer at the end of the file. They are valid until the next
// call. n is at most chunkSize.
func (w *scanner) window(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), w.size-off))
	if off < w.at || off+int64(n) > w.at+int64(len(w.buf)) {
		want := min(chunkSize, w.size-off)
		w.at, w.buf = off, w.buf[:want]
		if err := readFull(w.r, w.buf, off); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[off-w.at:][:n], nil
}

// walk calls fn for each intact record and adds the ranges between them to damage. It returns the
// end of the last intact record. Zeros at the end of the file are unused space, not damage.
func (w *scanner) walk(damage *damageReport, fn func(off int64, rec record) error) (int64, error) {
	off, end := int64(fileHeadSize), int64(fileHeadSize)
	for off < w.size {
		rec, err := w.readRecord(off)
		if err == nil {
			if err := fn(off, rec); err != nil {
				return end, err
			}
			off += rec.size()
			end = off
			continue
		}
		if !errors.Is(err, ErrDamaged) {
			return end, err
		}
		next, err := w.nextOffset(off, rec)
		if err != nil {
			return end, err
		}
		unused, err := w.isAllZero(off, next)
		if err != nil {
			return end, err
		}
		if next < w.size || !unused {
			damage.add(off, next-off)
		}
		off = next
	}
	return end, nil
}

// readRecord reads and verifies the record at off. If the error is ErrDamaged, the result is the
// zero record, unless the head is intact.
func (w *scanner) readRecord(off int64) (record, error) {
	rec, err := w.readHead(off)
	if err != nil {
		return record{}, err
	}
	var sum uint32
	for pos := off + int64(rec.head); pos < off+rec.size(); {
		piece, err := w.window(pos, int(min(chunkSize, off+rec.size()-pos)))
		if err != nil {
			return record{}, err
		}
		sum = crc32.Update(sum, castagnoli, piece)
		pos += int64(len(piece))
	}
	if sum != rec.bodySum {
		return rec, fmt.Errorf("body checksum: %w", ErrDamaged)
	}
	return rec, nil
}

// readHead reads and verifies the head at off, and checks that the record ends within the file. It
// leaves the envelope in env.
func (w *scanner) readHead(off int64) (record, error) {
	fixed, err := w.window(off, recordHeadSize)
	if err != nil {
		return record{}, err
	}
	rec, err := parseRecord(w.mark, fixed)
	if err != nil {
		return record{}, err
	}
	if off+rec.size() > w.size {
		return record{}, fmt.Errorf("record extends beyond the end of the file: %w", ErrDamaged)
	}
	head, err := w.window(off, int(rec.head))
	if err != nil {
		return record{}, err
	}
	if err := verifyHead(head); err != nil {
		return record{}, err
	}
	w.env = append(w.env[:0], head[recordHeadSize:]...)
	return rec, nil
}

// nextOffset returns where the scan continues after damage at off: after the record if rec, its
// head, is intact; otherwise at the next intact head.
func (w *scanner) nextOffset(off int64, rec record) (int64, error) {
	if rec.head != 0 {
		return off + rec.size(), nil
	}
	off++
	for w.size-off >= recordHeadSize {
		piece, err := w.window(off, chunkSize)
		if err != nil {
			return 0, err
		}
		i := bytes.Index(piece, w.mark[:])
		if i < 0 {
			off += int64(len(piece) - len(w.mark) + 1)
			continue
		}
		off += int64(i)
		if _, err := w.readHead(off); !errors.Is(err, ErrDamaged) {
			return off, err
		}
		off++
	}
	return w.size, nil
}

// isAllZero reports whether all bytes from off to end are zero.
func (w *scanner) isAllZero(off, end int64) (bool, error) {
	for off < end {
		piece, err := w.window(off, int(min(chunkSize, end-off)))
		if err != nil {
			return false, err
		}
		if len(bytes.TrimLeft(piece, "\x00")) > 0 {
			return false, nil
		}
		off += int64(len(piece))
	}
	return true, nil
}

// resumeAppends finds the next segment number and sequence number, and makes the newest segment
// active again. It does not scan segments with a single message: they are complete, and their
// header has the sequence number.
func (s *Store) resumeAppends() error {
	numbers := s.files.numbers()
	if len(numbers) > 0 {
		s.next = numbers[len(numbers)-1] + 1
	}
	lost, err := s.findMissingSegments() // how many sequence numbers the records of missing segments may have used
	if err != nil {
		return err
	}
	for _, number := range slices.Backward(numbers) {
		sf, err := s.files.open(number, os.O_RDWR)
		if errors.Is(err, ErrDamaged) {
			s.log.Error("message segment cannot be read", "segment", s.files.path(number), "error", err)
			lost += uint64(s.files.known[number].size.Load()) / recordHeadSize
			continue
		}
		if err != nil {
			return err
		}
		before := len(s.lost)
		found, err := s.resumeFrom(sf)
		if !found {
			s.files.release(sf)
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", s.files.path(number), err)
		}
		if found {
			break
		}
		if len(s.lost) > before { // do not append to a segment that has lost messages
			lost += uint64(s.size) / recordHeadSize
			break
		}
	}
	s.seq += lost
	return nil
}

// findMissingSegments checks whether references point to segments after the last file. It reports
// the messages of those segments as lost, and never uses their numbers again, so that an old
// reference cannot find a new message. It returns how many sequence numbers those segments may have
// used.
func (s *Store) findMissingSegments() (sequences uint64, err error) {
	used, last, err := s.lastUsed(math.MaxUint32)
	if err != nil || used < s.next {
		return 0, err
	}
	s.reportLost(nil, "the disk has lost whole segments of messages; references to them find nothing, and their numbers are not reused",
		"first", fmt.Sprintf("%08x", s.next), "last", fmt.Sprintf("%08x", used))
	missing := uint64(used-s.next) + 1
	s.next = used + 1
	return missing * uint64(max(s.size, last)) / recordHeadSize, nil
}

// lastUsed calls Options.LastUsed, if it is set.
func (s *Store) lastUsed(upTo uint32) (segment uint32, end int64, err error) {
	if s.findLastUsed == nil {
		return 0, 0, nil
	}
	return s.findLastUsed(upTo)
}

// reportLost logs and records that acknowledged messages are gone, unless err is set.
func (s *Store) reportLost(err error, text string, args ...any) {
	if err == nil {
		s.log.Error(text, args...)
		s.lost = append(s.lost, fmt.Errorf("%s: %v", text, args))
	}
}

// resumeFrom updates the next sequence number from a segment. If the segment can be appended to,
// resumeFrom makes it active, and resumed is true.
func (s *Store) resumeFrom(sf *segmentFile) (resumed bool, err error) {
	if sf.head.single {
		s.seq = max(s.seq, sf.head.firstSeq+1)
		return false, nil
	}
	s.seq = max(s.seq, sf.head.firstSeq)
	w := newScanner(sf.f, sf.size.Load(), sf.head.mark)
	damage := &damageReport{Segment: sf.number}
	end, err := w.walk(damage, func(_ int64, rec record) error {
		s.seq = max(s.seq, rec.seq+1)
		return nil
	})
	if err != nil {
		return false, err
	}
	intact := sf.head.number == sf.number
	for _, r := range damage.Ranges {
		if intact && r.Offset == end {
			s.log.Warn("unfinished message cut from the end of a segment", "segment", sf.f.Name(), "offset", r.Offset, "bytes", r.Length)
			continue
		}
		if zero, err := w.isAllZero(r.Offset, r.Offset+r.Length); err == nil && zero {
			continue // a replica has zeros for records that nothing referred to
		}
		s.log.Error("damage in a message segment", "segment", sf.f.Name(), "offset", r.Offset, "bytes", r.Length)
	}
	if !intact {
		return false, nil
	}
	if used, last, err := s.lastUsed(sf.number); err != nil || used == sf.number && last > end {
		s.reportLost(err, "the disk has lost messages that were synced; references to them find nothing, and their place is not reused",
			"segment", sf.f.Name(), "kept", end, "used", last)
		return false, err
	}
	return true, s.makeActive(sf, end)
}

// makeActive makes the segment active, cut off at end.
func (s *Store) makeActive(sf *segmentFile, end int64) error {
	if end < sf.size.Load() {
		if err := sf.f.Truncate(end); err != nil {
			return err
		}
		if err := s.disk.Datasync(sf.f); err != nil {
			return err
		}
	}
	sf.size.Store(end)
	s.active, s.end, s.zeroed = sf, end, end
	return nil
}
