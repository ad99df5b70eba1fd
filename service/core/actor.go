package core

import (
	"slices"
	"time"

	"github.com/mailstead/mailstead/store"
)

// RateKey names the rate limit that the actor's requests count against.
func (a Actor) RateKey() string {
	if a.TokenKind == SessionKind {
		return a.AccountID + " session"
	}
	return a.AccountID
}

// An Actor is who makes a request: the user of a token or session, or the server itself.
type Actor struct {
	AccountID     string
	AccountNum    uint32
	UserID        string
	Email         string
	Role          string   // one of owner, admin, member, mailbox
	MailboxID     string   // the actor is the user of this mailbox and sees no other; "": a team user
	Limited       bool     // a member or token that sees only Mailboxes
	Mailboxes     []string // ids; shared, not to be changed
	MailboxToken  bool     // the token is limited to some mailboxes, and may do what the users of these mailboxes may
	Bound         bool     // the token may neither change access of others nor set up automatic actions
	OwnWords      bool     // what the token sends counts as written by the account itself
	Policy        store.Policy
	TokenID       string
	TokenName     string
	TokenKind     string // one of api, mcp, session
	PasswordGiven bool   // the session began with a password that its user had not chosen
	Operator      bool   // the user runs the installation, see IsOperator
	SignedInNow   bool   // the session began within the last SignInFresh
	LinkedBy      string // the session began with the operator's link to sign in, see store.Token.LinkedBy; "": it did not
	Permissions   []string
	Plan          string
	IP            string
	Rate          RateUsage // the state of the account's rate limit at this request
	Request       *Request  // for the audit log; nil: the server itself acts
}

const (
	RoleOwner   = store.UserRoleOwner
	RoleMailbox = store.UserRoleMailbox
	SessionKind = "session"
	OAuthKind   = store.TokenKindOAuth
	LocalToken  = "local" // the TokenID of requests over the local socket
)

// RateUsage is the state of the current rate-limit window.
type RateUsage struct {
	Limit     int   `json:"limit" example:"300"` // Requests a minute of the account's plan.
	Remaining int   `json:"remaining"`
	Reset     int64 `json:"reset"` // When the window ends, in Unix seconds.
}

// IsPerson reports whether the actor is a person who is signed in to the dashboard with a password
// of their own choice. It is false for programs and for the operator, also in a session that
// began with a link.
func (a Actor) IsPerson() bool {
	return a.TokenKind == SessionKind && a.TokenID != LocalToken && !a.PasswordGiven && a.LinkedBy == ""
}

// SignInFresh is how long after signing in a person may change what concerns the whole
// installation.
const SignInFresh = 15 * time.Minute

// Manages reports whether the actor is an owner or admin of the account, or uses a token of one.
func (a Actor) Manages() bool { return IsOwnerOrAdmin(a.Role) }

// IsOwnerOrAdmin reports whether a role is owner or admin.
func IsOwnerOrAdmin(role string) bool {
	return role == store.UserRoleOwner || role == store.UserRoleAdmin
}

// SpeaksForAccount reports whether what the actor sends counts as written by the account itself.
func (a Actor) SpeaksForAccount() bool { return a.IsPerson() || a.OwnWords }

// SeesAll reports whether the actor may see all mailboxes of its account.
func (a Actor) SeesAll() bool { return a.MailboxID == "" && !a.Limited }

// Sees reports whether the actor may see a mailbox of its account.
func (a Actor) Sees(mailboxID string) bool {
	if a.MailboxID != "" {
		return a.MailboxID == mailboxID
	}
	return !a.Limited || slices.Contains(a.Mailboxes, mailboxID)
}

// Scopes lists the scopes of tokens in rising order. Each includes those before it.
var Scopes = []string{"read", "write", "purchase", "admin"}

// Can reports whether the actor's token has the scope.
func (a Actor) Can(scope string) bool {
	need := slices.Index(Scopes, scope)
	for _, p := range a.Permissions {
		if slices.Index(Scopes, p) >= need {
			return true
		}
	}
	return false
}

// Protocols by which mail clients log in.
const (
	ProtocolIMAP = store.ProtocolIMAP
	ProtocolSMTP = store.ProtocolSMTP
)

// A MailLogin holds the credentials with which a mail client logs in.
type MailLogin struct {
	Protocol string // ProtocolIMAP or ProtocolSMTP
	Username string // an address, or the id of a domain's credential
	Password string
	Bearer   bool // the password came as a bearer token (RFC 7628); only a credential's password may
	IP       string
}

// A MailboxUser is a logged-in user of a mailbox (by IMAP or submission) or of a domain (by
// submission, without a mailbox).
type MailboxUser struct {
	AccountID    string
	AccountNum   uint32
	MailboxID    string // "": logged in to a domain
	Mailbox      uint32
	DomainID     string // "": logged in to a mailbox
	Email        string // the mailbox's address or the credential's id
	IP           string
	CredentialID string    // "": logged in without a credential
	Own          bool      // logged in with the mailbox's own password
	PasswordAt   time.Time // when the mailbox's password was set
	Expires      time.Time // when the credential expires; zero: never
	OwnWords     bool      // for a domain's credential: what it sends counts as written by the account itself
	Policy       store.Policy
}
