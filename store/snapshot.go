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
// in a data directory. segment.FileName returns the names of the files in SegmentDir.
const (
	DatabaseFile = "mailstead.db"
	SegmentDir   = "segments"
)

// A Snapshot is the state of the store after one commit, for copying it while it is in use. No
// segment is removed until the snapshot is closed.
type Snapshot struct {
	Number   uint64      // number of the commit
	Nonce    entry.Nonce // nonce of the commit's entry; zero if entries are not kept
	Time     time.Time   // time of the commit; time of the snapshot if entries are not kept
	Messages int64       // number of messages in all mailboxes
	// Segments are the segments that hold the messages. Only the first Size bytes of the active one
	// belong to the snapshot; the others no longer change.
	Segments []segment.Info

	s  *Store
	in *engine.Tx
	tx *bolt.Tx // bbolt transaction of in
}

// Snapshot takes a snapshot of the store. The caller must close it.
func (s *Store) Snapshot() (*Snapshot, error) {
	// This empty Update waits until everything that the snapshot can show is on disk.
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
	if err := n.readState(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Snapshot) readState() (err error) {
	defer n.s.CatchDamage(&err)
	tx := n.s.in(n.in)
	n.Number = tx.CommitNumber()
	if nonce, at, kept := tx.LastEntry(); kept {
		n.Nonce, n.Time = nonce, at
	}
	n.Messages, err = mailindex.CountMessages(&tx.Tx)
	return err
}

// DatabaseSize returns the number of bytes that WriteDatabase writes.
func (n *Snapshot) DatabaseSize() int64 { return n.tx.Size() }

// WriteDatabase writes a copy of the database file to w.
func (n *Snapshot) WriteDatabase(w io.Writer) error {
	_, err := n.tx.WriteTo(w)
	return err
}

// CloseDatabase releases the database before the snapshot itself is closed. Until then bbolt cannot
// reuse changed pages, so that the file of a busy server grows quickly. A second call does nothing.
func (n *Snapshot) CloseDatabase() error {
	if err := n.tx.Rollback(); !errors.Is(err, bolterrors.ErrTxClosed) {
		return err
	}
	return nil
}

// OpenSegment opens the file of one of Segments. The caller must close it.
func (n *Snapshot) OpenSegment(number uint32) (*segment.File, error) {
	return n.s.seg.OpenFile(number)
}

// Close releases the snapshot, so that segments can be removed again.
func (n *Snapshot) Close() error {
	n.s.compact.removing.Lock()
	n.s.compact.snapshots--
	n.s.compact.removing.Unlock()
	return n.CloseDatabase()
}
