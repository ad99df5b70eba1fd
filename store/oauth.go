package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An OAuthClient is a program that has registered itself (RFC 7591) so that people can sign in to
// /mcp with it. It has no secret. A program that is identified by the URL of a metadata document
// has no record.
type OAuthClient struct {
	ID           string // oac_…
	Name         string
	RedirectURIs []string
	CreatedAt    time.Time
	UsedAt       time.Time // when it last got a token, accurate to about a day; zero: never
}

// OAuthClients keeps the clients of every account. OAuthClientsUnused finds the clients that never
// got a token.
var (
	OAuthClients       = engine.NewTable("oauth_client", func(c *OAuthClient) string { return c.ID })
	OAuthClientsUnused = OAuthClients.Index("unused", func(c *OAuthClient) string {
		if !c.UsedAt.IsZero() {
			return ""
		}
		return "unused"
	})
)

// An OAuthRequest is a client's request to act for a team user. It waits for the person's decision.
// Once it is allowed, it waits for the client to exchange its code for a grant.
type OAuthRequest struct {
	ID          string // SHA-256 of the request token, or of the code once it is allowed, hex
	AccountID   string
	UserID      string
	SessionID   string // id of the session that the person was asked in
	TokenID     string // id of the grant's token, if it is allowed
	Allowed     bool   // whether the person allowed it; ID is then the hash of a code
	ClientID    string // oac_…, or the URL of its metadata document
	ClientName  string
	RedirectURI string
	State       string   `json:",omitempty"`
	Challenge   string   // PKCE code challenge (RFC 7636, S256)
	Permissions []string // requested permissions; once allowed, the granted ones
	Mailboxes   []string `json:",omitempty"` // see Token.Mailboxes
	Policy      Policy   `json:",omitzero"`
	ExpiresAt   time.Time
}

// OAuthRequests keeps the requests of every account.
var (
	OAuthRequests          = engine.NewTable("oauth_request", func(r *OAuthRequest) string { return r.ID })
	OAuthRequestsByTime    = OAuthRequests.Index("time", func(r *OAuthRequest) string { return TimeKey(r.ExpiresAt) })
	OAuthRequestsBySession = OAuthRequests.Index("session", func(r *OAuthRequest) string {
		if r.Allowed {
			return ""
		}
		return r.SessionID
	})
)

// A Grant holds what only a token of the kind TokenKindOAuth has. The Hash of such a token is that
// of the current access token, and the token expires with its refresh token.
type Grant struct {
	ClientID    string // oac_…, or the URL of its metadata document
	ClientName  string
	Code        string    // SHA-256 of the authorization code that was exchanged for it, hex
	Family      string    // SHA-256 of the prefix that all its refresh tokens share, hex
	Refresh     string    // SHA-256 of the current refresh token, hex
	AccessUntil time.Time // when the access token expires
}

func grantCodeKey(t *Token) string {
	if t.Grant == nil {
		return ""
	}
	return t.Grant.Code
}

func grantFamilyKey(t *Token) string {
	if t.Grant == nil {
		return ""
	}
	return t.Grant.Family
}
