package handlers

import (
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/service"
)

// download sends the file of an export's link, which needs no token and works once. HEAD is
// refused, so that whoever looks at a link does not use it up.
func (s *Server) download(c *call) {
	token, addr, ok := s.takeLink(c, exportPath)
	if !ok {
		return
	}
	f, err := s.svc.OpenExport(c.r.Context(), token)
	if err != nil {
		s.countDead(addr, err)
		s.fail(c, err)
		return
	}
	s.sendFile(c, http.StatusOK, f)
}

// countDead counts a link that leads nowhere like a bad token, so that nobody can guess for long.
func (s *Server) countDead(addr string, err error) {
	if e, ours := service.AsError(err); ours && e.Status == http.StatusNotFound {
		s.badTokens.count(addr, s.now())
	}
}

// takeLink begins the answer to a link that is its own proof: whoever has it needs no token. It
// gives the part behind path, and whose address asks; without ok the answer is given.
func (s *Server) takeLink(c *call, path string) (token, addr string, ok bool) {
	token = strings.TrimPrefix(c.r.URL.Path, path)
	c.r.URL.Path = path + "…" // so that no log and no answer has it
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
