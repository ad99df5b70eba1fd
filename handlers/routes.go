package handlers

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/autoconfig"
	"github.com/mailstead/mailstead/handlers/docs"
	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/signin"
)

// publicPaths returns the handlers of all paths, for requests from the network.
func (s *Server) publicPaths() *pathMux {
	mux := s.newPathMux(s.authenticate, s.answerForHost)
	mux.HandleFunc(challengePath, s.answerChallenge)
	return mux
}

// newPathMux returns the handlers of all paths. Below /v1 the routers of operations decide. A path
// that ends in a slash matches everything below it. The path without the slash has a row too,
// because ServeMux would redirect it otherwise.
//
// Each request is first passed to answerByHost, with the autoconfig document of its path, or nil.
// answerByHost returns true if it has answered the request because of its host. It may be nil.
func (s *Server) newPathMux(identify func(*call) error, answerByHost func(http.ResponseWriter, *http.Request, *autoconfig.Document) bool) *pathMux {
	mux := http.NewServeMux()
	handle := func(path string, document *autoconfig.Document, answer func(*call)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if answerByHost == nil || !answerByHost(w, r, document) {
				s.serve(w, r, identify, answer)
			}
		})
	}
	for path, answer := range map[string]func(*call){
		// The API and MCP, which need a token, and the description of the API, which needs none.
		"/v1":              s.api,
		"/v1/":             s.api,
		mcpPath:            s.serveMCP,
		mcpPath + "/":      s.serveMCP,
		"/v1/openapi.json": s.sendDescription,
		"/v1/openapi.yaml": s.sendDescription,

		// The documentation.
		"/docs":       s.sendDocs,
		"/docs/":      s.sendDocs,
		"/docs.md":    s.sendDocs,
		docs.ListPath: s.sendDocs,

		// Pages for browsers: the dashboard, and those behind links with a token. sessionRoutes
		// has the paths of signed-in users.
		"/":                           s.servePage,
		"/session/":                   s.sessionPathNotFound,
		"/session/image":              s.sessionPathNotFound,
		imagePath:                     s.sendImage,
		"/reset":                      s.resetPassword,
		"/recovery":                   s.serveRecovery,
		exportPath:                    s.sendExport,
		"/export":                     s.serveDashboard,
		signin.SignInLinkPath:         s.useSignInLink,
		"/sign-in-link":               s.serveDashboard,
		unsubscribePath:               s.serveUnsubscribe,
		"/unsubscribe":                s.serveDashboard,
		"/oauth":                      s.pathNotFound,
		"/oauth/":                     s.pathNotFound,
		"/.well-known":                s.pathNotFound,
		"/.well-known/":               s.pathNotFound,
		"/.well-known/acme-challenge": s.pathNotFound,

		// Monitoring, and the notices of relays.
		"/healthz": s.sendHealth,
		"/readyz":  s.sendReadiness,
		"/metrics": s.sendMetrics,
		hooksPath:  s.receiveNotice,
		"/hooks":   s.pathNotFound,
	} {
		handle(path, nil, answer)
	}
	for path, answer := range s.oauthPaths() {
		handle(path, nil, answer)
	}
	for path, rows := range s.sessionRoutes() {
		handle(path, nil, s.sessionHandler(rows))
	}
	for _, d := range autoconfig.Documents() {
		handle(d.Path, d, func(c *call) { http.NotFound(c.w, c.r) })
	}
	api, _ := mux.Handler(&http.Request{Method: http.MethodConnect, URL: &url.URL{Path: "/v1/"}})
	return &pathMux{mux, api}
}

// sessionRoutes returns the routes below /session, by path and method.
func (s *Server) sessionRoutes() map[string]map[string]*sessionRoute {
	routes := map[string]map[string]*sessionRoute{}
	for _, row := range []sessionRoute{
		{Operation: api.Operation{Route: api.POST("/session"), Status: 200, Call: api.With(s.signIn)}, anonymous: true},
		{Operation: api.Operation{Route: api.GET("/session"), Status: 200, Call: api.Plain(s.svc.Signin.GetSession)}},
		{Operation: api.Operation{Route: api.GET("/session/here"), Status: 200, Call: api.Plain(s.currentSession)}, anonymous: true, optional: true},
		{Operation: api.Operation{Action: "logout", Route: api.DELETE("/session"), Status: 200, Call: api.With(s.signOut)}},
		{Operation: api.Operation{Route: api.GET(streamPath), Status: 200, May: api.May{Scope: "read", Roles: api.People, Bound: api.Clean}}, raw: s.serveStream, tokens: true},
		{Operation: api.Operation{Route: api.GET("/session/list"), May: api.May{Access: true}, Status: 200, Call: api.Plain(s.svc.Signin.ListSessions)}},
		{Operation: api.Operation{Action: "end_session", Route: api.DELETE("/session/list/{id}"), May: api.May{Access: true}, Status: 200, Call: api.With(s.svc.Signin.EndSession)}},
		{Operation: api.Operation{Action: "update_profile", Route: api.PATCH("/session/profile"), Status: 200, May: api.May{Scope: "read", Roles: api.Everyone, Access: true}, Call: api.With(s.svc.Signin.UpdateProfile)}},
		{Operation: api.Operation{Action: "start_totp", Route: api.POST("/session/totp"), May: api.May{Access: true}, Status: 200, Call: api.With(s.svc.Signin.StartTOTP)}},
		{Operation: api.Operation{Action: "confirm_totp", Route: api.POST("/session/totp/confirm"), May: api.May{Access: true}, Status: 200, Call: api.With(s.svc.Signin.ConfirmTOTP)}},
		{Operation: api.Operation{Action: "delete_totp", Route: api.DELETE("/session/totp"), May: api.May{Access: true}, Status: 200, Call: api.With(s.svc.Signin.DropTOTP)}},
		{Operation: api.Operation{Route: api.POST("/session/passkeys/options"), May: api.May{Access: true}, Status: 200, Call: api.With(s.startPasskey)}},
		{Operation: api.Operation{Action: "add_passkey", Route: api.POST("/session/passkeys"), May: api.May{Access: true}, Status: 201, Call: api.With(s.addPasskey)}},
		{Operation: api.Operation{Action: "delete_passkey", Route: api.DELETE("/session/passkeys/{id}"), May: api.May{Access: true}, Status: 200, Call: api.With(s.svc.Signin.DeletePasskey)}},
		{Operation: api.Operation{Route: api.POST("/session/passkey/options"), Status: 200, Call: api.Plain(s.offerPasskey)}, anonymous: true},
		{Operation: api.Operation{Route: api.POST("/session/passkey"), Status: 200, Call: api.With(s.usePasskey)}, anonymous: true},
		{Operation: api.Operation{Route: api.POST("/session/forgot"), Status: 202, Call: api.With(s.forgotPassword)}, anonymous: true},
		{Operation: api.Operation{Route: api.POST("/session/recover"), Status: 202, Call: api.With(s.recoverMailbox)}, anonymous: true},
		{Operation: api.Operation{Route: api.POST("/session/recovery"), Status: 200, Call: api.With(s.confirmRecovery)}, anonymous: true},
		{Operation: api.Operation{Route: api.GET("/session/welcome"), Status: 200, Call: api.With(s.checkWelcome)}, anonymous: true},
		{Operation: api.Operation{Route: api.POST("/session/welcome"), Status: 200, Call: api.With(s.completeWelcome)}, anonymous: true},
		{Operation: api.Operation{Route: api.GET(consentPath), Status: 200, May: api.May{Scope: "read", Roles: api.Everyone, Access: true}, Call: api.Plain(s.askConsent)}},
		{Operation: api.Operation{Action: "allow_client", Route: api.POST(consentPath), Status: 200, May: api.May{Scope: "write", Roles: api.Everyone, Access: true}, Call: api.With(s.decideConsent)}},
		{Operation: api.Operation{Route: api.GET(viewPath), May: api.May{Scope: "read", Roles: api.People}}, raw: s.viewMessage},
		{Operation: api.Operation{Route: api.Route{Method: "HEAD", Path: viewPath}, May: api.May{Scope: "read", Roles: api.People}}, raw: s.viewMessage},
		{Operation: api.Operation{Route: api.GET(attachmentPath), May: api.May{Scope: "read", Roles: api.People}}, raw: s.viewAttachment},
		{Operation: api.Operation{Route: api.GET(approvalViewPath), May: api.May{Scope: "read", Roles: api.Managers, Access: true}}, raw: s.viewApproval},
		{Operation: api.Operation{Route: api.GET(approvalFilePath), May: api.May{Scope: "read", Roles: api.Managers, Access: true}}, raw: s.viewApprovalFile},
	} {
		row.Name = row.Method + " " + row.Path
		if routes[row.Path] == nil {
			routes[row.Path] = map[string]*sessionRoute{}
		}
		routes[row.Path][row.Method] = &row
	}
	return routes
}

// serveMCP serves MCP. Some clients add a slash to its path; that is accepted.
func (s *Server) serveMCP(c *call) {
	if strings.Trim(c.r.URL.Path, "/") != strings.Trim(mcpPath, "/") {
		s.pathNotFound(c)
		return
	}
	s.mcp(c)
}

// pathNotFound answers 404 at paths that programs try. The dashboard would answer with a page and
// status 200, which they would take for the document that they look for.
func (s *Server) pathNotFound(c *call) {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	s.sendError(c, core.Errorf("not_found", "There is nothing at %s.", c.r.URL.Path))
}

// programsPath matches paths that programs try on any host: other versions of the API, and
// well-known documents (RFC 8615).
var programsPath = lazyregexp.New(`^/+(?:api/+)?v[0-9]+(?:/|$)|/\.well-known(?:/|$)`)

// servePage serves the dashboard for all paths that have no other handler, since only its script
// knows the paths of its pages. Paths that programs try get 404.
func (s *Server) servePage(c *call) {
	if programsPath().MatchString(c.r.URL.Path) {
		s.pathNotFound(c)
		return
	}
	s.serveDashboard(c)
}

// answerForHost answers a request that is not for the dashboard because of its host or path: with a
// configuration document for mail clients and servers, or with the redirect of a domain. It returns
// false if it has not answered.
func (s *Server) answerForHost(w http.ResponseWriter, r *http.Request, document *autoconfig.Document) (answered bool) {
	if document != nil || autoconfig.IsHost(r.Host) {
		if !s.allowAutoconfig(w, r) {
			return true
		}
		sent, err := s.autoconfig.Answer(w, r, document)
		if err != nil {
			s.Log.Error("answer a request for mail settings", "host", r.Host, "path", r.URL.Path, "error", err)
			http.Error(w, "something went wrong on our side", http.StatusInternalServerError)
		}
		if sent || err != nil {
			return true
		}
	}
	to, err := s.svc.Domains.RedirectOf(r.Host, r.URL)
	if err != nil {
		s.Log.Error("look up the redirect of a host", "host", r.Host, "error", err)
	}
	if to == nil {
		return false
	}
	w.Header().Set("Cache-Control", "max-age=300") // so that a change takes effect soon
	w.Header().Set("Location", to.URL)
	w.WriteHeader(to.Code)
	return true
}

// autoconfigPerMinute is how many requests for configuration documents one address may send in a
// minute.
const autoconfigPerMinute = 1000

// allowAutoconfig counts a request for configuration documents by its address. If there are too
// many, it answers the request and returns false.
func (s *Server) allowAutoconfig(w http.ResponseWriter, r *http.Request) (allowed bool) {
	now := s.now()
	if s.autoconfigRate.add(remoteAddr(r), now) <= autoconfigPerMinute {
		return true
	}
	w.Header().Set("Retry-After", strconv.Itoa(retrySeconds(untilNextMinute(now))))
	http.Error(w, "too many requests from this address: wait a minute", http.StatusTooManyRequests)
	return false
}

// answerChallenge sends a certificate authority the response to its HTTP-01 challenge (RFC 8555
// section 8.3).
func (s *Server) answerChallenge(w http.ResponseWriter, r *http.Request) {
	answer, ok := s.svc.Certs.ChallengeAnswer(strings.TrimPrefix(r.URL.Path, challengePath))
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, answer)
}

// sendHealth serves /healthz: it tells a monitor whether the store accepts writes.
func (s *Server) sendHealth(c *call) {
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.svc.Core.StoreFailure(); err != nil {
		c.w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(c.w, "failed: the store takes no writes\n")
		return
	}
	_, _ = io.WriteString(c.w, "ok\n")
}

// sendReadiness serves /readyz: it tells a monitor whether the server accepts mail and changes,
// with a line for each reason why it does not.
func (s *Server) sendReadiness(c *call) {
	reasons := s.svc.Health.NotReady()
	select {
	case <-s.ending:
		reasons = append(reasons, "stopping")
	default:
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(reasons) == 0 {
		_, _ = io.WriteString(c.w, "ok\n")
		return
	}
	c.w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(c.w, strings.Join(reasons, "\n")+"\n")
}
