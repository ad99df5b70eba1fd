package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/segment"
)

// A Spool holds a message while it arrives, until Append.
type Spool = segment.Spool

// A Body holds the bytes of a message to be stored.
type Body = segment.Body

// NewSpool returns a spool for an arriving message of at most limit bytes. It must be closed.
func (s *Store) NewSpool(limit int64) *Spool { return s.spools.New(limit) }

// Append writes a message with its envelope to the segments; the envelope is at most 64 KiB, which
// the store does not interpret. The message is on disk once an Update that refers to it
// (AddMessage, RefBlob) has returned; call Release if no Update will. All references to it must be
// made in one transaction, or while another reference exists. Append returns ErrFull, and writes
// nothing, when the disk has no room.
func (s *Store) Append(env []byte, body Body) (BlobRef, error) {
	if err := s.checkAppend(); err != nil {
		return BlobRef{}, err
	}
	done := s.leases.BeginAppend()
	defer done()
	ref, err := s.seg.Append(env, body)
	if err != nil {
		return BlobRef{}, s.appendFailed(err)
	}
	s.leases.Add(ref)
	return ref, nil
}

// checkAppend returns an error if the store takes no new message now. It also marks the store as
// one that appends messages itself.
func (s *Store) checkAppend() error {
	s.appended.Store(true)
	if err := s.Failed(); err != nil {
		return err
	}
	return s.RoomForMessage()
}

func (s *Store) appendFailed(err error) error {
	switch {
	case errors.Is(err, os.ErrClosed):
		return ErrClosed
	case errors.Is(err, segment.ErrFailed):
		return s.Fail(err)
	case segment.IsFull(err):
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// Release ends the lease of a blob that Append has returned and no row refers to. For any other
// blob it does nothing.
func (s *Store) Release(ref BlobRef) { s.leases.Release(ref) }

// Leased counts the blobs that Append has returned, that no row refers to and that are not
// released.
func (s *Store) Leased() int { return s.leases.Len() }

// OpenBlob opens the bytes of a message, which stay readable until it is closed. It returns
// ErrDamaged if they are not the bytes that were written. A reference may be opened for some time
// (Options.Grace) after it was read; later, when compaction may have moved the bytes, the error may
// be ErrNotFound.
func (s *Store) OpenBlob(ref BlobRef) (*Blob, error) {
	blob, err := s.seg.Open(ref)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob at %d in segment %08x: %w", ref.Offset, ref.Segment, ErrNotFound)
	}
	return blob, s.NoteDamage(err)
}

// RefBlob records that the Submission with the id owner needs the bytes at ref, its Blob. The
// comment of AddMessage says which blobs it may be called for.
func (tx *Tx) RefBlob(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerSubmission}, owner...))
}

// UnrefBlob deletes the reference that RefBlob recorded. ref is the Submission's Blob as stored in
// this transaction, since compaction changes it. It returns ErrNotFound if there is no such
// reference.
func (tx *Tx) UnrefBlob(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerSubmission}, owner...))
}

// RefReport records that a ReportMail needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefReport(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerReport}, owner...))
}

// UnrefReport deletes the reference that RefReport recorded. ref is the ReportMail's Blob as stored
// in this transaction.
func (tx *Tx) UnrefReport(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerReport}, owner...))
}

// RefCopy records that a RemoteCopy needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefCopy(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerCopy}, owner...))
}

// RefArrival records that an Arrival needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefArrival(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerArrival}, owner...))
}

// UnrefArrival deletes the reference that RefArrival recorded. ref is the Arrival's Blob as stored
// in this transaction.
func (tx *Tx) UnrefArrival(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerArrival}, owner...))
}

// RefBatch records that a Batch needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefBatch(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerBatch}, owner...))
}

// UnrefBatch deletes the reference that RefBatch recorded. ref is the Batch's Blob as stored in
// this transaction.
func (tx *Tx) UnrefBatch(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerBatch}, owner...))
}

// RefLesson records that a SpamLesson needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefLesson(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerLesson}, owner...))
}

// UnrefLesson deletes the reference that RefLesson recorded. ref is the SpamLesson's Blob as stored
// in this transaction.
func (tx *Tx) UnrefLesson(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerLesson}, owner...))
}

// RefApproval records that an Approval needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefApproval(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerApproval}, owner...))
}

// UnrefApproval deletes the reference that RefApproval recorded. ref is the Approval's Blob as
// stored in this transaction.
func (tx *Tx) UnrefApproval(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerApproval}, owner...))
}

// UnrefCopy deletes the reference that RefCopy recorded. ref is the RemoteCopy's Blob as stored in
// this transaction.
func (tx *Tx) UnrefCopy(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerCopy}, owner...))
}

// Lost returns an error that says which acknowledged messages had lost their bytes on disk when the
// store was opened, or nil if none had. The rows of these messages are still there.
func (s *Store) Lost() error { return s.seg.Lost() }
