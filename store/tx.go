package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/entry"
)

// A Tx is one transaction: a snapshot for View, the only writer for Update. It must not outlive its
// function.
type Tx struct {
	b             *bolt.Tx
	s             *Store
	writable      bool
	writes        int  // counted, so that an error is known to need undoing, and a walk to find its place again
	bytes         int  // of the keys and values written
	steps         int  // of cursors
	frees         bool // may use the reserve of the disk
	err           error
	after         []func()
	ends          []func() error  // what it writes when its function has returned
	cause         context.Context // see For
	changes       []Change
	noted         *entry.Changes                    // of the commit; nil where nothing is committed
	inboxRecorded uint32                            // the mailbox whose INBOX was recorded last
	expunged      []expungedNote                    // by folder
	messages      [len(messageBuckets)]*bolt.Bucket // those that were used
	cursors       [len(messageBuckets)]*bolt.Cursor // those that rows were read with
	hasRead       [len(messageBuckets)]bool
}

// Now is the store's clock.
func (tx *Tx) Now() time.Time { return tx.s.Now() }

// NewID makes an id of the prefix, such as "dom", from the store's clock; later ids of one process
// sort after earlier ones.
func (tx *Tx) NewID(prefix string) string { return tx.s.NewID(prefix) }

// After runs fn once the transaction is on disk, in the committer: it must be short and must not
// call the store.
func (tx *Tx) After(fn func()) { tx.after = append(tx.after, fn) }

// For says what causes the writes that follow: the request, message or job that ctx is of. nil:
// nothing that is known. It does not end the transaction when ctx ends.
func (tx *Tx) For(ctx context.Context) { tx.cause = ctx }

// ForNobody has what is written from now on have no cause.
func (tx *Tx) ForNobody() { tx.cause = nil }

// Cause is the context of the last For; nil: there was none.
func (tx *Tx) Cause() context.Context { return tx.cause }

// fail remembers the first damage that an iterator met, since an iterator has no error to return.
func (tx *Tx) fail(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// seek is one step of a cursor to the first key of the bucket that is not before key.
func (tx *Tx) seek(b *bolt.Bucket, key []byte) (k, v []byte) {
	tx.steps++
	return b.Cursor().Seek(key)
}

func (tx *Tx) bucket(name string) *bolt.Bucket { return tx.b.Bucket([]byte(name)) }

var errReadOnly = errors.New("write in a read transaction")

func (tx *Tx) put(bucket string, key, value []byte) error {
	if !tx.writable {
		return errReadOnly
	}
	tx.writes++
	tx.bytes += len(key) + len(value)
	tx.noted.Put(bucket, key, value)
	b := tx.bucket(bucket)
	if risingTables[bucket] {
		b.FillPercent = risingFill
	}
	if err := b.Put(key, value); err != nil {
		return fmt.Errorf("put in %s: %w", bucket, err)
	}
	return nil
}

func (tx *Tx) delete(bucket string, key []byte) error {
	if !tx.writable {
		return errReadOnly
	}
	tx.writes++
	tx.bytes += len(key)
	tx.noted.Delete(bucket, key)
	if err := tx.bucket(bucket).Delete(key); err != nil {
		return fmt.Errorf("delete in %s: %w", bucket, err)
	}
	return nil
}

// next counts up the sequence of a bucket, from 1.
func (tx *Tx) next(bucket string) (uint64, error) {
	if !tx.writable {
		return 0, errReadOnly
	}
	tx.writes++
	n, err := tx.bucket(bucket).NextSequence()
	tx.noted.Sequence(bucket, n)
	return n, err
}

// setSequence sets the sequence of a bucket, which says more about it than its rows do.
func (tx *Tx) setSequence(i messageBucket, n uint64) error {
	if !tx.writable {
		return errReadOnly
	}
	tx.writes++
	tx.noted.Sequence(messageBuckets[i], n)
	return tx.messageBucket(i).SetSequence(n)
}

// risingFill is how full bbolt leaves a page that it splits, of a bucket whose new keys are behind
// the others of their mailbox, account or webhook. What is left of bbolt's own half stays empty
// there, since nothing is put in between later.
const risingFill = 0.95

// risingRows are the message buckets of that kind.
var risingRows = [len(messageBuckets)]bool{bktMessage: true, bktMeta: true, bktRef: true, bktExpunged: true}

func (tx *Tx) messageBucket(i messageBucket) *bolt.Bucket {
	if tx.messages[i] == nil {
		tx.messages[i] = tx.bucket(messageBuckets[i])
		if tx.writable && risingRows[i] {
			tx.messages[i].FillPercent = risingFill
		}
	}
	return tx.messages[i]
}

// getRow gives the row of the key, nil if there is none.
func (tx *Tx) getRow(i messageBucket, key []byte) []byte {
	c := tx.cursors[i]
	if c == nil { // Bucket.Get makes one each time, which takes less memory where one row is read
		if !tx.hasRead[i] {
			tx.hasRead[i] = true
			return tx.messageBucket(i).Get(key)
		}
		c = tx.messageBucket(i).Cursor()
		tx.cursors[i] = c
	}
	k, row := c.Seek(key)
	if !bytes.Equal(k, key) {
		return nil
	}
	return row
}

// putRow keeps row until the transaction ends: it must not be changed afterwards.
func (tx *Tx) putRow(i messageBucket, key, row []byte) error {
	if !tx.writable {
		return errReadOnly
	}
	tx.writes++
	tx.bytes += len(key) + len(row)
	tx.noted.Put(messageBuckets[i], key, row)
	if err := tx.messageBucket(i).Put(key, row); err != nil {
		return fmt.Errorf("put in %s: %w", messageBuckets[i], err)
	}
	return nil
}

func (tx *Tx) deleteRow(i messageBucket, key []byte) error {
	if !tx.writable {
		return errReadOnly
	}
	tx.writes++
	tx.bytes += len(key)
	tx.noted.Delete(messageBuckets[i], key)
	if err := tx.messageBucket(i).Delete(key); err != nil {
		return fmt.Errorf("delete in %s: %w", messageBuckets[i], err)
	}
	tx.frees = tx.frees || i == bktMessage || i == bktRef || i == bktFolder || i == bktTextRun
	return nil
}

// hasRow tells whether there is a row, which may be empty.
func (tx *Tx) hasRow(i messageBucket, key []byte) bool {
	k, _ := tx.seek(tx.messageBucket(i), key)
	return bytes.Equal(k, key)
}

// emptyBucket drops all rows of a bucket at once; its sequence goes on.
func (tx *Tx) emptyBucket(i messageBucket) error {
	if !tx.writable {
		return errReadOnly
	}
	tx.writes++
	tx.frees = true
	name, last := []byte(messageBuckets[i]), tx.messageBucket(i).Sequence()
	tx.messages[i], tx.cursors[i] = nil, nil
	tx.noted.Empty(messageBuckets[i])
	if err := tx.b.DeleteBucket(name); err != nil {
		return fmt.Errorf("empty %s: %w", name, err)
	}
	b, err := tx.b.CreateBucket(name)
	if err != nil {
		return fmt.Errorf("make bucket %s: %w", name, err)
	}
	return b.SetSequence(last)
}

// ascend walks a bucket upwards from the first key that is not before from. Whoever walks may write
// to the bucket: the walk then finds its place again by the key, since writes move what a bbolt
// cursor points at.
func (tx *Tx) ascend(b *bolt.Bucket, from []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c := b.Cursor()
		k, v := c.Seek(from)
		for k != nil {
			tx.steps++
			writes := tx.writes
			if !yield(k, v) {
				return
			}
			if writes == tx.writes {
				k, v = c.Next()
				continue
			}
			at := k
			k, v = c.Seek(at)
			if bytes.Equal(k, at) {
				k, v = c.Next()
			}
		}
	}
}

// walkBehind walks a bucket upwards from behind a key, which need not be there; "" is before all.
func (tx *Tx) walkBehind(bucket, after string, each func(k, v []byte) bool) {
	for k, v := range tx.ascend(tx.bucket(bucket), []byte(after)) {
		if after != "" && string(k) == after {
			continue
		}
		if !each(k, v) {
			return
		}
	}
}

// A walk finds ascending keys of a bucket with one cursor, which steps on where the next key is
// near and searches where it is far.
type walk struct {
	tx   *Tx
	c    *bolt.Cursor
	k, v []byte // where the cursor is
	over bool   // it is behind the last key
}

// nearby is how many steps of a cursor cost about as much as a search.
const nearby = 8

func (tx *Tx) walk(i messageBucket) *walk { return &walk{tx: tx, c: tx.messageBucket(i).Cursor()} }

// get gives the row of the key, nil if there is none.
func (w *walk) get(key []byte) []byte {
	for steps := 0; !w.over; steps++ {
		if w.k != nil {
			switch bytes.Compare(w.k, key) {
			case 0:
				return w.v
			case 1:
				return nil
			}
		}
		w.tx.steps++
		if w.k == nil || steps == nearby {
			w.k, w.v = w.c.Seek(key)
		} else {
			w.k, w.v = w.c.Next()
		}
		w.over = w.k == nil
	}
	return nil
}

// descend walks a bucket downwards, from the last key under the prefix, or from the last one before
// `before` if that is not empty, to the first key under the prefix. Whoever walks may write to the
// bucket.
func (tx *Tx) descend(b *bolt.Bucket, prefix, before []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		if len(before) == 0 {
			before = after(prefix)
		}
		c := b.Cursor()
		for k, v := seekBefore(c, before); k != nil && bytes.HasPrefix(k, prefix); {
			tx.steps++
			writes := tx.writes
			if !yield(k, v) {
				return
			}
			if writes == tx.writes {
				k, v = prev(c, k)
				continue
			}
			k, v = seekBefore(c, k)
		}
	}
}

// seekBefore moves c to the last key before end; nil stands for the end of the bucket.
func seekBefore(c *bolt.Cursor, end []byte) (k, v []byte) {
	if end != nil {
		k, _ = c.Seek(end)
		if k != nil {
			return prev(c, k)
		}
	}
	// bbolt's Last never returns from a bucket whose pages this transaction has emptied, all of
	// them.
	k, _ = c.First()
	if k == nil {
		return nil, nil
	}
	return c.Last()
}

// prev moves c, which is at the key `at`, to the key before it. A page that this transaction has
// emptied looks to bbolt's Prev like the start of the bucket; behind it the walk goes on.
func prev(c *bolt.Cursor, at []byte) (k, v []byte) {
	k, v = c.Prev()
	if k != nil || !c.Bucket().Writable() {
		return k, v
	}
	if first, _ := c.Bucket().Cursor().First(); first == nil || bytes.Compare(first, at) >= 0 {
		return nil, nil
	}
	for k == nil {
		k, v = c.Prev()
	}
	return k, v
}

// after is the first key that is after every key of the prefix; nil if there is none.
func after(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}
