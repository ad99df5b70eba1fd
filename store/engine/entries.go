package engine

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/entry"
	"github.com/mailstead/mailstead/store/rowform"
)

// EntryBucket is the bucket of entries. Commits are numbered from 1 without gaps; the sequence of
// EntryBucket is the number of the last one. If entries are kept, each commit also writes its
// changes as a row of that bucket, and its nonce and time to the row lastEntryKey. So no second
// sync is needed, and no entry can be missing. An entry is deleted once it is stored elsewhere,
// such as in a backup. The bytes of new messages are in the segments; whoever reads the entry adds
// them.
const (
	EntryBucket          = "entry"
	lastEntryKey         = "last"
	defaultMaxEntryBytes = 1 << 30 // default limit on the bytes of kept entries and their messages
)

// ErrGap is returned by Entries and Apply when the next entry is missing. A copy of the store must
// then start over with a full copy.
var ErrGap = errors.New("entries of the change log are missing")

// An Entry records the changes of one commit.
type Entry = entry.Entry

// A lastEntry holds the nonce and the time of the last commit. It exists only while entries are
// kept.
type lastEntry struct {
	nonce entry.Nonce
	at    time.Time
}

func newLastEntry(at time.Time) *lastEntry {
	e := &lastEntry{at: at}
	rand.Read(e.nonce[:])
	return e
}

func (e *lastEntry) row() []byte {
	row := binary.BigEndian.AppendUint64(bytes.Clone(e.nonce[:]), uint64(e.at.UnixMilli()))
	return rowform.SumOf(EntryBucket).Seal([]byte(lastEntryKey), row)
}

// lastEntryIn returns the nonce and the time of the last commit. It returns nil if entries are not
// kept or the row is damaged: copies of the store then start over.
func lastEntryIn(b *bolt.Bucket) *lastEntry {
	row, err := rowform.SumOf(EntryBucket).Open([]byte(lastEntryKey), b.Get([]byte(lastEntryKey)))
	if err != nil || len(row) != len(entry.Nonce{})+8 {
		return nil
	}
	return &lastEntry{entry.Nonce(row[:16]), time.UnixMilli(int64(binary.BigEndian.Uint64(row[16:]))).UTC()}
}

// droppedEntriesRow returns the row of lastEntryKey that says that all entries were dropped,
// because they grew too large before they were stored elsewhere.
func droppedEntriesRow() []byte { return rowform.SumOf(EntryBucket).Seal([]byte(lastEntryKey), nil) }

func areEntriesDropped(b *bolt.Bucket) bool {
	return bytes.Equal(b.Get([]byte(lastEntryKey)), droppedEntriesRow())
}

// An entryKeeper is the state of the kept entries.
type entryKeeper struct {
	last     *lastEntry    // nil if entries are not kept
	bytes    atomic.Int64  // size of the kept entries with their messages
	maxBytes int64         // limit of bytes; above it all entries are dropped
	added    chan struct{} // has a value when there may be new entries

	required      atomic.Bool // Update waits until its entry is stored elsewhere
	mu            sync.Mutex
	stored        uint64        // the last entry number that is stored elsewhere
	storedChanged chan struct{} // closed and replaced when stored increases
	waitsEnded    chan struct{} // closed by EndWaitsForStored
	endOnce       sync.Once
}

// RequireStored sets whether Update waits until ConfirmEntriesStored has confirmed its entry.
// Update does not wait while no entries are kept.
func (db *DB) RequireStored(required bool) { db.entries.required.Store(required) }

// EndWaitsForStored makes every Update that waits because of RequireStored, now or later, return
// ErrClosed. The writes of such an Update are on the local disk, but are not acknowledged. A server
// calls EndWaitsForStored when it has to stop while its backup cannot be reached.
func (db *DB) EndWaitsForStored() { db.entries.endOnce.Do(func() { close(db.entries.waitsEnded) }) }

// ConfirmEntriesStored confirms that the entries up to number upTo are stored outside of this
// database, such as in a backup.
func (db *DB) ConfirmEntriesStored(upTo uint64) {
	k := &db.entries
	k.mu.Lock()
	defer k.mu.Unlock()
	if upTo > k.stored {
		k.stored = upTo
		close(k.storedChanged)
		k.storedChanged = make(chan struct{})
	}
}

// waitUntilStored waits until the entry of a commit is stored elsewhere, if RequireStored is on. It
// returns ErrClosed if EndWaitsForStored is called first.
func (db *DB) waitUntilStored(number uint64) error {
	k := &db.entries
	for k.required.Load() {
		k.mu.Lock()
		stored, more := k.stored, k.storedChanged
		k.mu.Unlock()
		if stored >= number {
			break
		}
		select {
		case <-more:
		case <-k.waitsEnded:
			return ErrClosed
		case <-db.closing:
			return ErrClosed
		}
	}
	return nil
}

// KeepEntries starts keeping an entry for each commit, until ForgetEntries. It does nothing if
// entries are already kept. When the entries exceed Options.MaxEntryBytes bytes, all are dropped
// and no more are kept.
func (db *DB) KeepEntries() error {
	var last *lastEntry
	err := db.Update(func(tx *Tx) error {
		b := tx.bucket(EntryBucket)
		last = lastEntryIn(b)
		if last != nil {
			return nil
		}
		if k, _ := b.Cursor().First(); k != nil {
			return ErrGap
		}
		last = newLastEntry(tx.Now())
		tx.writes++
		tx.After(func() { db.entries.last = last })
		return b.Put([]byte(lastEntryKey), last.row())
	})
	if errors.Is(err, ErrGap) { // entries are left that should have been dropped
		if err = db.ForgetEntries(); err == nil {
			return db.KeepEntries()
		}
	}
	return err
}

// ForgetEntries deletes all entries and stops keeping new ones.
func (db *DB) ForgetEntries() error {
	err := db.Update(func(tx *Tx) error {
		tx.writes++
		tx.mayUseReserve = true
		tx.After(func() { db.entries.last = nil })
		return tx.bucket(EntryBucket).Delete([]byte(lastEntryKey))
	})
	if err != nil {
		return err
	}
	return db.DropEntries(1<<64 - 1)
}

// EntriesAdded returns a channel that has a value when there may be new entries. It is for one
// reader.
func (db *DB) EntriesAdded() <-chan struct{} { return db.entries.added }

// KeptEntries returns the size in bytes of the kept entries with their messages, and whether
// entries are kept at all.
func (db *DB) KeptEntries() (size int64, kept bool, err error) {
	err = db.View(func(tx *Tx) error {
		kept = lastEntryIn(tx.bucket(EntryBucket)) != nil
		return nil
	})
	return db.entries.bytes.Load(), kept, err
}

// EntriesDropped reports whether all entries were dropped because they grew too large, and
// KeepEntries was not called since. It is false after ForgetEntries.
func (db *DB) EntriesDropped() (dropped bool, err error) {
	err = db.View(func(tx *Tx) error {
		dropped = areEntriesDropped(tx.bucket(EntryBucket))
		return nil
	})
	return dropped, err
}

// loadEntryState loads the state of the kept entries from the database.
func (db *DB) loadEntryState() error {
	return db.bolt.View(func(tx *bolt.Tx) error {
		var size int64
		b := tx.Bucket([]byte(EntryBucket))
		c := b.Cursor()
		for k, v := c.First(); len(k) == 8; k, v = c.Next() {
			e, err := entry.FromRow(binary.BigEndian.Uint64(k), v)
			if err != nil {
				return fmt.Errorf("read entry %x: %w", k, err)
			}
			size += e.Size()
		}
		db.entries.bytes.Store(size)
		db.entries.last = lastEntryIn(b)
		return nil
	})
}

// numberCommit gives the commit its number and, if entries are kept, writes its entry. The caller
// must call onDisk once the commit is on disk.
func (db *DB) numberCommit(b *bolt.Tx, c *entry.Changes) (onDisk func(), err error) {
	entries := b.Bucket([]byte(EntryBucket))
	number, err := entries.NextSequence()
	if err != nil || !c.Keep {
		return func() {}, err
	}
	if kept := db.entries.bytes.Load(); kept > db.entries.maxBytes {
		return func() {
			db.log.Error("nobody has taken the entries of a backup for too long: they are dropped, and the next backup is a full one", "bytes", kept)
			db.entries.last = nil
			go func() {
				if err := db.DropEntries(number); err != nil && !errors.Is(err, ErrClosed) {
					db.log.Error("old entries could not be dropped", "error", err)
				}
			}()
		}, entries.Put([]byte(lastEntryKey), droppedEntriesRow())
	}
	now := db.now()
	if before := db.entries.last.at; now.Before(before) { // times of entries never decrease
		now = before
	}
	last := newLastEntry(now)
	killpoint.At("entry.write")
	row := c.Row(last.at, last.nonce, db.entries.last.nonce)
	e, err := entry.FromRow(number, row)
	if err != nil {
		return nil, err
	}
	return func() {
		c.Number = number
		db.entries.last = last
		db.entries.bytes.Add(e.Size())
		select {
		case db.entries.added <- struct{}{}:
		default:
		}
	}, errors.Join(entries.Put(binary.BigEndian.AppendUint64(nil, number), row), entries.Put([]byte(lastEntryKey), last.row()))
}

// CommitNumber returns the number of the last commit that is on disk.
func (db *DB) CommitNumber() (n uint64, err error) {
	err = db.Update(func(tx *Tx) error {
		n = tx.CommitNumber()
		return nil
	})
	return n, err
}

// OldestEntry returns the number of the oldest kept entry; 0 if there is none.
func (db *DB) OldestEntry() (n uint64, err error) {
	err = db.View(func(tx *Tx) error {
		if k, _ := tx.bucket(EntryBucket).Cursor().First(); len(k) == 8 {
			n = binary.BigEndian.Uint64(k)
		}
		return nil
	})
	return n, err
}

// NonceOf returns the nonce of the entry of a commit. It is known for the last commit, and for a
// commit whose next entry is kept. Otherwise the error is ErrGap.
func (db *DB) NonceOf(number uint64) (nonce entry.Nonce, err error) {
	err = db.View(func(tx *Tx) error {
		b := tx.bucket(EntryBucket)
		if last := lastEntryIn(b); last != nil && tx.CommitNumber() == number {
			nonce = last.nonce
			return nil
		}
		row := b.Get(binary.BigEndian.AppendUint64(nil, number+1))
		if row == nil {
			return ErrGap
		}
		e, err := entry.FromRow(number+1, row)
		if err != nil {
			return fmt.Errorf("read entry %d: %w", number+1, err)
		}
		nonce = e.Previous
		return nil
	})
	return nonce, err
}

// CommitNumber returns the number of the last commit that the transaction sees.
func (tx *Tx) CommitNumber() uint64 { return tx.bucket(EntryBucket).Sequence() }

// Entries returns the entries of the commits after the number `after`, without the bytes of their
// messages. It stops once the list has `most` bytes, but returns at least one entry if there is
// one. It returns ErrGap if the next entry is not kept.
func (db *DB) Entries(after uint64, most int) (list []*Entry, err error) {
	// This is an Update since a View may see a commit before it is on disk.
	err = db.Update(func(tx *Tx) error {
		list = nil
		next, size := after+1, int64(0)
		for k, v := range tx.ascend(tx.bucket(EntryBucket), binary.BigEndian.AppendUint64(nil, next)) {
			if len(k) != 8 || binary.BigEndian.Uint64(k) != next || size >= int64(most) {
				break
			}
			e, err := entry.FromRow(next, bytes.Clone(v))
			if err != nil {
				return fmt.Errorf("read entry %d: %w", next, err)
			}
			list = append(list, e)
			size += e.Size()
			next++
		}
		if len(list) == 0 && tx.CommitNumber() != after {
			return ErrGap
		}
		return nil
	})
	return list, err
}

// DropEntries deletes the entries up to number upTo. Call it once they are stored elsewhere or no
// longer needed.
func (db *DB) DropEntries(upTo uint64) error {
	const atOnce = 500
	for {
		var keys [][]byte
		size := int64(0)
		err := db.Update(func(tx *Tx) error {
			keys, size = nil, 0
			b := tx.bucket(EntryBucket)
			for k, v := range tx.ascend(b, nil) {
				if len(k) != 8 || binary.BigEndian.Uint64(k) > upTo || len(keys) == atOnce {
					break
				}
				if e, err := entry.FromRow(0, v); err == nil {
					size += e.Size()
				}
				keys = append(keys, bytes.Clone(k))
			}
			for _, k := range keys {
				tx.writes++
				tx.mayUseReserve = true
				if err := b.Delete(k); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		killpoint.At("entry.dropped")
		db.entries.bytes.Add(-size)
		if len(keys) < atOnce {
			return nil
		}
	}
}

// OldestEntryTime returns when the oldest kept entry was written, and false if there is none. The
// time is zero if the entry cannot be decoded.
func (tx *Tx) OldestEntryTime() (time.Time, bool) {
	k, v := tx.bucket(EntryBucket).Cursor().First()
	if len(k) != 8 {
		return time.Time{}, false
	}
	e, err := entry.FromRow(0, v)
	if err != nil {
		return time.Time{}, true
	}
	return e.Time, true
}

// Apply applies the entry of commit N+1 to a database at commit N, which then equals the source of
// the entry at N+1. Applying an entry again changes nothing. For any other entry it returns ErrGap.
func (db *DB) Apply(e *Entry) error {
	return db.Update(func(tx *Tx) error {
		b := tx.bucket(EntryBucket)
		last, have := lastEntryIn(b), tx.CommitNumber()
		if have >= e.Number {
			return nil
		}
		if have+1 != e.Number || last != nil && last.nonce != e.Previous {
			return fmt.Errorf("apply entry %d to a database at commit %d: %w", e.Number, have, ErrGap)
		}
		tx.writes++
		if err := e.Apply(tx.b); err != nil {
			return err
		}
		if err := b.Put([]byte(lastEntryKey), (&lastEntry{e.Nonce, e.Time}).row()); err != nil {
			return err
		}
		return b.SetSequence(e.Number)
	})
}

// LastEntry returns the nonce and the time of the last commit; kept is false if entries are not
// kept.
func (tx *Tx) LastEntry() (nonce entry.Nonce, at time.Time, kept bool) {
	last := lastEntryIn(tx.bucket(EntryBucket))
	if last == nil {
		return nonce, at, false
	}
	return last.nonce, last.at, true
}

// EndEntries stops keeping entries, in a transaction of Setup. Copies of the database must then
// start over.
func (tx *Tx) EndEntries() error { return tx.bucket(EntryBucket).Delete([]byte(lastEntryKey)) }

// Digest returns the SHA-256 of each bucket's sequence and rows, by bucket name. For EntryBucket it
// covers only the sequence, the number of the last commit.
func (tx *Tx) Digest() (map[string][sha256.Size]byte, error) {
	out := map[string][sha256.Size]byte{}
	err := tx.b.ForEach(func(name []byte, b *bolt.Bucket) error {
		h := sha256.New()
		_, _ = fmt.Fprintf(h, "%d\n", b.Sequence())
		if string(name) != EntryBucket {
			for k, v := range tx.ascend(b, nil) {
				_, _ = fmt.Fprintf(h, "%d %d\n%s%s", len(k), len(v), k, v)
			}
		}
		out[string(name)] = [sha256.Size]byte(h.Sum(nil))
		return nil
	})
	return out, err
}
