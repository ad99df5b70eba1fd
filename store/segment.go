package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Layout of a segment file, integers big-endian:
//
//	file:   magic 8 | version 1 | flags 1 | 0 0 | number 4 | first sequence 8 | mark 8 | crc32c 4
//	        | records…
//	record: mark 8 | version 1 | encoding 1 | 0 0 | head length 4 | body length 8 | sequence 8
//	        | body crc32c 4 | head crc32c 4 | envelope | body
//
// The head is everything before the body. Its checksum covers the body's checksum, so that together
// they cover the whole record, and a head can be trusted without reading the body. The mark is 64
// random bits of the file: a search for records behind damage looks for it, and no message can
// contain a forged record, since its sender cannot know the mark.
const (
	segMagic      = "\x89MSTSEG\n"
	segVersion    = 1
	segFileHead   = 36
	segRecordHead = 40
	segMaxEnv     = 64 << 10
	segMaxHead    = segRecordHead + segMaxEnv
	segMaxBody    = math.MaxUint32

	segFlagSingle = 1 // one large message, complete and on disk since the file has its name
	segRaw        = 0 // encoding: the body is the message's bytes
)

var (
	// errSegFailed is returned by every append and sync after a sync has failed: what the disk
	// holds is then unknown.
	errSegFailed = errors.New("message segments failed a sync and take no more messages")
	// errSegDamaged is returned where the bytes at a reference or in a range are not a whole
	// record.
	errSegDamaged = errors.New("damaged record")
	// errSegNewer is returned for a file or record that this version cannot read.
	errSegNewer = errors.New("written by a newer version")
	// errSegEnvelope is returned by append for an envelope over 64 KiB.
	errSegEnvelope = errors.New("envelope is larger than 64 KiB")
	// errSegActive is returned by remove for the segment that takes the next message.
	errSegActive = errors.New("segment is in use for new messages")
	// errBlobRef is returned for bytes that are not a BlobRef.
	errBlobRef = errors.New("malformed blob reference")
)

var segTable = crc32.MakeTable(crc32.Castagnoli)

// BlobRef says where a message's bytes are: the record at Offset of a segment, with Head bytes of
// header and envelope before Length bytes of message. The zero BlobRef refers to nothing.
type BlobRef struct {
	Segment uint32
	Offset  uint32
	Head    uint32
	Length  uint32
}

const blobRefSize = 16

// IsZero says whether the reference refers to nothing.
func (r BlobRef) IsZero() bool { return r == BlobRef{} }

// Size is the bytes that the whole record takes in its segment; the live share of a segment is
// counted in these.
func (r BlobRef) Size() int64 { return int64(r.Head) + int64(r.Length) }

// AppendTo appends the 16 bytes of the reference to b.
func (r BlobRef) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.Segment)
	b = binary.BigEndian.AppendUint32(b, r.Offset)
	b = binary.BigEndian.AppendUint32(b, r.Head)
	return binary.BigEndian.AppendUint32(b, r.Length)
}

// parseBlobRef reads a reference from the first 16 bytes of b.
func parseBlobRef(b []byte) (BlobRef, error) {
	if len(b) < blobRefSize {
		return BlobRef{}, errBlobRef
	}
	return BlobRef{
		Segment: binary.BigEndian.Uint32(b),
		Offset:  binary.BigEndian.Uint32(b[4:]),
		Head:    binary.BigEndian.Uint32(b[8:]),
		Length:  binary.BigEndian.Uint32(b[12:]),
	}, nil
}

type segMark [8]byte

// segHeader is the start of a segment file.
type segHeader struct {
	number   uint32
	single   bool
	firstSeq uint64
	mark     segMark
}

func (h segHeader) appendTo(b []byte) []byte {
	start := len(b)
	var flags byte
	if h.single {
		flags = segFlagSingle
	}
	b = append(b, segMagic...)
	b = append(b, segVersion, flags, 0, 0)
	b = binary.BigEndian.AppendUint32(b, h.number)
	b = binary.BigEndian.AppendUint64(b, h.firstSeq)
	b = append(b, h.mark[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], segTable))
}

func parseSegHeader(b []byte) (segHeader, error) {
	if len(b) < segFileHead || string(b[:8]) != segMagic {
		return segHeader{}, fmt.Errorf("file header: %w", errSegDamaged)
	}
	if crc32.Checksum(b[:segFileHead-4], segTable) != binary.BigEndian.Uint32(b[segFileHead-4:]) {
		return segHeader{}, fmt.Errorf("file header checksum: %w", errSegDamaged)
	}
	if b[8] != segVersion || b[9]&^segFlagSingle != 0 {
		return segHeader{}, errSegNewer
	}
	h := segHeader{
		number:   binary.BigEndian.Uint32(b[12:]),
		single:   b[9] == segFlagSingle,
		firstSeq: binary.BigEndian.Uint64(b[16:]),
	}
	copy(h.mark[:], b[24:])
	return h, nil
}

// segRecord is the fixed part of a record's head.
type segRecord struct {
	encoding byte
	head     uint32
	body     int64
	seq      uint64
	bodySum  uint32
}

func (r segRecord) size() int64 { return int64(r.head) + r.body }

// seal writes the fixed part into the first bytes of head, whose envelope is already in place.
func (r segRecord) seal(mark segMark, head []byte) {
	copy(head, mark[:])
	head[8], head[9], head[10], head[11] = segVersion, r.encoding, 0, 0
	binary.BigEndian.PutUint32(head[12:], r.head)
	binary.BigEndian.PutUint64(head[16:], uint64(r.body))
	binary.BigEndian.PutUint64(head[24:], r.seq)
	binary.BigEndian.PutUint32(head[32:], r.bodySum)
	binary.BigEndian.PutUint32(head[36:], segHeadSum(head))
}

func segHeadSum(head []byte) uint32 {
	sum := crc32.Update(0, segTable, head[:36])
	return crc32.Update(sum, segTable, head[segRecordHead:])
}

// parseSegRecord reads the fixed part at the start of b; the record's checksum is verified by
// verifySegHead, once its length is known.
func parseSegRecord(mark segMark, b []byte) (segRecord, error) {
	if len(b) < segRecordHead || segMark(b[:8]) != mark {
		return segRecord{}, fmt.Errorf("record head: %w", errSegDamaged)
	}
	r := segRecord{
		encoding: b[9],
		head:     binary.BigEndian.Uint32(b[12:]),
		seq:      binary.BigEndian.Uint64(b[24:]),
		bodySum:  binary.BigEndian.Uint32(b[32:]),
	}
	body := binary.BigEndian.Uint64(b[16:])
	if r.head < segRecordHead || r.head > segMaxHead || body > segMaxBody {
		return segRecord{}, fmt.Errorf("record lengths: %w", errSegDamaged)
	}
	r.body = int64(body)
	return r, nil
}

// verifySegHead verifies the checksum over a whole head, fixed part and envelope, and that this
// version can read it.
func verifySegHead(head []byte) error {
	if segHeadSum(head) != binary.BigEndian.Uint32(head[36:]) {
		return fmt.Errorf("record head checksum: %w", errSegDamaged)
	}
	if head[8] != segVersion || head[9] != segRaw {
		return fmt.Errorf("record: %w", errSegNewer)
	}
	return nil
}
