package mailrow

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

const (
	ThreadNodeSize = 13
	SubjectKeySize = 8
)

// A ThreadNode stands for a message id in the threads of an account, and for the thread that begins
// with it.
type ThreadNode [ThreadNodeSize]byte

func ThreadKey(account uint32, nodes ...ThreadNode) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(nodes)*ThreadNodeSize), account)
	for _, n := range nodes {
		b = append(b, n[:]...)
	}
	return b
}

// A SubjectKey stands for a subject between two people.
type SubjectKey [SubjectKeySize]byte

// Day is the number of a day since 1970, as keys have it.
func Day(t time.Time) uint16 { return uint16(max(t.Unix()/86400, 0)) }

func SubjectRowKey(day uint16, account uint32, key SubjectKey) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 2+4+SubjectKeySize), day)
	return append(binary.BigEndian.AppendUint32(b, account), key[:]...)
}

// SubjectThread reads a row of bktSubject.
func SubjectThread(key, row []byte) (thread ThreadNode, err error) {
	if len(row) == ThreadNodeSize { // without a checksum
		return ThreadNode(row), nil
	}
	row, err = BucketSubject.Open(key, row)
	if err == nil && len(row) != 1+ThreadNodeSize {
		err = engine.ErrDamagedRow
	}
	if err != nil {
		return thread, fmt.Errorf("subject %x: %w", key, err)
	}
	return ThreadNode(row[1:]), nil
}

// ParseThread reads a row of the bucket of threads: what the id of the key was joined to, and the
// day when a message last had to do with it, 0 in rows from before that was noted.
func ParseThread(key, row []byte) (up ThreadNode, seen uint16, err error) {
	if len(row) != ThreadNodeSize && len(row) != ThreadNodeSize+2 { // else it is without a checksum
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
	return up, 0, fmt.Errorf("thread %x: %w", key, err)
}
