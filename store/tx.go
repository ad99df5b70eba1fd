package store

import (
	"iter"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
)

// What the records are kept by, see package engine.
type (
	// A Table keeps the records of one type under their ids.
	Table[T any] = engine.Table[T]
	// An Index finds records of a table by something else than their id.
	Index[T any] = engine.Index[T]
	// A Change names a row of an account that a committed transaction has written or deleted.
	Change = engine.Change
	// An Entry is what one commit changed.
	Entry = engine.Entry
	// A Reseal gives what is to stand in the place of a sealed secret.
	Reseal = engine.Reseal
	// A Secret is sealed for its place.
	Secret = engine.Secret
	// A Disk is the disk that a store is on.
	Disk = engine.Disk
	// A Pacer keeps work that may wait out of the way of what the process does for others.
	Pacer = engine.Pacer
)

// What is in a mailbox, see package mailrow.
type (
	// A Message is one message in one folder.
	Message = mailrow.Message
	// A Meta is what was found in a message when it came.
	Meta = mailrow.Meta
	// A Folder is one folder of a mailbox as IMAP sees it.
	Folder = mailrow.Folder
	// An InboxPos is a place in the order of lists.
	InboxPos = mailrow.InboxPos
	// Flags are the system flags of a message.
	Flags = mailrow.Flags
	// Bits are what was found out about a message when it came.
	Bits = mailrow.Bits
	// A BlobRef says where a message's bytes are.
	BlobRef = mailrow.BlobRef
	// A Blob is the bytes of a message, opened.
	Blob = mailrow.Blob
	// A UIDRange is the UIDs from First to Last, both inclusive.
	UIDRange = mailrow.UIDRange
	// A ThreadNode stands for a message id in the threads of an account.
	ThreadNode = mailrow.ThreadNode
	// A SubjectKey stands for a subject between two people.
	SubjectKey = mailrow.SubjectKey
)

// What is done to them, see package mailindex.
type (
	// An InboxQuery selects messages of a list.
	InboxQuery = mailindex.InboxQuery
	// Marks are what a list shows of a message without reading it.
	Marks = mailindex.Marks
	// A Usage is what an account or a mailbox has.
	Usage = mailindex.Usage
	// A TextTodo says which messages of a folder are not in the text index.
	TextTodo = mailindex.TextTodo
)

// Subscriptions are how the names that a mailbox is subscribed to were kept, see package mailindex.
type Subscriptions = mailindex.Subscriptions

// SubscribedNames keeps what has not become rows yet, by SubscriptionsID.
var SubscribedNames = mailindex.SubscribedNames

// SubscriptionsID is the id of a mailbox's Subscriptions.
func SubscriptionsID(mailbox uint32) string { return mailindex.SubscriptionsID(mailbox) }

// SubjectKept and ThreadKept are how long a subject and a row of a thread are kept, InboxName is
// the Table of a Change of an INBOX.
const (
	SubjectKept = mailindex.SubjectKept
	ThreadKept  = mailindex.ThreadKept
	InboxName   = mailindex.InboxTable
)

// The flags and bits of a message, and the folder id of INBOX in every mailbox.
const (
	FlagSeen     = mailrow.FlagSeen
	FlagAnswered = mailrow.FlagAnswered
	FlagFlagged  = mailrow.FlagFlagged
	FlagDeleted  = mailrow.FlagDeleted
	FlagDraft    = mailrow.FlagDraft

	BitAttachments = mailrow.BitAttachments
	BitWarmup      = mailrow.BitWarmup
	BitAutoReply   = mailrow.BitAutoReply
	BitBounce      = mailrow.BitBounce
	BitTaughtSpam  = mailrow.BitTaughtSpam
	BitTaughtHam   = mailrow.BitTaughtHam
	BitMoved       = mailrow.BitMoved

	InboxID = mailrow.InboxID
)

// A Tx is one transaction: a snapshot for View, the only writer for Update. It must not outlive its
// function.
type Tx struct {
	mailindex.Tx
	s *Store
}

func (s *Store) in(tx *engine.Tx) *Tx { return &Tx{Tx: s.index.In(tx), s: s} }

// NewID makes an id of the prefix, such as "dom", from the store's clock; later ids of one process
// sort after earlier ones.
func (tx *Tx) NewID(prefix string) string { return tx.s.NewID(prefix) }

// DescSome is Index.Desc for those who want few of many records, see engine.DescSome.
func DescSome[T any](tx *Tx, x *Index[T], prefix, before string, wanted func(row []byte) bool) iter.Seq2[string, *T] {
	return engine.DescSome(tx, x, prefix, before, wanted)
}

// Update runs fn in a transaction and returns once everything that it wrote, and every blob
// appended before, is on disk. If fn returns an error nothing is written and Update returns that
// error. fn shares its commit with whoever else waits, may run more than once, and must not wait
// for anything.
func (s *Store) Update(fn func(*Tx) error) error {
	return s.UpdateFor(fn, func(tx *engine.Tx) error { return fn(s.in(tx)) })
}

// View runs fn on a snapshot. fn must not write to a network peer: a forgotten reader keeps every
// old page alive.
func (s *Store) View(fn func(*Tx) error) error {
	return s.db.View(func(tx *engine.Tx) error { return fn(s.in(tx)) })
}

// setup runs fn in a transaction of its own, see engine.DB.Setup.
func (s *Store) setup(fn func(*Tx) error) error {
	return s.Setup(func(tx *engine.Tx) error { return fn(s.in(tx)) })
}
