// Package agents keeps programs that read mail honest. Anybody can write to them, and they may do
// what the mail says. A policy bounds what a token, a credential or a mailbox may send; a taint
// bounds it further once its holder has read what a stranger wrote.
//
// Where things stand:
//   - policy.go: policies as the API shows and takes them.
//   - sending.go: [Service.Admit], which alone says whether a message may be sent: it asks the
//     policy of the mailbox, and that of whoever sends.
//   - reading.go: [Service.Read], which alone says what reading a message does to its reader, and
//     [Verified], which says whether its words are those of somebody known.
package agents

import (
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Recipients knows who receives mail here.
type Recipients interface {
	// SendsOnTo says where mail to an address here goes besides: to ids of groups and mailboxes,
	// and to addresses. Of an id it says the same of a mailbox or group. rules is how many rules
	// were looked at for that.
	SendsOnTo(tx *store.Tx, to string) (next []string, rules int, err error)
}

// A Service decides what agents may send and read.
type Service struct {
	*core.Core
	recipients Recipients
}

// New makes it.
func New(c *core.Core, r Recipients) *Service { return &Service{Core: c, recipients: r} }

// A Holder is who acts with a token or a credential; the zero Holder is a person.
type Holder struct {
	TokenID      string
	CredentialID string
}

// HolderOf gives the holder of the token of a request. Who is signed in to the dashboard, and the
// operator, hold none.
func HolderOf(who core.Actor) Holder {
	if who.TokenKind == core.SessionKind {
		return Holder{}
	}
	return Holder{TokenID: who.TokenID}
}

// HolderOfLogin gives the holder of the credential of a mail client.
func HolderOfLogin(u core.MailboxUser) Holder { return Holder{CredentialID: u.CredentialID} }

// held is the policy and the reading of a holder, in records that are shared with others.
type held struct {
	token      *store.Token
	credential *store.Credential
	policy     store.Policy
	reading    *store.Reading
}

// id is that of the token or the credential.
func (of *held) id() string {
	if of.token != nil {
		return of.token.ID
	}
	return of.credential.ID
}

// holder is who holds it.
func (of *held) holder() Holder {
	if of.token != nil {
		return Holder{TokenID: of.token.ID}
	}
	return Holder{CredentialID: of.credential.ID}
}

// Taint gives what has tainted a holder; nil if nothing has, or it is over.
func (h Holder) Taint(tx *store.Tx) (*store.Taint, error) {
	of, err := h.find(tx)
	if of == nil || err != nil {
		return nil, err
	}
	return of.reading.Tainted(&of.policy, tx.Now()), nil
}

// find gives what a holder holds; nil for a person, and for what was revoked, which no request
// passes with.
func (h Holder) find(tx *store.Tx) (*held, error) {
	switch {
	case h.TokenID != "":
		t, err := store.Tokens.FindShared(tx, h.TokenID)
		if t == nil || err != nil {
			return nil, err
		}
		return &held{token: t, policy: t.Policy, reading: t.Reading}, nil
	case h.CredentialID != "":
		c, err := store.Credentials.FindShared(tx, h.CredentialID)
		if c == nil || err != nil {
			return nil, err
		}
		return &held{credential: c, policy: c.Policy, reading: c.Reading}, nil
	}
	return nil, nil
}

// OriginOf is the origin of a message that was sent here, for an account that gets it.
func OriginOf(accountID string, sub *store.Submission) string {
	switch {
	case sub.Forward || !sub.Checked || sub.Sender == "":
		return ""
	case sub.Tainted:
		return OriginTainted
	case sub.AccountID == accountID && sub.OwnWords:
		return OriginOwn
	}
	return OriginAuthor
}
