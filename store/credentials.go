package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// A Credential is an additional password. Either it is an app password of a mailbox, for one device
// or program, or it belongs to a domain, and a program sends with it from any address of the
// domain. The password is shown once, when it is made. A credential ends when it expires, when it
// is deleted, or with its mailbox or domain; so do the sessions that logged in with it.
type Credential struct {
	ID         string // cred_…
	AccountID  string
	MailboxID  string // "": it belongs to a domain
	DomainID   string // "": it belongs to a mailbox
	Name       string
	Protocols  []string // some of the Protocol… constants
	Networks   []string `json:",omitempty"` // networks that may log in with it, in CIDR form; empty: all
	Hash       string   // SHA-256 of the password, hex; enough, since the password is long and random
	Salt       []byte   // SCRAM salt of a domain's credential; a mailbox's credential uses the salt of the mailbox
	SCRAM      []byte   // SCRAM keys, sealed
	TokenID    string   `json:",omitempty"` // id of the token that was made with it; "": none
	CreatedBy  string   // id of the user or mailbox that made it
	CreatedAt  time.Time
	ExpiresAt  time.Time `json:",omitzero"`
	LastUsedAt time.Time `json:",omitzero"`
	LastUsedIP string    `json:",omitempty"`
	OwnWords   bool      `json:",omitempty"` // only for a domain's credential: see Token.OwnWords
	Policy     Policy    `json:",omitzero"`
	Reading    *Reading  `json:",omitempty"` // what was read with it; nil: nothing
}

// Expired reports whether the credential has expired.
func (c *Credential) Expired(now time.Time) bool {
	return !c.ExpiresAt.IsZero() && !now.Before(c.ExpiresAt)
}

// Values of Credential.Protocols.
const (
	ProtocolIMAP = "imap"
	ProtocolSMTP = "smtp"
	ProtocolAPI  = "api"
)

// Credentials keeps the credentials of every account.
var (
	Credentials = engine.NewTable("credential", func(c *Credential) string { return c.ID }).
			Watched(func(_ *engine.Tx, c *Credential) Change { return Change{Account: c.AccountID, ID: c.ID} }).Sealed((*Credential).visitSecrets)
	CredentialByHash     = Credentials.Unique("hash", func(c *Credential) string { return c.Hash })
	CredentialsByMailbox = Credentials.Index("mailbox", func(c *Credential) string { return c.MailboxID })
	CredentialsByDomain  = Credentials.Index("domain", func(c *Credential) string { return c.DomainID })
)

// CredentialBinding returns the associated data with which the SCRAM keys of a credential are
// encrypted.
func CredentialBinding(id string) string { return "credential " + id }

func (c *Credential) visitSecrets(visit engine.SecretVisitor) {
	visit(CredentialBinding(c.ID), &c.SCRAM)
}
