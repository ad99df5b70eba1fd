// Package agents protects programs that read mail, such as AI agents. Anybody can write to them,
// and they may do what the mail says. A policy limits what a token, a credential or a mailbox may
// send. A taint limits it further once its holder has read a stranger's text.
//
// The files:
//   - policy.go: policies as the API shows and accepts them.
//   - sending.go: [Service.Admit], the only function that decides whether a message may be sent: it
//     checks the policy of the mailbox and that of the sender.
//   - reading.go: [Service.Read], the only function that taints a reader, and [Verified], which
//     decides whether the text of a message is from somebody known. It starts from the verified
//     domain of the author, which mail/auth decides (verified_domain.go).
//
// The words of this package:
//   - A holder is whoever has a token or a credential: the program that reads and sends with it.
//   - A reading is the record of what a holder has read ([store.Reading]).
//   - A holder is tainted once it has read text that a stranger may have written ([store.Taint]).
//   - The people of a message are the addresses in its From, Reply-To, To and Cc.
//   - The origin of a message says who wrote it ([OriginOwn] and the values after it).
//   - Own words are texts of the account itself. Reading them does not taint.
package agents

import (
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Recipients is the part of service/recipients that this package needs.
type Recipients interface {
	// SendsOnTo returns where mail to a local address is sent on to: IDs of groups and mailboxes,
	// and email addresses. to may also be the ID of a mailbox or group. rules is how many rules
	// were read to find this out.
	SendsOnTo(tx *store.Tx, to string) (next []string, rules int, err error)
}

// A Service decides what agents may send, and records what they have read.
type Service struct {
	*core.Core
	recipients Recipients
}

// New returns a Service.
func New(c *core.Core, r Recipients) *Service { return &Service{Core: c, recipients: r} }

// A Holder is the token or credential with which somebody acts. The zero Holder stands for a
// person.
type Holder struct {
	TokenID      string
	CredentialID string
}

// HolderOf returns the holder of the token with which a request was made. It returns the zero
// Holder for people in the dashboard and for the operator.
func HolderOf(who core.Actor) Holder {
	if who.TokenKind == core.SessionKind {
		return Holder{}
	}
	return Holder{TokenID: who.TokenID}
}

// HolderOfLogin returns the holder of the credential with which a mail client has logged in.
func HolderOfLogin(u core.MailboxUser) Holder { return Holder{CredentialID: u.CredentialID} }

// A holderRecord is the stored token or credential of a holder, with its policy and reading. These
// records are shared and must not be changed.
type holderRecord struct {
	token      *store.Token
	credential *store.Credential
	policy     store.Policy
	reading    *store.Reading
}

// id returns the ID of the token or credential.
func (of *holderRecord) id() string {
	if of.token != nil {
		return of.token.ID
	}
	return of.credential.ID
}

// holder returns the Holder that the record belongs to.
func (of *holderRecord) holder() Holder {
	if of.token != nil {
		return Holder{TokenID: of.token.ID}
	}
	return Holder{CredentialID: of.credential.ID}
}

// Taint returns the taint of a holder; nil if the holder is not tainted, or not tainted any more.
func (h Holder) Taint(tx *store.Tx) (*store.Taint, error) {
	of, err := h.find(tx)
	if of == nil || err != nil {
		return nil, err
	}
	return of.reading.TaintInForce(&of.policy, tx.Now()), nil
}

// find returns the record of a holder. It returns nil for a person, who has none, and for a deleted
// token or credential, with which no request can be made.
func (h Holder) find(tx *store.Tx) (*holderRecord, error) {
	switch {
	case h.TokenID != "":
		t, err := store.Tokens.FindShared(tx, h.TokenID)
		if t == nil || err != nil {
			return nil, err
		}
		return &holderRecord{token: t, policy: t.Policy, reading: t.Reading}, nil
	case h.CredentialID != "":
		c, err := store.Credentials.FindShared(tx, h.CredentialID)
		if c == nil || err != nil {
			return nil, err
		}
		return &holderRecord{credential: c, policy: c.Policy, reading: c.Reading}, nil
	}
	return nil, nil
}

// OriginOf returns the origin of a message that was sent from this server. accountID is the ID of
// the account that receives it.
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
