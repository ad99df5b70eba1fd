package handlers

import (
	"errors"
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
)

// authenticate sets c.who to the owner of the request's token: the bearer token of the
// Authorization header, or else the session cookie of the dashboard. It refuses a cookie in a
// request that another site made the browser send. /mcp accepts no cookies.
func (s *Server) authenticate(c *call) error {
	addr := remoteAddr(c.r)
	if err := s.badTokens.check(addr, s.now()); err != nil {
		return err
	}
	var who core.Actor
	var err error
	token := s.sessionCookie(c.r)
	if token != "" && len(c.r.Header.Values("Authorization")) == 0 && c.r.URL.Path != mcpPath {
		if err := checkSameOrigin(c.r); err != nil {
			return err
		}
		who, err = s.svc.Signin.AuthenticateSession(c.r.Context(), token, addr)
		c.via = core.AuditDashboard
	} else {
		token = bearerToken(c.r)
		c.via = core.AuditAPI
		find := s.svc.Accounts.Authenticate
		if c.r.URL.Path == mcpPath {
			find = s.svc.Accounts.AuthenticateAssistant
		}
		who, err = find(c.r.Context(), token, addr)
	}
	if e := new(core.Error); errors.As(err, &e) && code.Status(e.Code) == http.StatusUnauthorized && token != "" {
		s.badTokens.count(addr, s.now())
	}
	c.who = who
	return err
}

// bearerToken returns the bearer token of the request, "" if there is none.
func bearerToken(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// sessionCookieName returns the name of the session cookie for this connection. It returns "" if
// the connection is not encrypted, since the cookie must not be sent then. In a sandbox the cookie
// has a name without encryption too.
func sessionCookieName(r *http.Request, sandbox bool) string {
	switch {
	case isSecure(r):
		return "__Host-mailstead"
	case sandbox:
		return "mailstead"
	}
	return ""
}

// sessionCookie returns the value of the request's session cookie, "" if there is none.
func (s *Server) sessionCookie(r *http.Request) string {
	name := sessionCookieName(r, s.svc.Core.Config.Sandbox)
	if name == "" {
		return ""
	}
	found, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return found.Value
}

// wwwAuthenticate returns the WWW-Authenticate header of a response with status 401. At /mcp it
// says where a client learns how to get a token (RFC 6750 section 3, RFC 9728 section 5.1).
func (s *Server) wwwAuthenticate(r *http.Request) string {
	if strings.TrimSuffix(r.URL.Path, "/") != mcpPath {
		return `Bearer error="invalid_token"`
	}
	metadata := `Bearer resource_metadata="` + s.baseURL(r) + resourceMetadataPath + `"`
	if bearerToken(r) == "" {
		return metadata
	}
	return metadata + `, error="invalid_token"`
}
