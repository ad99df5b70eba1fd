package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/rowform"
)

// A ThreadNode stands for a message id in the threads of an account, and for the thread that begins
// with it.
type ThreadNode [threadNodeSize]byte

const (
	threadNodeSize  = 13
	threadTouched   = 30  // days after which the day of the last message is written anew
	threadSteps     = 64  // that finding a thread takes at most
	threadMembers   = 500 // joined threads of one
	threadMergeMost = 20  // joined threads with which one is joined to another
	subjectKeySize  = 8
)

// SubjectKept is how long subjects are kept, by which an answer that names no message is put to its
// thread.
const SubjectKept = 28 * 24 * time.Hour

// ThreadKept is how long a row of a thread is kept after the last message that had to do with it. A
// thread is named by its first message, so that a late answer which names that one gets the same
// name; what is forgotten is which other names lead there.
const ThreadKept = 2 * 365 * 24 * time.Hour

// Threads are a forest of message ids: rows point from one to an older one. An id without a row
// stands for itself and is nobody's elder. A root points to itself, so that whoever is put below
// another later is known to have been one: messages carry its name, and those are found by the
// notes of which roots went below which.

func threadKey(account uint32, nodes ...ThreadNode) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(nodes)*threadNodeSize), account)
	for _, n := range nodes {
		b = append(b, n[:]...)
	}
	return b
}

// Thread gives the thread that a message id belongs to; known is false for one that no thread has
// had to do with.
func (tx *Tx) Thread(account uint32, n ThreadNode) (root ThreadNode, known bool, err error) {
	for range threadSteps {
		up, _, found, err := tx.threadRow(threadKey(account, n))
		if !found || err != nil {
			return n, known, err
		}
		known = true
		if up == n {
			return n, true, nil
		}
		n = up
	}
	return n, false, fmt.Errorf("thread %x goes round in circles: %w", n, ErrDamagedRow)
}

// threadRow reads a row; seen is the day when a message last had to do with it, 0 in rows from
// before that was noted.
func (tx *Tx) threadRow(key []byte) (up ThreadNode, seen uint16, found bool, err error) {
	row := tx.GetRow(mailrow.BucketThread, key)
	switch len(row) {
	case 0:
		return up, 0, false, nil
	case threadNodeSize, threadNodeSize + 2: // without a checksum
	default:
		row, err = mailrow.BucketThread.Open(key, row)
		if err == nil {
			row = row[1:]
		}
	}
	switch {
	case err == nil && len(row) == threadNodeSize:
		return ThreadNode(row), 0, true, nil
	case err == nil && len(row) == threadNodeSize+2:
		return ThreadNode(row[:threadNodeSize]), binary.BigEndian.Uint16(row[threadNodeSize:]), true, nil
	case err == nil:
		err = ErrDamagedRow
	}
	return up, 0, false, fmt.Errorf("thread %x: %w", key, err)
}

// TouchThread notes that a message had to do with a message id, so that its rows are kept on. It
// does nothing for an id that is not known.
func (tx *Tx) TouchThread(account uint32, n ThreadNode) error {
	today := day(tx.Now())
	for range threadSteps {
		up, seen, found, err := tx.threadRow(threadKey(account, n))
		if !found || err != nil {
			return err
		}
		if seen+threadTouched <= today {
			if err := tx.putThread(account, n, up); err != nil {
				return err
			}
		}
		if up == n {
			return nil
		}
		n = up
	}
	return nil
}

// JoinThread puts a message id, and with it its thread if it has one, into the thread of root. A
// thread that more than threadMergeMost others were joined to stays one of its own, and so does one
// that would be the threadMembers-th of root's: whoever ties more of them than people do wants to
// make us work.
func (tx *Tx) JoinThread(account uint32, root, n ThreadNode) error {
	top, known, err := tx.Thread(account, root)
	if err != nil {
		return err
	}
	if !known {
		if err := tx.putThread(account, top, top); err != nil {
			return err
		}
	}
	below, known, err := tx.Thread(account, n)
	if err != nil {
		return err
	}
	switch {
	case below == top:
	case known:
		err = tx.mergeThreads(account, top, below)
	default:
		err = tx.putThread(account, below, top)
	}
	if err != nil {
		return err
	}
	return tx.TouchThread(account, n)
}

// mergeThreads puts a thread below another one, and so all that were joined to it before: what
// follows from one to the next would else take as many steps as there are threads that were tied
// one by one.
func (tx *Tx) mergeThreads(account uint32, top, below ThreadNode) error {
	names, err := tx.threadNames(account, below, threadMergeMost+1)
	if err != nil || len(names) > threadMergeMost {
		return err
	}
	members, err := tx.threadNames(account, top, threadMembers)
	if err != nil || len(members)+len(names) > threadMembers {
		return err
	}
	for _, name := range names {
		up, _, found, err := tx.threadRow(threadKey(account, name))
		if err != nil {
			return err
		}
		if found && up != name {
			if err := tx.DeleteRow(mailrow.BucketThreadJoined, threadKey(account, up, name)); err != nil {
				return err
			}
		}
		if err := tx.PutRow(mailrow.BucketThreadJoined, threadKey(account, top, name), nil); err != nil {
			return err
		}
		if err := tx.putThread(account, name, top); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) putThread(account uint32, n, up ThreadNode) error {
	key := threadKey(account, n)
	row := append(append(make([]byte, 0, 1+threadNodeSize+2+rowform.SumSize), engine.RowVersion), up[:]...)
	return tx.PutRow(mailrow.BucketThread, key, mailrow.BucketThread.Seal(key, binary.BigEndian.AppendUint16(row, day(tx.Now()))))
}

// OldThreads looks at up to `look` rows of threads behind the key after, nil at first, and gives
// the keys of those that are to be dropped, and where to go on; next is nil at the end.
func (tx *Tx) OldThreads(after []byte, look int) (old [][]byte, next []byte, err error) {
	for k := range tx.Ascend(mailrow.BucketThread, after) {
		if bytes.Equal(k, after) {
			continue
		}
		if look--; look < 0 {
			return old, next, nil
		}
		next = bytes.Clone(k)
		_, seen, _, err := tx.threadRow(k)
		if err != nil {
			return nil, nil, err
		}
		if seen == 0 || tx.threadIsOld(seen) {
			old = append(old, next)
		}
	}
	return old, nil, nil
}

func (tx *Tx) threadIsOld(seen uint16) bool {
	return seen < day(tx.Now().Add(-ThreadKept))
}

// DropThreads deletes rows that OldThreads gave, with the note of one that was joined, unless a
// message had to do with them since. Rows of which nobody knows how old they are become as old as
// of today.
func (tx *Tx) DropThreads(keys [][]byte) error {
	for _, key := range keys {
		up, seen, found, err := tx.threadRow(key)
		if err != nil {
			return err
		}
		account, n := binary.BigEndian.Uint32(key), ThreadNode(key[4:])
		switch {
		case !found:
			continue
		case seen == 0:
			err = tx.putThread(account, n, up)
		case tx.threadIsOld(seen):
			err = tx.dropThread(account, n, up)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) dropThread(account uint32, n, up ThreadNode) error {
	joined := threadKey(account, up, n)
	if tx.Bucket(mailrow.BucketThreadJoined).Get(joined) != nil {
		if err := tx.DeleteRow(mailrow.BucketThreadJoined, joined); err != nil {
			return err
		}
	}
	return tx.DeleteRow(mailrow.BucketThread, threadKey(account, n))
}

// ThreadNames gives the names under which messages of the thread of n may be stored, that of the
// thread first: all, but of threads from before there was a bound.
func (tx *Tx) ThreadNames(account uint32, n ThreadNode) ([]ThreadNode, error) {
	return tx.threadNames(account, n, threadMembers)
}

func (tx *Tx) threadNames(account uint32, n ThreadNode, most int) ([]ThreadNode, error) {
	root, _, err := tx.Thread(account, n)
	if err != nil {
		return nil, err
	}
	names := []ThreadNode{root}
	for i := 0; i < len(names) && len(names) < most; i++ {
		prefix := threadKey(account, names[i])
		for k := range tx.Ascend(mailrow.BucketThreadJoined, prefix) {
			if !bytes.HasPrefix(k, prefix) || len(k) != len(prefix)+threadNodeSize || len(names) == most {
				break
			}
			names = append(names, ThreadNode(k[len(prefix):]))
		}
	}
	return names, nil
}

// A SubjectKey stands for a subject between two people.
type SubjectKey [subjectKeySize]byte

// day is the number of a day since 1970, as keys have it.
func day(t time.Time) uint16 { return uint16(max(t.Unix()/86400, 0)) }

func subjectKey(day uint16, account uint32, key SubjectKey) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 2+4+subjectKeySize), day)
	return append(binary.BigEndian.AppendUint32(b, account), key[:]...)
}

// PutSubject notes that a message of the thread came at a time with a subject between two people.
// What is older than SubjectKept is not noted.
func (tx *Tx) PutSubject(account uint32, key SubjectKey, at time.Time, thread ThreadNode) error {
	if age := tx.Now().Sub(at); age > SubjectKept || age < -SubjectKept {
		return nil
	}
	row, k := append([]byte{engine.RowVersion}, thread[:]...), subjectKey(day(at), account, key)
	return tx.PutRow(mailrow.BucketSubject, k, mailrow.BucketSubject.Seal(k, row))
}

// FindSubject gives the thread of the newest message with the subject between two people, of the
// last SubjectKept.
func (tx *Tx) FindSubject(account uint32, key SubjectKey) (thread ThreadNode, found bool, err error) {
	today := day(tx.Now())
	for d := today; d+uint16(SubjectKept/(24*time.Hour)) >= today && d > 0; d-- {
		k := subjectKey(d, account, key)
		row := tx.GetRow(mailrow.BucketSubject, k)
		if row == nil {
			continue
		}
		thread, err := subjectThread(k, row)
		return thread, err == nil, err
	}
	return thread, false, nil
}

// subjectThread reads a row of bktSubject.
func subjectThread(key, row []byte) (thread ThreadNode, err error) {
	if len(row) == threadNodeSize { // without a checksum
		return ThreadNode(row), nil
	}
	row, err = mailrow.BucketSubject.Open(key, row)
	if err == nil && len(row) != 1+threadNodeSize {
		err = ErrDamagedRow
	}
	if err != nil {
		return thread, fmt.Errorf("subject %x: %w", key, err)
	}
	return ThreadNode(row[1:]), nil
}

// PruneSubjects deletes up to limit subjects that are too old, and says how many that were.
func (tx *Tx) PruneSubjects(limit int) (n int, err error) {
	first := binary.BigEndian.AppendUint16(nil, day(tx.Now().Add(-SubjectKept)))
	for k := range tx.Ascend(mailrow.BucketSubject, nil) {
		if n == limit || bytes.Compare(k, first) >= 0 {
			break
		}
		if err := tx.DeleteRow(mailrow.BucketSubject, bytes.Clone(k)); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
