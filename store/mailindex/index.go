// Package mailindex is the message index of a store: the folders of mailboxes, the messages in
// them, the lists by which they are shown, their threads, the UIDs that have left a folder, and who
// refers to the bytes of a message. Every change keeps all of them, and the counters, in step in
// one transaction. It does not know whose mailboxes these are, nor where the bytes are.
package mailindex

import (
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/segment"
)

// An Index is the message index of one database. It is safe for concurrent use.
type Index struct {
	DB       *engine.DB
	Leases   *segment.Leases // the blobs that may be referred to although nothing refers to them yet
	Expunged int             // how many UIDs of removed messages are kept of a folder; ExpungedMost is usual
	// InboxOf returns the ids of a mailbox and of its account; "" for one that has no record.
	InboxOf func(tx *engine.Tx, mailbox uint32) (account, id string)
	// TextWake gets a value when there may be messages to index; it has room for one.
	TextWake chan struct{}
}

// A Tx is a transaction of the database that reads and changes the index. It must not outlive its
// function.
type Tx struct {
	*engine.Tx
	index         *Index
	inboxRecorded uint32         // the mailbox whose INBOX was recorded last
	expunged      []expungedNote // by folder
}

// In returns the index as a transaction sees it.
func (x *Index) In(tx *engine.Tx) Tx { return Tx{Tx: tx, index: x} }

// Update is engine.DB.Update for transactions that change the index alone.
func (x *Index) Update(fn func(*Tx) error) error {
	return x.DB.UpdateFor(fn, func(in *engine.Tx) error {
		tx := x.In(in)
		return fn(&tx)
	})
}

// View is engine.DB.View for transactions that read the index alone.
func (x *Index) View(fn func(*Tx) error) error {
	return x.DB.View(func(in *engine.Tx) error {
		tx := x.In(in)
		return fn(&tx)
	})
}
