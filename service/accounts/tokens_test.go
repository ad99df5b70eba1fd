package accounts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestTokensAreBounded: an account has at most 1 000 tokens, and a mailbox 1 000 of its own.
// Revoked tokens and sessions do not count, and the tokens of a mailbox do not count for the
// account.
func TestTokensAreBounded(t *testing.T) {
	const most = 1000
	b := servicetest.New(t, nil)
	owner := core.Actor{AccountID: b.Owner.AccountID, UserID: b.Owner.UserID, Role: store.UserRoleOwner, Permissions: []string{"admin"}, TokenKind: store.TokenKindAPI}
	fill := func(name string, n int, change func(*store.Token)) {
		t.Helper()
		for from := 0; from < n; from += 100 {
			if err := b.Core.Store.Update(func(tx *store.Tx) error {
				for i := from; i < min(from+100, n); i++ {
					id := fmt.Sprintf("tok_%s%d", name, i)
					one := &store.Token{ID: id, Hash: core.TokenHash(id), AccountID: owner.AccountID, UserID: owner.UserID, Kind: store.TokenKindAPI, Permissions: []string{"read"}, CreatedAt: tx.Now()}
					change(one)
					if err := store.Tokens.Put(tx, one); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create := func() (*accounts.TokenCreated, error) {
		return b.Accounts.CreateToken(t.Context(), owner, accounts.CreateTokenIn{Name: "one more"})
	}
	fill("revoked", 300, func(one *store.Token) { one.RevokedAt = time.Unix(1, 0) })
	fill("session", 300, func(one *store.Token) { one.Kind = core.SessionKind })
	fill("inbox", most, func(one *store.Token) { one.Mailboxes = []string{"eu_1"} })
	fill("a", most-2, func(*store.Token) {}) // the account was made with one
	last, err := create()
	if err != nil {
		t.Fatalf("the last one: %v", err)
	}
	_, err = create()
	if e, ours := core.AsError(err); !ours || e.Code != "too_many_items" {
		t.Errorf("one too many: %v", err)
	}
	if _, err := b.Accounts.DeleteToken(t.Context(), owner, accounts.TokenIn{TokenID: last.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err = create(); err != nil {
		t.Errorf("in the place of another: %v", err)
	}

	// Tokens of one mailbox have a limit of their own.
	if err := b.Core.Store.View(func(tx *store.Tx) error {
		if accounts.CheckRoomForToken(tx, &store.Token{AccountID: owner.AccountID, Mailboxes: []string{"eu_2"}}) != nil {
			t.Error("there is no room in another mailbox")
		}
		if e, ours := core.AsError(accounts.CheckRoomForToken(tx, &store.Token{AccountID: owner.AccountID, Mailboxes: []string{"eu_1"}})); !ours || e.Code != "too_many_items" {
			t.Errorf("one too many of a mailbox: %v", e)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestNoTokenForADeletedUser creates a token while its user is being deleted.
func TestNoTokenForADeletedUser(t *testing.T) {
	s, owner := servicetest.NewBare(t)
	u, err := s.Accounts.InviteTeamUser(t.Context(), owner, accounts.InviteTeamUserIn{Email: "ann@team.test"})
	if err != nil {
		t.Fatal(err)
	}
	who := core.Actor{AccountID: owner.AccountID, UserID: u.ID, Role: "member", Permissions: []string{"write"}}
	if _, err := s.Accounts.DeleteTeamUser(t.Context(), owner, accounts.TeamUserIn{UserID: u.ID}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Accounts.CreateToken(t.Context(), who, accounts.CreateTokenIn{})
	if e, ours := core.AsError(err); !ours || e.Code != "token_revoked" {
		t.Errorf("a token was made: %v", err)
	}
}
