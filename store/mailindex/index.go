// Package mailindex is the message index of a store: the folders of mailboxes, their messages, the
// lists that show them, threads, the UIDs removed from a folder, and references to the bytes of
// messages. Each change updates all of them, and the counters, in one transaction. The package does
// not know who owns a mailbox, or where the bytes are.
package mailindex

import (
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/segment"
)

// An Index is the message index of one database. It is safe for concurrent use.
type Index struct {
	DB          *engine.DB
	Leases      *segment.Leases // leases on blobs that have no reference yet
	MaxExpunged int             // how many removed UIDs are kept per folder; see DefaultMaxExpunged
	// MailboxIDs returns the id of the mailbox with a number and of its account; "" if it has no
	// record.
	MailboxIDs func(tx *engine.Tx, mailbox uint32) (accountID, mailboxID string)
	// TextWake receives a value when there may be messages to index. Its capacity is one.
	TextWake chan struct{}
}

// A Tx is a transaction that reads and changes the index. It must not be used after its function
// has returned.
type Tx struct {
	*engine.Tx
	index         *Index
	inboxRecorded uint32           // mailbox whose INBOX change was recorded last
	expunged      []folderRemovals // removals by folder, written at the end
}

// In returns a Tx for the index in the engine's transaction.
func (x *Index) In(tx *engine.Tx) Tx { return Tx{Tx: tx, index: x} }

// Update is engine.DB.Update for transactions that use only the index.
func (x *Index) Update(fn func(*Tx) error) error {
	return x.DB.UpdateFor(fn, func(in *engine.Tx) error {
		tx := x.In(in)
		return fn(&tx)
	})
}

// View is engine.DB.View for transactions that use only the index.
func (x *Index) View(fn func(*Tx) error) error {
	return x.DB.View(func(in *engine.Tx) error {
		tx := x.In(in)
		return fn(&tx)
	})
}
