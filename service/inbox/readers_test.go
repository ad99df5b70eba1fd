package inbox_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// TestManyReadersHoldNoWriterUp: when one token reads a message with many people, every tainting
// token of the account has read it, however many there are. The store refuses a transaction that is
// too large.
func TestManyReadersHoldNoWriterUp(t *testing.T) {
	const many, people = 400, 180
	r := newWaitRig(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	made, err := r.Svc.Accounts.CreateToken(t.Context(), r.who, accounts.CreateTokenIn{Name: "agent", Policy: &agents.Policy{Taint: true}})
	if err != nil {
		t.Fatal(err)
	}
	agent, ids := r.authenticate(made.Value), []string{made.ID}
	for from := 0; from < many; from += 100 {
		r.Update(func(tx *store.Tx) error {
			for n := range 100 {
				id := fmt.Sprintf("tok_%d_%d", from, n)
				if err := store.Tokens.Put(tx, &store.Token{
					ID: id, AccountID: r.who.AccountID, UserID: agent.UserID, Name: "agent", Hash: core.TokenHash(id), Kind: "api",
					Permissions: []string{"read", "write"}, Policy: store.Policy{Taint: true},
				}); err != nil {
					return err
				}
			}
			return nil
		})
		for n := range 100 {
			ids = append(ids, fmt.Sprintf("tok_%d_%d", from, n))
		}
	}
	var cc []string
	for n := range people {
		cc = append(cc, fmt.Sprintf("%s%d@far.test", strings.Repeat("x", 60), n))
	}
	text := "From: p@far.test\r\nTo: ann@example.test\r\nCc: " + strings.Join(cc, ",\r\n ") + "\r\nMessage-ID: <1@far.test>\r\nSubject: s\r\n\r\nHello.\r\n"
	if err := r.Receive("p@far.test", text, r.ann.Email); err != nil {
		t.Fatal(err)
	}
	r.words(r.ann, "INBOX", "s")
	if _, err := r.Svc.Inbox.GetMessage(t.Context(), agent, inbox.MessageIn{UserID: r.ann.ID, MessageID: core.UIDText(r.Folder(r.ann, "INBOX")[0].UID)}); err != nil {
		t.Fatal(err)
	}
	if err := r.St.View(func(tx *store.Tx) error {
		for i, id := range ids {
			token, err := store.Tokens.Get(tx, id)
			if err != nil {
				return err
			}
			tainted, err := agents.Holder{TokenID: id}.Taint(tx)
			if err != nil {
				return err
			}
			if token.Reading == nil || len(token.Reading.People) != people+2 || (tainted != nil) != (i == 0) {
				t.Errorf("token %d: %+v, tainted %v", i, token.Reading, tainted)
				break
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
