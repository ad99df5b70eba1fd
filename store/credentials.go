package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// A Credential is a password beside that of a mailbox, for one device or program (an app password),
// or one by which a program sends as any address of a domain. The password is shown once, when it
// is made. It ends when it expires, is deleted, or with its mailbox or domain; log-ins with it end
// then too.
type Credential struct {
	ID         string // cred_…
	AccountID  string
	MailboxID  string // "": it is a domain's
	DomainID   string // "": it is a mailbox's
	Name       string
	Protocols  []string // some of the Protocol… constants
	Networks   []string `json:",omitempty"` // CIDR; none: from everywhere
	Hash       string   // SHA-256 of the password, hex: it is long and random
	Salt       []byte   // of SCRAM, of a domain's; a mailbox's shares that of the mailbox
	SCRAM      []byte   // its keys, sealed
	TokenID    string   `json:",omitempty"` // of the token that came with it
	CreatedBy  string   // a user id, or that of the mailbox
	CreatedAt  time.Time
	ExpiresAt  time.Time `json:",omitzero"`
	LastUsedAt time.Time `json:",omitzero"`
	LastUsedIP string    `json:",omitempty"`
	OwnWords   bool      `json:",omitempty"` // of a domain's: what it sends counts as the account's own words
	Policy     Policy    `json:",omitzero"`
	Reading    *Reading  `json:",omitempty"` // nil: nothing that counts was read with it
}

// Expired tells whether the time of a credential is over.
func (c *Credential) Expired(now time.Time) bool {
	return !c.ExpiresAt.IsZero() && !now.Before(c.ExpiresAt)
}

// What a credential is for.
const (
	ProtocolIMAP = "imap"
	ProtocolSMTP = "smtp"
	ProtocolAPI  = "api"
)

// Credentials keeps them.
var (
	Credentials = engine.NewTable("credential", func(c *Credential) string { return c.ID }).
			Watched(func(_ *engine.Tx, c *Credential) Change { return Change{Account: c.AccountID, ID: c.ID} }).Sealed((*Credential).secrets)
	CredentialByHash     = Credentials.Unique("hash", func(c *Credential) string { return c.Hash })
	CredentialsByMailbox = Credentials.Index("mailbox", func(c *Credential) string { return c.MailboxID })
	CredentialsByDomain  = Credentials.Index("domain", func(c *Credential) string { return c.DomainID })
)

// CredentialPlace is what the SCRAM keys of a credential are sealed for.
func CredentialPlace(id string) string { return "credential " + id }

func (c *Credential) secrets(each engine.EachSecret) { each(CredentialPlace(c.ID), &c.SCRAM) }
