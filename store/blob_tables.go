package store

import (
	"errors"
	"iter"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
)

// A BlobTable is a table whose records have blobs. A reference from a record to its blob keeps the
// bytes: compaction removes a blob without references. The reference must be stored and deleted in
// the transactions that write and delete the record.
type BlobTable struct {
	kind    byte   // one of the Owner… constants of package mailrow
	what    string // what a record is called in reports of damage
	table   *engine.AnyTable
	all     func(tx *Tx) iter.Seq2[string, BlobRef] // ids of records, with their blobs
	blobOf  func(tx *Tx, id string) (BlobRef, error)
	repoint func(tx *Tx, id string, move blobMove) error // makes a record refer to the copy of its blob; skips one that is gone or has another blob
}

// A blobMove holds the old and the new reference of a blob that is moved.
type blobMove struct{ from, to BlobRef }

// The tables whose records have blobs.
var (
	SubmissionBlobs = newBlobTable(mailrow.OwnerSubmission, "submission", Submissions, func(s *Submission) *BlobRef { return &s.Blob })
	ReportBlobs     = newBlobTable(mailrow.OwnerReport, "report", ReportMails, func(m *ReportMail) *BlobRef { return &m.Blob })
	CopyBlobs       = newBlobTable(mailrow.OwnerCopy, "remote copy", RemoteCopies, func(c *RemoteCopy) *BlobRef { return &c.Blob })
	ArrivalBlobs    = newBlobTable(mailrow.OwnerArrival, "arrival", Arrivals, func(a *Arrival) *BlobRef { return &a.Blob })
	BatchBlobs      = newBlobTable(mailrow.OwnerBatch, "batch", Batches, func(b *Batch) *BlobRef { return &b.Blob })
	LessonBlobs     = newBlobTable(mailrow.OwnerLesson, "lesson", SpamLessons, func(l *SpamLesson) *BlobRef { return &l.Blob })
	ApprovalBlobs   = newBlobTable(mailrow.OwnerApproval, "approval", Approvals, func(a *Approval) *BlobRef { return &a.Blob })
	scanBlobs       = newBlobTable(mailrow.OwnerScan, "zone scan", ZoneScans, func(s *ZoneScan) *BlobRef { return &s.Blob })
)

var blobTables = []*BlobTable{SubmissionBlobs, ReportBlobs, CopyBlobs, ArrivalBlobs, BatchBlobs, LessonBlobs, ApprovalBlobs, scanBlobs}

func newBlobTable[T any](kind byte, what string, table *Table[T], blob func(*T) *BlobRef) *BlobTable {
	return &BlobTable{
		kind: kind, what: what, table: table.Any(),
		all: func(tx *Tx) iter.Seq2[string, BlobRef] {
			return func(yield func(string, BlobRef) bool) {
				for rec := range table.All(tx) {
					if !yield(table.ID(rec), *blob(rec)) {
						return
					}
				}
			}
		},
		blobOf: func(tx *Tx, id string) (BlobRef, error) {
			rec, err := table.Get(tx, id)
			if err != nil {
				return BlobRef{}, err
			}
			return *blob(rec), nil
		},
		repoint: func(tx *Tx, id string, move blobMove) error {
			rec, err := table.Find(tx, id)
			if err != nil || rec == nil || *blob(rec) != move.from {
				return err
			}
			*blob(rec) = move.to
			return table.Put(tx, rec)
		},
	}
}

func (b *BlobTable) owner(id string) []byte { return append([]byte{b.kind}, id...) }

// Ref stores a reference from a record to its blob, the bytes at ref. The comment of AddMessage
// says which blobs may be referred to.
func (b *BlobTable) Ref(tx *Tx, ref BlobRef, id string) error {
	return mailindex.AddRef(&tx.Tx, ref, b.owner(id))
}

// Unref deletes the reference that Ref stored. ref is the record's blob as read in this
// transaction: compaction may have changed it after an earlier transaction. Unref returns
// ErrNotFound if there is no such reference.
func (b *BlobTable) Unref(tx *Tx, ref BlobRef, id string) error {
	return mailindex.DropRef(&tx.Tx, ref, b.owner(id))
}

// blobTableOf returns the table of the record that owns a blob, and the id of the record. The table
// is nil if the owner is a message.
func blobTableOf(owner []byte) (b *BlobTable, id string) {
	for _, b := range blobTables {
		if b.kind == owner[0] {
			return b, string(owner[1:])
		}
	}
	return nil, ""
}

// unrefRecord deletes the reference of a record, if the table is one whose records have blobs.
func unrefRecord(tx *Tx, t *engine.AnyTable, id string) error {
	for _, b := range blobTables {
		if b.table != t {
			continue
		}
		blob, err := b.blobOf(tx, id)
		return errors.Join(err, b.Unref(tx, blob, id))
	}
	return nil
}

// PutZoneScan writes a scan with a Blob that Append has returned. It takes the place of the
// domain's scan of before.
func (tx *Tx) PutZoneScan(s *ZoneScan) error {
	if err := tx.DropZoneScan(s.DomainID); err != nil {
		return err
	}
	if err := scanBlobs.Ref(tx, s.Blob, s.DomainID); err != nil {
		return err
	}
	return ZoneScans.Put(tx, s)
}

// DropZoneScan deletes the scan of a domain, if it has one.
func (tx *Tx) DropZoneScan(domainID string) error {
	s, err := ZoneScans.Find(tx, domainID)
	if s == nil || err != nil {
		return err
	}
	if err := scanBlobs.Unref(tx, s.Blob, domainID); err != nil {
		return err
	}
	return ZoneScans.Delete(tx, domainID)
}
