package engine

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/rowform"
)

// A Bucket is a bucket of rows. The package that declares it chooses the keys and the row format.
// Each Bucket is created once, as a package variable.
//
// A row begins with its format version. From RowVersion on, it ends with a checksum; see package
// rowform. A version with a checksum differs in two bits from every older version, so one flipped
// bit cannot turn the checksum off. The declaring package reads rows of earlier formats itself.
type Bucket struct {
	name       string
	number     int // index among all Buckets of the program
	sum        rowform.Sum
	sequential bool   // see sequentialFill
	freesSpace bool   // deleting a row frees disk space
	versions   []byte // row versions that Open accepts besides RowVersion
}

// sequentialFill is how full bbolt leaves a page that it splits in a bucket with sequential keys.
// bbolt's default of one half would waste the rest, because no key is inserted there later.
const sequentialFill = 0.95

// Row format versions that many buckets share.
const (
	RowVersion = 0x32 // the current version, with a checksum
	BareRow    = 1    // an old version without a checksum
)

// bucketCount counts the calls of NewBucket.
var bucketCount int

// NewBucket declares a bucket by its name in the database. versions are the row versions that Open
// accepts besides RowVersion. Call it only to set package variables: it is not safe for concurrent
// use.
func NewBucket(name string, versions ...byte) *Bucket {
	bucketCount++
	return &Bucket{name: name, number: bucketCount - 1, sum: rowform.SumOf(name), versions: versions}
}

// Sequential declares that each new key sorts after the other keys of its mailbox, account or
// webhook, and that rows keep their size. bbolt then fills the pages of the bucket.
func (b *Bucket) Sequential() *Bucket {
	b.sequential = true
	return b
}

// FreesSpace declares that deleting a row of the bucket frees disk space. A transaction that
// deletes one may write even when the rest of the disk is reserved for deletions.
func (b *Bucket) FreesSpace() *Bucket {
	b.freesSpace = true
	return b
}

// Name returns the bucket's name in the database.
func (b *Bucket) Name() string { return b.name }

// Sum returns the function that computes the checksums of the bucket's rows.
func (b *Bucket) Sum() rowform.Sum { return b.sum }

// Seal appends the checksum to a row, which begins with its version.
func (b *Bucket) Seal(key, row []byte) []byte { return b.sum.Seal(key, row) }

// Open verifies the version and the checksum of a row and returns the row without the checksum. The
// error is ErrDamagedRow, or ErrNewer for an unknown version.
func (b *Bucket) Open(key, row []byte) ([]byte, error) {
	row, err := b.sum.Open(key, row)
	switch {
	case err != nil:
		return nil, err
	case len(row) == 0:
		return nil, ErrDamagedRow
	case row[0] != RowVersion && !bytes.Contains(b.versions, row[:1]):
		return nil, fmt.Errorf("unknown row version %#x: %w", row[0], ErrNewer)
	}
	return row, nil
}

// OpenLegacy is like Open, but also accepts rows of version BareRow, which have no checksum.
func (b *Bucket) OpenLegacy(key, row []byte) ([]byte, error) {
	if len(row) > 0 && row[0] == BareRow {
		return row, nil
	}
	return b.Open(key, row)
}

// A bucketState is the cached state of a Bucket in one transaction.
type bucketState struct {
	b       *bolt.Bucket
	c       *bolt.Cursor // used by GetRow from the second row on; nil before
	hasRead bool         // GetRow has read one row
}

// open returns the transaction's cached state of a bucket.
func (tx *Tx) open(bucket *Bucket) *bucketState {
	if tx.opened == nil {
		tx.opened = make([]bucketState, bucketCount)
	}
	o := &tx.opened[bucket.number]
	if o.b == nil {
		o.b = tx.bucket(bucket.name)
		if tx.writable && bucket.sequential && o.b != nil {
			o.b.FillPercent = sequentialFill
		}
	}
	return o
}

// Bucket returns the bbolt bucket; nil if the database does not have it.
func (tx *Tx) Bucket(bucket *Bucket) *bolt.Bucket { return tx.open(bucket).b }

// Cursor returns a new cursor on the bucket. The caller counts its steps with Step.
func (tx *Tx) Cursor(bucket *Bucket) *bolt.Cursor { return tx.open(bucket).b.Cursor() }

// Sequence returns the current sequence number of the bucket; 0 if none was drawn yet.
func (tx *Tx) Sequence(bucket *Bucket) uint64 { return tx.open(bucket).b.Sequence() }

// SetSequence sets the sequence number of the bucket. It is for buckets whose sequence number
// stores something else than a counter, such as a version.
func (tx *Tx) SetSequence(bucket *Bucket, n uint64) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.entryChanges.SetSequence(bucket.name, n)
	return tx.Bucket(bucket).SetSequence(n)
}

// NextSequence increments the sequence number of the bucket and returns it; the first is 1.
func (tx *Tx) NextSequence(bucket *Bucket) (uint64, error) { return tx.nextSequence(bucket.name) }

// GetRow returns the row of the key; nil if there is none. The row is valid until the transaction
// ends or writes.
func (tx *Tx) GetRow(bucket *Bucket, key []byte) []byte {
	o := tx.open(bucket)
	if o.c == nil { // For a single row, Bucket.Get takes less memory than a cursor that is kept.
		if !o.hasRead {
			o.hasRead = true
			return o.b.Get(key)
		}
		o.c = o.b.Cursor()
	}
	k, row := o.c.Seek(key)
	if !bytes.Equal(k, key) {
		return nil
	}
	return row
}

// PutRow writes a row. The caller must not change row until the transaction has ended.
func (tx *Tx) PutRow(bucket *Bucket, key, row []byte) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.bytes += len(key) + len(row)
	tx.entryChanges.Put(bucket.name, key, row)
	if err := tx.Bucket(bucket).Put(key, row); err != nil {
		return fmt.Errorf("write row to bucket %s: %w", bucket.name, err)
	}
	return nil
}

// DeleteRow deletes the row of the key. A missing row is not an error.
func (tx *Tx) DeleteRow(bucket *Bucket, key []byte) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.bytes += len(key)
	tx.entryChanges.Delete(bucket.name, key)
	if err := tx.Bucket(bucket).Delete(key); err != nil {
		return fmt.Errorf("delete row of bucket %s: %w", bucket.name, err)
	}
	tx.mayUseReserve = tx.mayUseReserve || bucket.freesSpace
	return nil
}

// HasRow reports whether the key has a row. The row may be empty.
func (tx *Tx) HasRow(bucket *Bucket, key []byte) bool {
	k, _ := tx.Seek(bucket, key)
	return bytes.Equal(k, key)
}

// Seek returns the first key at or after key, with its row; nil if there is none.
func (tx *Tx) Seek(bucket *Bucket, key []byte) (k, row []byte) {
	return tx.seek(tx.Bucket(bucket), key)
}

// EmptyBucket deletes all rows of a bucket at once and keeps its sequence number.
func (tx *Tx) EmptyBucket(bucket *Bucket) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.mayUseReserve = true
	name, last := []byte(bucket.name), tx.Bucket(bucket).Sequence()
	*tx.open(bucket) = bucketState{}
	tx.entryChanges.EmptyBucket(bucket.name)
	if err := tx.b.DeleteBucket(name); err != nil {
		return fmt.Errorf("delete bucket %s: %w", name, err)
	}
	b, err := tx.b.CreateBucket(name)
	if err != nil {
		return fmt.Errorf("recreate bucket %s: %w", name, err)
	}
	return b.SetSequence(last)
}

// Ascend iterates over the rows of a bucket in key order, from the first key at or after `from`.
// The loop body may write to the bucket.
func (tx *Tx) Ascend(bucket *Bucket, from []byte) iter.Seq2[[]byte, []byte] {
	return tx.ascend(tx.Bucket(bucket), from)
}

// Descend iterates over the rows whose keys have the prefix, from the last to the first. The loop
// body may write to the bucket.
func (tx *Tx) Descend(bucket *Bucket, prefix []byte) iter.Seq2[[]byte, []byte] {
	return tx.descend(tx.Bucket(bucket), prefix, nil)
}

// A Walk looks up ascending keys of a bucket with one cursor. It steps forward while the next key
// is near and seeks where it is far.
type Walk struct {
	tx    *Tx
	c     *bolt.Cursor
	k, v  []byte // the row at the cursor; nil before the first Get
	atEnd bool   // the cursor is past the last key
}

// stepsPerSeek is the number of cursor steps that cost about as much as one seek.
const stepsPerSeek = 8

// Walk returns a Walk at the start of the bucket.
func (tx *Tx) Walk(bucket *Bucket) *Walk { return &Walk{tx: tx, c: tx.Cursor(bucket)} }

// Get returns the row of the key; nil if there is none. Each key must be at or after the key of the
// call before.
func (w *Walk) Get(key []byte) []byte {
	for steps := 0; !w.atEnd; steps++ {
		if w.k != nil {
			switch bytes.Compare(w.k, key) {
			case 0:
				return w.v
			case 1:
				return nil
			}
		}
		w.tx.steps++
		if w.k == nil || steps == stepsPerSeek {
			w.k, w.v = w.c.Seek(key)
		} else {
			w.k, w.v = w.c.Next()
		}
		w.atEnd = w.k == nil
	}
	return nil
}

// ErrReadOnly is returned by every write in a transaction of View.
var ErrReadOnly = errors.New("write in a read transaction")
