package mailrow

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// The sizes in bytes of a ThreadNode and a SubjectKey.
const (
	ThreadNodeSize = 13
	SubjectKeySize = 8
)

// A ThreadNode is a hash of a message id. It identifies the message in the threads of an account,
// and also the thread whose first message it is.
type ThreadNode [ThreadNodeSize]byte

// ThreadKey returns a key of BucketThread (one node) or BucketThreadJoined (the thread's node and
// the joined node), or a prefix of one.
func ThreadKey(account uint32, nodes ...ThreadNode) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(nodes)*ThreadNodeSize), account)
	for _, n := range nodes {
		b = append(b, n[:]...)
	}
	return b
}

// A SubjectKey is a hash of a subject and two correspondents.
type SubjectKey [SubjectKeySize]byte

// Day returns the number of days from 1970 to t, as rows and keys store it; 0 for times before.
func Day(t time.Time) uint16 { return uint16(max(t.Unix()/86400, 0)) }

// SubjectRowKey returns the key of a subject in BucketSubject.
func SubjectRowKey(day uint16, account uint32, key SubjectKey) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 2+4+SubjectKeySize), day)
	return append(binary.BigEndian.AppendUint32(b, account), key[:]...)
}

// SubjectThread verifies a row of BucketSubject and returns its thread.
func SubjectThread(key, row []byte) (thread ThreadNode, err error) {
	if len(row) == ThreadNodeSize { // old rows have no checksum
		return ThreadNode(row), nil
	}
	row, err = BucketSubject.Open(key, row)
	if err == nil && len(row) != 1+ThreadNodeSize {
		err = engine.ErrDamagedRow
	}
	if err != nil {
		return thread, fmt.Errorf("read subject row %x: %w", key, err)
	}
	return ThreadNode(row[1:]), nil
}

// ParseThread verifies a row of BucketThread. up is the node that the key's node points to. seenDay
// is the day of the last message that referred to the node; 0 in old rows, which do not record it.
func ParseThread(key, row []byte) (up ThreadNode, seenDay uint16, err error) {
	if len(row) != ThreadNodeSize && len(row) != ThreadNodeSize+2 { // rows of these two sizes have no checksum
		row, err = BucketThread.Open(key, row)
		if err == nil {
			row = row[1:]
		}
	}
	switch {
	case err == nil && len(row) == ThreadNodeSize:
		return ThreadNode(row), 0, nil
	case err == nil && len(row) == ThreadNodeSize+2:
		return ThreadNode(row[:ThreadNodeSize]), binary.BigEndian.Uint16(row[ThreadNodeSize:]), nil
	case err == nil:
		err = engine.ErrDamagedRow
	}
	return up, 0, fmt.Errorf("read thread row %x: %w", key, err)
}
