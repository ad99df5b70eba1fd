package store

import (
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
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
	changes       []Change
	inboxRecorded uint32                            // the mailbox whose INBOX was recorded last
	messages      [len(messageBuckets)]*bolt.Bucket // those that were used
}

// Now is the store's clock.
func (tx *Tx) Now() time.Time { return tx.s.Now() }

// NewID makes an id of the prefix, such as "dom", from the store's clock; later ids of one process
// sort after earlier ones.
func (tx *Tx) NewID(prefix string) string { return tx.s.NewID(prefix) }

// After runs fn once the transaction is on disk, in the committer: it must be short and must not
// call the store.
func (tx *Tx) After(fn func()) { tx.after = append(tx.after, fn) }

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
	if err := tx.bucket(bucket).Put(key, value); err != nil {
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
	return tx.bucket(bucket).NextSequence()
}
