package signin_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/clock"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/signin"
	"github.com/mailstead/mailstead/store"
)

const (
	oauthBase = "https://mail.mailstead.test"
	oauthBack = "https://client.test/back"
)

// An oauthClient is an OAuth client, and a person whose consent it asks for.
type oauthClient struct {
	*servicetest.Installation
	id       string
	who      core.Actor
	verifier string
}

func newOAuthClient(t *testing.T, o store.Options) *oauthClient {
	i := servicetest.InstallWith(t, core.Config{Sandbox: true, Settings: core.Settings{Outbound: "capture"}}, o)
	made, err := i.Svc.Signin.RegisterClient(t.Context(), []byte(`{"client_name":"Testing","redirect_uris":["`+oauthBack+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	return &oauthClient{i, made.ClientID, core.Actor{
		AccountID: i.Account.AccountID, UserID: i.Account.UserID, Role: store.UserRoleOwner, TokenID: "tok_session", TokenKind: core.SessionKind, Permissions: []string{"admin"},
	}, strings.Repeat("verifier", 6)}
}

func (c *oauthClient) ask(t *testing.T) (request string) {
	t.Helper()
	sum := sha256.Sum256([]byte(c.verifier))
	asked, err := c.Svc.Signin.AskConsent(t.Context(), c.who, oauthBase, url.Values{
		"response_type": {"code"}, "client_id": {c.id}, "redirect_uri": {oauthBack}, "resource": {oauthBase + "/mcp"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return asked.Request
}

func (c *oauthClient) decide(t *testing.T, request string) (code string, err error) {
	t.Helper()
	out, err := c.Svc.Signin.DecideConsent(t.Context(), c.who, oauthBase, signin.ConsentIn{Request: request, Decision: "allow"})
	if err != nil {
		return "", err
	}
	to, err := url.Parse(out.RedirectTo)
	if err != nil {
		t.Fatal(err)
	}
	return to.Query().Get("code"), nil
}

func (c *oauthClient) exchange(t *testing.T, code string) (*signin.AccessToken, error) {
	return c.Svc.Signin.GrantToken(t.Context(), oauthBase, signin.Visitor{}, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "client_id": {c.id}, "redirect_uri": {oauthBack}, "code_verifier": {c.verifier}, "resource": {oauthBase + "/mcp"},
	})
}

func (c *oauthClient) refresh(t *testing.T, token string) (*signin.AccessToken, error) {
	return c.Svc.Signin.GrantToken(t.Context(), oauthBase, signin.Visitor{}, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}, "client_id": {c.id}})
}

func (c *oauthClient) count(t *testing.T) (requests, clients int) {
	t.Helper()
	err := c.St.View(func(tx *store.Tx) error {
		for range store.OAuthRequests.All(tx) {
			requests++
		}
		for range store.OAuthClients.All(tx) {
			clients++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return requests, clients
}

// TestOAuthIsBounded: consent requests that nobody answers, and clients that nobody uses, do not
// fill the store.
func TestOAuthIsBounded(t *testing.T) {
	now := clock.New(nil, 0)
	c := newOAuthClient(t, store.Options{Clock: now, Unsynced: true})
	first := c.ask(t)
	var last string
	for range 30 {
		now.Advance(time.Second)
		last = c.ask(t)
	}
	if requests, _ := c.count(t); requests != 20 {
		t.Errorf("%d questions are open in a session", requests)
	}
	if _, err := c.decide(t, first); !servicetest.HasCode(err, "validation_error") {
		t.Errorf("the oldest question: %v", err)
	}
	code, err := c.decide(t, last)
	if err != nil {
		t.Fatal(err)
	}
	if requests, _ := c.count(t); requests != 20 {
		t.Errorf("%d questions and codes", requests)
	}
	if _, err := c.exchange(t, code); err != nil {
		t.Fatal(err)
	}
	now.Advance(10 * time.Minute)
	if _, err := c.Svc.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if requests, _ := c.count(t); requests != 0 {
		t.Errorf("%d questions stay", requests)
	}

	for n := range 51 {
		c.Update(func(tx *store.Tx) error {
			var errs error
			for range 100 {
				errs = errors.Join(errs, store.OAuthClients.Put(tx, &store.OAuthClient{ID: tx.NewID("oac"), Name: fmt.Sprint(n), CreatedAt: tx.Now()}))
			}
			return errs
		})
	}
	if _, err := c.Svc.Signin.RegisterClient(t.Context(), []byte(`{"redirect_uris":["`+oauthBack+`"]}`)); err != nil {
		t.Fatal(err)
	}
	if _, clients := c.count(t); clients != 5001 { // with the one that is in use
		t.Errorf("%d clients are kept", clients)
	}
	now.Advance(30*24*time.Hour + time.Second)
	if _, err := c.Svc.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, clients := c.count(t); clients != 1 {
		t.Errorf("%d clients stay after 30 days", clients)
	}
	now.Advance(24 * time.Hour)
	if _, err := c.Svc.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, clients := c.count(t); clients != 0 {
		t.Errorf("%d clients stay for good", clients)
	}
}

// TestOAuthOnce: if a code or a refresh token is used many times at once, one use succeeds, and the
// resulting grant is revoked.
func TestOAuthOnce(t *testing.T) {
	c := newOAuthClient(t, store.Options{Unsynced: true})
	together := func(try func() (*signin.AccessToken, error)) (given []*signin.AccessToken) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 8 {
			wg.Go(func() {
				out, err := try()
				refused, is := errors.AsType[*signin.OAuthError](err)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					given = append(given, out)
				case !is || refused.Code != "invalid_grant":
					t.Errorf("the others get %v", err)
				}
			})
		}
		wg.Wait()
		return given
	}
	gone := func(what string, given []*signin.AccessToken) {
		t.Helper()
		if len(given) != 1 {
			t.Fatalf("%s gave %d tokens", what, len(given))
		}
		if _, err := c.Svc.Accounts.AuthenticateAssistant(t.Context(), given[0].AccessToken, ""); !servicetest.HasCode(err, "token_revoked") {
			t.Errorf("what %s gave: %v", what, err)
		}
		if _, err := c.refresh(t, given[0].RefreshToken); err == nil {
			t.Errorf("what %s gave is renewed", what)
		}
	}
	code, err := c.decide(t, c.ask(t))
	if err != nil {
		t.Fatal(err)
	}
	gone("a code", together(func() (*signin.AccessToken, error) { return c.exchange(t, code) }))

	code, err = c.decide(t, c.ask(t))
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.exchange(t, code)
	if err != nil {
		t.Fatal(err)
	}
	gone("a refresh token", together(func() (*signin.AccessToken, error) { return c.refresh(t, in.RefreshToken) }))

	request, allowed := c.ask(t), 0
	for range 3 {
		if _, err := c.decide(t, request); err == nil {
			allowed++
		}
	}
	if allowed != 1 {
		t.Errorf("a question was answered %d times", allowed)
	}
}

// TestOAuthKeepsHashes: the store holds no code or token in clear text.
func TestOAuthKeepsHashes(t *testing.T) {
	c := newOAuthClient(t, store.Options{Unsynced: true})
	request := c.ask(t)
	other, err := c.decide(t, c.ask(t))
	if err != nil {
		t.Fatal(err)
	}
	code, err := c.decide(t, c.ask(t))
	if err != nil {
		t.Fatal(err)
	}
	given, err := c.exchange(t, code)
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	err = c.St.View(func(tx *store.Tx) error {
		for r := range store.OAuthRequests.All(tx) {
			fmt.Fprintf(&kept, "%+v\n", *r)
		}
		for token := range store.Tokens.All(tx) {
			fmt.Fprintf(&kept, "%+v %+v\n", *token, token.Grant)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"request": request, "unused code": other, "code": code, "access token": given.AccessToken, "refresh token": given.RefreshToken, "family": given.RefreshToken[:36]} {
		if strings.Contains(kept.String(), value) || !strings.Contains(kept.String(), core.TokenHash(strings.TrimPrefix(value, "msr_"))) && name == "family" {
			t.Errorf("the %s: %s", name, kept.String())
		}
	}
}
