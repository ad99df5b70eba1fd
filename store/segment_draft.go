package store

import (
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// segDraft is a record on its way into a file: its head and the first piece of its body in memory,
// the rest where it comes from.
type segDraft struct {
	rec  segRecord
	buf  []byte
	body io.ReaderAt
}

// fill takes in a record. A new one, with sequence 0, gets its body's checksum; that of a copied
// one is verified.
func (d *segDraft) fill(env []byte, rec segRecord, body io.ReaderAt) error {
	rec.head = uint32(segRecordHead + len(env))
	d.body = body
	n := int(rec.head) + int(min(rec.body, segChunk))
	d.buf = slices.Grow(d.buf[:0], n)[:n]
	copy(d.buf[segRecordHead:], env)
	sum, err := segSum(body, d.buf[rec.head:], rec.body)
	if err != nil {
		return err
	}
	if rec.seq != 0 && sum != rec.bodySum {
		return fmt.Errorf("body checksum: %w", errSegDamaged)
	}
	rec.bodySum = sum
	d.rec = rec
	if rec.body <= segChunk {
		return nil
	}
	return segReadFull(body, d.buf[rec.head:], 0)
}

// drop lets go of the body.
func (d *segDraft) drop() { d.body = nil }

// writeTo writes the record, sealed with the file's mark, at off.
func (d *segDraft) writeTo(disk segDisk, sf *segFile, off int64) error {
	d.rec.seal(sf.head.mark, d.buf[:d.rec.head])
	if _, err := disk.writeAt(sf.f, d.buf, off); err != nil {
		return err
	}
	off += int64(d.rec.head)
	for pos := int64(segChunk); pos < d.rec.body; pos += segChunk {
		piece := d.buf[:min(segChunk, d.rec.body-pos)]
		if err := segReadFull(d.body, piece, pos); err != nil {
			return err
		}
		if _, err := disk.writeAt(sf.f, piece, off+pos); err != nil {
			return err
		}
	}
	return nil
}

func (d *segDraft) ref(segment uint32, off int64) BlobRef {
	return BlobRef{Segment: segment, Offset: uint32(off), Head: d.rec.head, Length: uint32(d.rec.body)}
}

// segSum computes the checksum of the first size bytes of r, in pieces of buf. Up to one piece is
// then in buf.
func segSum(r io.ReaderAt, buf []byte, size int64) (uint32, error) {
	var sum uint32
	for off := int64(0); off < size; off += int64(len(buf)) {
		piece := buf[:min(int64(len(buf)), size-off)]
		if err := segReadFull(r, piece, off); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, segTable, piece)
	}
	return sum, nil
}

func segReadFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
