package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An OAuthClient is a program that has registered itself to be signed in to /mcp (RFC 7591). It has
// no secret. Programs that are named by a document of their own have no row.
type OAuthClient struct {
	ID           string // oac_…
	Name         string
	RedirectURIs []string
	CreatedAt    time.Time
	UsedAt       time.Time // the last time that it got a token, about a day exact; zero: never
}

// OAuthClients keeps the clients of every account. OAuthClientsUnused finds those that never got a
// token.
var (
	OAuthClients       = engine.NewTable("oauth_client", func(c *OAuthClient) string { return c.ID })
	OAuthClientsUnused = OAuthClients.Index("unused", func(c *OAuthClient) string {
		if !c.UsedAt.IsZero() {
			return ""
		}
		return "unused"
	})
)

// An OAuthRequest is a client's request to act for a team user. It waits for the person's decision,
// and, once that is yes, for the client to turn its code into a grant.
type OAuthRequest struct {
	ID          string // SHA-256 of the request's value, or of the code, hex
	AccountID   string
	UserID      string
	SessionID   string // that the question was shown in
	TokenID     string // of the grant, if it is allowed
	Allowed     bool   // ID is that of a code
	ClientID    string // oac_…, or the address of its document
	ClientName  string
	RedirectURI string
	State       string   `json:",omitempty"`
	Challenge   string   // of RFC 7636, S256
	Permissions []string // asked for, then granted
	Mailboxes   []string `json:",omitempty"` // see Token
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

// A Grant is what a Token of kind oauth has beside others: the Hash of such a token is that of the
// access token which holds now, and it ends with its refresh token.
type Grant struct {
	ClientID    string // oac_…, or the address of its document
	ClientName  string
	Code        string    // SHA-256 of the code that it was given for, hex
	Family      string    // SHA-256 of what all its refresh tokens begin with, hex
	Refresh     string    // SHA-256 of the refresh token that holds now, hex
	AccessUntil time.Time // when the access token ends
}

func grantCode(t *Token) string {
	if t.Grant == nil {
		return ""
	}
	return t.Grant.Code
}

func grantFamily(t *Token) string {
	if t.Grant == nil {
		return ""
	}
	return t.Grant.Family
}
