package handlers

import (
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"mime"
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
)

//go:embed reset.html
var resetPage string

// maxResetForm is the most bytes of the form with which a password is set.
const maxResetForm = 16 << 10

// A resetView is what the page shows: a form, perhaps with an error, or the end.
type resetView struct {
	Email, Token, Wrong string
	Done                string
	Home                string
}

// resetPassword is the page of a reset link. GET shows a form and does not use the link up, so that
// programs that check links do no harm; POST sets the password. The page has no scripts.
func (s *Server) resetPassword(c *call) {
	pageHeaders(c.w.Header(), resetPage)
	addr := remoteAddr(c.r)
	if err := s.badTokens.check(addr, s.now()); err != nil {
		s.resetFailed(c, addr, err)
		return
	}
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		token := c.r.URL.Query().Get("token")
		email, err := s.svc.CheckReset(c.r.Context(), token)
		if err != nil {
			s.resetFailed(c, addr, err)
			return
		}
		s.showReset(c, http.StatusOK, resetView{Email: email, Token: token})
	case http.MethodPost:
		s.submitReset(c, addr)
	default:
		s.notAllowed(c, []string{http.MethodGet, http.MethodPost})
	}
}

// pageHeaders forbid framing, caching and scripts, and keep the token in the URL from other sites.
func pageHeaders(h http.Header, page string) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src '"+styleHash(page)+"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}

// styleHash is the name of the style sheet of a page in a Content-Security-Policy.
func styleHash(page string) string {
	_, rest, _ := strings.Cut(page, "<style>")
	sheet, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(sheet))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// submitReset sets the password of the form.
func (s *Server) submitReset(c *call, addr string) {
	if err := http.NewCrossOriginProtection().Check(c.r); err != nil {
		s.resetFailed(c, addr, core.Errorf("forbidden", "The form was sent from another site. Open the link again and use the form there."))
		return
	}
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		s.resetFailed(c, addr, core.Errorf("unsupported_media_type", "Use the form of the link."))
		return
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxResetForm)
	if err := c.r.ParseForm(); err != nil {
		s.resetFailed(c, addr, core.Errorf("validation_error", "The form could not be read. Open the link again."))
		return
	}
	form := c.r.PostForm
	v := resetView{Token: form.Get("token")}
	var err error
	if v.Email, err = s.svc.CheckReset(c.r.Context(), v.Token); err != nil {
		s.resetFailed(c, addr, err)
		return
	}
	if form.Has("again") && form.Get("again") != form.Get("password") {
		v.Wrong = "The two passwords are not the same."
		s.showReset(c, http.StatusBadRequest, v)
		return
	}
	err = s.svc.CompleteReset(c.r.Context(), v.Token, form.Get("password"))
	if e, ours := core.AsError(err); ours && openapi.Status(e.Code) == http.StatusBadRequest {
		v.Wrong = "The password " + e.Details[0].Message + "."
		s.showReset(c, http.StatusBadRequest, v)
		return
	}
	if err != nil {
		s.resetFailed(c, addr, err)
		return
	}
	s.showReset(c, http.StatusOK, resetView{Email: v.Email, Done: "Your password is set. You can sign in with it now.", Home: s.svc.Config.BaseURL + "/"})
}

// resetFailed shows an error on the page.
func (s *Server) resetFailed(c *call, addr string, err error) {
	s.countBadLink(addr, err)
	e := s.explainError(c, "reset page", err)
	s.showReset(c, openapi.Status(e.Code), resetView{Done: e.Message})
}

func (s *Server) showReset(c *call, status int, v resetView) { s.showPage(c, s.resetForm, status, v) }
