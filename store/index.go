package store

import (
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/segment"
)

func newIndex(db *engine.DB, leases *segment.Leases, expunged int) *mailindex.Index {
	return &mailindex.Index{DB: db, Leases: leases, MaxExpunged: expunged, InboxOf: inboxOf, TextWake: make(chan struct{}, 1)}
}

// inboxOf returns the account and the id of a mailbox, or "" if the mailbox has no record any more.
func inboxOf(tx *engine.Tx, mailbox uint32) (account, id string) {
	mb, err := MailboxByNum.Read(tx, NumKey(mailbox))
	if err != nil {
		return "", ""
	}
	return mb.AccountID, mb.ID
}
