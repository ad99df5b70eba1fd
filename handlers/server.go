// Package handlers listens: it turns HTTP requests into calls of the service by one table of
// operations, and what the service answers into HTTP. It knows no rules of its own and no store.
package handlers

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/mailstead/mailstead/service"
)

// A Server answers the HTTP API. Make it with New; its exported fields are set before use.
type Server struct {
	Log *slog.Logger
	Web http.Handler // what is not the API; nil answers 404

	Build string // of the dashboard's script: pages compare it with their own

	Proxies *Proxies // that stand before this server; nil: none

	svc    *service.Service
	ops    []op
	fixed  *httprouter.Router
	wild   *httprouter.Router
	rates  *rates
	bad    *badTokens
	doors  *rates // of those who are not signed in to the dashboard, by address
	visits *rates // of those who look for mail settings, by address
	hooks  *hooks
	replay *replays
	bodies *bodies
	now    func() time.Time
	pages  *template.Template // the password form
	leave  *template.Template // the page to unsubscribe at

	sessions *httprouter.Router // of /session

	description func() *description // of the API, made at its first use
	assistants  *assistants         // at /mcp

	ending  chan struct{} // closed when streams are to end
	endOnce sync.Once
}

// New makes the API of a service.
func New(svc *service.Service) *Server {
	s := &Server{Log: slog.Default(), svc: svc, ops: operations(svc), now: time.Now, ending: make(chan struct{})}
	s.rates = newRates(svc.Config.Limits)
	s.bad = newBadTokens()
	s.visits, s.doors = newRates(service.Limits{}), newRates(service.Limits{})
	s.hooks = newHooks()
	s.bodies = newBodies(svc)
	s.replay = &replays{svc: svc, running: map[string]bool{}}
	s.pages = template.Must(template.New("").Parse(resetPage))
	s.leave = template.Must(template.New("").Parse(unsubscribePage))
	s.description = sync.OnceValue(s.makeDescription)
	s.assistants = newAssistants(s)
	s.route()
	s.sessions = s.routeSessions()
	return s
}

// ServeHTTP answers clients of the network, who show a token, certificate authorities, who look for
// their challenges, and mail clients, who look for their settings, and sends visitors of redirected
// domains on.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, leave, ok := s.fromProxy(w, r)
	if !ok {
		return
	}
	defer leave()
	if token, ok := strings.CutPrefix(r.URL.Path, challengePath); ok {
		s.proveName(w, r, token)
		return
	}
	if s.discover(w, r) {
		return
	}
	if to, err := s.svc.RedirectOf(r.Host, r.URL); err != nil {
		s.Log.Error("look for a redirect", "host", r.Host, "error", err)
	} else if to != nil {
		w.Header().Set("Cache-Control", "max-age=300") // so that a change is seen soon
		w.Header().Set("Location", to.URL)
		w.WriteHeader(to.Code)
		return
	}
	s.serve(w, r, s.authenticate)
}

// Local answers clients of the local socket, who are the operator: they act as the owner of the
// first account, or of the one that the header X-Mailstead-Account names.
func (s *Server) Local() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(c *call) error {
			who, err := s.svc.Operator(c.r.Context(), c.r.Header.Get("X-Mailstead-Account"))
			c.who = who
			return err
		})
	})
}

// A call is one request on its way through the server.
type call struct {
	w   http.ResponseWriter
	r   *http.Request
	id  string
	who service.Actor
	op  *op
}

type callKey struct{}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, identify func(*call) error) {
	c := &call{w: w, r: r, id: s.requestID(r)}
	w.Header().Set("X-Request-Id", c.id)
	defer s.recover(c, w)
	if !isAPI(r.URL.Path) && r.URL.Path != mcpPath {
		s.outside(c)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.URL.Path == mcpPath {
		s.assistants.serve(c, identify)
		return
	}
	if err := identify(c); err != nil {
		s.fail(c, err)
		return
	}
	if err := s.rates.count(c, s.now()); err != nil {
		s.fail(c, err)
		return
	}
	s.fixed.ServeHTTP(w, routed(c.request()))
}

// request is the call's request, which leads handlers back to the call.
func (c *call) request() *http.Request {
	c.r = c.r.WithContext(context.WithValue(c.r.Context(), callKey{}, c))
	return c.r
}

// routed is the request as the routers see it: a slash that is part of a name (%2F) does not end
// it.
func routed(r *http.Request) *http.Request {
	if !strings.Contains(strings.ToUpper(r.URL.RawPath), "%2F") {
		return r
	}
	u := *r.URL
	u.Path = u.RawPath
	escaped := *r
	escaped.URL = &u
	return &escaped
}

// unescaped gives the parts of a path as they are meant, where the routers saw them escaped.
func unescaped(ps httprouter.Params, r *http.Request) httprouter.Params {
	if r.URL.Path != r.URL.RawPath {
		return ps
	}
	out := slices.Clone(ps)
	for i := range out {
		if value, err := url.PathUnescape(out[i].Value); err == nil {
			out[i].Value = value
		}
	}
	return out
}

// isAPI tells what needs a token.
func isAPI(path string) bool {
	return (path == "/v1" || strings.HasPrefix(path, "/v1/")) && !isDescription(path)
}

// outside answers what needs no token.
func (s *Server) outside(c *call) {
	switch path := c.r.URL.Path; {
	case path == "/healthz":
		s.health(c.w)
	case path == "/reset":
		s.resetPassword(c)
	case strings.HasPrefix(path, imagePath):
		s.sendImage(c)
	case isSession(path):
		s.session(c)
	case strings.HasPrefix(path, hooksPath):
		s.takeNotice(c)
	case strings.HasPrefix(path, unsubscribePath):
		s.unsubscribe(c)
	case strings.HasPrefix(path, "/export/"):
		s.download(c)
	case isDescription(path):
		s.sendDescription(c)
	case s.Web == nil || isDiscovery(path):
		http.NotFound(c.w, c.r)
	default:
		s.dashboard(c)
	}
}

// dashboard answers its pages. Nobody can sign in over plain HTTP in production: there it leads to
// where that can be done, and browsers that were there once go there by themselves.
func (s *Server) dashboard(c *call) {
	base := s.svc.Config.BaseURL
	switch secure := !s.svc.Config.Sandbox && strings.HasPrefix(base, "https://"); {
	case secure && !isSecure(c.r) && (c.r.Method == http.MethodGet || c.r.Method == http.MethodHead):
		c.w.Header().Set("Cache-Control", "no-store")
		c.w.Header().Set("Location", base+"/"+strings.TrimLeft(c.r.URL.RequestURI(), "/"))
		c.w.WriteHeader(http.StatusTemporaryRedirect)
		return
	case secure && isSecure(c.r) && s.byName(c.r):
		c.w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	}
	s.Web.ServeHTTP(c.w, c.r)
}

// health says whether the store still takes writes.
func (s *Server) health(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.svc.Healthy(); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("failed: the store takes no writes\n"))
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// route fills the routers. httprouter refuses a fixed path beside a wildcard, so that fixed paths
// have a router of their own, which falls through to the other.
func (s *Server) route() {
	s.fixed, s.wild = httprouter.New(), httprouter.New()
	allowed := map[string][]string{}
	for _, r := range []*httprouter.Router{s.fixed, s.wild} {
		r.RedirectTrailingSlash, r.RedirectFixedPath, r.HandleOPTIONS = false, false, false
	}
	for i := range s.ops {
		o := &s.ops[i]
		path := routerPath(o.path)
		router := s.fixed
		if strings.Contains(path, ":") {
			router = s.wild
		} else {
			allowed[path] = append(allowed[path], o.method)
		}
		router.Handle(o.method, path, s.handle(o))
	}
	s.fixed.HandleMethodNotAllowed = false
	s.fixed.NotFound = s.wild
	s.wild.HandleMethodNotAllowed = true
	s.wild.MethodNotAllowed = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.notAllowed(callOf(r.Context()), slices.Concat(allowed[r.URL.Path], strings.Split(w.Header().Get("Allow"), ", ")))
	})
	s.wild.NotFound = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if methods := allowed[r.URL.Path]; methods != nil {
			s.notAllowed(callOf(r.Context()), methods)
			return
		}
		s.fail(callOf(r.Context()), service.Errorf(404, "not_found", "There is no %s %s in this API. See /v1/openapi.json for what there is.", r.Method, r.URL.Path))
	})
}

// notAllowed names the methods that there are, each once; httprouter adds OPTIONS, which there is
// not.
func (s *Server) notAllowed(c *call, found []string) {
	methods := slices.Compact(slices.Sorted(slices.Values(found)))
	methods = slices.DeleteFunc(methods, func(m string) bool { return m == http.MethodOptions })
	c.w.Header().Set("Allow", strings.Join(methods, ", "))
	s.fail(c, service.Errorf(405, "method_not_allowed", "%s is not possible here. Use one of: %s.", c.r.Method, strings.Join(methods, ", ")))
}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// routerPath turns {domain_id} into :domain_id.
func routerPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// handle is the way of every operation: scope and role, body, the service, the answer.
func (s *Server) handle(o *op) httprouter.Handle {
	return func(_ http.ResponseWriter, r *http.Request, ps httprouter.Params) {
		c := callOf(r.Context())
		c.op, ps = o, unescaped(ps, r)
		if err := o.permit(c.who); err != nil {
			s.fail(c, err)
			return
		}
		body, done, err := s.bodies.read(c)
		if err != nil {
			s.fail(c, err)
			return
		}
		defer done()
		if key := r.Header.Get("Idempotency-Key"); key != "" && r.Method == http.MethodPost {
			s.once(c, ps, key, body)
			return
		}
		s.answer(c, ps, body)
	}
}

// answer decodes, calls the service and writes what it says.
func (s *Server) answer(c *call, ps httprouter.Params, body []byte) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		s.fail(c, service.Invalid("query", "invalid", "the part of the address behind ? is not properly encoded"))
		return
	}
	out, err := c.op.call.do(c.r.Context(), c.who, func(in any) error {
		return decode(in, source{params: ps, query: query, header: c.r.Header, body: body, strict: c.op.strict, patch: c.op.method == http.MethodPatch})
	})
	if err != nil {
		s.fail(c, err)
		return
	}
	if f := fileOf(out); f != nil {
		s.sendFile(c, c.op.status, f)
		return
	}
	s.sendJSON(c, c.op.status, out)
}

// fileOf is the file that an answer is, or that it holds because the client asked for the file
// itself; nil if neither.
func fileOf(out any) *service.File {
	switch v := out.(type) {
	case *service.File:
		return v
	case interface{ Inline() *service.File }:
		return v.Inline()
	}
	return nil
}

// recover turns a bug into a 500, written to the client itself rather than to what held the answer
// back, and a line in the log.
func (s *Server) recover(c *call, w http.ResponseWriter) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // the sentinel itself is panicked
		panic(v)
	}
	s.Log.Error("panic in a request", "request_id", c.id, "method", c.r.Method, "path", c.r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	c.w = w
	s.fail(c, service.Errorf(500, "internal_error", "Something went wrong on our side. Try again; if it stays, report the request id."))
}

var clientID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID echoes the client's own id where it has the right form, else makes one.
func (s *Server) requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); clientID.MatchString(id) {
		return id
	}
	return s.svc.NewRequestID()
}

// authenticate finds out whose token the request carries: in the header, or else in the cookie of a
// dashboard session, which no other site may have sent. Assistants have no sessions.
func (s *Server) authenticate(c *call) error {
	addr := remoteAddr(c.r)
	if err := s.bad.check(addr, s.now()); err != nil {
		return err
	}
	var who service.Actor
	var err error
	token := s.cookie(c.r)
	if token != "" && len(c.r.Header.Values("Authorization")) == 0 && c.r.URL.Path != mcpPath {
		if err := sameOrigin(c.r); err != nil {
			return err
		}
		who, err = s.svc.AuthenticateSession(c.r.Context(), token, addr)
	} else {
		token = bearer(c.r)
		who, err = s.svc.Authenticate(c.r.Context(), token, addr)
	}
	if e := new(service.Error); errors.As(err, &e) && e.Status == http.StatusUnauthorized && token != "" {
		s.bad.count(addr, s.now())
	}
	c.who = who
	return err
}

// bearer is the token in the request's header; "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
