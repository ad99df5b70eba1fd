package core

import (
	"slices"
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
	Role        string // owner admin member
	TokenID     string
	TokenKind   string // api mcp session
	Permissions []string
	Plan        string
	IP          string
	Rate        RateUsage // of the request that asks
}

// Scopes in rising order; each holds the ones before it.
var Scopes = []string{"read", "write", "purchase", "admin"}

// Can tells whether the actor's token holds the scope.
func (a Actor) Can(scope string) bool {
	need := slices.Index(Scopes, scope)
	for _, p := range a.Permissions {
		if slices.Index(Scopes, p) >= need {
			return true
		}
	}
	return false
}

// A MailboxUser is who has logged in to a mailbox by IMAP or submission.
type MailboxUser struct {
	AccountID  string
	AccountNum uint32
	MailboxID  string
	Mailbox    uint32
	Email      string
	IP         string
}
