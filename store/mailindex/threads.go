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
	touchAfterDays   = 30  // the day in a thread's row is updated only when it is this many days old
	maxThreadSteps   = 64  // limit of steps from a message id to the root of its thread
	MaxJoinedThreads = 500 // most threads that are joined into one
	maxThreadsMoved  = 20  // most threads that move when one is joined to another; the joined one counts too
)

// SubjectLifetime is how long subjects are kept. By its subject, a reply that names no earlier
// message joins the thread of the message that it answers.
const SubjectLifetime = 28 * 24 * time.Hour

// ThreadLifetime is how long a row of a thread is kept after the last message that referred to it.
// A thread is named by its first message, so a late reply to that message gets the same name. Only
// the other message ids of the thread are forgotten.
const ThreadLifetime = 2 * 365 * 24 * time.Hour

// Threads are a forest of message ids: each row points from an id to an older one. An id without a
// row is its own thread, and no other id points to it. The row of a root points to itself. If a
// root is joined to another thread later, the rows of BucketThreadJoined say so, and messages that
// were stored under its name are still found.

// Thread returns the root of the thread that a message id belongs to. known is false if the id has
// no row.
func (tx *Tx) Thread(account uint32, n mailrow.ThreadNode) (root mailrow.ThreadNode, known bool, err error) {
	for range maxThreadSteps {
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
	return n, false, fmt.Errorf("thread %x: its rows point to each other in a circle: %w", n, engine.ErrDamagedRow)
}

// ThreadRow reads a row of BucketThread. seenDay is the day of the last message that referred to
// the id; 0 in old rows, which do not record it.
func ThreadRow(tx *Tx, key []byte) (up mailrow.ThreadNode, seenDay uint16, found bool, err error) {
	row := tx.GetRow(mailrow.BucketThread, key)
	if len(row) == 0 {
		return up, 0, false, nil
	}
	up, seenDay, err = mailrow.ParseThread(key, row)
	return up, seenDay, err == nil, err
}

// TouchThread records that a message referred to a message id today, so that the rows up to its
// root are kept. It does nothing for an id without a row.
func (tx *Tx) TouchThread(account uint32, n mailrow.ThreadNode) error {
	today := mailrow.Day(tx.Now())
	for range maxThreadSteps {
		up, seen, found, err := ThreadRow(tx, mailrow.ThreadKey(account, n))
		if !found || err != nil {
			return err
		}
		if seen+touchAfterDays <= today {
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

// JoinThread joins a message id, and its thread if it has one, to the thread of root. It leaves the
// two threads apart if maxThreadsMoved or more threads were joined to n's thread already, or if
// root's thread would get more than MaxJoinedThreads. Ordinary mail stays below these limits; they
// bound the work that an attacker can cause.
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

// mergeThreads joins the thread `below` to the thread `top`, and moves the threads that were joined
// to `below` directly to `top`. Otherwise a chain of threads would need as many steps as it has
// threads.
func (tx *Tx) mergeThreads(account uint32, top, below mailrow.ThreadNode) error {
	names, err := tx.threadNames(account, below, maxThreadsMoved+1)
	if err != nil || len(names) > maxThreadsMoved {
		return err
	}
	members, err := tx.threadNames(account, top, MaxJoinedThreads)
	if err != nil || len(members)+len(names) > MaxJoinedThreads {
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

// PutThread writes the row that points from the message id n to up: an older id or, for a root, n
// itself. The row gets the day of today.
func PutThread(tx *Tx, account uint32, n, up mailrow.ThreadNode) error {
	key := mailrow.ThreadKey(account, n)
	row := append(append(make([]byte, 0, 1+mailrow.ThreadNodeSize+2+rowform.SumSize), engine.RowVersion), up[:]...)
	return tx.PutRow(mailrow.BucketThread, key, mailrow.BucketThread.Seal(key, binary.BigEndian.AppendUint16(row, mailrow.Day(tx.Now()))))
}

// OldThreads returns the keys of those rows of BucketThread that are old or of unknown age, for
// DropThreads. It examines at most `most` rows with keys greater than afterKey; nil means from the
// first. next is the afterKey of the following call, or nil at the end.
func (tx *Tx) OldThreads(afterKey []byte, most int) (old [][]byte, next []byte, err error) {
	for k := range tx.Ascend(mailrow.BucketThread, afterKey) {
		if bytes.Equal(k, afterKey) {
			continue
		}
		if most--; most < 0 {
			return old, next, nil
		}
		next = bytes.Clone(k)
		_, seenDay, _, err := ThreadRow(tx, k)
		if err != nil {
			return nil, nil, err
		}
		if seenDay == 0 || tx.threadIsOld(seenDay) {
			old = append(old, next)
		}
	}
	return old, nil, nil
}

func (tx *Tx) threadIsOld(seenDay uint16) bool {
	return seenDay < mailrow.Day(tx.Now().Add(-ThreadLifetime))
}

// DropThreads deletes rows that OldThreads returned, with their rows in BucketThreadJoined, unless
// a message has referred to them since. A row of unknown age gets the day of today instead.
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

// dropThread deletes the row that points from the message id n to the older id up, and the row that
// says that the two threads were joined.
func (tx *Tx) dropThread(account uint32, n, up mailrow.ThreadNode) error {
	joined := mailrow.ThreadKey(account, up, n)
	if tx.Bucket(mailrow.BucketThreadJoined).Get(joined) != nil {
		if err := tx.DeleteRow(mailrow.BucketThreadJoined, joined); err != nil {
			return err
		}
	}
	return tx.DeleteRow(mailrow.BucketThread, mailrow.ThreadKey(account, n))
}

// ThreadNames returns the names under which messages of the thread of n may be stored, the root
// first. It returns at most MaxJoinedThreads; only threads from before that limit have more.
func (tx *Tx) ThreadNames(account uint32, n mailrow.ThreadNode) ([]mailrow.ThreadNode, error) {
	return tx.threadNames(account, n, MaxJoinedThreads)
}

// threadNames is ThreadNames with a limit.
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

// PutSubject records the thread of a message with this subject, between two correspondents. It does
// nothing if at, the time of the message, is more than SubjectLifetime away from now.
func (tx *Tx) PutSubject(account uint32, key mailrow.SubjectKey, at time.Time, thread mailrow.ThreadNode) error {
	if age := tx.Now().Sub(at); age > SubjectLifetime || age < -SubjectLifetime {
		return nil
	}
	row, k := append([]byte{engine.RowVersion}, thread[:]...), mailrow.SubjectRowKey(mailrow.Day(at), account, key)
	return tx.PutRow(mailrow.BucketSubject, k, mailrow.BucketSubject.Seal(k, row))
}

// FindSubject returns the thread of the newest message with the subject between two correspondents
// within the last SubjectLifetime.
func (tx *Tx) FindSubject(account uint32, key mailrow.SubjectKey) (thread mailrow.ThreadNode, found bool, err error) {
	today := mailrow.Day(tx.Now())
	for d := today; d+uint16(SubjectLifetime/(24*time.Hour)) >= today && d > 0; d-- {
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

// PruneSubjects deletes up to limit subjects older than SubjectLifetime, and returns how many.
func (tx *Tx) PruneSubjects(limit int) (n int, err error) {
	first := binary.BigEndian.AppendUint16(nil, mailrow.Day(tx.Now().Add(-SubjectLifetime)))
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
