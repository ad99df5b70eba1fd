package handlers

import (
	"bytes"
	"crypto/sha256"
	"embed"
	_ "embed" // the pages
	"encoding/base64"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/mailstead/mailstead/mail/view"
	"github.com/mailstead/mailstead/service/attachments"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/signin"
	"github.com/mailstead/mailstead/service/submit"
)

// serveDashboard serves the pages of the dashboard. Over plain HTTP it redirects to HTTPS, without
// which nobody can sign in; a sandbox needs none.
func (s *Server) serveDashboard(c *call) {
	if s.Web == nil {
		http.NotFound(c.w, c.r)
		return
	}
	if s.redirectToHTTPS(c) {
		return
	}
	s.Web.ServeHTTP(c.w, c.r)
}

// redirectToHTTPS redirects a GET or HEAD request for a page over plain HTTP to HTTPS. It does not
// answer other requests.
func (s *Server) redirectToHTTPS(c *call) (answered bool) {
	if !s.needsHTTPS() || isSecure(c.r) || c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return false
	}
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("Location", s.svc.Core.Config.BaseURL+"/"+strings.TrimLeft(c.r.URL.RequestURI(), "/"))
	c.w.WriteHeader(http.StatusTemporaryRedirect)
	return true
}

// explainError returns the error to show on a page, and sets Retry-After. It logs an internal
// error; what is the message of the log.
func (s *Server) explainError(c *call, what string, err error) *core.Error {
	e := core.Explain(err)
	if code.Status(e.Code) >= http.StatusInternalServerError {
		s.Log.Error(what, "request_id", c.id, "error", err)
	}
	if e.RetryAfter > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(retrySeconds(e.RetryAfter)))
	}
	return e
}

// An htmlPage is a page without scripts, for people who are not in the dashboard.
type htmlPage struct {
	template *template.Template
	policy   string // its Content-Security-Policy
}

//go:embed reset.html recovery.html unsubscribe.html oauth.html
var pageFiles embed.FS

var (
	resetPage       = newPage("reset.html")       // shows a resetView
	recoveryPage    = newPage("recovery.html")    // shows a recoveryView
	unsubscribePage = newPage("unsubscribe.html") // shows an unsubscribeView
	oauthPage       = newPage("oauth.html")       // shows a string
)

// newPage parses an embedded page.
func newPage(name string) *htmlPage {
	text, err := pageFiles.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return &htmlPage{
		template: template.Must(template.New(name).Parse(string(text))),
		policy:   "default-src 'none'; style-src '" + styleHash(string(text)) + "'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	}
}

// setHeaders sets headers that forbid framing, caching and scripts. They also keep the URL, which
// contains the token, from other sites.
func (p *htmlPage) setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", p.policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}

// show sends the page, filled with data.
func (p *htmlPage) show(c *call, status int, data any) {
	var out bytes.Buffer
	if err := p.template.Execute(&out, data); err != nil {
		panic(err) // a bug in the template
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.Header().Set("Content-Length", strconv.Itoa(out.Len()))
	c.w.WriteHeader(status)
	_, _ = out.WriteTo(c.w) // a client that has left needs no answer
}

// maxResetFormBytes is the maximum size in bytes of the form that sets a password.
const maxResetFormBytes = 16 << 10

// A resetView is the content of the reset page: a form, perhaps with an error, or a final message.
type resetView struct {
	Email, Token, Error string
	MinLength           int    // minimum characters of a password
	Passkeys            int    // how many passkeys the user has
	Message             string // the final message; "": the form is shown
	SignInURL           string // URL to sign in at, below the message; "": none
}

// resetPassword serves the page of a link to set a password. GET shows a form and does not use up
// the link, so that a link checker does no harm. POST sets the password.
func (s *Server) resetPassword(c *call) {
	resetPage.setHeaders(c.w.Header())
	addr := remoteAddr(c.r)
	if err := s.badTokens.check(addr, s.now()); err != nil {
		s.showResetError(c, addr, err)
		return
	}
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		token := c.r.URL.Query().Get("token")
		u, err := s.svc.Signin.CheckWelcome(c.r.Context(), c.who, signin.LinkIn{Token: token})
		if err != nil {
			s.showResetError(c, addr, err)
			return
		}
		s.showReset(c, http.StatusOK, resetView{Email: u.Email, MinLength: core.LeastPassword, Passkeys: u.Passkeys, Token: token})
	case http.MethodPost:
		s.submitReset(c, addr)
	default:
		s.sendNotAllowed(c, []string{http.MethodGet, http.MethodPost})
	}
}

// styleHash returns the hash of a page's style sheet, in the form of a Content-Security-Policy.
func styleHash(page string) string {
	_, rest, _ := strings.Cut(page, "<style>")
	sheet, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(sheet))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// submitReset answers the POST of the reset page: it sets the password.
func (s *Server) submitReset(c *call, addr string) {
	if err := http.NewCrossOriginProtection().Check(c.r); err != nil {
		s.showResetError(c, addr, core.Errorf("forbidden", "The form was sent from another site. Open the link again and use the form there."))
		return
	}
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		s.showResetError(c, addr, core.Errorf("unsupported_media_type", "Use the form of the link."))
		return
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxResetFormBytes)
	if err := c.r.ParseForm(); err != nil {
		s.showResetError(c, addr, core.Errorf("validation_error", "The form could not be read. Open the link again."))
		return
	}
	form := c.r.PostForm
	v := resetView{Token: form.Get("token")}
	u, err := s.svc.Signin.CheckWelcome(c.r.Context(), c.who, signin.LinkIn{Token: v.Token})
	if err != nil {
		s.showResetError(c, addr, err)
		return
	}
	v.Email, v.MinLength, v.Passkeys = u.Email, core.LeastPassword, u.Passkeys
	if form.Has("again") && form.Get("again") != form.Get("password") {
		v.Error = "The two passwords do not match."
		s.showReset(c, http.StatusBadRequest, v)
		return
	}
	err = s.svc.Signin.CompleteReset(c.r.Context(), s.visitorOf(c), v.Token, form.Get("password"), form.Get("drop_passkeys") == "true")
	if e, ours := core.AsError(err); ours && code.Status(e.Code) == http.StatusBadRequest {
		v.Error = "The password " + e.Details[0].Message + "."
		s.showReset(c, http.StatusBadRequest, v)
		return
	}
	if err != nil {
		s.showResetError(c, addr, err)
		return
	}
	s.showReset(c, http.StatusOK, resetView{Email: v.Email, Message: "Your password is set. You can sign in with it now.", SignInURL: s.svc.Core.Config.BaseURL + "/"})
}

// showResetError shows an error on the reset page, and counts an unknown link.
func (s *Server) showResetError(c *call, addr string, err error) {
	s.countBadLink(addr, err)
	e := s.explainError(c, "reset page", err)
	s.showReset(c, code.Status(e.Code), resetView{Message: e.Message})
}

func (s *Server) showReset(c *call, status int, v resetView) {
	resetPage.show(c, status, v)
}

// A recoveryView is the content of the recovery page: a button, or a final message.
type recoveryView struct {
	Email, Address, Token string // the mailbox, its recovery address, and the link's token
	Message               string // the final message; "": the button is shown
}

// serveRecovery serves the page of a link that confirms a recovery address. GET shows a button and
// changes nothing, so that a link checker does no harm.
func (s *Server) serveRecovery(c *call) {
	recoveryPage.setHeaders(c.w.Header())
	addr := remoteAddr(c.r)
	failed := func(err error) {
		s.countBadLink(addr, err)
		e := s.explainError(c, "recovery page", err)
		recoveryPage.show(c, code.Status(e.Code), recoveryView{Message: e.Message})
	}
	if err := s.badTokens.check(addr, s.now()); err != nil {
		failed(err)
		return
	}
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		token := c.r.URL.Query().Get("token")
		r, err := s.svc.Signin.CheckRecovery(c.r.Context(), token)
		if err != nil {
			failed(err)
			return
		}
		recoveryPage.show(c, http.StatusOK, recoveryView{Email: r.Email, Address: r.RecoveryEmail, Token: token})
	case http.MethodPost:
		if err := http.NewCrossOriginProtection().Check(c.r); err != nil {
			failed(core.Errorf("forbidden", "The form was sent from another site. Open the link again and use the form there."))
			return
		}
		c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxResetFormBytes)
		if err := c.r.ParseForm(); err != nil {
			failed(core.Errorf("validation_error", "The form could not be read. Open the link again."))
			return
		}
		r, err := s.svc.Signin.ConfirmRecovery(c.r.Context(), signin.RecoveryIn{Token: c.r.PostForm.Get("token")})
		if err != nil {
			failed(err)
			return
		}
		recoveryPage.show(c, http.StatusOK, recoveryView{Message: r.Message})
	default:
		s.sendNotAllowed(c, []string{http.MethodGet, http.MethodPost})
	}
}

// unsubscribesPerMinute is how many requests to unsubscribe one address may send in a minute.
const unsubscribesPerMinute = 600

// An unsubscribeView is the content of the unsubscribe page: a button, or a final message.
type unsubscribeView struct {
	Email, Domain string // the recipient, and the domain that sends
	Message       string // the final message; "": the button is shown
}

// serveUnsubscribe serves the URL of the List-Unsubscribe header field. Mail systems send it a POST
// for their users (RFC 8058 section 3.1); the body is ignored. GET shows a button and changes
// nothing, so that a link checker does no harm. Requests from other sites are allowed, because the
// token in the URL is the permission.
func (s *Server) serveUnsubscribe(c *call) {
	unsubscribePage.setHeaders(c.w.Header())
	now := s.now()
	if s.notices.requests.add("unsubscribe "+remoteAddr(c.r), now) > unsubscribesPerMinute {
		s.showUnsubscribeError(c, rateLimited(now, "Too many requests came from your network. Wait a minute."))
		return
	}
	token := strings.TrimPrefix(c.r.URL.Path, unsubscribePath)
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		u, err := s.svc.Feedback.CheckUnsubscribe(c.r.Context(), token)
		if err != nil {
			s.showUnsubscribeError(c, err)
			return
		}
		s.showUnsubscribe(c, http.StatusOK, unsubscribeView{Email: u.Email, Domain: u.Domain})
	case http.MethodPost:
		u, err := s.svc.Feedback.Unsubscribe(c.r.Context(), token)
		if err != nil {
			s.showUnsubscribeError(c, err)
			return
		}
		s.showUnsubscribe(c, http.StatusOK, unsubscribeView{Message: fmt.Sprintf("You are unsubscribed. %s will get no more mail from %s.", u.Email, u.Domain)})
	default:
		c.w.Header().Set("Allow", "GET, HEAD, POST")
		s.showUnsubscribeError(c, core.Errorf("method_not_allowed", "%s is not allowed here.", c.r.Method))
	}
}

// showUnsubscribeError shows an error on the unsubscribe page.
func (s *Server) showUnsubscribeError(c *call, err error) {
	e := s.explainError(c, "unsubscribe", err)
	s.showUnsubscribe(c, code.Status(e.Code), unsubscribeView{Message: e.Message})
}

func (s *Server) showUnsubscribe(c *call, status int, v unsubscribeView) {
	unsubscribePage.show(c, status, v)
}

const (
	viewPath         = "/session/view/{user_id}/{uid}"
	attachmentPath   = "/session/files/{user_id}/{uid}/{index}"
	approvalViewPath = "/session/approvals/{approval_id}/view"
	approvalFilePath = "/session/approvals/{approval_id}/files/{index}"
	imageTimeout     = time.Minute // for a client to receive an image
)

// viewPolicy returns the Content-Security-Policy of a message that is shown as a document. It
// allows one style sheet, images from this server and links that open new windows, but no scripts.
// Only pages of the dashboard may frame the document. In a frame it keeps their origin, so that
// they can measure its height. In a tab of its own it has no origin.
func viewPolicy(styleHash string, framed bool) string {
	origin := ""
	if framed {
		origin = "allow-same-origin "
	}
	return "default-src 'none'; style-src '" + styleHash + "'; img-src 'self'; sandbox " + origin + "allow-popups allow-popups-to-escape-sandbox; " +
		"frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
}

// viewMessage sends a message as a document for a frame of the dashboard. Response headers count
// its images: all on other servers (X-Images-Remote), those shown as placeholders (X-Images-Held),
// and those removed because they are too small to see (X-Images-Trackers).
func (s *Server) viewMessage(c *call) {
	var in inbox.ViewIn
	if !s.decodeView(c, &in) {
		return
	}
	d, err := s.svc.Inbox.ViewMessage(c.r.Context(), c.who, in)
	s.sendView(c, d, err)
}

// viewAttachment sends an attachment as an image or as plain text, for the dashboard to show.
func (s *Server) viewAttachment(c *call) {
	var in attachments.ViewIn
	if !s.decodeView(c, &in) {
		return
	}
	file, err := s.svc.Attachments.ViewAttachment(c.r.Context(), c.who, in)
	if err != nil {
		s.sendError(c, err)
		return
	}
	c.w.Header().Set("Cache-Control", "no-store") // whoever signs in next in this browser may not have access
	s.sendBody(c, http.StatusOK, file, "inline")
}

// decodeView decodes a request for a document with content of strangers. It sets a Referrer-Policy,
// so that the hosts of links in the document do not learn where it was shown. If it returns false,
// it has sent an error.
func (s *Server) decodeView(c *call, in any) (decoded bool) {
	c.w.Header().Set("Referrer-Policy", "no-referrer")
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		err = core.Invalid("query", "invalid", "the query string is not properly encoded")
	} else {
		err = decode(in, requestParts{path: c.r.PathValue, query: query, header: c.r.Header})
	}
	if err != nil {
		s.sendError(c, err)
	}
	return err == nil
}

// viewApproval sends the text of a message that waits for approval, as viewMessage does, but
// without images.
func (s *Server) viewApproval(c *call) {
	var in submit.ViewApprovalIn
	if !s.decodeView(c, &in) {
		return
	}
	d, err := s.svc.Submit.ViewApproval(c.r.Context(), c.who, in)
	s.sendView(c, d, err)
}

// viewApprovalFile sends an attachment of a message that waits for approval: a document to view, or
// a download if the request asks for one.
func (s *Server) viewApprovalFile(c *call) {
	var in submit.ApprovalFileIn
	if !s.decodeView(c, &in) {
		return
	}
	d, file, err := s.svc.Submit.OpenApprovalFile(c.r.Context(), c.who, in)
	if file == nil {
		s.sendView(c, d, err)
		return
	}
	how := "inline"
	if in.Save {
		how, file.ContentType = contentDisposition(file.Name), "application/octet-stream"
	}
	s.sendBody(c, http.StatusOK, file, how)
}

// sendView sends a document with its headers, or err.
func (s *Server) sendView(c *call, d *view.Document, err error) {
	h := c.w.Header()
	if err != nil {
		s.sendError(c, err)
		return
	}
	h.Set("X-Images-Remote", strconv.Itoa(d.Remote))
	h.Set("X-Images-Held", strconv.Itoa(d.Held))
	h.Set("X-Images-Trackers", strconv.Itoa(d.Trackers))
	h.Set("Content-Security-Policy", viewPolicy(d.StyleHash, c.r.Header.Get("Sec-Fetch-Dest") == "iframe"))
	h.Add("Vary", "Sec-Fetch-Dest")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(d.HTML)))
	_, _ = c.w.Write(d.HTML) // a client that has left needs no answer
}

// sendImage sends an image of a shown message. The link of the image has a token, because a
// document in its own tab has no origin and its requests have no cookie.
func (s *Server) sendImage(c *call) {
	token, addr, ok := s.beginLink(c, imagePath)
	if !ok {
		return
	}
	image, err := s.svc.Inbox.OpenImage(c.r.Context(), token)
	if err != nil {
		s.countBadLink(addr, err)
		s.sendError(c, err)
		return
	}
	c.w.Header().Set("Cache-Control", "private, max-age="+strconv.Itoa(int(image.MaxAge.Seconds())))
	// If the connection supports no deadline, the time limits of the HTTP server apply.
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(imageTimeout))
	s.sendBody(c, http.StatusOK, &image.File, "inline")
}
