package accounts_test

import (
	"testing"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// manyTokens are more than one transaction may revoke.
const manyTokens = 6000

func TestTokensOfAUserAreRevokedWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	u := &store.User{ID: s.Store.NewID("usr"), AccountID: who.AccountID, Email: "ann@example.test", Role: "member", Status: "active"}
	servicetest.Update(t, s, func(tx *store.Tx) error { return store.Users.Put(tx, u) })
	var values []string
	for range manyTokens {
		values = append(values, accounts.NewToken())
	}
	servicetest.PutMany(t, s, store.Tokens, manyTokens, func(i int) *store.Token {
		tok := &store.Token{
			ID: s.Store.NewID("tok"), AccountID: who.AccountID, UserID: u.ID, Hash: core.TokenHash(values[i]), Kind: "api",
			Permissions: []string{"read"}, CreatedAt: s.Now(),
		}
		if i%2 == 0 {
			tok.Kind, tok.ExpiresAt = core.SessionKind, s.Now().Add(accounts.SessionLife)
		}
		return tok
	})
	stands := func() (n int) {
		for _, v := range []string{values[1], values[manyTokens/2+1], values[manyTokens-1]} {
			if _, err := s.Authenticate(t.Context(), v, "192.0.2.1"); err == nil {
				n++
			}
		}
		return n
	}
	if stands() != 3 {
		t.Fatal("the tokens do not stand")
	}
	err := s.Store.View(func(tx *store.Tx) error {
		for tok := range store.Tokens.All(tx) {
			s.TokenUses().Record(tok.ID, s.Now(), "192.0.2.1")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.FlushTokenUses(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteTeamUser(t.Context(), who, accounts.TeamUserIn{UserID: u.ID}); err != nil {
		t.Fatal(err)
	}
	if n := stands(); n != 0 {
		t.Errorf("%d tokens of nobody stand", n)
	}
}
