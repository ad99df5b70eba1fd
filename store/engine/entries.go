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

// Commits are numbered from 1 without gaps: the number of the last one is the sequence of
// EntryBucket. Where entries are kept, each commit writes what it changes as a row of that bucket,
// so that nothing is synced twice and none can be missing, and its nonce and time as the row
// lastEntryKey. Rows are deleted once they are stored elsewhere. The bytes of new messages stand in
// the segments; they join the row when the entry is read.
const (
	EntryBucket  = "entry"
	lastEntryKey = "last"
	entriesMost  = 1 << 30 // bytes of entries that are kept, with their messages, where Options say nothing
)

// ErrGap is returned by Entries and Apply where the entry that comes next is not there. What copies
// the store begins anew with all of it.
var ErrGap = errors.New("entries are missing")

// An Entry is what one commit changed.
type Entry = entry.Entry

// A lastEntry is what is known of the last commit where entries are kept.
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

// lastEntryIn reads what is known of the last commit; nil where entries are not kept, and where the
// row is damaged: copies of the store then begin anew.
func lastEntryIn(b *bolt.Bucket) *lastEntry {
	row, err := rowform.SumOf(EntryBucket).Open([]byte(lastEntryKey), b.Get([]byte(lastEntryKey)))
	if err != nil || len(row) != len(entry.Nonce{})+8 {
		return nil
	}
	return &lastEntry{entry.Nonce(row[:16]), time.UnixMilli(int64(binary.BigEndian.Uint64(row[16:]))).UTC()}
}

// droppedEntries is what lastEntryKey holds where all entries were dropped since nobody took them.
func droppedEntries() []byte { return rowform.SumOf(EntryBucket).Seal([]byte(lastEntryKey), nil) }

func areEntriesDropped(b *bolt.Bucket) bool {
	return bytes.Equal(b.Get([]byte(lastEntryKey)), droppedEntries())
}

// entryKeeper is what the committer remembers of the entries that are kept.
type entryKeeper struct {
	last  *lastEntry   // nil where none are kept
	bytes atomic.Int64 // of those that are kept, with their messages
	most  int64
	added chan struct{} // holds a value when there may be new ones

	required atomic.Bool // Update waits until its entry is stored elsewhere
	mu       sync.Mutex
	stored   uint64        // up to which number they are
	more     chan struct{} // closed when that rises
	ended    chan struct{} // closed by EndWaits
	endOnce  sync.Once
}

// RequireStored has Update wait, from now on or no more, until EntriesStored says that its entry is
// stored elsewhere. It does not wait while no entries are kept.
func (db *DB) RequireStored(on bool) { db.entries.required.Store(on) }

// EndWaits has every Update that waits for RequireStored, now or later, return ErrClosed: what it
// wrote is on disk here, but is not acknowledged. It is for a server that stops while the place of
// its backups cannot be reached.
func (db *DB) EndWaits() { db.entries.endOnce.Do(func() { close(db.entries.ended) }) }

// EntriesStored says that the entries up to a number are stored elsewhere.
func (db *DB) EntriesStored(upTo uint64) {
	k := &db.entries
	k.mu.Lock()
	defer k.mu.Unlock()
	if upTo > k.stored {
		k.stored = upTo
		close(k.more)
		k.more = make(chan struct{})
	}
}

// waitStored waits until the entry of a commit, which is on disk, is stored elsewhere too, if that
// is required.
func (db *DB) waitStored(number uint64) error {
	k := &db.entries
	for k.required.Load() {
		k.mu.Lock()
		stored, more := k.stored, k.more
		k.mu.Unlock()
		if stored >= number {
			break
		}
		select {
		case <-more:
		case <-k.ended:
			return ErrClosed
		case <-db.closing:
			return ErrClosed
		}
	}
	return nil
}

// KeepEntries keeps what each commit changes from now on, until DropEntries drops it; where that is
// so already it changes nothing. From 1 GiB of entries on all of them are dropped, and no more are
// kept.
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
	if errors.Is(err, ErrGap) { // some are left that were to be dropped
		if err = db.ForgetEntries(); err == nil {
			return db.KeepEntries()
		}
	}
	return err
}

// ForgetEntries drops all entries and keeps no more.
func (db *DB) ForgetEntries() error {
	err := db.Update(func(tx *Tx) error {
		tx.writes++
		tx.frees = true
		tx.After(func() { db.entries.last = nil })
		return tx.bucket(EntryBucket).Delete([]byte(lastEntryKey))
	})
	if err != nil {
		return err
	}
	return db.DropEntries(1<<64 - 1)
}

// EntriesAdded gives a channel that holds a value when there may be new entries. It is for one
// reader.
func (db *DB) EntriesAdded() <-chan struct{} { return db.entries.added }

// KeptEntries says how many bytes the entries take that are kept, with their messages, and whether
// any are.
func (db *DB) KeptEntries() (size int64, kept bool, err error) {
	err = db.View(func(tx *Tx) error {
		kept = lastEntryIn(tx.bucket(EntryBucket)) != nil
		return nil
	})
	return db.entries.bytes.Load(), kept, err
}

// EntriesDropped tells whether no entries are kept since there were too many: then KeepEntries has
// not been called again. After ForgetEntries it is false.
func (db *DB) EntriesDropped() (is bool, err error) {
	err = db.View(func(tx *Tx) error {
		is = areEntriesDropped(tx.bucket(EntryBucket))
		return nil
	})
	return is, err
}

// openEntries finds what entries are kept.
func (db *DB) openEntries() error {
	return db.bolt.View(func(tx *bolt.Tx) error {
		var size int64
		b := tx.Bucket([]byte(EntryBucket))
		c := b.Cursor()
		for k, v := c.First(); len(k) == 8; k, v = c.Next() {
			e, err := entry.FromRow(binary.BigEndian.Uint64(k), v)
			if err != nil {
				return fmt.Errorf("entry %x: %w", k, err)
			}
			size += e.Size()
		}
		db.entries.bytes.Store(size)
		db.entries.last = lastEntryIn(b)
		return nil
	})
}

// number counts the commit up, and keeps what it changed as an entry, if entries are kept. done is
// to be called when that is on disk.
func (db *DB) number(b *bolt.Tx, c *entry.Changes) (done func(), err error) {
	entries := b.Bucket([]byte(EntryBucket))
	number, err := entries.NextSequence()
	if err != nil || !c.Keep {
		return func() {}, err
	}
	if kept := db.entries.bytes.Load(); kept > db.entries.most {
		return func() {
			db.log.Error("nobody has taken the entries of a backup for too long: they are dropped, and the next backup is a full one", "bytes", kept)
			db.entries.last = nil
			go func() {
				if err := db.DropEntries(number); err != nil && !errors.Is(err, ErrClosed) {
					db.log.Error("old entries could not be dropped", "error", err)
				}
			}()
		}, entries.Put([]byte(lastEntryKey), droppedEntries())
	}
	now := db.now()
	if before := db.entries.last.at; now.Before(before) { // the clock was set back; times of entries never fall
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

// Number is the number of the last commit that is on disk.
func (db *DB) Number() (n uint64, err error) {
	err = db.Update(func(tx *Tx) error {
		n = tx.Number()
		return nil
	})
	return n, err
}

// OldestEntry is the number of the oldest entry that is kept; 0 if none is.
func (db *DB) OldestEntry() (n uint64, err error) {
	err = db.View(func(tx *Tx) error {
		if k, _ := tx.bucket(EntryBucket).Cursor().First(); len(k) == 8 {
			n = binary.BigEndian.Uint64(k)
		}
		return nil
	})
	return n, err
}

// NonceOf gives the nonce of the entry of a number, which is that of the last commit or of one
// whose successor is kept; else the error is ErrGap.
func (db *DB) NonceOf(number uint64) (nonce entry.Nonce, err error) {
	err = db.View(func(tx *Tx) error {
		b := tx.bucket(EntryBucket)
		if last := lastEntryIn(b); last != nil && tx.Number() == number {
			nonce = last.nonce
			return nil
		}
		row := b.Get(binary.BigEndian.AppendUint64(nil, number+1))
		if row == nil {
			return ErrGap
		}
		e, err := entry.FromRow(number+1, row)
		if err != nil {
			return fmt.Errorf("entry %d: %w", number+1, err)
		}
		nonce = e.Previous
		return nil
	})
	return nonce, err
}

// Number is the number of the last commit.
func (tx *Tx) Number() uint64 { return tx.bucket(EntryBucket).Sequence() }

// Entries gives the entries after a number, up to about so many bytes, but at least one if there is
// one, without the bytes of their messages. It returns ErrGap if the next is not kept.
func (db *DB) Entries(after uint64, most int) (list []*Entry, err error) {
	// Update, not View: a view may see a commit before it is on disk.
	err = db.Update(func(tx *Tx) error {
		list = nil
		next, size := after+1, int64(0)
		for k, v := range tx.ascend(tx.bucket(EntryBucket), binary.BigEndian.AppendUint64(nil, next)) {
			if len(k) != 8 || binary.BigEndian.Uint64(k) != next || size >= int64(most) {
				break
			}
			e, err := entry.FromRow(next, bytes.Clone(v))
			if err != nil {
				return fmt.Errorf("entry %d: %w", next, err)
			}
			list = append(list, e)
			size += e.Size()
			next++
		}
		if len(list) == 0 && tx.Number() != after {
			return ErrGap
		}
		return nil
	})
	return list, err
}

// DropEntries deletes the entries up to a number, which are stored elsewhere or wanted no more.
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
				tx.frees = true
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

// OldestEntryTime is when the oldest entry that is kept was made; false if none is.
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

// Apply makes the changes of the entry that comes next: a database at N becomes what the one that
// made the entry was at N+1. An entry that was applied before changes nothing, and one that does
// not come next is ErrGap.
func (db *DB) Apply(e *Entry) error {
	return db.Update(func(tx *Tx) error {
		b := tx.bucket(EntryBucket)
		last, have := lastEntryIn(b), tx.Number()
		if have >= e.Number {
			return nil
		}
		if have+1 != e.Number || last != nil && last.nonce != e.Previous {
			return fmt.Errorf("entry %d after %d: %w", e.Number, have, ErrGap)
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

// LastEntry gives the nonce and the time of the last commit; false where entries are not kept.
func (tx *Tx) LastEntry() (nonce entry.Nonce, at time.Time, kept bool) {
	last := lastEntryIn(tx.bucket(EntryBucket))
	if last == nil {
		return nonce, at, false
	}
	return last.nonce, last.at, true
}

// EndEntries has none be kept from a transaction of Setup on: copies of the database begin anew.
func (tx *Tx) EndEntries() error { return tx.bucket(EntryBucket).Delete([]byte(lastEntryKey)) }

// Digest gives a SHA-256 of each bucket, of its sequence and its rows. That of the entries is left
// out but for its sequence, the number of the last commit.
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
