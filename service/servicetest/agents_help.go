package servicetest

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/store"
)

// Taint makes a token or a credential tainted, as after reading a message of the thread threadID.
// people are the addresses in that message.
func (b *Sandbox) Taint(t testing.TB, id, mailboxID, threadID string, people ...string) {
	t.Helper()
	b.update(t, func(tx *store.Tx) error {
		r := &store.Reading{People: people, Taint: &store.Taint{Since: tx.Now(), Last: tx.Now(), MailboxID: mailboxID, ThreadID: threadID}}
		if strings.HasPrefix(id, "tok_") {
			token, err := store.Tokens.Get(tx, id)
			if err != nil {
				return err
			}
			token.Reading = r
			return store.Tokens.Put(tx, token)
		}
		c, err := store.Credentials.Get(tx, id)
		if err != nil {
			return err
		}
		c.Reading = r
		return store.Credentials.Put(tx, c)
	})
}

// Access counts the credentials of a mailbox and the tokens that are limited to it.
func (b *Sandbox) Access(t testing.TB, mailboxID string) (n int) {
	t.Helper()
	b.view(t, func(tx *store.Tx) error {
		n = store.CredentialsByMailbox.Count(tx, mailboxID, 0) + len(store.TokensOfMailbox(tx, b.Owner.AccountID, mailboxID))
		return nil
	})
	return n
}
