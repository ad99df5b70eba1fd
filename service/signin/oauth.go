package signin

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Lifetimes and limits of a sign-in to /mcp.
const (
	consentLife      = 10 * time.Minute
	codeLife         = time.Minute
	accessTokenLife  = time.Hour
	refreshTokenLife = 30 * 24 * time.Hour
	maxOpenConsents  = 20   // open consent requests of one session; one more ends the oldest
	maxOAuthParam    = 2048 // longest parameter, in characters
)

const (
	refreshPrefix  = "msr_"
	refreshPartLen = 32 // characters of each of the two parts after the prefix
)

// OAuthScopes lists the scopes that a grant may have.
var OAuthScopes = []string{"read", "write"}

// An OAuthError is the error that a client gets. The codes are those of RFC 6749 section 5.2 and
// RFC 7591 section 3.2.2.
type OAuthError struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

func (e *OAuthError) Error() string { return e.Description }

// A RefusedError sends the browser back to the client with an error (RFC 6749 section 4.1.2.1).
type RefusedError struct{ RedirectTo string }

func (*RefusedError) Error() string { return "the client's request is refused" }

// An authorization is a checked request of a client to act for a person.
type authorization struct {
	client      *ClientMetadata
	redirectURI string
	state       string // returned to the client unchanged
	challenge   string // hash of the code verifier (RFC 7636)
	permissions []string
}

// singleParam returns the value of a parameter. ok is false if it is repeated (RFC 6749 section
// 3.1) or too long.
func singleParam(q url.Values, name string) (value string, ok bool) {
	switch given := q[name]; len(given) {
	case 0:
		return "", true
	case 1:
		return given[0], len(given[0]) <= maxOAuthParam
	}
	return "", false
}

// CheckAuthorization checks the query of an authorization request. base is the URL of this server.
// The error is a 400 for a bad client or redirect URI, and a *RefusedError for any other fault.
// Before sign-in, a client with a metadata document is not checked, since its document would have
// to be fetched.
func (s *Service) CheckAuthorization(ctx context.Context, base string, q url.Values, signedIn bool) error {
	if id, _ := singleParam(q, "client_id"); isDocumentURL(id) && !signedIn {
		return nil
	}
	_, err := s.checkAuthorization(ctx, base, q)
	if _, refused := errors.AsType[*RefusedError](err); refused && !signedIn { // before sign-in, this would let anybody redirect a browser to any address
		return nil
	}
	return err
}

func (s *Service) checkAuthorization(ctx context.Context, base string, q url.Values) (*authorization, error) {
	id, ok := singleParam(q, "client_id")
	if !ok || id == "" {
		return nil, core.Invalid("client_id", "required", "must be given once")
	}
	client, err := s.findClient(ctx, id)
	if err != nil {
		return nil, err
	}
	a := &authorization{client: client}
	a.redirectURI, ok = singleParam(q, "redirect_uri")
	if !ok || a.redirectURI == "" {
		return nil, core.Invalid("redirect_uri", "required", "must be given once")
	}
	if !slices.ContainsFunc(client.RedirectURIs, func(uri string) bool { return sameRedirect(uri, a.redirectURI) }) {
		return nil, core.Invalid("redirect_uri", "not_allowed", "is none of those that the client has registered")
	}
	stateOK := false
	a.state, stateOK = singleParam(q, "state")
	sendBack := func(code, description string) error {
		return &RefusedError{authorizationResponse(base, a.redirectURI, a.state, "error", code, "error_description", description)}
	}
	kind, kindOK := singleParam(q, "response_type")
	challenge, challengeOK := singleParam(q, "code_challenge")
	method, methodOK := singleParam(q, "code_challenge_method")
	mode, modeOK := singleParam(q, "response_mode")
	scope, scopeOK := singleParam(q, "scope")
	switch {
	case !stateOK || !kindOK || kind == "" || !challengeOK || !methodOK || !modeOK || !scopeOK:
		return nil, sendBack("invalid_request", "A parameter is missing, given twice or too long.")
	case kind != "code":
		return nil, sendBack("unsupported_response_type", "response_type must be code.")
	case mode != "" && mode != "query":
		return nil, sendBack("invalid_request", "response_mode must be query.")
	case challenge == "" || method != "S256":
		return nil, sendBack("invalid_request", "PKCE is required: code_challenge with code_challenge_method S256.")
	case !isChallenge(challenge):
		return nil, sendBack("invalid_request", "code_challenge is no SHA-256 in base64url.")
	case !isResource(q["resource"], base):
		return nil, sendBack("invalid_target", "resource must be "+base+"/mcp.")
	}
	a.challenge, a.permissions = challenge, OAuthScopes
	if scope != "" {
		a.permissions = nil
		for _, known := range OAuthScopes {
			if slices.Contains(strings.Fields(scope), known) {
				a.permissions = append(a.permissions, known)
			}
		}
		if a.permissions == nil {
			return nil, sendBack("invalid_scope", "scope must have read, write or both.")
		}
	}
	return a, nil
}

// isChallenge reports whether text can be the base64url of a SHA-256 sum (RFC 7636 section 4.2).
func isChallenge(text string) bool {
	sum, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && len(sum) == sha256.Size && len(text) == base64.RawURLEncoding.EncodedLen(sha256.Size) // the decoder skips line ends, so the length is checked too
}

// isResource reports whether the requested resource is exactly this server's /mcp (RFC 8707).
func isResource(given []string, base string) bool {
	if len(given) != 1 || len(given[0]) > maxOAuthParam || strings.Contains(given[0], "#") {
		return false
	}
	want, err := url.Parse(base + "/mcp")
	got, wrong := url.Parse(given[0])
	if err != nil || wrong != nil {
		return false
	}
	same := strings.EqualFold(got.Scheme, want.Scheme) && strings.EqualFold(got.Host, want.Host)
	got.Scheme, got.Host = want.Scheme, want.Host
	return same && *got == *want
}

// authorizationResponse returns the URI to which the browser is redirected. It adds to the query of
// redirectURI: the state, the pairs of names and values, and the issuer (RFC 9207).
func authorizationResponse(base, redirectURI, state string, pairs ...string) string {
	q := url.Values{"iss": {base}}
	if state != "" {
		q.Set("state", state)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	mark := "?"
	if strings.Contains(redirectURI, "?") {
		mark = "&"
	}
	return redirectURI + mark + q.Encode()
}

// A Consent asks a person whether a client may act for them, and with which rights.
type Consent struct {
	Request     string        `json:"request"`
	Client      ConsentClient `json:"client"`
	Resource    string        `json:"resource"`
	RedirectURI string        `json:"redirect_uri"`
	Permissions []string      `json:"permissions"`
	Mailboxes   *[]string     `json:"mailboxes"` // null: all that the person sees
	Policy      agents.Policy `json:"policy"`
}

// A ConsentClient is a client as the person sees it. Name is what the client claims. Only Host is
// certain: the host of its metadata document, or of the redirect URI.
type ConsentClient struct {
	ClientID string `json:"client_id"`
	Name     string `json:"name"`
	Host     string `json:"host"`
}

// consentPolicy returns the default sending policy of a grant.
func consentPolicy() store.Policy { return store.Policy{Send: store.SendApproval, Taint: true} }

// AskConsent stores a consent request for the person of a session, and returns it. q is the query
// of the client's authorization request.
func (s *Service) AskConsent(ctx context.Context, who core.Actor, base string, q url.Values) (*Consent, error) {
	a, err := s.checkAuthorization(ctx, base, q)
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		e := core.Errorf("validation_error", "The client's request is wrong. Start again from the client.")
		if to, err := url.Parse(refused.RedirectTo); err == nil {
			e.Message = to.Query().Get("error_description")
		}
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	value, policy := core.RandomText(43, core.Base62), consentPolicy()
	err = s.Store.Update(func(tx *store.Tx) error {
		var open []*store.OAuthRequest
		for _, r := range store.OAuthRequestsBySession.Asc(tx, who.TokenID, "") {
			open = append(open, r)
		}
		slices.SortFunc(open, func(a, b *store.OAuthRequest) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
		for over := len(open) - maxOpenConsents + 1; over > 0; over-- {
			if err := store.OAuthRequests.Delete(tx, open[0].ID); err != nil {
				return err
			}
			open = open[1:]
		}
		return store.OAuthRequests.Put(tx, &store.OAuthRequest{
			ID: core.TokenHash(value), AccountID: who.AccountID, UserID: who.UserID, SessionID: who.TokenID,
			ClientID: a.client.ClientID, ClientName: clientNameOf(a), RedirectURI: a.redirectURI, State: a.state, Challenge: a.challenge,
			Permissions: a.permissions, ExpiresAt: tx.Now().Add(consentLife),
		})
	})
	if err != nil {
		return nil, err
	}
	return &Consent{
		Request: value, Client: ConsentClient{a.client.ClientID, clientNameOf(a), clientHostOf(a)}, Resource: base + "/mcp", RedirectURI: a.redirectURI,
		Permissions: a.permissions, Policy: agents.PolicyOut(&policy),
	}, nil
}

func clientNameOf(a *authorization) string {
	if a.client.ClientName == "" {
		return clientHostOf(a)
	}
	return a.client.ClientName
}

func clientHostOf(a *authorization) string {
	from := a.redirectURI
	if isDocumentURL(a.client.ClientID) {
		from = a.client.ClientID
	}
	u, err := url.Parse(from)
	if err != nil {
		return ""
	}
	return u.Host
}

// ConsentIn is a person's decision. Absent fields keep the values of the Consent.
type ConsentIn struct {
	Request     string             `json:"request" required:"true" max:"100"`
	Decision    string             `json:"decision" required:"true" enum:"allow|deny"`
	Permissions *[]string          `json:"permissions"`
	Mailboxes   core.Opt[[]string] `json:"mailboxes"`
	Policy      *agents.Policy     `json:"policy"`
}

// Decided says where the browser goes next: back to the client, with the answer.
type Decided struct {
	RedirectTo string `json:"redirect_to"`
}

// DecideConsent records a person's decision on a consent request that AskConsent stored for the
// same session.
func (s *Service) DecideConsent(_ context.Context, who core.Actor, base string, in ConsentIn) (*Decided, error) {
	if who.PasswordGiven {
		return nil, errPasswordNotOwn()
	}
	policy, mailboxes := consentPolicy(), []string(nil)
	var err error
	if in.Policy != nil {
		policy, err = in.Policy.StoredForm("policy")
		if err != nil {
			return nil, err
		}
	}
	if in.Permissions != nil {
		for _, p := range *in.Permissions {
			if !slices.Contains(OAuthScopes, p) {
				return nil, core.Invalid("permissions", "not_allowed", "%.40q is neither read nor write, and a client can get no more", p)
			}
		}
		if err := accounts.CheckPermissions(who, *in.Permissions); err != nil {
			return nil, err
		}
	}
	if in.Mailboxes.Set && !in.Mailboxes.Null {
		mailboxes, err = accounts.CleanMailboxIDs(in.Mailboxes.Value)
		if err != nil {
			return nil, err
		}
	}
	code := core.RandomText(43, core.Base62)
	out := new(Decided)
	err = s.Store.Update(func(tx *store.Tx) error {
		r, err := store.OAuthRequests.Find(tx, core.TokenHash(in.Request))
		if err != nil {
			return err
		}
		if r == nil || r.Allowed || r.SessionID != who.TokenID || !tx.Now().Before(r.ExpiresAt) {
			return core.Invalid("request", "expired", "it was answered already, or is older than ten minutes; start again from the client")
		}
		if err := accounts.CheckMailboxes(tx, who, mailboxes); err != nil {
			return err
		}
		if err := store.OAuthRequests.Delete(tx, r.ID); err != nil {
			return err
		}
		if in.Decision == "deny" {
			out.RedirectTo = authorizationResponse(base, r.RedirectURI, r.State, "error", "access_denied")
			return nil
		}
		if in.Permissions != nil {
			r.Permissions = *in.Permissions
		}
		r.ID, r.Allowed, r.TokenID = core.TokenHash(code), true, tx.NewID("tok")
		r.Mailboxes, r.Policy, r.ExpiresAt = mailboxes, policy, tx.Now().Add(codeLife)
		out.RedirectTo = authorizationResponse(base, r.RedirectURI, r.State, "code", code)
		target := store.AuditTarget{Type: "token", ID: r.TokenID, Name: r.ClientName}
		return errors.Join(store.OAuthRequests.Put(tx, r), core.Audit(tx, who, target))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PruneOAuth deletes expired consent requests that nobody has decided, and expired codes that no
// client has used.
func (s *Service) PruneOAuth(tx *store.Tx) (deleted int, err error) {
	var ids []string
	for key, id := range store.OAuthRequestsByTime.Keys(tx, "", "") {
		if len(ids) == core.PruneAtATime || tx.Now().Before(store.KeyTime(key)) {
			break
		}
		ids = append(ids, id)
	}
	return len(ids), core.DeleteAll(tx, store.OAuthRequests, ids)
}
