package handlers

import (
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
	"github.com/mailstead/mailstead/service/signin"
)

// sendExport sends the file of an export link. The link needs no API token and works once. HEAD is
// refused, so that a link checker does not use up the link.
func (s *Server) sendExport(c *call) {
	token, addr, ok := s.beginLink(c, exportPath)
	if !ok {
		return
	}
	f, err := s.svc.Mailboxes.OpenExport(c.r.Context(), token)
	if err != nil {
		s.countBadLink(addr, err)
		s.sendError(c, err)
		return
	}
	s.sendFile(c, http.StatusOK, f)
}

// useSignInLink signs the operator in to an account, with the link that is requested, and shows the
// dashboard. The link works once. HEAD is refused, as in sendExport.
func (s *Server) useSignInLink(c *call) {
	token, addr, ok := s.beginLink(c, signin.SignInLinkPath)
	if !ok {
		return
	}
	if sessionCookieName(c.r, s.svc.Core.Config.Sandbox) == "" { // before the link is used up
		s.sendError(c, core.Errorf("https_required", "Signing in needs HTTPS. Open the link with https:// instead."))
		return
	}
	out, err := s.svc.Signin.UseSignInLink(c.r.Context(), s.visitorOf(c), token)
	if err != nil {
		s.countBadLink(addr, err)
		s.sendError(c, err)
		return
	}
	s.setSession(c, out)
	c.w.Header().Set("Location", "/")
	c.w.WriteHeader(http.StatusSeeOther)
}

// beginLink checks a request for a link that contains its own token, and sets the headers of the
// response. It returns the token and the client's address. If ok is false, it has answered the
// request with an error.
func (s *Server) beginLink(c *call, path string) (token, addr string, ok bool) {
	token = strings.TrimPrefix(c.r.URL.Path, path)
	c.r.URL.Path = path + "…" // keeps the token out of logs and responses
	h := c.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if c.r.Method != http.MethodGet {
		s.sendNotAllowed(c, []string{http.MethodGet})
		return "", "", false
	}
	addr = remoteAddr(c.r)
	if err := s.badTokens.check(addr, s.now()); err != nil {
		s.sendError(c, err)
		return "", "", false
	}
	return token, addr, true
}

// countBadLink counts an unknown link as a bad token of addr, so that links cannot be guessed.
func (s *Server) countBadLink(addr string, err error) {
	if e, ours := core.AsError(err); ours && code.Status(e.Code) == http.StatusNotFound {
		s.badTokens.count(addr, s.now())
	}
}
