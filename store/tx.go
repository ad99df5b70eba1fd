package store

import (
	"iter"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
)

// Types that store records; see package engine.
type (
	// A Table keeps the records of one type under their ids.
	Table[T any] = engine.Table[T]
	// An Index finds records of a table by a key other than their id.
	Index[T any] = engine.Index[T]
	// A Change names a row of an account that a committed transaction has written or deleted.
	Change = engine.Change
	// An Entry is what one commit changed.
	Entry = engine.Entry
	// A Reseal returns the replacement for a sealed secret.
	Reseal = engine.Reseal
	// A Secret is a sealed secret with its binding.
	Secret = engine.Secret
	// A Disk describes the disk that a store is on.
	Disk = engine.Disk
	// A Pacer slows down background work, so that it does not delay other work of the process.
	Pacer = engine.Pacer
)

// Types of what a mailbox contains; see package mailrow.
type (
	// A Message is one message in one folder.
	Message = mailrow.Message
	// A Meta holds facts about a message that were found on arrival.
	Meta = mailrow.Meta
	// A Folder is one folder of a mailbox as IMAP sees it.
	Folder = mailrow.Folder
	// An InboxPos is a position in the order of a message list.
	InboxPos = mailrow.InboxPos
	// Flags are the system flags of a message.
	Flags = mailrow.Flags
	// Bits are facts about a message that were found on arrival.
	Bits = mailrow.Bits
	// A BlobRef says where in the segments the bytes of a message are.
	BlobRef = mailrow.BlobRef
	// A Blob reads the bytes of a message that was opened.
	Blob = mailrow.Blob
	// A UIDRange is the UIDs from First to Last, both inclusive.
	UIDRange = mailrow.UIDRange
	// A ThreadNode stands for a Message-ID in the threads of an account.
	ThreadNode = mailrow.ThreadNode
	// A SubjectKey stands for a subject between two people.
	SubjectKey = mailrow.SubjectKey
)

// Types for reading lists of messages; see package mailindex.
type (
	// An InboxQuery selects the messages of a list.
	InboxQuery = mailindex.InboxQuery
	// Marks are the facts about a message that a list has, so that its row need not be read.
	Marks = mailindex.Marks
	// A Usage counts the messages and bytes of an account or a mailbox.
	Usage = mailindex.Usage
	// A TextTodo names messages of a folder that are not in the text index yet.
	TextTodo = mailindex.TextTodo
)

// Subscriptions is the older form of the names that a mailbox has subscribed to, see package
// mailindex.
type Subscriptions = mailindex.Subscriptions

// OldSubscriptions keeps the Subscriptions that are not yet converted to the current form: one row
// for each name. SubscriptionsID returns their ids.
var OldSubscriptions = mailindex.OldSubscriptions

// SubscriptionsID returns the id of a mailbox's Subscriptions.
func SubscriptionsID(mailbox uint32) string { return mailindex.SubscriptionsID(mailbox) }

// SubjectLifetime and ThreadLifetime are how long the rows of a subject and of a thread are kept.
// InboxTable is the value of Change.Table for a change of an INBOX.
const (
	SubjectLifetime = mailindex.SubjectLifetime
	ThreadLifetime  = mailindex.ThreadLifetime
	InboxTable      = mailindex.InboxTable
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

// A Tx is one transaction: a snapshot in View, the only writer in Update. It must not be used after
// its function has returned.
type Tx struct {
	mailindex.Tx
	s *Store
}

func (s *Store) in(tx *engine.Tx) *Tx { return &Tx{Tx: s.index.In(tx), s: s} }

// NewID returns an id with a prefix such as "dom". Each id of a store sorts after those before it.
func (tx *Tx) NewID(prefix string) string { return tx.s.NewID(prefix) }

// DescSome is like Index.Desc, for callers that want few of many records; see engine.DescSome.
func DescSome[T any](tx *Tx, x *Index[T], prefix, before string, wanted func(row []byte) bool) iter.Seq2[string, *T] {
	return engine.DescSome(tx, x, prefix, before, wanted)
}

// AscSome is like Index.Asc, for callers that want few of many records; see engine.AscSome.
func AscSome[T any](tx *Tx, x *Index[T], prefix, after string, wanted func(row []byte) bool) iter.Seq2[string, *T] {
	return engine.AscSome(tx, x, prefix, after, wanted)
}

// Update runs fn in a write transaction. It returns once everything that fn wrote, and every blob
// appended before, is on disk. If fn returns an error, nothing is written and Update returns that
// error. Several Updates share one commit. fn may run more than once and must not wait for
// anything.
func (s *Store) Update(fn func(*Tx) error) error {
	return s.UpdateFor(fn, func(tx *engine.Tx) error { return fn(s.in(tx)) })
}

// View runs fn on a snapshot. fn must not wait for a network peer, since bbolt cannot reuse old
// pages until it returns.
func (s *Store) View(fn func(*Tx) error) error {
	return s.db.View(func(tx *engine.Tx) error { return fn(s.in(tx)) })
}

// setup runs fn in a transaction of its own, see engine.DB.Setup.
func (s *Store) setup(fn func(*Tx) error) error {
	return s.Setup(func(tx *engine.Tx) error { return fn(s.in(tx)) })
}
