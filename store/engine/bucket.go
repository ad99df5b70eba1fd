package engine

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/rowform"
)

// A Bucket is a bucket of rows whose keys and form its owner chooses. Each is made once, as a
// variable of a package.
//
// A row begins with the version of its form, and from RowVersion on a checksum ends it, see package
// rowform. Versions with a checksum have two bits that no older one has, so that a row does not
// lose its checksum by one bit. Rows without versions, and other buckets, are their owner's matter.
type Bucket struct {
	name     string
	number   int // among all Buckets of the program
	sum      rowform.Sum
	rising   bool // see risingFill
	frees    bool
	versions []byte // besides RowVersion
}

// risingFill is how full bbolt leaves a page that it splits, of a bucket whose new keys are behind
// the others of their mailbox, account or webhook. What is left of bbolt's own half stays empty
// there, since nothing is put in between later.
const risingFill = 0.95

// The versions of rows.
const (
	RowVersion = 0x32
	BareRow    = 1 // without a checksum
)

// buckets counts what NewBucket has made.
var buckets int

// NewBucket is for variables of packages: it is not safe for concurrent use. versions are those of
// its rows besides RowVersion.
func NewBucket(name string, versions ...byte) *Bucket {
	buckets++
	return &Bucket{name: name, number: buckets - 1, sum: rowform.SumOf(name), versions: versions}
}

// Rising says that new keys are behind the others of their mailbox or account, and that their rows
// stay as they are.
func (b *Bucket) Rising() *Bucket {
	b.rising = true
	return b
}

// Frees says that a transaction which deletes a row of the bucket frees room on the disk.
func (b *Bucket) Frees() *Bucket {
	b.frees = true
	return b
}

// Name is the bucket's name in the database.
func (b *Bucket) Name() string { return b.name }

// Sum makes the checksums of the bucket's rows.
func (b *Bucket) Sum() rowform.Sum { return b.sum }

// Seal appends its checksum to a row.
func (b *Bucket) Seal(key, row []byte) []byte { return b.sum.Seal(key, row) }

// Open verifies a row that begins with a version and gives it without its checksum. The error is
// ErrDamagedRow or ErrNewer.
func (b *Bucket) Open(key, row []byte) ([]byte, error) {
	row, err := b.sum.Open(key, row)
	switch {
	case err != nil:
		return nil, err
	case len(row) == 0:
		return nil, ErrDamagedRow
	case row[0] != RowVersion && !bytes.Contains(b.versions, row[:1]):
		return nil, fmt.Errorf("version %#x: %w", row[0], ErrNewer)
	}
	return row, nil
}

// OpenAny is Open, and takes rows from before they had checksums.
func (b *Bucket) OpenAny(key, row []byte) ([]byte, error) {
	if len(row) > 0 && row[0] == BareRow {
		return row, nil
	}
	return b.Open(key, row)
}

// An openBucket is what a transaction keeps of a Bucket that it has used.
type openBucket struct {
	b       *bolt.Bucket
	c       *bolt.Cursor // that rows were read with
	hasRead bool
}

// open gives what the transaction keeps of a bucket.
func (tx *Tx) open(i *Bucket) *openBucket {
	if tx.opened == nil {
		tx.opened = make([]openBucket, buckets)
	}
	o := &tx.opened[i.number]
	if o.b == nil {
		o.b = tx.bucket(i.name)
		if tx.writable && i.rising && o.b != nil {
			o.b.FillPercent = risingFill
		}
	}
	return o
}

// Bucket is bbolt's bucket; nil if the database has none of the name.
func (tx *Tx) Bucket(i *Bucket) *bolt.Bucket { return tx.open(i).b }

// Cursor gives a cursor of its own. What it reads counts only if its owner calls Step.
func (tx *Tx) Cursor(i *Bucket) *bolt.Cursor { return tx.open(i).b.Cursor() }

// Sequence is the number that a bucket counts.
func (tx *Tx) Sequence(i *Bucket) uint64 { return tx.open(i).b.Sequence() }

// SetSequence sets the sequence of a bucket, which says more about it than its rows do.
func (tx *Tx) SetSequence(i *Bucket, n uint64) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.noted.Sequence(i.name, n)
	return tx.Bucket(i).SetSequence(n)
}

// Next counts up the sequence of a bucket, from 1.
func (tx *Tx) Next(i *Bucket) (uint64, error) { return tx.nextSequence(i.name) }

// GetRow gives the row of the key, nil if there is none.
func (tx *Tx) GetRow(i *Bucket, key []byte) []byte {
	o := tx.open(i)
	if o.c == nil { // Bucket.Get makes one each time, which takes less memory where one row is read
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

// PutRow keeps row until the transaction ends: it must not be changed afterwards.
func (tx *Tx) PutRow(i *Bucket, key, row []byte) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.bytes += len(key) + len(row)
	tx.noted.Put(i.name, key, row)
	if err := tx.Bucket(i).Put(key, row); err != nil {
		return fmt.Errorf("put in %s: %w", i.name, err)
	}
	return nil
}

// DeleteRow deletes the row of the key, which need not be there.
func (tx *Tx) DeleteRow(i *Bucket, key []byte) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.bytes += len(key)
	tx.noted.Delete(i.name, key)
	if err := tx.Bucket(i).Delete(key); err != nil {
		return fmt.Errorf("delete in %s: %w", i.name, err)
	}
	tx.frees = tx.frees || i.frees
	return nil
}

// HasRow tells whether there is a row, which may be empty.
func (tx *Tx) HasRow(i *Bucket, key []byte) bool {
	k, _ := tx.Seek(i, key)
	return bytes.Equal(k, key)
}

// Seek gives the first row whose key is not before key.
func (tx *Tx) Seek(i *Bucket, key []byte) (k, row []byte) { return tx.seek(tx.Bucket(i), key) }

// EmptyBucket drops all rows of a bucket at once; its sequence goes on.
func (tx *Tx) EmptyBucket(i *Bucket) error {
	if !tx.writable {
		return ErrReadOnly
	}
	tx.writes++
	tx.frees = true
	name, last := []byte(i.name), tx.Bucket(i).Sequence()
	*tx.open(i) = openBucket{}
	tx.noted.Empty(i.name)
	if err := tx.b.DeleteBucket(name); err != nil {
		return fmt.Errorf("empty %s: %w", name, err)
	}
	b, err := tx.b.CreateBucket(name)
	if err != nil {
		return fmt.Errorf("make bucket %s: %w", name, err)
	}
	return b.SetSequence(last)
}

// Ascend walks a bucket upwards from the first key that is not before from. Whoever walks may write
// to the bucket.
func (tx *Tx) Ascend(i *Bucket, from []byte) iter.Seq2[[]byte, []byte] {
	return tx.ascend(tx.Bucket(i), from)
}

// Descend walks a bucket downwards, from the last key under the prefix to the first. Whoever walks
// may write to the bucket.
func (tx *Tx) Descend(i *Bucket, prefix []byte) iter.Seq2[[]byte, []byte] {
	return tx.descend(tx.Bucket(i), prefix, nil)
}

// A Walk finds ascending keys of a bucket with one cursor, which steps on where the next key is
// near and searches where it is far.
type Walk struct {
	tx   *Tx
	c    *bolt.Cursor
	k, v []byte // where the cursor is
	over bool   // it is behind the last key
}

// nearby is how many steps of a cursor cost about as much as a search.
const nearby = 8

// Walk begins a walk.
func (tx *Tx) Walk(i *Bucket) *Walk { return &Walk{tx: tx, c: tx.Cursor(i)} }

// Get gives the row of the key, nil if there is none.
func (w *Walk) Get(key []byte) []byte {
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

var ErrReadOnly = errors.New("write in a read transaction")
