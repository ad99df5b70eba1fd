package store

import "time"

// An Export says which mailboxes a file of credentials holds. The file itself is never kept: it is
// made while it is sent.
type Export struct {
	ID        string // exp_…
	AccountID string
	CreatedBy string // a user id
	Format    string
	All       bool     // every mailbox of the account
	Domains   []string // ids of domains
	Mailboxes []byte   // short mailbox numbers, four bytes each, big-endian
	Link      string   // SHA-256 of the token that fetches the file, hex; "" once that was used, and if there never was one
	CreatedAt time.Time
	ExpiresAt time.Time // of the link
}

// Exports keeps them while their links live.
var (
	Exports = newTable("export", func(e *Export) string { return e.ID }).
		watched(func(_ *Tx, e *Export) Change { return Change{Account: e.AccountID, User: e.CreatedBy, ID: e.ID} })
	ExportByLink     = Exports.unique("link", func(e *Export) string { return e.Link })
	ExportsByAccount = Exports.index("account", func(e *Export) string { return e.AccountID })
)
