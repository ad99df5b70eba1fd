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

// A Spool holds the bytes of a message while it arrives, until Append stores them.
type Spool = segment.Spool

// A Body holds the bytes of a message to be stored.
type Body = segment.Body

// NewSpool returns a spool for an arriving message of at most limit bytes. It must be closed.
func (s *Store) NewSpool(limit int64) *Spool { return s.spools.New(limit) }

// Append writes a message with its envelope to the segments. The envelope has at most 64 KiB; the
// store does not interpret it. The message is on disk once an Update that refers to it (AddMessage,
// RefSubmission) has returned. If no Update is going to refer to it, call Release. Make all
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

// RefSubmission stores a reference from a Submission to its Blob, the bytes at ref, so that
// compaction keeps them. The comment of AddMessage says which blobs may be referred to.
func (tx *Tx) RefSubmission(ref BlobRef, submissionID string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerSubmission}, submissionID...))
}

// UnrefSubmission deletes the reference that RefSubmission stored. ref is the Submission's Blob as
// read in this transaction: compaction may have changed it after an earlier transaction. It returns
// ErrNotFound if there is no such reference.
func (tx *Tx) UnrefSubmission(ref BlobRef, submissionID string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerSubmission}, submissionID...))
}

// RefReport stores a reference from a ReportMail to its Blob, as RefSubmission does.
func (tx *Tx) RefReport(ref BlobRef, reportID string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerReport}, reportID...))
}

// UnrefReport deletes the reference that RefReport stored. ref is the ReportMail's Blob as read in
// this transaction.
func (tx *Tx) UnrefReport(ref BlobRef, reportID string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerReport}, reportID...))
}

// RefCopy stores a reference from a RemoteCopy to its Blob, as RefSubmission does.
func (tx *Tx) RefCopy(ref BlobRef, copyID string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerCopy}, copyID...))
}

// RefArrival stores a reference from an Arrival to its Blob, as RefSubmission does.
func (tx *Tx) RefArrival(ref BlobRef, arrivalID string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerArrival}, arrivalID...))
}

// UnrefArrival deletes the reference that RefArrival stored. ref is the Arrival's Blob as read in
// this transaction.
func (tx *Tx) UnrefArrival(ref BlobRef, arrivalID string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerArrival}, arrivalID...))
}

// RefBatch stores a reference from a Batch to its Blob, as RefSubmission does.
func (tx *Tx) RefBatch(ref BlobRef, batchID string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerBatch}, batchID...))
}

// UnrefBatch deletes the reference that RefBatch stored. ref is the Batch's Blob as read in this
// transaction.
func (tx *Tx) UnrefBatch(ref BlobRef, batchID string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerBatch}, batchID...))
}

// RefLesson stores a reference from a SpamLesson to its Blob, as RefSubmission does.
func (tx *Tx) RefLesson(ref BlobRef, lessonID string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerLesson}, lessonID...))
}

// UnrefLesson deletes the reference that RefLesson stored. ref is the SpamLesson's Blob as read in
// this transaction.
func (tx *Tx) UnrefLesson(ref BlobRef, lessonID string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerLesson}, lessonID...))
}

// RefApproval stores a reference from an Approval to its Blob, as RefSubmission does.
func (tx *Tx) RefApproval(ref BlobRef, approvalID string) error {
	return mailindex.AddRef(&tx.Tx, ref, append([]byte{mailrow.OwnerApproval}, approvalID...))
}

// UnrefApproval deletes the reference that RefApproval stored. ref is the Approval's Blob as read
// in this transaction.
func (tx *Tx) UnrefApproval(ref BlobRef, approvalID string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerApproval}, approvalID...))
}

// UnrefCopy deletes the reference that RefCopy stored. ref is the RemoteCopy's Blob as read in this
// transaction.
func (tx *Tx) UnrefCopy(ref BlobRef, copyID string) error {
	return mailindex.DropRef(&tx.Tx, ref, append([]byte{mailrow.OwnerCopy}, copyID...))
}

// LostMessages returns an error that names the acknowledged messages whose bytes were missing on
// disk when the store was opened. It returns nil if there were none. The rows of these messages
// still exist.
func (s *Store) LostMessages() error { return s.seg.LostMessages() }
