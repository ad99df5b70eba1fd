package signin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// AccessToken is the answer of the token endpoint (RFC 6749 section 5.1).
type AccessToken struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int    `json:"expires_in"` // seconds
	RefreshToken string `json:"refresh_token"`
	Scope        string `json:"scope"`
}

func invalidGrant(description string) *OAuthError { return &OAuthError{"invalid_grant", description} }

// GrantToken answers a request to the token endpoint: it exchanges a code for a new grant, or a
// refresh token for new tokens of its grant. The error may be an *OAuthError.
func (s *Service) GrantToken(ctx context.Context, base string, v Visitor, form url.Values) (*AccessToken, error) {
	given := map[string]string{}
	for _, name := range []string{"grant_type", "client_id", "code", "redirect_uri", "code_verifier", "refresh_token", "scope"} {
		value, ok := singleParam(form, name)
		if !ok {
			return nil, &OAuthError{"invalid_request", name + " is given twice, or too long."}
		}
		given[name] = value
	}
	need := func(names ...string) error {
		for _, name := range names {
			if given[name] == "" {
				return &OAuthError{"invalid_request", name + " is missing."}
			}
		}
		return nil
	}
	switch given["grant_type"] {
	case "authorization_code":
		if err := need("client_id", "code", "redirect_uri", "code_verifier"); err != nil {
			return nil, err
		}
		if !isResource(form["resource"], base) {
			return nil, &OAuthError{"invalid_target", "resource must be " + base + "/mcp."}
		}
		return s.exchangeCode(ctx, v, given["client_id"], given["code"], given["redirect_uri"], given["code_verifier"])
	case "refresh_token":
		if err := need("client_id", "refresh_token"); err != nil {
			return nil, err
		}
		if len(form["resource"]) > 0 && !isResource(form["resource"], base) { // many clients do not name the resource in this request
			return nil, &OAuthError{"invalid_target", "resource must be " + base + "/mcp."}
		}
		return s.refreshGrant(ctx, v, given["client_id"], given["refresh_token"], given["scope"])
	case "":
		return nil, need("grant_type")
	}
	return nil, &OAuthError{"unsupported_grant_type", "grant_type must be authorization_code or refresh_token."}
}

// exchangeCode creates the grant that a person has allowed. If the code was used before, the grant
// made from it is revoked: somebody else has the code too (RFC 6749 section 4.1.2).
func (s *Service) exchangeCode(ctx context.Context, v Visitor, clientID, code, redirectURI, verifier string) (out *AccessToken, err error) {
	var refused *OAuthError // not returned from Update, so that the transaction is committed
	err = s.Store.Update(func(tx *store.Tx) error {
		out, refused = nil, nil
		r, err := store.OAuthRequests.Find(tx, core.TokenHash(code))
		if err != nil {
			return err
		}
		if r == nil {
			refused = invalidGrant("This code is wrong, was used already, or is older than a minute. Ask the person again.")
			t, err := store.TokenByCode.Find(tx, core.TokenHash(code))
			if t == nil || err != nil {
				return err
			}
			s.LogOf(ctx).Warn("an authorization code was used twice; its grant is revoked", "client", t.Grant.ClientID, "token", t.ID, "ip", v.IP)
			return endGrant(tx, t, v, store.AuditActor{Type: store.AuditActorSystem})
		}
		refused, err = checkKnownClient(tx, clientID)
		if refused != nil || err != nil {
			return err
		}
		switch {
		case !r.Allowed || !tx.Now().Before(r.ExpiresAt):
			refused = invalidGrant("This code is wrong, was used already, or is older than a minute. Ask the person again.")
		case r.ClientID != clientID:
			refused = invalidGrant("This code was given to another client.")
		case r.RedirectURI != redirectURI:
			refused = invalidGrant("redirect_uri is not the one that the code was sent to.")
		case !verifierMatches(verifier, r.Challenge):
			refused = invalidGrant("code_verifier does not fit the code_challenge.")
		}
		if refused != nil {
			return nil
		}
		if err := store.OAuthRequests.Delete(tx, r.ID); err != nil {
			return err
		}
		t := &store.Token{
			ID: r.TokenID, AccountID: r.AccountID, UserID: r.UserID, Name: r.ClientName, Kind: store.TokenKindOAuth, Permissions: r.Permissions,
			CreatedAt: tx.Now(), Policy: r.Policy,
			Grant: &store.Grant{ClientID: r.ClientID, ClientName: r.ClientName, Code: r.ID},
		}
		for _, id := range r.Mailboxes {
			mb, err := core.LiveMailbox(tx, id)
			if err != nil {
				return err
			}
			if mb != nil {
				t.Mailboxes = append(t.Mailboxes, id)
			}
		}
		if len(r.Mailboxes) > 0 && len(t.Mailboxes) == 0 {
			refused = invalidGrant("The mailboxes that the person has chosen are gone. Ask the person again.")
			return nil
		}
		full := accounts.CheckRoomForToken(tx, t)
		if e, ours := core.AsError(full); ours {
			refused = invalidGrant(e.Message)
			return nil
		}
		out, refused, err = s.renewGrant(tx, t, core.RandomText(refreshPartLen, core.Base62))
		return errors.Join(full, err)
	})
	if err == nil && refused != nil {
		return nil, refused
	}
	return out, err
}

// refreshGrant gives a grant new tokens. If refreshToken is an old one, it revokes the grant: two
// clients have the token, and one of them is a thief (RFC 9700 section 4.14.2).
func (s *Service) refreshGrant(ctx context.Context, v Visitor, clientID, refreshToken, scope string) (out *AccessToken, err error) {
	var refused *OAuthError
	wrong := invalidGrant("This refresh token is wrong, was used already, or has ended. Ask the person again.")
	family, ok := familyOf(refreshToken)
	if !ok {
		return nil, wrong
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		out, refused = nil, nil
		refused, err = checkKnownClient(tx, clientID)
		if refused != nil || err != nil {
			return err
		}
		t, err := store.TokenByFamily.Find(tx, core.TokenHash(family))
		if err != nil {
			return err
		}
		if t == nil || !t.RevokedAt.IsZero() {
			refused = wrong
			return nil
		}
		if t.Grant.Refresh != core.TokenHash(refreshToken) {
			refused = wrong
			s.LogOf(ctx).Warn("an old refresh token was used; its grant is revoked", "client", t.Grant.ClientID, "token", t.ID, "ip", v.IP)
			return endGrant(tx, t, v, store.AuditActor{Type: store.AuditActorSystem})
		}
		switch {
		case !tx.Now().Before(t.ExpiresAt):
			refused = wrong
		case t.Grant.ClientID != clientID:
			refused = invalidGrant("This refresh token was given to another client.")
		case slices.ContainsFunc(strings.Fields(scope), func(name string) bool { return !slices.Contains(t.Permissions, name) }):
			refused = &OAuthError{"invalid_scope", "The person has not allowed this scope."}
		}
		if refused != nil {
			return nil
		}
		out, refused, err = s.renewGrant(tx, t, family)
		return err
	})
	if err == nil && refused != nil {
		return nil, refused
	}
	return out, err
}

// checkKnownClient returns an OAuthError if a client is not registered, or was unused for too long,
// so that the client registers again.
func checkKnownClient(tx *store.Tx, id string) (*OAuthError, error) {
	if isDocumentURL(id) {
		return nil, nil
	}
	c, err := registeredClient(tx, id)
	if c == nil && err == nil {
		return &OAuthError{"invalid_client", "No such client is registered here. Register again."}, nil
	}
	return nil, err
}

// renewGrant gives a grant new tokens and stores it, if its person may act.
func (s *Service) renewGrant(tx *store.Tx, t *store.Token, family string) (*AccessToken, *OAuthError, error) {
	access, refresh, now := core.NewToken(), refreshPrefix+family+core.RandomText(refreshPartLen, core.Base62), tx.Now()
	t.Hash, t.Prefix, t.ExpiresAt = core.TokenHash(access), access[:12], now.Add(refreshTokenLife)
	t.Grant.Family, t.Grant.Refresh, t.Grant.AccessUntil = core.TokenHash(family), core.TokenHash(refresh), now.Add(accessTokenLife)
	_, err := s.accounts.ActorWithoutUse(tx, t)
	if _, ours := core.AsError(err); ours || errors.Is(err, store.ErrNotFound) {
		return nil, invalidGrant("The person for whom this client acts may not use Mailstead now."), nil
	}
	if err := errors.Join(err, store.Tokens.Put(tx, t), recordClientUse(tx, t.Grant.ClientID)); err != nil {
		return nil, nil, err
	}
	return &AccessToken{access, "Bearer", int(accessTokenLife.Seconds()), refresh, strings.Join(t.Permissions, " ")}, nil, nil
}

// verifierMatches reports whether a code verifier matches a challenge (RFC 7636 sections 4.1 and
// 4.6).
func verifierMatches(verifier, challenge string) bool {
	const verifierChars = core.Base62 + "-._~"
	if len(verifier) < 43 || len(verifier) > 128 || strings.Trim(verifier, verifierChars) != "" {
		return false
	}
	sum := sha256.Sum256([]byte(verifier))
	return subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(challenge)) == 1
}

// familyOf returns the first part of a refresh token, which all refresh tokens of one grant share.
func familyOf(value string) (family string, ok bool) {
	rest, ok := strings.CutPrefix(value, refreshPrefix)
	if !ok || len(rest) != 2*refreshPartLen || strings.Trim(rest, core.Base62) != "" {
		return "", false
	}
	return rest[:refreshPartLen], true
}

// RevokeGrant answers a request to the revocation endpoint (RFC 7009): it revokes the grant of an
// access or refresh token. An unknown token is not an error. The error may be an *OAuthError.
func (s *Service) RevokeGrant(_ context.Context, v Visitor, form url.Values) error {
	value, ok := singleParam(form, "token")
	clientID, also := singleParam(form, "client_id")
	if !ok || !also || value == "" {
		return &OAuthError{"invalid_request", "token must be given once."}
	}
	var refused *OAuthError
	err := s.Store.Update(func(tx *store.Tx) error {
		refused = nil
		t, err := grantOf(tx, value)
		if t == nil || err != nil || !t.RevokedAt.IsZero() {
			return err
		}
		if clientID != "" && clientID != t.Grant.ClientID {
			refused = invalidGrant("This token was given to another client.")
			return nil
		}
		return endGrant(tx, t, v, store.AuditActor{Type: store.AuditActorToken, ID: t.ID, Name: t.Name})
	})
	if err == nil && refused != nil {
		return refused
	}
	return err
}

// grantOf returns the grant of an access or refresh token; nil if there is none.
func grantOf(tx *store.Tx, value string) (*store.Token, error) {
	if family, ok := familyOf(value); ok {
		return store.TokenByFamily.Find(tx, core.TokenHash(family))
	}
	if !core.IsWellFormedToken(value) {
		return nil, nil
	}
	t, err := store.TokenByHash.Find(tx, core.TokenHash(value))
	if t == nil || err != nil || t.Kind != store.TokenKindOAuth {
		return nil, err
	}
	return t, nil
}

// endGrant revokes a grant, and records in the audit log that its client or the server did so.
func endGrant(tx *store.Tx, t *store.Token, v Visitor, actor store.AuditActor) error {
	if !t.RevokedAt.IsZero() {
		return nil
	}
	return errors.Join(accounts.RevokeToken(tx, t), core.PutAudit(tx, store.Audit{
		AccountID: t.AccountID, Action: "revoke_grant", Via: core.AuditAPI, RequestID: v.RequestID, IP: v.IP, Actor: actor, Target: core.TokenTarget(t), Count: 1,
	}))
}
