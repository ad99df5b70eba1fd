package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/mailstead/mailstead/store/segment"
)

// A Spool holds the bytes of a message while it arrives, until Append stores them.
type Spool = segment.Spool

// A Body holds the bytes of a message to be stored.
type Body = segment.Body

// NewSpool returns a spool for an arriving message of at most limit bytes. It must be closed.
func (s *Store) NewSpool(limit int64) *Spool { return s.spools.New(limit) }

// Append writes a message with its envelope to the segments. The envelope has at most 64 KiB; the
// store does not interpret it. The message is on disk once an Update that refers to it (AddMessage,
// BlobTable.Ref) has returned. If no Update is going to refer to it, call Release. Make all
// references to it in one transaction: a later one can be added only while another exists. If the
// disk has no room, Append writes nothing and returns ErrFull.
func (s *Store) Append(envelope []byte, body Body) (BlobRef, error) {
	if err := s.checkAppend(); err != nil {
		return BlobRef{}, err
	}
	done := s.leases.BeginAppend()
	defer done()
	ref, err := s.seg.Append(envelope, body)
	if err != nil {
		return BlobRef{}, s.appendError(err)
	}
	s.leases.Add(ref)
	return ref, nil
}

// checkAppend returns an error if the store takes no new message now. It also records that this
// process appends messages.
func (s *Store) checkAppend() error {
	s.appended.Store(true)
	if err := s.Failed(); err != nil {
		return err
	}
	return s.RoomForMessage()
}

func (s *Store) appendError(err error) error {
	switch {
	case errors.Is(err, os.ErrClosed):
		return ErrClosed
	case errors.Is(err, segment.ErrFailed):
		return s.Fail(err)
	case segment.IsFull(err):
		return fmt.Errorf("append message: %w: %w", ErrFull, err)
	}
	return err
}

// Release ends the lease of a blob that Append has returned and that no row refers to. For any
// other blob it does nothing.
func (s *Store) Release(ref BlobRef) { s.leases.Release(ref) }

// LeaseCount returns the number of blobs that Append has returned, that are not released and that
// no row refers to.
func (s *Store) LeaseCount() int { return s.leases.Len() }

// OpenBlob opens the bytes of a message for reading. They stay readable until the Blob is closed.
// It returns ErrDamaged if they are not the bytes that were written. Call it within Options.Grace
// after reading ref from a row: later, compaction may have moved the bytes, and OpenBlob may return
// ErrNotFound.
func (s *Store) OpenBlob(ref BlobRef) (*Blob, error) {
	blob, err := s.seg.Open(ref)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open blob at offset %d of segment %08x: %w", ref.Offset, ref.Segment, ErrNotFound)
	}
	return blob, s.NoteDamage(err)
}

// LostMessages returns an error that names the acknowledged messages whose bytes were missing on
// disk when the store was opened. It returns nil if there were none. The rows of these messages
// still exist.
func (s *Store) LostMessages() error { return s.seg.LostMessages() }
