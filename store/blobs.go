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

// A Spool is a message while it arrives, until Append.
type Spool = segment.Spool

// A Body is the bytes of a message that is to be stored.
type Body = segment.Body

// NewSpool returns a place for a message of at most limit bytes while it arrives. It must be
// closed.
func (s *Store) NewSpool(limit int64) *Spool { return s.spools.New(limit) }

// Append writes a message with its envelope, at most 64 KiB that the store does not read, to the
// segments. It is on disk once an Update that refers to it (AddMessage, RefBlob) has returned;
// Release it if none will. All references to it must be made in one transaction, or while another
// reference stands. It returns ErrFull, having written nothing, when the disk has no room.
func (s *Store) Append(env []byte, body Body) (BlobRef, error) {
	if err := s.mayAppend(); err != nil {
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

// mayAppend tells whether the store takes new messages, of which one comes.
func (s *Store) mayAppend() error {
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

// Release gives up a blob that Append has returned and nothing refers to. For others it does
// nothing.
func (s *Store) Release(ref BlobRef) { s.leases.Release(ref) }

// Leased counts the blobs that Append has returned, that nothing refers to and that are not
// released.
func (s *Store) Leased() int { return s.leases.Len() }

// OpenBlob opens the bytes of a message, which stay readable until it is closed. It returns
// ErrDamaged where they are not what was written. A reference may be opened for some time
// (Options.Grace) after it was read; later, when compaction may have moved the bytes, the error may
// be ErrNotFound.
func (s *Store) OpenBlob(ref BlobRef) (*Blob, error) {
	blob, err := s.seg.Open(ref)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob at %d in segment %08x: %w", ref.Offset, ref.Segment, ErrNotFound)
	}
	return blob, s.NoteDamage(err)
}

// RefBlob notes that a Submission, whose id is owner and whose Blob is ref, needs the bytes at ref.
// Of which blobs it may be is said at AddMessage.
func (tx *Tx) RefBlob(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerSubmission}, owner...))
}

// UnrefBlob takes back what RefBlob noted. ref is the Submission's Blob as it is stored in this
// transaction, since compaction changes it; it returns ErrNotFound where there is no such
// reference.
func (tx *Tx) UnrefBlob(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerSubmission}, owner...))
}

// RefReport notes that a ReportMail needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefReport(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerReport}, owner...))
}

// UnrefReport takes back what RefReport noted. ref is the ReportMail's Blob as it is stored in this
// transaction.
func (tx *Tx) UnrefReport(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerReport}, owner...))
}

// RefCopy notes that a RemoteCopy needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefCopy(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerCopy}, owner...))
}

// RefArrival notes that an Arrival needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefArrival(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerArrival}, owner...))
}

// UnrefArrival takes back what RefArrival noted. ref is the Arrival's Blob as it is stored in this
// transaction.
func (tx *Tx) UnrefArrival(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerArrival}, owner...))
}

// RefBatch notes that a Batch needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefBatch(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerBatch}, owner...))
}

// UnrefBatch takes back what RefBatch noted. ref is the Batch's Blob as it is stored in this
// transaction.
func (tx *Tx) UnrefBatch(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerBatch}, owner...))
}

// RefLesson notes that a SpamLesson needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefLesson(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerLesson}, owner...))
}

// UnrefLesson takes back what RefLesson noted. ref is the SpamLesson's Blob as it is stored in this
// transaction.
func (tx *Tx) UnrefLesson(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerLesson}, owner...))
}

// RefApproval notes that an Approval needs the bytes at ref, as RefBlob does for a Submission.
func (tx *Tx) RefApproval(ref BlobRef, owner string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerApproval}, owner...))
}

// UnrefApproval takes back what RefApproval noted. ref is the Approval's Blob as it is stored in
// this transaction.
func (tx *Tx) UnrefApproval(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerApproval}, owner...))
}

// UnrefCopy takes back what RefCopy noted. ref is the RemoteCopy's Blob as it is stored in this
// transaction.
func (tx *Tx) UnrefCopy(ref BlobRef, owner string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerCopy}, owner...))
}

// Lost says what the disk had lost, when the store was opened, of messages that it had said were
// kept; nil if nothing. Their rows are there, and their bytes are not.
func (s *Store) Lost() error { return s.seg.Lost() }
