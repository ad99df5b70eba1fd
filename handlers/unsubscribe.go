package handlers

import (
	_ "embed" // the page
	"fmt"
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
)

//go:embed unsubscribe.html
var unsubscribePage string

// unsubscribesPerMinute is how many requests one address may make in a minute.
const unsubscribesPerMinute = 600

// An unsubscribeView is what the page shows: a button, or the end.
type unsubscribeView struct {
	Email, Domain string
	Said          string
}

// unsubscribe is the page of a List-Unsubscribe header field. Mail systems POST to it for their
// users (RFC 8058 section 3.1), and the body is ignored. GET shows a button and changes nothing, so
// that programs that check links do no harm. Cross-site requests are allowed: the link is the
// permission.
func (s *Server) unsubscribe(c *call) {
	pageHeaders(c.w.Header(), unsubscribePage)
	now := s.now()
	if s.hooks.requests.add("unsubscribe "+remoteAddr(c.r), now) > unsubscribesPerMinute {
		s.unsubscribeFailed(c, rateLimited(now, "Too many requests came from where you are. Wait for a minute."))
		return
	}
	token := strings.TrimPrefix(c.r.URL.Path, unsubscribePath)
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		u, err := s.svc.CheckUnsubscribe(c.r.Context(), token)
		if err != nil {
			s.unsubscribeFailed(c, err)
			return
		}
		s.showUnsubscribe(c, http.StatusOK, unsubscribeView{Email: u.Email, Domain: u.Domain})
	case http.MethodPost:
		u, err := s.svc.Unsubscribe(c.r.Context(), token)
		if err != nil {
			s.unsubscribeFailed(c, err)
			return
		}
		s.showUnsubscribe(c, http.StatusOK, unsubscribeView{Said: fmt.Sprintf("Done. %s will get no more mail from %s.", u.Email, u.Domain)})
	default:
		c.w.Header().Set("Allow", "GET, HEAD, POST")
		s.unsubscribeFailed(c, core.Errorf("method_not_allowed", "%s is not possible here.", c.r.Method))
	}
}

// unsubscribeFailed shows an error on the page.
func (s *Server) unsubscribeFailed(c *call, err error) {
	e := s.explainError(c, "unsubscribe", err)
	s.showUnsubscribe(c, openapi.Status(e.Code), unsubscribeView{Said: e.Message})
}

func (s *Server) showUnsubscribe(c *call, status int, v unsubscribeView) {
	s.showPage(c, s.unsubscribeForm, status, v)
}
