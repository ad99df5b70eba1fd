package core

import (
	"slices"
	"time"

	"github.com/mailstead/mailstead/store"
)

// RateKey names the budget that the actor's requests count against.
func (a Actor) RateKey() string {
	if a.TokenKind == SessionKind {
		return a.AccountID + " session"
	}
	return a.AccountID
}

// An Actor is who asks: a token, or the installation itself.
type Actor struct {
	AccountID   string
	AccountNum  uint32
	UserID      string
	Email       string
	Role        string   // owner admin member mailbox
	MailboxID   string   // whose person the actor is, who sees that mailbox alone; "": a team user
	Limited     bool     // a member, or a token, who sees some mailboxes alone: Mailboxes
	Mailboxes   []string // ids; shared, not to be changed
	TokenOf     bool     // the token is limited to mailboxes: it may do what the person of a mailbox may
	Bound       bool     // the token may change nobody's access, and nothing that happens by itself
	OwnWords    bool     // what the token sends counts as the account's own words
	Policy      store.Policy
	TokenID     string
	TokenName   string
	TokenKind   string // api mcp session
	Given       bool   // the session was begun with a password that its user has not chosen
	Permissions []string
	Plan        string
	IP          string
	Rate        RateUsage // of the request that asks
	Request     *Request  // for the audit log; nil: the server asks itself
}

// IsPerson reports whether the actor is somebody who is signed in to the dashboard, with a password
// that nobody else has set, and not a program or the operator.
func (a Actor) IsPerson() bool {
	return a.TokenKind == SessionKind && a.TokenID != LocalToken && !a.Given
}

// Manages reports whether the actor is an owner or admin of the account, or a program of one.
func (a Actor) Manages() bool { return ManagesAs(a.Role) }

// ManagesAs reports whether a role is one of those who manage an account.
func ManagesAs(role string) bool {
	return role == store.UserRoleOwner || role == store.UserRoleAdmin
}

// SpeaksForAccount reports whether what the actor writes counts as the account's own words.
func (a Actor) SpeaksForAccount() bool { return a.IsPerson() || a.OwnWords }

// SeesAll reports whether the actor may know of every mailbox of its account.
func (a Actor) SeesAll() bool { return a.MailboxID == "" && !a.Limited }

// Sees reports whether the actor may know of a mailbox of its account.
func (a Actor) Sees(mailboxID string) bool {
	if a.MailboxID != "" {
		return a.MailboxID == mailboxID
	}
	return !a.Limited || slices.Contains(a.Mailboxes, mailboxID)
}

// Scopes in rising order; each holds the ones before it.
var Scopes = []string{"read", "write", "purchase", "admin"}

// Can reports whether the actor's token holds the scope.
func (a Actor) Can(scope string) bool {
	need := slices.Index(Scopes, scope)
	for _, p := range a.Permissions {
		if slices.Index(Scopes, p) >= need {
			return true
		}
	}
	return false
}

// What mail clients log in for.
const (
	ProtocolIMAP = store.ProtocolIMAP
	ProtocolSMTP = store.ProtocolSMTP
)

// A MailLogin is what a mail client logs in with.
type MailLogin struct {
	Protocol string // ProtocolIMAP or ProtocolSMTP
	Username string // an address, or the id of a domain's credential
	Password string
	Bearer   bool // it is a credential's password, in the place of a token (RFC 7628)
	IP       string
}

// A MailboxUser is who has logged in to a mailbox by IMAP or submission, or to submission for a
// domain, without a mailbox.
type MailboxUser struct {
	AccountID    string
	AccountNum   uint32
	MailboxID    string // "": for a domain
	Mailbox      uint32
	DomainID     string // "": for a mailbox
	Email        string // or the credential's id
	IP           string
	CredentialID string    // "": without one
	Own          bool      // with the mailbox's own password
	PasswordAt   time.Time // when that was set
	Expires      time.Time // of the credential; zero: never
	OwnWords     bool      // of a domain's credential: what it sends counts as the account's own words
	Policy       store.Policy
}
