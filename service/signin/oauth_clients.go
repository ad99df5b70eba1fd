package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Limits of clients that sign in to /mcp.
const (
	OAuthClientKept    = 30 * 24 * time.Hour // how long an unused client is kept
	clientUseInterval  = 24 * time.Hour      // the use of a client is recorded at most this often
	maxUnusedClients   = 5000                // clients that were never used; one more deletes the oldest
	maxRedirects       = 20
	maxRedirectLen     = 2048 // characters of one redirect URI
	maxRedirectsLen    = 4096 // characters of all redirect URIs together
	maxClientName      = 100
	maxClientDocument  = 32 << 10 // bytes
	maxClientFetches   = 8        // documents that are fetched at the same time
	clientFetchTimeout = 10 * time.Second
)

// ClientMetadata is a client's description of itself: in its registration (RFC 7591 section 2) or
// in its metadata document (draft-ietf-oauth-client-id-metadata-document). Other fields are
// ignored.
type ClientMetadata struct {
	ClientID      string   `json:"client_id"` // in a metadata document: the document's URL
	ClientName    string   `json:"client_name"`
	ClientSecret  string   `json:"client_secret"`
	RedirectURIs  []string `json:"redirect_uris"`
	AuthMethod    string   `json:"token_endpoint_auth_method"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
}

// ParseClientMetadata reads and checks a client's description of itself, and cleans its name so
// that it can be shown. The error is an *OAuthError of RFC 7591 section 3.2.2.
func ParseClientMetadata(body []byte) (*ClientMetadata, error) {
	m := new(ClientMetadata)
	if err := json.Unmarshal(body, m); err != nil {
		return nil, &OAuthError{"invalid_client_metadata", "The metadata is not one JSON object with fields of the right types."}
	}
	if len(m.RedirectURIs) == 0 || len(m.RedirectURIs) > maxRedirects {
		return nil, &OAuthError{"invalid_redirect_uri", fmt.Sprintf("redirect_uris must have 1 to %d entries.", maxRedirects)}
	}
	all := 0
	for _, uri := range m.RedirectURIs {
		if err := checkRedirect(uri); err != nil {
			return nil, &OAuthError{"invalid_redirect_uri", "A redirect URI " + err.Error() + "."}
		}
		all += len(uri)
		if all > maxRedirectsLen {
			return nil, &OAuthError{"invalid_redirect_uri", fmt.Sprintf("redirect_uris are longer than %d characters together.", maxRedirectsLen)}
		}
	}
	switch {
	case m.AuthMethod != "" && m.AuthMethod != "none" || m.ClientSecret != "":
		return nil, &OAuthError{"invalid_client_metadata", "Only public clients are supported: token_endpoint_auth_method must be none."}
	case m.GrantTypes != nil && !slices.Contains(m.GrantTypes, "authorization_code"):
		return nil, &OAuthError{"invalid_client_metadata", "grant_types must have authorization_code."}
	case m.ResponseTypes != nil && !slices.Contains(m.ResponseTypes, "code"):
		return nil, &OAuthError{"invalid_client_metadata", "response_types must have code."}
	}
	m.ClientName = displayableName(m.ClientName)
	return m, nil
}

// displayableName cleans a name that a stranger chose, so that it can be shown inside our own
// texts.
func displayableName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.Is(unicode.C, r), r == unicode.ReplacementChar: // includes marks of text direction and invisible characters
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, ""))
	name = strings.Join(strings.Fields(name), " ")
	if runes := []rune(name); len(runes) > maxClientName {
		name = string(runes[:maxClientName])
	}
	return strings.TrimSpace(name)
}

// checkRedirect returns an error that says why an address is not allowed as a redirect URI. Allowed
// are https and, for local programs, http to this machine (RFC 8252 section 7.3).
func checkRedirect(uri string) error {
	if len(uri) > maxRedirectLen {
		return fmt.Errorf("is longer than %d characters", maxRedirectLen)
	}
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }) {
		return errors.New("has characters that a URI cannot have")
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return errors.New("is not a URI with a host")
	case u.User != nil || strings.Contains(uri, "#"):
		return errors.New("has a user name or a fragment")
	case strings.HasSuffix(u.Host, ":") || u.Port() != "" && !isPort(u.Port()):
		return errors.New("has an invalid port")
	case u.Scheme == "https" && strings.HasPrefix(uri, "https://"):
		return nil
	}
	if _, _, loopback := cutLoopback(uri); loopback {
		return nil
	}
	return errors.New("must begin with https://; http:// is allowed only for 127.0.0.1, [::1] and localhost")
}

func isPort(digits string) bool {
	n, err := strconv.ParseUint(digits, 10, 16)
	return err == nil && n > 0
}

// cutLoopback splits a redirect URI to the local machine into the parts before and after its port.
func cutLoopback(uri string) (before, after string, ok bool) {
	for _, host := range []string{"http://127.0.0.1", "http://[::1]", "http://localhost"} {
		rest, found := strings.CutPrefix(uri, host)
		if !found {
			continue
		}
		if port, behind := strings.CutPrefix(rest, ":"); behind {
			rest = strings.TrimLeft(port, "0123456789")
			if !isPort(strings.TrimSuffix(port, rest)) {
				return "", "", false
			}
		}
		return host, rest, rest == "" || rest[0] == '/' || rest[0] == '?'
	}
	return "", "", false
}

// sameRedirect compares a redirect URI with a registered one character by character. Only the port
// of a URI to the local machine may differ: its program gets a new port each time (RFC 8252 section
// 7.3).
func sameRedirect(registered, given string) bool {
	if registered == given {
		return true
	}
	before, after, ok := cutLoopback(registered)
	otherBefore, otherAfter, also := cutLoopback(given)
	return ok && also && before == otherBefore && after == otherAfter
}

// ClientRegistered is the answer to a registration (RFC 7591 section 3.2.1).
type ClientRegistered struct {
	ClientID      string   `json:"client_id"`
	IssuedAt      int64    `json:"client_id_issued_at"`
	ClientName    string   `json:"client_name,omitempty"`
	RedirectURIs  []string `json:"redirect_uris"`
	AuthMethod    string   `json:"token_endpoint_auth_method"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
}

// RegisterClient stores a client with the metadata in body. The error may be an *OAuthError.
func (s *Service) RegisterClient(ctx context.Context, body []byte) (*ClientRegistered, error) {
	m, err := ParseClientMetadata(body)
	if err != nil {
		return nil, err
	}
	c := &store.OAuthClient{Name: m.ClientName, RedirectURIs: m.RedirectURIs}
	err = s.Store.Update(func(tx *store.Tx) error {
		var unused []string // oldest first
		for _, id := range store.OAuthClientsUnused.Keys(tx, "", "") {
			unused = append(unused, id)
		}
		if over := len(unused) - maxUnusedClients + 1; over > 0 {
			if err := core.DeleteAll(tx, store.OAuthClients, unused[:min(over, core.PruneAtATime)]); err != nil {
				return err
			}
		}
		c.ID, c.CreatedAt = tx.NewID("oac"), tx.Now()
		return store.OAuthClients.Put(tx, c)
	})
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("client registered", "client", c.ID, "name", c.Name)
	return &ClientRegistered{
		ClientID: c.ID, IssuedAt: c.CreatedAt.Unix(), ClientName: c.Name, RedirectURIs: c.RedirectURIs, AuthMethod: "none",
		GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"},
	}, nil
}

// IsOAuthClientExpired reports whether a registered client has been unused for too long.
func IsOAuthClientExpired(c *store.OAuthClient, now time.Time) bool {
	if c.UsedAt.IsZero() {
		return now.Sub(c.CreatedAt) > OAuthClientKept
	}
	return now.Sub(c.UsedAt) > OAuthClientKept+clientUseInterval // UsedAt is up to clientUseInterval too old; no refresh token is older than this sum
}

// registeredClient returns a registered client, or nil if there is none.
func registeredClient(tx *store.Tx, id string) (*store.OAuthClient, error) {
	c, err := store.OAuthClients.Find(tx, id)
	if c == nil || err != nil || IsOAuthClientExpired(c, tx.Now()) {
		return nil, err
	}
	return c, nil
}

// isDocumentURL reports whether a client ID is the URL of a metadata document.
func isDocumentURL(clientID string) bool { return strings.HasPrefix(clientID, "https://") }

// recordClientUse records that a registered client was used, at most once in clientUseInterval.
func recordClientUse(tx *store.Tx, id string) error {
	c, err := store.OAuthClients.Find(tx, id)
	if c == nil || err != nil || tx.Now().Sub(c.UsedAt) < clientUseInterval {
		return err
	}
	c.UsedAt = tx.Now()
	return store.OAuthClients.Put(tx, c)
}

// findClient returns the metadata of a client: from its row, or from its metadata document, which
// is fetched. The error for an unknown or bad client is 400.
func (s *Service) findClient(ctx context.Context, id string) (*ClientMetadata, error) {
	if isDocumentURL(id) {
		return s.fetchClient(ctx, id)
	}
	var m *ClientMetadata
	err := s.Store.View(func(tx *store.Tx) error {
		c, err := registeredClient(tx, id)
		if err != nil {
			return err
		}
		if c == nil {
			return core.Invalid("client_id", "not_found", "no such client is registered here, or it was not used for 30 days; have it register again")
		}
		m = &ClientMetadata{ClientID: c.ID, ClientName: c.Name, RedirectURIs: c.RedirectURIs}
		return nil
	})
	return m, err
}

// fetchClient fetches the metadata document of a client
// (draft-ietf-oauth-client-id-metadata-document sections 3 to 5).
func (s *Service) fetchClient(ctx context.Context, id string) (*ClientMetadata, error) {
	wrong := func(format string, args ...any) *core.Error {
		return core.Invalid("client_id", "invalid", format, args...)
	}
	if err := s.Guard.CheckURL(id); err != nil {
		return nil, wrong("the address of the client's document may not be fetched").Because(err)
	}
	u, err := url.Parse(id)
	if err != nil || u.Path == "" || u.Path == "/" || slices.ContainsFunc(strings.Split(u.Path, "/"), func(part string) bool { return part == "." || part == ".." }) {
		return nil, wrong("the address of the client's document must have a path, without . and ..")
	}
	select {
	case s.clientFetches <- struct{}{}:
		defer func() { <-s.clientFetches }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, clientFetchTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		return nil, wrong("it is no address")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "Mailstead")
	transport := s.Guard.Transport(s.Resolver, s.Config.RootCAs)
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r) // RoundTrip follows no redirects
	switch {
	case errors.Is(err, netguard.ErrBlocked):
		return nil, wrong("the address of the client's document is not a public one").Because(err)
	case err != nil:
		return nil, wrong("the client's document cannot be fetched; try again later").Because(err)
	}
	defer resp.Body.Close()
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return nil, wrong("the address of the client's document answers no JSON (status %d)", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxClientDocument+1))
	if err != nil || len(body) > maxClientDocument {
		return nil, wrong("the client's document is incomplete, or larger than %d bytes", maxClientDocument)
	}
	m, err := ParseClientMetadata(body)
	if err != nil {
		return nil, wrong("the client's document is wrong. %s", err).Because(err)
	}
	if m.ClientID != id {
		return nil, wrong("the client's document is of another client")
	}
	return m, nil
}
