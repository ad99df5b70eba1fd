package engine

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/entry"
	"github.com/mailstead/mailstead/store/segment"
)

// A Tx is one transaction: a snapshot for View, the only writer for Update. It must not outlive its
// function.
type Tx struct {
	b        *bolt.Tx
	db       *DB
	writable bool
	writes   int  // counted, so that an error is known to need undoing, and a walk to find its place again
	bytes    int  // of the keys and values written
	steps    int  // of cursors
	frees    bool // may use the reserve of the disk
	err      error
	after    []func()
	ends     []func() error  // what it writes when its function has returned
	cause    context.Context // see For
	changes  []Change
	noted    *entry.Changes // of the commit; nil where nothing is committed
	opened   []openBucket   // by Bucket
}

// A Transaction is a Tx, or a type that embeds one.
type Transaction interface{ engine() *Tx }

func (tx *Tx) engine() *Tx { return tx }

// Bolt is bbolt's transaction, for those who make, drop or read whole buckets.
func Bolt(tx Transaction) *bolt.Tx { return tx.engine().b }

// Now is the time of the database's clock.
func (tx *Tx) Now() time.Time { return tx.db.now() }

// After runs fn once the transaction is on disk, in the committer: it must be short and must not
// call the store.
func (tx *Tx) After(fn func()) { tx.after = append(tx.after, fn) }

// AtEnd runs fn when the transaction's function has returned without an error: what it writes is
// part of the transaction.
func (tx *Tx) AtEnd(fn func() error) { tx.ends = append(tx.ends, fn) }

// For says what causes the writes that follow: the request, message or job that ctx is of. nil:
// nothing that is known. It does not end the transaction when ctx ends.
func (tx *Tx) For(ctx context.Context) { tx.cause = ctx }

// ForNobody has what is written from now on have no cause.
func (tx *Tx) ForNobody() { tx.cause = nil }

// Cause is the context of the last For; nil: there was none.
func (tx *Tx) Cause() context.Context { return tx.cause }

// Fail remembers the first damage that an iterator met, since an iterator has no error to return.
func (tx *Tx) Fail(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// Err is what Fail has remembered.
func (tx *Tx) Err() error { return tx.err }

// Writes counts what the transaction has written: a cursor has to find its place again where that
// has risen.
func (tx *Tx) Writes() int { return tx.writes }

// Step counts one step of a cursor that the transaction does not move itself.
func (tx *Tx) Step() { tx.steps++ }

// seek is one step of a cursor to the first key of the bucket that is not before key.
func (tx *Tx) seek(b *bolt.Bucket, key []byte) (k, v []byte) {
	tx.steps++
	return b.Cursor().Seek(key)
}

func (tx *Tx) bucket(name string) *bolt.Bucket { return tx.b.Bucket([]byte(name)) }

func (tx *Tx) put(bucket string, key, value []byte) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.bytes += len(key) + len(value)
	tx.noted.Put(bucket, key, value)
	b := tx.bucket(bucket)
	if tx.db.rising[bucket] {
		b.FillPercent = risingFill
	}
	if err := b.Put(key, value); err != nil {
		return fmt.Errorf("put in %s: %w", bucket, err)
	}
	return nil
}

func (tx *Tx) delete(bucket string, key []byte) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.bytes += len(key)
	tx.noted.Delete(bucket, key)
	if err := tx.bucket(bucket).Delete(key); err != nil {
		return fmt.Errorf("delete in %s: %w", bucket, err)
	}
	return nil
}

// nextSequence counts up the sequence of a bucket, from 1.
func (tx *Tx) nextSequence(bucket string) (uint64, error) {
	if !tx.writable {
		return 0, ErrReadOnly
	}
	tx.writes++
	n, err := tx.bucket(bucket).NextSequence()
	tx.noted.Sequence(bucket, n)
	return n, err
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

// descend walks a bucket downwards, from the last key under the prefix, or from the last one before
// `before` if that is not empty, to the first key under the prefix. Whoever walks may write to the
// bucket.
func (tx *Tx) descend(b *bolt.Bucket, prefix, before []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		if len(before) == 0 {
			before = Behind(prefix)
		}
		c := b.Cursor()
		for k, v := SeekBefore(c, before); k != nil && bytes.HasPrefix(k, prefix); {
			tx.steps++
			writes := tx.writes
			if !yield(k, v) {
				return
			}
			if writes == tx.writes {
				k, v = Prev(c, k)
				continue
			}
			k, v = SeekBefore(c, k)
		}
	}
}

// SeekBefore moves c to the last key before end; nil stands for the end of the bucket.
func SeekBefore(c *bolt.Cursor, end []byte) (k, v []byte) {
	if end != nil {
		k, _ = c.Seek(end)
		if k != nil {
			return Prev(c, k)
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

// Prev moves c, which is at the key `at`, to the key before it. A page that this transaction has
// emptied looks to bbolt's Prev like the start of the bucket; behind it the walk goes on.
func Prev(c *bolt.Cursor, at []byte) (k, v []byte) {
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

// Behind is the first key that is after every key of the prefix; nil if there is none.
func Behind(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

// NoteMessage notes in the commit's entry that the bytes at ref come with it.
func (tx *Tx) NoteMessage(ref segment.Ref) { tx.noted.Message(ref) }

// Named is bbolt's bucket of a name; nil if there is none.
func Named(tx Transaction, name string) *bolt.Bucket { return tx.engine().bucket(name) }

// AscendNamed is Tx.Ascend in the bucket of a name.
func AscendNamed(tx Transaction, name string, from []byte) iter.Seq2[[]byte, []byte] {
	return tx.engine().ascend(tx.engine().bucket(name), from)
}
