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

// A Tx is one transaction: a snapshot in View, the only writer in Update. It must not be used after
// its function has returned.
type Tx struct {
	b             *bolt.Tx
	db            *DB
	writable      bool
	writes        int  // if > 0, an error needs a rollback; after an increase, cursors must seek again
	bytes         int  // length of the keys and values written
	steps         int  // cursor steps
	mayUseReserve bool // it deletes something, so it may use the reserve of the disk
	err           error
	after         []func()
	ends          []func() error  // functions passed to AtEnd
	cause         context.Context // context passed to For
	changes       []Change
	entryChanges  *entry.Changes // changes for the commit's entry; nil if nothing is committed
	opened        []bucketState  // indexed by Bucket.number
}

// A Transaction is a Tx, or a type that embeds one.
type Transaction interface{ engine() *Tx }

func (tx *Tx) engine() *Tx { return tx }

// Bolt returns the bbolt transaction, for code that creates, drops or reads whole buckets.
func Bolt(tx Transaction) *bolt.Tx { return tx.engine().b }

// Now returns the time of the database's clock.
func (tx *Tx) Now() time.Time { return tx.db.now() }

// After makes fn run once the transaction is on disk. fn runs in the committer: it must be short
// and must not call the store.
func (tx *Tx) After(fn func()) { tx.after = append(tx.after, fn) }

// AtEnd makes fn run when the transaction's function has returned without an error. What fn writes
// is part of the transaction.
func (tx *Tx) AtEnd(fn func() error) { tx.ends = append(tx.ends, fn) }

// For sets the cause of the writes that follow: ctx belongs to a request, a message or a job. nil
// means that the cause is unknown. The transaction does not end when ctx ends.
func (tx *Tx) For(ctx context.Context) { tx.cause = ctx }

// ForNobody makes the cause of the writes that follow unknown.
func (tx *Tx) ForNobody() { tx.cause = nil }

// Cause returns the context of the last For; nil if there is none.
func (tx *Tx) Cause() context.Context { return tx.cause }

// Fail stores the first damage that an iterator found, since an iterator cannot return an error.
// The transaction then fails with it.
func (tx *Tx) Fail(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// Err returns the error that Fail has stored; nil if there is none.
func (tx *Tx) Err() error { return tx.err }

// Writes returns the number of writes of the transaction so far. After it has increased, a cursor
// must seek again.
func (tx *Tx) Writes() int { return tx.writes }

// Step counts one step of a cursor that the caller moves itself.
func (tx *Tx) Step() { tx.steps++ }

// stepsBetweenRests is how many cursor steps a transaction in the background takes without a rest.
const stepsBetweenRests = 64

// restSometimes lets a transaction in the background rest after some cursor steps. It returns false
// once Options.Background has ended; the transaction then fails with the error of that context.
func (tx *Tx) restSometimes() bool {
	if tx.db.background == nil || tx.steps%stepsBetweenRests != 0 {
		return true
	}
	if err := tx.db.background.rest(); err != nil {
		tx.Fail(err)
		return false
	}
	return true
}

// seek returns the first key of the bucket at or after key, and counts one cursor step.
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
	tx.entryChanges.Put(bucket, key, value)
	b := tx.bucket(bucket)
	if tx.db.sequential[bucket] {
		b.FillPercent = sequentialFill
	}
	if err := b.Put(key, value); err != nil {
		return fmt.Errorf("write row to bucket %s: %w", bucket, err)
	}
	return nil
}

func (tx *Tx) delete(bucket string, key []byte) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.bytes += len(key)
	tx.entryChanges.Delete(bucket, key)
	if err := tx.bucket(bucket).Delete(key); err != nil {
		return fmt.Errorf("delete row of bucket %s: %w", bucket, err)
	}
	return nil
}

// nextSequence increments the sequence number of a bucket and returns it; the first is 1.
func (tx *Tx) nextSequence(bucket string) (uint64, error) {
	if !tx.writable {
		return 0, ErrReadOnly
	}
	tx.writes++
	n, err := tx.bucket(bucket).NextSequence()
	tx.entryChanges.SetSequence(bucket, n)
	return n, err
}

// ascend iterates over a bucket in key order, from the first key at or after `from`. The loop body
// may write to the bucket: ascend then seeks the key again, since writes move bbolt cursors.
func (tx *Tx) ascend(b *bolt.Bucket, from []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c := b.Cursor()
		k, v := c.Seek(from)
		for k != nil && tx.restSometimes() {
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

// walkAfter calls `each` with the rows whose keys are greater than `after`, in key order, until
// `each` returns false. No row need have the key `after`; "" starts at the first row.
func (tx *Tx) walkAfter(bucket, after string, each func(k, v []byte) bool) {
	for k, v := range tx.ascend(tx.bucket(bucket), []byte(after)) {
		if after != "" && string(k) == after {
			continue
		}
		if !each(k, v) {
			return
		}
	}
}

// descend iterates over the keys with the prefix in descending order, from the last one less than
// `before`, or from the last one if `before` is empty. The loop body may write to the bucket.
func (tx *Tx) descend(b *bolt.Bucket, prefix, before []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		if len(before) == 0 {
			before = PrefixEnd(prefix)
		}
		c := b.Cursor()
		for k, v := SeekBefore(c, before); k != nil && bytes.HasPrefix(k, prefix) && tx.restSometimes(); {
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

// SeekBefore moves c to the last key less than end, or to the last key of the bucket if end is nil.
// k is nil if there is no such key.
func SeekBefore(c *bolt.Cursor, end []byte) (k, v []byte) {
	if end != nil {
		k, _ = c.Seek(end)
		if k != nil {
			return Prev(c, k)
		}
	}
	// bbolt's Last never returns if this transaction has emptied all pages of the bucket.
	k, _ = c.First()
	if k == nil {
		return nil, nil
	}
	return c.Last()
}

// Prev moves c from the key `at` to the key before it; k is nil if there is none. bbolt's own Prev
// stops at a page that this transaction has emptied, as if the bucket began there; this Prev
// continues past it.
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

// PrefixEnd returns the first key that sorts after every key with the prefix; nil if there is none.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

// NoteMessage records in the commit's entry that the message bytes at ref are new.
func (tx *Tx) NoteMessage(ref segment.Ref) { tx.entryChanges.AddMessage(ref) }

// NamedBucket returns the bbolt bucket with the name; nil if there is none.
func NamedBucket(tx Transaction, name string) *bolt.Bucket { return tx.engine().bucket(name) }

// AscendNamed is like Tx.Ascend, for the bucket with the name.
func AscendNamed(tx Transaction, name string, from []byte) iter.Seq2[[]byte, []byte] {
	return tx.engine().ascend(tx.engine().bucket(name), from)
}
