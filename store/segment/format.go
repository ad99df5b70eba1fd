// Package segment stores the bytes of messages: in append-only files, the segments, and in a spool
// while a message arrives. It does not know the content of a message, nor what refers to it.
//
// The layout of a segment file, integers big-endian:
//
//	file:   magic 8 | version 1 | flags 1 | 0 0 | number 4 | first sequence 8 | mark 8 | crc32c 4
//	        | records…
//	record: mark 8 | version 1 | encoding 1 | flags 1 | 0 | head length 4 | body length 8 | sequence 8
//	        | body crc32c 4 | head crc32c 4 | envelope | body
//
// Flag 1 of a record: the message was accepted before anything referred to it, and its envelope
// says how to file it, see EachAccepted. A copy of the record does not have the flag.
//
// The head is everything before the body. Its checksum covers the body's checksum, so the two cover
// the whole record, and a head can be trusted without reading the body. The mark is 64 random bits
// of the file. After damage, a scan searches for the mark to find the next record. A message cannot
// contain a forged record, since its sender cannot know the mark.
package segment

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"syscall"
)

const (
	magic          = "\x89MSTSEG\n"
	version        = 1
	fileHeadSize   = 36
	recordHeadSize = 40
	maxEnvelope    = 64 << 10
	maxHead        = recordHeadSize + maxEnvelope
	maxBody        = math.MaxUint32

	flagSingle   = 1 // flag of a file: the segment has one large message, and is complete
	flagAccepted = 1 // flag of a record, see EachAccepted
	encodingRaw  = 0 // encoding of a record: the body is the message itself
)

var (
	// ErrFailed is returned by every append and sync after a sync has failed: what the disk holds
	// is then unknown.
	ErrFailed = errors.New("a sync of the message segments has failed, so they accept no more messages")
	// ErrDamaged is returned when the bytes at a reference or in a range are not an intact record.
	ErrDamaged = errors.New("damaged record")
	// ErrNewer is returned for a file or record in a newer format, which this version cannot read.
	ErrNewer = errors.New("written by a newer version of mailstead")
	// ErrEnvelope is returned by Append for an envelope larger than 64 KiB.
	ErrEnvelope = errors.New("envelope is larger than 64 KiB")
	// ErrActive is returned by Remove for the active segment, which takes the next message.
	ErrActive = errors.New("segment is in use for new messages")
	// ErrReplica is returned by Append in a store to which WriteRecord has copied records of
	// another.
	ErrReplica = errors.New("the segments are a copy of another store's and take no messages of their own")
	// ErrRef is returned by ParseRef for bytes that are too short.
	ErrRef = errors.New("malformed reference to a message in a segment")
	// ErrTooLarge is returned by Spool.Write, now and later, once the message would exceed its
	// limit, and by Append for a message over 4 GiB - 1.
	ErrTooLarge = errors.New("message is too large")
	// ErrFull is returned when the disk has no room for a write.
	ErrFull = errors.New("the disk is full")
)

// IsFull reports whether the operating system refused a write because the disk or a quota is full.
func IsFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Ref locates a stored message: the record at Offset of a segment has Head bytes of header and
// envelope, then Length bytes of message. The zero Ref refers to nothing.
type Ref struct {
	Segment uint32
	Offset  uint32
	Head    uint32
	Length  uint32
}

const refSize = 16

// IsZero reports whether r refers to nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// Size returns the size of the whole record in its segment, in bytes.
func (r Ref) Size() int64 { return int64(r.Head) + int64(r.Length) }

// Compare returns -1, 0 or 1. It orders references by segment, then offset.
func (r Ref) Compare(other Ref) int {
	return cmp.Or(cmp.Compare(r.Segment, other.Segment), cmp.Compare(r.Offset, other.Offset), cmp.Compare(r.Head, other.Head), cmp.Compare(r.Length, other.Length))
}

// AppendTo appends the 16-byte encoding of the reference to b.
func (r Ref) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.Segment)
	b = binary.BigEndian.AppendUint32(b, r.Offset)
	b = binary.BigEndian.AppendUint32(b, r.Head)
	return binary.BigEndian.AppendUint32(b, r.Length)
}

// ParseRef decodes a reference from the first 16 bytes of b. The error is ErrRef.
func ParseRef(b []byte) (Ref, error) {
	if len(b) < refSize {
		return Ref{}, ErrRef
	}
	return Ref{
		Segment: binary.BigEndian.Uint32(b),
		Offset:  binary.BigEndian.Uint32(b[4:]),
		Head:    binary.BigEndian.Uint32(b[8:]),
		Length:  binary.BigEndian.Uint32(b[12:]),
	}, nil
}

// A fileMark is the random mark of a segment file, which each of its records repeats.
type fileMark [8]byte

// A header is the decoded header of a segment file.
type header struct {
	number   uint32
	single   bool   // the segment has one large message only
	firstSeq uint64 // sequence number of its first record
	mark     fileMark
}

// appendTo appends the encoded header to b.
func (h header) appendTo(b []byte) []byte {
	start := len(b)
	var flags byte
	if h.single {
		flags = flagSingle
	}
	b = append(b, magic...)
	b = append(b, version, flags, 0, 0)
	b = binary.BigEndian.AppendUint32(b, h.number)
	b = binary.BigEndian.AppendUint64(b, h.firstSeq)
	b = append(b, h.mark[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// parseHeader decodes and verifies a header. The error is ErrDamaged or ErrNewer.
func parseHeader(b []byte) (header, error) {
	if len(b) < fileHeadSize || string(b[:8]) != magic {
		return header{}, fmt.Errorf("segment file header: %w", ErrDamaged)
	}
	if crc32.Checksum(b[:fileHeadSize-4], castagnoli) != binary.BigEndian.Uint32(b[fileHeadSize-4:]) {
		return header{}, fmt.Errorf("checksum of the segment file header: %w", ErrDamaged)
	}
	if b[8] != version || b[9]&^flagSingle != 0 {
		return header{}, ErrNewer
	}
	h := header{
		number:   binary.BigEndian.Uint32(b[12:]),
		single:   b[9] == flagSingle,
		firstSeq: binary.BigEndian.Uint64(b[16:]),
	}
	copy(h.mark[:], b[24:])
	return h, nil
}

// A record is the decoded fixed part of a record's head.
type record struct {
	encoding byte
	flags    byte
	head     uint32 // length of the fixed part and the envelope
	body     int64  // length of the body
	seq      uint64
	bodySum  uint32
}

// size returns the length of the whole record.
func (r record) size() int64 { return int64(r.head) + r.body }

// encodeHead encodes the fixed part into the first bytes of head, which already contains the
// envelope.
func (r record) encodeHead(mark fileMark, head []byte) {
	copy(head, mark[:])
	head[8], head[9], head[10], head[11] = version, r.encoding, r.flags, 0
	binary.BigEndian.PutUint32(head[12:], r.head)
	binary.BigEndian.PutUint64(head[16:], uint64(r.body))
	binary.BigEndian.PutUint64(head[24:], r.seq)
	binary.BigEndian.PutUint32(head[32:], r.bodySum)
	binary.BigEndian.PutUint32(head[36:], headSum(head))
}

// headSum computes the checksum over a head, except for the checksum itself.
func headSum(head []byte) uint32 {
	sum := crc32.Update(0, castagnoli, head[:36])
	return crc32.Update(sum, castagnoli, head[recordHeadSize:])
}

// parseRecord decodes the fixed part at the start of b. It checks the mark and the lengths;
// verifyHead checks the rest once the whole head is read.
func parseRecord(mark fileMark, b []byte) (record, error) {
	if len(b) < recordHeadSize || fileMark(b[:8]) != mark {
		return record{}, fmt.Errorf("no record head of this segment file: %w", ErrDamaged)
	}
	r := record{
		encoding: b[9],
		flags:    b[10],
		head:     binary.BigEndian.Uint32(b[12:]),
		seq:      binary.BigEndian.Uint64(b[24:]),
		bodySum:  binary.BigEndian.Uint32(b[32:]),
	}
	body := binary.BigEndian.Uint64(b[16:])
	if r.head < recordHeadSize || r.head > maxHead || body > maxBody {
		return record{}, fmt.Errorf("lengths in the record head are too large or too small: %w", ErrDamaged)
	}
	r.body = int64(body)
	return r, nil
}

// verifyHead verifies the checksum over a whole head, fixed part and envelope, and that this
// version can read the record.
func verifyHead(head []byte) error {
	if headSum(head) != binary.BigEndian.Uint32(head[36:]) {
		return fmt.Errorf("checksum of the record head: %w", ErrDamaged)
	}
	if head[8] != version || head[9] != encodingRaw || head[10]&^flagAccepted != 0 {
		return fmt.Errorf("format of the record: %w", ErrNewer)
	}
	return nil
}
