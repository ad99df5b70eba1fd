package segment

import (
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/mailstead/mailstead/internal/killpoint"
)

// A recordWriter is a record on its way into a file: its head and the first piece of its body in
// memory, the rest where it comes from.
type recordWriter struct {
	rec  record
	buf  []byte
	body io.ReaderAt
}

// fill takes in a record. A new one, with sequence 0, gets its body's checksum; that of a copied
// one is verified.
func (w *recordWriter) fill(env []byte, rec record, body io.ReaderAt) error {
	rec.head = uint32(recordHead + len(env))
	w.body = body
	n := int(rec.head) + int(min(rec.body, chunkSize))
	w.buf = slices.Grow(w.buf[:0], n)[:n]
	copy(w.buf[recordHead:], env)
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

// drop lets go of the body.
func (w *recordWriter) drop() { w.body = nil }

// writeTo writes the record, sealed with the file's mark, at off.
func (w *recordWriter) writeTo(disk Disk, sf *segmentFile, off int64) error {
	w.rec.seal(sf.head.mark, w.buf[:w.rec.head])
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

func (w *recordWriter) ref(segment uint32, off int64) Ref {
	return Ref{Segment: segment, Offset: uint32(off), Head: w.rec.head, Length: uint32(w.rec.body)}
}

// checksum computes the checksum of the first size bytes of r, in pieces of buf. Up to one piece is
// then in buf.
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
