package handlers

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/handlers/autoconfig"
	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/service/core"
)

// Paths that other files use.
const (
	imagePath       = "/session/image/" // followed by the token of an image
	exportPath      = "/export/"        // followed by the token of an export
	unsubscribePath = "/unsubscribe/"   // followed by the token of a recipient
	hooksPath       = "/hooks/"         // followed by the kind of a relay and its name
	mcpPath         = "/mcp"

	// Certificate authorities fetch the responses to their challenges here (RFC 8555 section 8.3).
	// The path is never redirected: whoever answers here gets certificates for the name.
	challengePath = "/.well-known/acme-challenge/"
)

// autoconfigPerMinute is how many requests for mail settings one address may make in a minute.
const autoconfigPerMinute = 1000

// publicPaths returns the handlers for requests from the network.
func (s *Server) publicPaths() *pathMux {
	mux := s.paths(s.authenticate, s.answerForHost)
	mux.HandleFunc(challengePath, s.answerChallenge)
	return mux
}

// paths returns the handlers of all paths; below /v1 the table of operations decides. A path that
// ends in a slash matches everything below it. Its parent without the slash has a row too, because
// ServeMux would redirect it otherwise.
//
// before may answer a request because of its host, and then returns true. It gets the autoconfig
// document of the path, or nil.
func (s *Server) paths(identify func(*call) error, before func(http.ResponseWriter, *http.Request, *autoconfig.Document) bool) *pathMux {
	mux := http.NewServeMux()
	handle := func(path string, document *autoconfig.Document, answer func(*call)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if before == nil || !before(w, r, document) {
				s.serve(w, r, identify, answer)
			}
		})
	}
	for path, answer := range map[string]func(*call){
		// The API, which needs a token, and its description, which needs none.
		"/v1":                 s.api,
		"/v1/":                s.api,
		mcpPath:               s.serveMCP,
		mcpPath + "/":         s.serveMCP,
		"/v1/openapi.json":    s.sendDescription,
		"/v1/openapi.yaml":    s.sendDescription,
		"/docs":               s.sendDescription,
		"/docs/reference.css": s.sendDescription,

		// For browsers: the dashboard, and what its sessions have beside the API (see
		// sessionRoutes).
		"/":                           s.page,
		"/session/":                   s.noSessionRoute,
		"/session/image":              s.noSessionRoute,
		imagePath:                     s.sendImage,
		"/reset":                      s.resetPassword,
		"/recovery":                   s.serveRecovery,
		exportPath:                    s.download,
		"/export":                     s.dashboard,
		unsubscribePath:               s.unsubscribe,
		"/unsubscribe":                s.dashboard,
		"/oauth":                      s.pathNotFound,
		"/oauth/":                     s.pathNotFound,
		"/.well-known":                s.pathNotFound,
		"/.well-known/":               s.pathNotFound,
		"/.well-known/acme-challenge": s.pathNotFound,

		// For other programs.
		"/healthz": s.health,
		"/readyz":  s.ready,
		"/metrics": s.metrics,
		hooksPath:  s.receiveNotice,
		"/hooks":   s.pathNotFound,
	} {
		handle(path, nil, answer)
	}
	for path, answer := range s.oauthPaths() {
		handle(path, nil, answer)
	}
	for path, rows := range s.sessionRoutes() {
		handle(path, nil, s.session(rows))
	}
	for _, d := range autoconfig.Documents() {
		handle(d.Path, d, func(c *call) { http.NotFound(c.w, c.r) })
	}
	api, _ := mux.Handler(&http.Request{Method: http.MethodConnect, URL: &url.URL{Path: "/v1/"}})
	return &pathMux{mux, api}
}

// serveMCP serves MCP, also with a slash after its path, which some clients add.
func (s *Server) serveMCP(c *call) {
	if strings.Trim(c.r.URL.Path, "/") != strings.Trim(mcpPath, "/") {
		s.pathNotFound(c)
		return
	}
	s.assistants.serve(c)
}

// pathNotFound answers 404 at paths that programs try. With a page and status 200 they would take
// the page for the document that they look for.
func (s *Server) pathNotFound(c *call) {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	s.fail(c, core.Errorf("not_found", "There is nothing at %s.", c.r.URL.Path))
}

// programsPath matches paths that programs try anywhere: other versions of the API, and the
// documents of RFC 8615.
var programsPath = lazyregexp.New(`^/+(?:api/+)?v[0-9]+(?:/|$)|/\.well-known(?:/|$)`)

// page serves the dashboard, which alone knows the paths of its pages, except at paths that
// programs try.
func (s *Server) page(c *call) {
	if programsPath().MatchString(c.r.URL.Path) {
		s.pathNotFound(c)
		return
	}
	s.dashboard(c)
}

// A pathMux is the mux of a listener, and the handler of /v1, which most requests go to without a
// lookup.
type pathMux struct {
	*http.ServeMux
	api http.Handler
}

// dispatch passes a request to the handler of its path. It looks the path up as if the method were
// CONNECT, because ServeMux redirects other methods from paths such as "//x" and "/x/../y", which
// have handlers here.
func dispatch(mux *pathMux, w http.ResponseWriter, r *http.Request) {
	path := autoconfig.PathOf(r.URL.Path)
	if strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/openapi.") {
		mux.api.ServeHTTP(w, r)
		return
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" // of "*", or of a URL without a path
	}
	h, pattern := mux.Handler(&http.Request{Method: http.MethodConnect, URL: &url.URL{Path: path}})
	if strings.Contains(pattern, "{") {
		parts := strings.Split(path, "/")
		for i, name := range strings.Split(pattern, "/") {
			if strings.HasPrefix(name, "{") {
				r.SetPathValue(strings.Trim(name, "{}"), parts[i])
			}
		}
	}
	h.ServeHTTP(w, r)
}

// answerForHost answers a request for another host than the dashboard's: a document for mail
// clients and servers, or a redirect. It returns false if it has not answered.
func (s *Server) answerForHost(w http.ResponseWriter, r *http.Request, document *autoconfig.Document) bool {
	if document != nil || autoconfig.IsHost(r.Host) {
		if !s.limitAutoconfig(w, r) {
			return true
		}
		answered, err := s.autoconfig.Answer(w, r, document)
		if err != nil {
			s.Log.Error("answer a request for mail settings", "host", r.Host, "path", r.URL.Path, "error", err)
			http.Error(w, "something went wrong on our side", http.StatusInternalServerError)
		}
		if answered || err != nil {
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

// limitAutoconfig counts a request by its address. Over the limit it answers the request and
// returns false.
func (s *Server) limitAutoconfig(w http.ResponseWriter, r *http.Request) bool {
	now := s.now()
	if s.autoconfigRate.add(remoteAddr(r), now) <= autoconfigPerMinute {
		return true
	}
	w.Header().Set("Retry-After", strconv.Itoa(retrySeconds(untilNextMinute(now))))
	http.Error(w, "too many requests from this address: wait a minute", http.StatusTooManyRequests)
	return false
}

// answerChallenge sends a certificate authority the response to its challenge.
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

// dashboard serves the pages of the dashboard. In production nobody can sign in over plain HTTP, so
// it redirects such requests to HTTPS.
func (s *Server) dashboard(c *call) {
	if s.Web == nil {
		http.NotFound(c.w, c.r)
		return
	}
	if s.toHTTPS(c) {
		return
	}
	s.Web.ServeHTTP(c.w, c.r)
}

// needsHTTPS reports whether signing in requires TLS.
func (s *Server) needsHTTPS() bool {
	return !s.svc.Core.Config.Sandbox && strings.HasPrefix(s.svc.Core.Config.BaseURL, "https://")
}

// toHTTPS redirects a request for a page over plain HTTP to HTTPS. It returns false if it has not
// answered.
func (s *Server) toHTTPS(c *call) bool {
	if !s.needsHTTPS() || isSecure(c.r) || c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return false
	}
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("Location", s.svc.Core.Config.BaseURL+"/"+strings.TrimLeft(c.r.URL.RequestURI(), "/"))
	c.w.WriteHeader(http.StatusTemporaryRedirect)
	return true
}

// health reports whether the store accepts writes.
func (s *Server) health(c *call) {
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.svc.Core.Healthy(); err != nil {
		c.w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(c.w, "failed: the store takes no writes\n")
		return
	}
	_, _ = io.WriteString(c.w, "ok\n")
}

// ready reports whether the server accepts mail and changes, with a line for each reason why it
// does not.
func (s *Server) ready(c *call) {
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
