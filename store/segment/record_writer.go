package segment

import (
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/mailstead/mailstead/internal/killpoint"
)

// A recordWriter writes a record to a file. It holds the head and the first piece of the body in
// memory, and reads the rest of the body while writing.
type recordWriter struct {
	rec  record
	buf  []byte // head and first piece of the body
	body io.ReaderAt
}

// prepare sets the record that writeTo writes, and computes the checksum of its body. A record with
// a sequence number is a copy: then the checksum must equal that of the record.
func (w *recordWriter) prepare(envelope []byte, rec record, body io.ReaderAt) error {
	rec.head = uint32(recordHeadSize + len(envelope))
	w.body = body
	n := int(rec.head) + int(min(rec.body, chunkSize))
	w.buf = slices.Grow(w.buf[:0], n)[:n]
	copy(w.buf[recordHeadSize:], envelope)
	sum, err := checksum(body, w.buf[rec.head:], rec.body)
	if err != nil {
		return err
	}
	if rec.seq != 0 && sum != rec.bodySum {
		return fmt.Errorf("body checksum: %w", ErrDamaged)
	}
	rec.bodySum = sum
	w.rec = rec
	if rec.body <= chunkSize {
		return nil
	}
	return readFull(body, w.buf[rec.head:], 0)
}

// releaseBody drops the reference to the body, so that a pooled writer does not keep it.
func (w *recordWriter) releaseBody() { w.body = nil }

// writeTo writes the record to the file at off, with the file's mark.
func (w *recordWriter) writeTo(disk Disk, sf *segmentFile, off int64) error {
	w.rec.encodeHead(sf.head.mark, w.buf[:w.rec.head])
	if _, err := disk.WriteAt(sf.f, w.buf, off); err != nil {
		return err
	}
	off += int64(w.rec.head)
	for pos := int64(chunkSize); pos < w.rec.body; pos += chunkSize {
		killpoint.At("segment.half_record")
		piece := w.buf[:min(chunkSize, w.rec.body-pos)]
		if err := readFull(w.body, piece, pos); err != nil {
			return err
		}
		if _, err := disk.WriteAt(sf.f, piece, off+pos); err != nil {
			return err
		}
	}
	return nil
}

// ref returns the reference to the record at off of a segment.
func (w *recordWriter) ref(segment uint32, off int64) Ref {
	return Ref{Segment: segment, Offset: uint32(off), Head: w.rec.head, Length: uint32(w.rec.body)}
}

// checksum returns the checksum of the first size bytes of r. It reads them in pieces into buf,
// which then holds the last piece.
func checksum(r io.ReaderAt, buf []byte, size int64) (uint32, error) {
	var sum uint32
	for off := int64(0); off < size; off += int64(len(buf)) {
		piece := buf[:min(int64(len(buf)), size-off)]
		if err := readFull(r, piece, off); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, piece)
	}
	return sum, nil
}

// readFull fills p from r at off. The error at the end of r is io.ErrUnexpectedEOF.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
