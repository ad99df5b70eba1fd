package handlers

import (
	_ "embed" // the page
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service"
)

//go:embed unsubscribe.html
var unsubscribePage string

// unsubscribesEach is how many requests one address may make in a minute.
const unsubscribesEach = 600

// A leaveView is what the page says: a button, or how it ended.
type leaveView struct {
	Email, Domain string
	Said          string
}

// unsubscribe is where a List-Unsubscribe field leads (RFC 8058). A mail system POSTs for its user,
// and that is all it takes; its body says nothing that the link does not. GET shows a button and
// changes nothing, so that programs which look at links do no harm. Cross-site requests are let in:
// the link itself is what is asked for.
func (s *Server) unsubscribe(c *call) {
	pageHeaders(c.w.Header(), unsubscribePage)
	now := s.now()
	if s.hooks.came.take("unsubscribe "+remoteAddr(c.r), now) > unsubscribesEach {
		e := service.Errorf(http.StatusTooManyRequests, "rate_limited", "Too many requests came from where you are. Wait for a minute.")
		e.RetryAfter = now.Truncate(time.Minute).Add(time.Minute).Sub(now)
		s.leaveFailed(c, e)
		return
	}
	token := strings.TrimPrefix(c.r.URL.Path, unsubscribePath)
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		u, err := s.svc.CheckUnsubscribe(c.r.Context(), token)
		if err != nil {
			s.leaveFailed(c, err)
			return
		}
		s.showLeave(c, http.StatusOK, leaveView{Email: u.Email, Domain: u.Domain})
	case http.MethodPost:
		u, err := s.svc.Unsubscribe(c.r.Context(), token)
		if err != nil {
			s.leaveFailed(c, err)
			return
		}
		s.showLeave(c, http.StatusOK, leaveView{Said: fmt.Sprintf("Done. %s will get no more mail from %s.", u.Email, u.Domain)})
	default:
		c.w.Header().Set("Allow", "GET, HEAD, POST")
		s.leaveFailed(c, service.Errorf(http.StatusMethodNotAllowed, "method_not_allowed", "%s is not possible here.", c.r.Method))
	}
}

// leaveFailed says on the page what went wrong.
func (s *Server) leaveFailed(c *call, err error) {
	e := s.explain(c, "unsubscribe", err)
	s.showLeave(c, e.Status, leaveView{Said: e.Message})
}

func (s *Server) showLeave(c *call, status int, v leaveView) { s.showPage(c, s.leaveForm, status, v) }
