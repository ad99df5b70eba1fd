package store

import (
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/segment"
)

func newIndex(db *engine.DB, leases *segment.Leases, expunged int) *mailindex.Index {
	return &mailindex.Index{DB: db, Leases: leases, MaxExpunged: expunged, MailboxIDs: mailboxIDs, TextWake: make(chan struct{}, 1)}
}

// mailboxIDs returns the ids of the mailbox with a number and of its account; "" if the mailbox has
// no record any more.
func mailboxIDs(tx *engine.Tx, mailbox uint32) (accountID, mailboxID string) {
	mb, err := MailboxByNum.Read(tx, NumKey(mailbox))
	if err != nil {
		return "", ""
	}
	return mb.AccountID, mb.ID
}
