package handlers

import (
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
)

// download sends the file of an export link, which needs no token and works once. HEAD is refused,
// so that a program that checks links does not use it up.
func (s *Server) download(c *call) {
	token, addr, ok := s.beginLink(c, exportPath)
	if !ok {
		return
	}
	f, err := s.svc.OpenExport(c.r.Context(), token)
	if err != nil {
		s.countBadLink(addr, err)
		s.fail(c, err)
		return
	}
	s.sendFile(c, http.StatusOK, f)
}

// countBadLink counts a link that leads nowhere like a bad token, so that nobody can guess for
// long.
func (s *Server) countBadLink(addr string, err error) {
	if e, ours := core.AsError(err); ours && openapi.Status(e.Code) == http.StatusNotFound {
		s.badTokens.count(addr, s.now())
	}
}

// beginLink starts the answer to a link that needs no token, since it holds one. It returns that
// token and the client's address. Without ok the request has been answered.
func (s *Server) beginLink(c *call, path string) (token, addr string, ok bool) {
	token = strings.TrimPrefix(c.r.URL.Path, path)
	c.r.URL.Path = path + "…" // keeps the token out of logs and answers
	h := c.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if c.r.Method != http.MethodGet {
		s.notAllowed(c, []string{http.MethodGet})
		return "", "", false
	}
	addr = remoteAddr(c.r)
	if err := s.badTokens.check(addr, s.now()); err != nil {
		s.fail(c, err)
		return "", "", false
	}
	return token, addr, true
}
