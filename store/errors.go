package store

import (
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/rowform"
	"github.com/mailstead/mailstead/store/segment"
)

var (
	// ErrNotFound is returned when no record has the key.
	ErrNotFound = engine.ErrNotFound
	// ErrExists is returned when another record already has the value of a unique index.
	ErrExists = engine.ErrExists
	// ErrInUse is returned by Open while another process has the store open.
	ErrInUse = engine.ErrInUse
	// ErrClosed is returned by Update once Close has begun.
	ErrClosed = engine.ErrClosed
	// ErrFailed is returned by every write after the disk has refused a sync. What the disk holds
	// is then unknown, so nothing more is acknowledged until the process starts again.
	ErrFailed = engine.ErrFailed
	// ErrFull is returned when the disk has no room for a write. Nothing was changed; later writes
	// may succeed.
	ErrFull = segment.ErrFull
	// ErrDamaged is returned for a message if the bytes on disk differ from the bytes that were
	// written.
	ErrDamaged = segment.ErrDamaged
	// ErrDamagedRow is returned for a row of the database that differs from what was written.
	ErrDamagedRow = rowform.ErrDamaged
	// ErrDatabase is returned if a page of the database differs from what was written.
	ErrDatabase = engine.ErrDatabase
	// ErrNewer is returned for a store or a row that a newer version has written.
	ErrNewer = rowform.ErrNewer
	// ErrEnvelope is returned by Append and AppendAccepted for an envelope over 64 KiB.
	ErrEnvelope = segment.ErrEnvelope
	// ErrTooLarge is returned by Spool.Write when the message would exceed its maximum, and by
	// every later Write.
	ErrTooLarge = segment.ErrTooLarge
	// ErrTooMuch is returned for a transaction over Options.MaxBytes, MaxWrites or MaxSteps, if
	// FailLarge is set.
	ErrTooMuch = engine.ErrTooMuch
	// ErrGap is returned by Entries and Apply if the next entry is missing. A copy of the store
	// must then start again from a full backup.
	ErrGap = engine.ErrGap
	// ErrInbox is returned for a rename or deletion of INBOX: every mailbox must have one.
	ErrInbox = mailindex.ErrInbox
	// ErrFolderName is returned for an empty folder name and for one over 1000 bytes.
	ErrFolderName = mailindex.ErrFolderName
	// ErrFolderFull is returned by an insertion into a folder that has used all its 2³² - 1 UIDs.
	ErrFolderFull = mailindex.ErrFolderFull
	// ErrKeywords is returned for keywords that are not valid on a message.
	ErrKeywords = mailindex.ErrKeywords
)
