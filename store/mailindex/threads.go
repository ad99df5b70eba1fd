package mailindex

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/rowform"
)

const (
	threadTouched   = 30  // days after which the day of the last message is written anew
	threadSteps     = 64  // that finding a thread takes at most
	ThreadMembers   = 500 // joined threads of one
	threadMergeMost = 20  // joined threads with which one is joined to another
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

// Thread gives the thread that a message id belongs to; known is false for one that no thread has
// had to do with.
func (tx *Tx) Thread(account uint32, n mailrow.ThreadNode) (root mailrow.ThreadNode, known bool, err error) {
	for range threadSteps {
		up, _, found, err := ThreadRow(tx, mailrow.ThreadKey(account, n))
		if !found || err != nil {
			return n, known, err
		}
		known = true
		if up == n {
			return n, true, nil
		}
		n = up
	}
	return n, false, fmt.Errorf("thread %x goes round in circles: %w", n, engine.ErrDamagedRow)
}

// ThreadRow reads the row of a key; seen is the day when a message last had to do with it, 0 in
// rows from before that was noted.
func ThreadRow(tx *Tx, key []byte) (up mailrow.ThreadNode, seen uint16, found bool, err error) {
	row := tx.GetRow(mailrow.BucketThread, key)
	if len(row) == 0 {
		return up, 0, false, nil
	}
	up, seen, err = mailrow.ParseThread(key, row)
	return up, seen, err == nil, err
}

// TouchThread notes that a message had to do with a message id, so that its rows are kept on. It
// does nothing for an id that is not known.
func (tx *Tx) TouchThread(account uint32, n mailrow.ThreadNode) error {
	today := mailrow.Day(tx.Now())
	for range threadSteps {
		up, seen, found, err := ThreadRow(tx, mailrow.ThreadKey(account, n))
		if !found || err != nil {
			return err
		}
		if seen+threadTouched <= today {
			if err := PutThread(tx, account, n, up); err != nil {
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
func (tx *Tx) JoinThread(account uint32, root, n mailrow.ThreadNode) error {
	top, known, err := tx.Thread(account, root)
	if err != nil {
		return err
	}
	if !known {
		if err := PutThread(tx, account, top, top); err != nil {
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
		err = PutThread(tx, account, below, top)
	}
	if err != nil {
		return err
	}
	return tx.TouchThread(account, n)
}

// mergeThreads puts a thread below another one, and so all that were joined to it before: what
// follows from one to the next would else take as many steps as there are threads that were tied
// one by one.
func (tx *Tx) mergeThreads(account uint32, top, below mailrow.ThreadNode) error {
	names, err := tx.threadNames(account, below, threadMergeMost+1)
	if err != nil || len(names) > threadMergeMost {
		return err
	}
	members, err := tx.threadNames(account, top, ThreadMembers)
	if err != nil || len(members)+len(names) > ThreadMembers {
		return err
	}
	for _, name := range names {
		up, _, found, err := ThreadRow(tx, mailrow.ThreadKey(account, name))
		if err != nil {
			return err
		}
		if found && up != name {
			if err := tx.DeleteRow(mailrow.BucketThreadJoined, mailrow.ThreadKey(account, up, name)); err != nil {
				return err
			}
		}
		if err := tx.PutRow(mailrow.BucketThreadJoined, mailrow.ThreadKey(account, top, name), nil); err != nil {
			return err
		}
		if err := PutThread(tx, account, name, top); err != nil {
			return err
		}
	}
	return nil
}

func PutThread(tx *Tx, account uint32, n, up mailrow.ThreadNode) error {
	key := mailrow.ThreadKey(account, n)
	row := append(append(make([]byte, 0, 1+mailrow.ThreadNodeSize+2+rowform.SumSize), engine.RowVersion), up[:]...)
	return tx.PutRow(mailrow.BucketThread, key, mailrow.BucketThread.Seal(key, binary.BigEndian.AppendUint16(row, mailrow.Day(tx.Now()))))
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
		_, seen, _, err := ThreadRow(tx, k)
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
	return seen < mailrow.Day(tx.Now().Add(-ThreadKept))
}

// DropThreads deletes rows that OldThreads gave, with the note of one that was joined, unless a
// message had to do with them since. Rows of which nobody knows how old they are become as old as
// of today.
func (tx *Tx) DropThreads(keys [][]byte) error {
	for _, key := range keys {
		up, seen, found, err := ThreadRow(tx, key)
		if err != nil {
			return err
		}
		account, n := binary.BigEndian.Uint32(key), mailrow.ThreadNode(key[4:])
		switch {
		case !found:
			continue
		case seen == 0:
			err = PutThread(tx, account, n, up)
		case tx.threadIsOld(seen):
			err = tx.dropThread(account, n, up)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) dropThread(account uint32, n, up mailrow.ThreadNode) error {
	joined := mailrow.ThreadKey(account, up, n)
	if tx.Bucket(mailrow.BucketThreadJoined).Get(joined) != nil {
		if err := tx.DeleteRow(mailrow.BucketThreadJoined, joined); err != nil {
			return err
		}
	}
	return tx.DeleteRow(mailrow.BucketThread, mailrow.ThreadKey(account, n))
}

// ThreadNames gives the names under which messages of the thread of n may be stored, that of the
// thread first: all, but of threads from before there was a bound.
func (tx *Tx) ThreadNames(account uint32, n mailrow.ThreadNode) ([]mailrow.ThreadNode, error) {
	return tx.threadNames(account, n, ThreadMembers)
}

func (tx *Tx) threadNames(account uint32, n mailrow.ThreadNode, most int) ([]mailrow.ThreadNode, error) {
	root, _, err := tx.Thread(account, n)
	if err != nil {
		return nil, err
	}
	names := []mailrow.ThreadNode{root}
	for i := 0; i < len(names) && len(names) < most; i++ {
		prefix := mailrow.ThreadKey(account, names[i])
		for k := range tx.Ascend(mailrow.BucketThreadJoined, prefix) {
			if !bytes.HasPrefix(k, prefix) || len(k) != len(prefix)+mailrow.ThreadNodeSize || len(names) == most {
				break
			}
			names = append(names, mailrow.ThreadNode(k[len(prefix):]))
		}
	}
	return names, nil
}

// PutSubject notes that a message of the thread came at a time with a subject between two people.
// What is older than SubjectKept is not noted.
func (tx *Tx) PutSubject(account uint32, key mailrow.SubjectKey, at time.Time, thread mailrow.ThreadNode) error {
	if age := tx.Now().Sub(at); age > SubjectKept || age < -SubjectKept {
		return nil
	}
	row, k := append([]byte{engine.RowVersion}, thread[:]...), mailrow.SubjectRowKey(mailrow.Day(at), account, key)
	return tx.PutRow(mailrow.BucketSubject, k, mailrow.BucketSubject.Seal(k, row))
}

// FindSubject gives the thread of the newest message with the subject between two people, of the
// last SubjectKept.
func (tx *Tx) FindSubject(account uint32, key mailrow.SubjectKey) (thread mailrow.ThreadNode, found bool, err error) {
	today := mailrow.Day(tx.Now())
	for d := today; d+uint16(SubjectKept/(24*time.Hour)) >= today && d > 0; d-- {
		k := mailrow.SubjectRowKey(d, account, key)
		row := tx.GetRow(mailrow.BucketSubject, k)
		if row == nil {
			continue
		}
		thread, err := mailrow.SubjectThread(k, row)
		return thread, err == nil, err
	}
	return thread, false, nil
}

// PruneSubjects deletes up to limit subjects that are too old, and says how many that were.
func (tx *Tx) PruneSubjects(limit int) (n int, err error) {
	first := binary.BigEndian.AppendUint16(nil, mailrow.Day(tx.Now().Add(-SubjectKept)))
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
