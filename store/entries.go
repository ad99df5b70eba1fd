package store

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/entry"
	"github.com/mailstead/mailstead/store/rowform"
	"github.com/mailstead/mailstead/store/segment"
)

// Commits are numbered from 1 without gaps: the number of the last one is the sequence of
// bucketEntry. Where entries are kept, each commit writes what it changes as a row of that bucket,
// so that nothing is synced twice and none can be missing, and its nonce and time as the row
// lastEntryKey. Rows are deleted once they are stored elsewhere. The bytes of new messages stand in
// the segments; they join the row when the entry is read.
const (
	bucketEntry  = "entry"
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
	return rowform.SumOf(bucketEntry).Seal([]byte(lastEntryKey), row)
}

// lastEntryIn reads what is known of the last commit; nil where entries are not kept, and where the
// row is damaged: copies of the store then begin anew.
func lastEntryIn(b *bolt.Bucket) *lastEntry {
	row, err := rowform.SumOf(bucketEntry).Open([]byte(lastEntryKey), b.Get([]byte(lastEntryKey)))
	if err != nil || len(row) != len(entry.Nonce{})+8 {
		return nil
	}
	return &lastEntry{entry.Nonce(row[:16]), time.UnixMilli(int64(binary.BigEndian.Uint64(row[16:]))).UTC()}
}

// droppedEntries is what lastEntryKey holds where all entries were dropped since nobody took them.
func droppedEntries() []byte { return rowform.SumOf(bucketEntry).Seal([]byte(lastEntryKey), nil) }

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
func (s *Store) RequireStored(on bool) { s.entries.required.Store(on) }

// EndWaits has every Update that waits for RequireStored, now or later, return ErrClosed: what it
// wrote is on disk here, but is not acknowledged. It is for a server that stops while the place of
// its backups cannot be reached.
func (s *Store) EndWaits() { s.entries.endOnce.Do(func() { close(s.entries.ended) }) }

// EntriesStored says that the entries up to a number are stored elsewhere.
func (s *Store) EntriesStored(upTo uint64) {
	k := &s.entries
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
func (s *Store) waitStored(number uint64) error {
	k := &s.entries
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
		case <-s.closing:
			return ErrClosed
		}
	}
	return nil
}

// KeepEntries keeps what each commit changes from now on, until DropEntries drops it; where that is
// so already it changes nothing. From 1 GiB of entries on all of them are dropped, and no more are
// kept.
func (s *Store) KeepEntries() error {
	var last *lastEntry
	err := s.Update(func(tx *Tx) error {
		b := tx.bucket(bucketEntry)
		last = lastEntryIn(b)
		if last != nil {
			return nil
		}
		if k, _ := b.Cursor().First(); k != nil {
			return ErrGap
		}
		last = newLastEntry(tx.Now())
		tx.writes++
		tx.After(func() { s.entries.last = last })
		return b.Put([]byte(lastEntryKey), last.row())
	})
	if errors.Is(err, ErrGap) { // some are left that were to be dropped
		if err = s.ForgetEntries(); err == nil {
			return s.KeepEntries()
		}
	}
	return err
}

// ForgetEntries drops all entries and keeps no more.
func (s *Store) ForgetEntries() error {
	err := s.Update(func(tx *Tx) error {
		tx.writes++
		tx.frees = true
		tx.After(func() { s.entries.last = nil })
		return tx.bucket(bucketEntry).Delete([]byte(lastEntryKey))
	})
	if err != nil {
		return err
	}
	return s.DropEntries(1<<64 - 1)
}

// EntriesAdded gives a channel that holds a value when there may be new entries. It is for one
// reader.
func (s *Store) EntriesAdded() <-chan struct{} { return s.entries.added }

// KeptEntries says how many bytes the entries take that are kept, with their messages, and whether
// any are.
func (s *Store) KeptEntries() (size int64, kept bool, err error) {
	err = s.View(func(tx *Tx) error {
		kept = lastEntryIn(tx.bucket(bucketEntry)) != nil
		return nil
	})
	return s.entries.bytes.Load(), kept, err
}

// EntriesDropped tells whether no entries are kept since there were too many: then KeepEntries has
// not been called again. After ForgetEntries it is false.
func (s *Store) EntriesDropped() (is bool, err error) {
	err = s.View(func(tx *Tx) error {
		is = areEntriesDropped(tx.bucket(bucketEntry))
		return nil
	})
	return is, err
}

// openEntries finds what entries are kept.
func (s *Store) openEntries() error {
	return s.db.View(func(tx *bolt.Tx) error {
		var size int64
		b := tx.Bucket([]byte(bucketEntry))
		c := b.Cursor()
		for k, v := c.First(); len(k) == 8; k, v = c.Next() {
			e, err := entry.FromRow(binary.BigEndian.Uint64(k), v)
			if err != nil {
				return fmt.Errorf("entry %x: %w", k, err)
			}
			size += e.Size()
		}
		s.entries.bytes.Store(size)
		s.entries.last = lastEntryIn(b)
		return nil
	})
}

// number counts the commit up, and keeps what it changed as an entry, if entries are kept. done is
// to be called when that is on disk.
func (s *Store) number(b *bolt.Tx, c *entry.Changes) (done func(), err error) {
	entries := b.Bucket([]byte(bucketEntry))
	number, err := entries.NextSequence()
	if err != nil || !c.Keep {
		return func() {}, err
	}
	if kept := s.entries.bytes.Load(); kept > s.entries.most {
		return func() {
			s.log.Error("nobody has taken the entries of a backup for too long: they are dropped, and the next backup is a full one", "bytes", kept)
			s.entries.last = nil
			go func() {
				if err := s.DropEntries(number); err != nil && !errors.Is(err, ErrClosed) {
					s.log.Error("old entries could not be dropped", "error", err)
				}
			}()
		}, entries.Put([]byte(lastEntryKey), droppedEntries())
	}
	now := s.Now()
	if before := s.entries.last.at; now.Before(before) { // the clock was set back; times of entries never fall
		now = before
	}
	last := newLastEntry(now)
	killpoint.At("entry.write")
	row := c.Row(last.at, last.nonce, s.entries.last.nonce)
	e, err := entry.FromRow(number, row)
	if err != nil {
		return nil, err
	}
	return func() {
		c.Number = number
		s.entries.last = last
		s.entries.bytes.Add(e.Size())
		select {
		case s.entries.added <- struct{}{}:
		default:
		}
	}, errors.Join(entries.Put(binary.BigEndian.AppendUint64(nil, number), row), entries.Put([]byte(lastEntryKey), last.row()))
}

// Number is the number of the last commit that is on disk.
func (s *Store) Number() (n uint64, err error) {
	err = s.Update(func(tx *Tx) error {
		n = tx.Number()
		return nil
	})
	return n, err
}

// OldestEntry is the number of the oldest entry that is kept; 0 if none is.
func (s *Store) OldestEntry() (n uint64, err error) {
	err = s.View(func(tx *Tx) error {
		if k, _ := tx.bucket(bucketEntry).Cursor().First(); len(k) == 8 {
			n = binary.BigEndian.Uint64(k)
		}
		return nil
	})
	return n, err
}

// NonceOf gives the nonce of the entry of a number, which is that of the last commit or of one
// whose successor is kept; else the error is ErrGap.
func (s *Store) NonceOf(number uint64) (nonce entry.Nonce, err error) {
	err = s.View(func(tx *Tx) error {
		b := tx.bucket(bucketEntry)
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
func (tx *Tx) Number() uint64 { return tx.bucket(bucketEntry).Sequence() }

// Entries gives the entries after a number, up to about so many bytes, but at least one if there is
// one, with the bytes of their messages of up to entry.MaxMessage. It returns ErrGap if the next is
// not kept.
func (s *Store) Entries(after uint64, most int) (list []*Entry, err error) {
	// Update, not View: a view may see a commit before it is on disk.
	err = s.Update(func(tx *Tx) error {
		list = nil
		next, size := after+1, int64(0)
		for k, v := range tx.ascend(tx.bucket(bucketEntry), binary.BigEndian.AppendUint64(nil, next)) {
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
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if err := e.ReadMessages(s.seg); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// DropEntries deletes the entries up to a number, which are stored elsewhere or wanted no more.
func (s *Store) DropEntries(upTo uint64) error {
	const atOnce = 500
	for {
		var keys [][]byte
		size := int64(0)
		err := s.Update(func(tx *Tx) error {
			keys, size = nil, 0
			b := tx.bucket(bucketEntry)
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
		s.entries.bytes.Add(-size)
		if len(keys) < atOnce {
			return nil
		}
	}
}

// oldestEntry is when the oldest entry that is kept was made; false if none is.
func (tx *Tx) oldestEntry() (time.Time, bool) {
	k, v := tx.bucket(bucketEntry).Cursor().First()
	if len(k) != 8 {
		return time.Time{}, false
	}
	e, err := entry.FromRow(0, v)
	if err != nil {
		return time.Time{}, true
	}
	return e.Time, true
}

// Apply makes the changes of the entry that comes next: a store at N becomes what the store that
// made the entry was at N+1. An entry that was applied before changes nothing, and one that does
// not come next is ErrGap. The messages that are not part of the entry must have been written
// before. A store that applies entries takes no messages of its own until it is opened again.
func (s *Store) Apply(e *Entry) error {
	if err := e.WriteMessages(s.seg); err != nil {
		return err
	}
	killpoint.At("restore.messages")
	return s.Update(func(tx *Tx) error {
		b := tx.bucket(bucketEntry)
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

// WriteMessage writes the record of a message that is not part of its entry; ref says where it
// stood, and head is the header of its segment's file.
func (s *Store) WriteMessage(head [segment.HeaderSize]byte, ref BlobRef, record io.ReaderAt) error {
	return s.seg.WriteRecord(head, ref, record)
}

// ReadMessage gives the record of a message, verified, and the header of its segment's file.
func (s *Store) ReadMessage(ref BlobRef) (head [segment.HeaderSize]byte, record []byte, err error) {
	return s.seg.ReadRecord(ref)
}

// Digest gives a SHA-256 of each bucket, of its sequence and its rows. That of the entries is left
// out but for its sequence, the number of the last commit.
func (tx *Tx) Digest() (map[string][sha256.Size]byte, error) {
	out := map[string][sha256.Size]byte{}
	err := tx.b.ForEach(func(name []byte, b *bolt.Bucket) error {
		h := sha256.New()
		_, _ = fmt.Fprintf(h, "%d\n", b.Sequence())
		if string(name) != bucketEntry {
			for k, v := range tx.ascend(b, nil) {
				_, _ = fmt.Fprintf(h, "%d %d\n%s%s", len(k), len(v), k, v)
			}
		}
		out[string(name)] = [sha256.Size]byte(h.Sum(nil))
		return nil
	})
	return out, err
}
