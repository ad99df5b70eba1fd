package store

import (
	"errors"
	"fmt"
	"io"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/entry"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/segment"
)

// DatabaseFile and SegmentDir are what a data directory holds of the store: the database, and the
// directory of the files that segment.FileName names.
const (
	DatabaseFile = "mailstead.db"
	SegmentDir   = "segments"
)

// A Snapshot is the store as it was after one commit, to be copied while the store is used. Until
// it is closed no segment is removed.
type Snapshot struct {
	Number   uint64      // of the commit
	Nonce    entry.Nonce // of its entry; zero where entries are not kept
	Time     time.Time   // of the commit; of the snapshot, where entries are not kept
	Messages int64       // in all mailboxes
	// Segments are those that hold the messages. The bytes of the active one up to its Size are
	// enough; the others do not change any more.
	Segments []segment.Info

	s  *Store
	in *engine.Tx
	tx *bolt.Tx // of in
}

// Snapshot takes a snapshot. It must be closed.
func (s *Store) Snapshot() (*Snapshot, error) {
	// What it shows is then on disk.
	if err := s.Update(func(*Tx) error { return nil }); err != nil {
		return nil, err
	}
	s.compact.removing.Lock()
	in, err := s.Begin()
	if err != nil {
		s.compact.removing.Unlock()
		return nil, fmt.Errorf("begin snapshot: %w", err)
	}
	s.compact.snapshots++
	n := &Snapshot{Time: s.Now(), Segments: s.seg.List(), s: s, in: in, tx: engine.Bolt(in)}
	s.compact.removing.Unlock()
	if err := n.read(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Snapshot) read() (err error) {
	defer n.s.CatchDamage(&err)
	tx := n.s.in(n.in)
	n.Number = tx.Number()
	if nonce, at, kept := tx.LastEntry(); kept {
		n.Nonce, n.Time = nonce, at
	}
	n.Messages, err = mailindex.CountMessages(&tx.Tx)
	return err
}

// DatabaseSize is how many bytes WriteDatabase writes.
func (n *Snapshot) DatabaseSize() int64 { return n.tx.Size() }

// WriteDatabase writes the database's file.
func (n *Snapshot) WriteDatabase(w io.Writer) error {
	_, err := n.tx.WriteTo(w)
	return err
}

// CloseDatabase lets the database go before the snapshot: as long as a snapshot has it, pages that
// change are not used again, so that the file of a busy server grows quickly. Closing it twice does
// nothing.
func (n *Snapshot) CloseDatabase() error {
	if err := n.tx.Rollback(); !errors.Is(err, bolterrors.ErrTxClosed) {
		return err
	}
	return nil
}

// OpenSegment opens the bytes of one of Segments. It must be closed.
func (n *Snapshot) OpenSegment(number uint32) (*segment.File, error) {
	return n.s.seg.OpenFile(number)
}

// Close lets the snapshot go.
func (n *Snapshot) Close() error {
	n.s.compact.removing.Lock()
	n.s.compact.snapshots--
	n.s.compact.removing.Unlock()
	return n.CloseDatabase()
}
