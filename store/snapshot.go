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

// DatabaseFile and SegmentDir are the names of the database file and of the directory of segments
// in a data directory. segment.FileName names the files in SegmentDir.
const (
	DatabaseFile = "mailstead.db"
	SegmentDir   = "segments"
)

// A Snapshot is the store as it was after one commit, to be copied while the store is used. No
// segment is removed until it is closed.
type Snapshot struct {
	Number   uint64      // of the commit
	Nonce    entry.Nonce // of the commit's entry; zero if entries are not kept
	Time     time.Time   // of the commit; of the snapshot if entries are not kept
	Messages int64       // in all mailboxes
	// Segments are the segments that hold the messages. Of the active one, only the bytes up to its
	// Size belong to the snapshot; the others no longer change.
	Segments []segment.Info

	s  *Store
	in *engine.Tx
	tx *bolt.Tx // of in
}

// Snapshot takes a snapshot of the store. It must be closed.
func (s *Store) Snapshot() (*Snapshot, error) {
	// After this empty update, all that the snapshot shows is on disk.
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

// DatabaseSize returns how many bytes WriteDatabase writes.
func (n *Snapshot) DatabaseSize() int64 { return n.tx.Size() }

// WriteDatabase writes the database's file.
func (n *Snapshot) WriteDatabase(w io.Writer) error {
	_, err := n.tx.WriteTo(w)
	return err
}

// CloseDatabase releases the database before the snapshot is closed. As long as the snapshot holds
// it, changed pages are not reused, so that the file of a busy server grows quickly. A second call
// does nothing.
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

// Close releases the snapshot.
func (n *Snapshot) Close() error {
	n.s.compact.removing.Lock()
	n.s.compact.snapshots--
	n.s.compact.removing.Unlock()
	return n.CloseDatabase()
}
