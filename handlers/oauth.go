package handlers

import (
	"context"
	_ "embed" // oauth.html
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
	"github.com/mailstead/mailstead/service/signin"
)

// The paths of OAuth 2.1, by which clients get tokens for /mcp.
const (
	authServerPath = "/.well-known/oauth-authorization-server" // RFC 8414 section 3
	registerPath   = "/oauth/register"
	authorizePath  = "/oauth/authorize"
	tokenPath      = "/oauth/token"
	revokePath     = "/oauth/revoke"
	consentPath    = "/oauth/consent"
)

const (
	registerPerHour      = 60  // registrations from one network
	oauthPerMinute       = 600 // requests to the token and revocation endpoints from one network
	maxRegistrationBytes = 64 << 10
	maxOAuthFormBytes    = 16 << 10
)

// oauthPaths returns the handlers of the OAuth paths. Those of consentPath are in sessionRoutes.
func (s *Server) oauthPaths() map[string]func(*call) {
	return map[string]func(*call){
		resourceMetadataPath: s.sendResourceMetadata, authServerPath: s.sendAuthServerMetadata,
		registerPath: s.registerClient, authorizePath: s.authorizeClient, tokenPath: s.grantToken, revokePath: s.revokeGrant,
	}
}

// sendResourceMetadata sends the metadata of the protected resource /mcp (RFC 9728 section 2).
func (s *Server) sendResourceMetadata(c *call) {
	base := s.baseURL(c.r)
	s.sendMetadata(c, struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
		Methods  []string `json:"bearer_methods_supported"`
		Name     string   `json:"resource_name"`
	}{base + mcpPath, []string{base}, signin.OAuthScopes, []string{"header"}, "Mailstead"})
}

// sendAuthServerMetadata sends the metadata of the authorization server (RFC 8414 section 2).
func (s *Server) sendAuthServerMetadata(c *call) {
	base := s.baseURL(c.r)
	s.sendMetadata(c, struct {
		Issuer        string   `json:"issuer"`
		Authorize     string   `json:"authorization_endpoint"`
		Token         string   `json:"token_endpoint"`
		Register      string   `json:"registration_endpoint"`
		Revoke        string   `json:"revocation_endpoint"`
		Scopes        []string `json:"scopes_supported"`
		Responses     []string `json:"response_types_supported"`
		Modes         []string `json:"response_modes_supported"`
		Grants        []string `json:"grant_types_supported"`
		TokenMethods  []string `json:"token_endpoint_auth_methods_supported"`
		RevokeMethods []string `json:"revocation_endpoint_auth_methods_supported"`
		Challenges    []string `json:"code_challenge_methods_supported"`
		Documents     bool     `json:"client_id_metadata_document_supported"`
		Iss           bool     `json:"authorization_response_iss_parameter_supported"`
	}{
		base, base + authorizePath, base + tokenPath, base + registerPath, base + revokePath, signin.OAuthScopes, []string{"code"}, []string{"query"},
		[]string{"authorization_code", "refresh_token"}, []string{"none"}, []string{"none"}, []string{"S256"}, true, true,
	})
}

// sendMetadata answers GET and HEAD with a metadata document.
func (s *Server) sendMetadata(c *call, document any) {
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		s.sendNotAllowed(c, []string{http.MethodGet})
		return
	}
	c.w.Header().Set("Cache-Control", "no-cache")
	s.sendJSON(c, http.StatusOK, document)
}

// sendOAuthResponse answers an OAuth client with out, or with err in the form of RFC 6749 section
// 5.2.
func (s *Server) sendOAuthResponse(c *call, status int, out any, err error) {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("Pragma", "no-cache") // RFC 6749 section 5.1
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	if err == nil {
		s.sendJSON(c, status, out)
		return
	}
	if refused, ok := errors.AsType[*signin.OAuthError](err); ok {
		status = http.StatusBadRequest
		switch refused.Code {
		case "invalid_client":
			status = http.StatusUnauthorized
		case "invalid_grant":
			s.badTokens.count(remoteAddr(c.r), s.now())
		}
		s.sendJSON(c, status, refused)
		return
	}
	e := s.explainError(c, "sign-in of a client", err) // also sets Retry-After
	name := "server_error"
	status = code.Status(e.Code)
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		name = "temporarily_unavailable"
	case status < http.StatusInternalServerError:
		name = "invalid_request"
	}
	s.sendJSON(c, status, signin.OAuthError{Code: name, Description: e.Message})
}

// registerClient answers a client that registers itself (RFC 7591).
func (s *Server) registerClient(c *call) {
	if c.r.Method != http.MethodPost {
		s.sendNotAllowed(c, []string{http.MethodPost})
		return
	}
	addr, now := remoteAddr(c.r), s.now()
	if n := s.registrations.Add(core.Network(addr), now.Truncate(time.Hour)); n > registerPerHour {
		e := core.Errorf("rate_limited", "Too many clients have registered from this network. Wait for the next hour.")
		e.RetryAfter = now.Truncate(time.Hour).Add(time.Hour).Sub(now)
		s.sendOAuthResponse(c, 0, nil, e)
		return
	}
	body, err := readBodyAs(c.r, jsonMedia, maxRegistrationBytes)
	if err != nil {
		s.sendOAuthResponse(c, 0, nil, &signin.OAuthError{Code: "invalid_client_metadata", Description: "Send the metadata as JSON of at most 64 KiB, with Content-Type: application/json."})
		return
	}
	out, err := s.svc.Signin.RegisterClient(c.r.Context(), body)
	s.sendOAuthResponse(c, http.StatusCreated, out, err)
}

// authorizeClient serves the authorization endpoint (RFC 6749 section 3.1), to which a client sends
// the browser of the person for whom it wants to act. If a team user is signed in, it serves the
// dashboard, which asks for consent. Otherwise it redirects to the sign-in page, which leads back
// here.
//
// It also redirects a signed-in user who comes from another site, since the browser then does not
// send the session cookie.
func (s *Server) authorizeClient(c *call) {
	oauthPage.setHeaders(c.w.Header())
	failed := func(err error) {
		e := s.explainError(c, "authorize a client", err)
		text := e.Message
		if len(e.Details) > 0 {
			text = "The program that sent you here made a mistake. " + e.Message + "."
		}
		oauthPage.show(c, code.Status(e.Code), text)
	}
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		s.sendNotAllowed(c, []string{http.MethodGet})
		return
	}
	if s.redirectToHTTPS(c) {
		return
	}
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		failed(core.Invalid("query", "invalid", "it is not properly encoded"))
		return
	}
	who, signedIn := core.Actor{}, false
	if cookie := s.sessionCookie(c.r); cookie != "" {
		who, err = s.svc.Signin.AuthenticateSession(c.r.Context(), cookie, remoteAddr(c.r))
		if e, ours := core.AsError(err); err != nil && (!ours || code.Status(e.Code) != http.StatusUnauthorized) {
			failed(err)
			return
		}
		signedIn = err == nil
	}
	if signedIn {
		c.who = who
		err = s.countCall(c)
	} else {
		err = s.limitAnonymous(c)
	}
	if err == nil && signedIn && who.MailboxID != "" {
		err = core.Errorf("forbidden_role", "You are signed in to a mailbox. Only a member of the team can let a program act for them: sign out, sign in as one, and start again from the program.")
	}
	if err == nil {
		err = s.svc.Signin.CheckAuthorization(c.r.Context(), s.baseURL(c.r), q, signedIn)
	}
	to := ""
	if refused, ok := errors.AsType[*signin.RefusedError](err); ok {
		to = refused.RedirectTo
	} else if err != nil {
		failed(err)
		return
	} else if !signedIn {
		to = "/sign-in?next=" + url.QueryEscape(authorizePath+"?"+q.Encode())
	}
	if to == "" {
		s.serveDashboard(c)
		return
	}
	c.w.Header().Set("Location", to)
	c.w.WriteHeader(http.StatusFound)
}

// readBodyAs reads a body that has the given media type and at most maxBytes bytes.
func readBodyAs(r *http.Request, mediaType string, maxBytes int64) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != mediaType || r.Body == nil {
		return nil, errors.New("the request body has the wrong Content-Type")
	}
	return io.ReadAll(&limitedReader{r.Body, maxBytes})
}

// readForm reads the form in the body of an OAuth client's request. It ignores parameters in the
// URL. The caller answers an error with sendOAuthResponse.
func (s *Server) readForm(c *call) (url.Values, error) {
	addr, now := remoteAddr(c.r), s.now()
	if err := s.badTokens.check(addr, now); err != nil {
		return nil, err
	}
	if s.oauthRate.add(core.Network(addr), now) > oauthPerMinute {
		return nil, rateLimited(now, "Too many requests came from this network. Wait for the next minute.")
	}
	body, err := readBodyAs(c.r, "application/x-www-form-urlencoded", maxOAuthFormBytes)
	if err != nil {
		return nil, &signin.OAuthError{Code: "invalid_request", Description: "Send a form of at most 16 KiB, with Content-Type: application/x-www-form-urlencoded."}
	}
	q, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, &signin.OAuthError{Code: "invalid_request", Description: "The form is not properly encoded."}
	}
	return q, nil
}

// grantToken serves the token endpoint (RFC 6749 section 3.2).
func (s *Server) grantToken(c *call) {
	if c.r.Method != http.MethodPost {
		s.sendNotAllowed(c, []string{http.MethodPost})
		return
	}
	var out *signin.AccessToken
	form, err := s.readForm(c)
	if err == nil {
		out, err = s.svc.Signin.GrantToken(c.r.Context(), s.baseURL(c.r), s.visitorOf(c), form)
	}
	s.sendOAuthResponse(c, http.StatusOK, out, err)
}

// revokeGrant serves the revocation endpoint (RFC 7009).
func (s *Server) revokeGrant(c *call) {
	if c.r.Method != http.MethodPost {
		s.sendNotAllowed(c, []string{http.MethodPost})
		return
	}
	form, err := s.readForm(c)
	if err == nil {
		err = s.svc.Signin.RevokeGrant(c.r.Context(), s.visitorOf(c), form)
	}
	s.sendOAuthResponse(c, http.StatusOK, struct{}{}, err)
}

// askConsent returns what the consent page of the dashboard shows: which client asks, and for what.
func (s *Server) askConsent(ctx context.Context, who core.Actor) (*signin.Consent, error) {
	r := callOf(ctx).r
	if err := checkOwnPage(r); err != nil {
		return nil, err
	}
	return s.svc.Signin.AskConsent(ctx, who, s.baseURL(r), r.URL.Query())
}

// decideConsent carries out the decision that a person made on the consent page.
func (s *Server) decideConsent(ctx context.Context, who core.Actor, in signin.ConsentIn) (*signin.Decided, error) {
	r := callOf(ctx).r
	if err := checkOwnPage(r); err != nil {
		return nil, err
	}
	return s.svc.Signin.DecideConsent(ctx, who, s.baseURL(r), in)
}
