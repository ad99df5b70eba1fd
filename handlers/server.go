// Package handlers serves HTTP: it turns requests into calls of the service by one table of
// operations, and the service's results into responses. It knows no rules of the product and no
// store.
package handlers

import (
	"cmp"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/autoconfig"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
)

// New returns the HTTP server of a service.
func New(svc *service.Service) *Server {
	s := &Server{Log: slog.Default(), svc: svc, ops: api.All(svc), now: svc.Core.Now, ending: make(chan struct{})}
	s.rates = newRates(svc.Core.Config.Limits)
	s.badTokens = newBadTokens()
	s.autoconfigRate, s.anonymousRate = newRates(core.Limits{}), newRates(core.Limits{})
	s.oauthRate, s.registrations = newRates(core.Limits{}), limit.NewCounter[string](time.Hour)
	s.hooks = newHooks()
	s.bodies, s.uploads = &bodies{svc}, make(chan struct{}, maxUploads)
	s.autoconfig = &autoconfig.Server{Service: svc, Now: func() time.Time { return s.now() }}
	s.description = sync.OnceValue(s.makeDescription)
	s.assistants = newAssistants(s)
	s.route()
	s.public = s.publicPaths()
	return s
}

// ServeHTTP answers requests from the network.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, leave, ok := s.fromProxy(w, r)
	if !ok {
		return
	}
	defer leave()
	dispatch(s.public, w, r)
}

// Local returns the handler for the local socket. Its client is the operator, who acts as the owner
// of the first account, or of the account in the header X-Mailstead-Account.
func (s *Server) Local() http.Handler {
	mux := s.paths(func(c *call) error {
		who, err := s.svc.Accounts.Operator(c.r.Context(), c.r.Header.Get("X-Mailstead-Account"))
		c.who, c.via = who, core.AuditCommands
		return err
	}, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { dispatch(mux, w, r) })
}

// serve makes a call from a request and has answer handle it, with tracing, metrics and panic
// recovery.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, identify func(*call) error, answer func(*call)) {
	counted, began, id := &statusWriter{ResponseWriter: w}, time.Now(), s.requestID(r)
	ctx := s.svc.Core.Tracer.Continue(core.WithRequest(r.Context(), id), r.Header.Get("traceparent"))
	ctx, span := s.svc.Core.Tracer.Start(ctx, otlp.Server, "request")
	c := newCall(ctx, counted, r, id)
	c.identify = identify
	w.Header().Set("X-Request-Id", c.id)
	// Browsers remember the header (RFC 6797).
	if s.needsHTTPS() && isSecure(r) && s.usesOwnName(r) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	}
	defer func() { s.count(c, counted, span, began) }()
	defer s.recover(c, counted)
	answer(c)
}

// api answers requests below /v1.
func (s *Server) api(c *call) {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := c.identify(c); err != nil {
		s.fail(c, err)
		return
	}
	if err := s.rates.count(c, s.now()); err != nil {
		s.fail(c, err)
		return
	}
	s.fixed.ServeHTTP(c.w, routerRequest(c.r))
}

// routerRequest returns the request for the routers: a slash within a path parameter (%2F) stays
// escaped, so that it does not split the parameter.
func routerRequest(r *http.Request) *http.Request {
	if !strings.Contains(strings.ToUpper(r.URL.RawPath), "%2F") {
		return r
	}
	u := *r.URL
	u.Path = u.RawPath
	escaped := *r
	escaped.URL = &u
	return &escaped
}

// pathValues returns the parameters of a path by name, unescaped if the routers saw them escaped.
func pathValues(ps httprouter.Params, r *http.Request) func(name string) string {
	if r.URL.Path != r.URL.RawPath {
		return ps.ByName
	}
	return func(name string) string {
		value, err := url.PathUnescape(ps.ByName(name))
		if err != nil {
			return ps.ByName(name)
		}
		return value
	}
}

// route fills the routers. httprouter refuses a fixed path beside a wildcard, so there is one
// router for paths without parameters, one for paths with one, and one for paths with more. Each
// falls through to the next.
func (s *Server) route() {
	s.fixed, s.wild, s.deep = httprouter.New(), httprouter.New(), httprouter.New()
	routers := []*httprouter.Router{s.fixed, s.wild, s.deep}
	for _, r := range routers {
		r.RedirectTrailingSlash, r.RedirectFixedPath, r.HandleOPTIONS, r.HandleMethodNotAllowed = false, false, false, false
	}
	var methods []string
	for i := range s.ops {
		o := &s.ops[i]
		path := routerPath(o.Path)
		routers[min(strings.Count(path, ":"), len(routers)-1)].Handle(o.Method, path, func(_ http.ResponseWriter, r *http.Request, ps httprouter.Params) {
			s.run(callOf(r.Context()), o, pathValues(ps, r))
		})
		if !slices.Contains(methods, o.Method) {
			methods = append(methods, o.Method)
		}
	}
	s.fixed.NotFound, s.wild.NotFound = s.wild, s.deep
	s.deep.NotFound = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, router := range routers {
			for _, method := range methods {
				if handle, _, _ := router.Lookup(method, r.URL.Path); handle != nil {
					allowed = append(allowed, method)
				}
			}
		}
		if len(allowed) > 0 {
			s.notAllowed(callOf(r.Context()), allowed)
			return
		}
		s.fail(callOf(r.Context()), core.Errorf("not_found", "There is no %s %s in this API. See /v1/openapi.json for what there is.", r.Method, r.URL.Path))
	})
}

// notAllowed answers with an error that names the allowed methods, each once.
func (s *Server) notAllowed(c *call, found []string) {
	methods := slices.Compact(slices.Sorted(slices.Values(found)))
	c.w.Header().Set("Allow", strings.Join(methods, ", "))
	s.fail(c, core.Errorf("method_not_allowed", "%s is not allowed here. Use one of: %s.", c.r.Method, strings.Join(methods, ", ")))
}

// routerPath turns {domain_id} into :domain_id.
func routerPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// run handles an operation: it checks the permission, reads the body, and answers, with the rules
// for an Idempotency-Key or an upload.
func (s *Server) run(c *call, o *api.Operation, path func(name string) string) {
	c.op = o
	if err := o.Permit(c.who); err != nil {
		s.fail(c, err)
		return
	}
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err == nil && o.Upload != nil && kind == mboxType {
		s.answerUpload(c, path)
		return
	}
	body, done, err := s.bodies.read(c)
	if err != nil {
		s.fail(c, err)
		return
	}
	defer done()
	if key := c.r.Header.Get("Idempotency-Key"); key != "" && openapi.Keyed(o.Method, o.Scope) {
		s.idempotent(c, path, key, body)
		return
	}
	s.answer(c, path, body)
}

// answer decodes the request, calls the service and sends its result.
func (s *Server) answer(c *call, path func(name string) string, body []byte) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		s.fail(c, core.Invalid("query", "invalid", "the query string is not properly encoded"))
		return
	}
	if !c.op.Waits {
		s.svc.Inbound.WaitFiled(c.r.Context(), 0)
	}
	if err := s.checkTaint(c, query); err != nil {
		s.fail(c, err)
		return
	}
	ctx := c.r.Context()
	if c.op.Waits && c.who.TokenKind == core.OAuthKind {
		waits, end := s.untilRevoked(ctx, c.who)
		defer end()
		ctx = waits
	}
	c.who.Request = &core.Request{Action: cmp.Or(c.op.Action, c.op.Name), Via: c.via, ID: c.id}
	out, err := c.op.Call.Do(ctx, c.who, func(in any) error {
		_, leave, err := s.svc.Core.WorkOnLarge(ctx, int64(len(body)))
		if err != nil {
			return err
		}
		defer leave()
		err = decode(in, source{
			path: path, query: query, header: c.r.Header, body: body, strict: c.op.Strict, patch: c.op.Method == http.MethodPatch, given: &c.who.Request.Fields,
		})
		if err != nil {
			return err
		}
		return checkFields(c)
	})
	if c.op.Waits {
		err = cmp.Or(s.svc.Accounts.CheckActor(c.r.Context(), c.who), err)
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	if f := fileOf(out); f != nil {
		s.sendFile(c, c.op.Status, f)
		return
	}
	s.sendJSON(c, c.op.Status, out)
}

// checkTaint refuses operations that a tainted token must not use, and taints a token that is
// about to read content of strangers. Operations on single messages taint when they read the
// message.
func (s *Server) checkTaint(c *call, query url.Values) error {
	if !c.who.Policy.Taint {
		return nil
	}
	if want, value, _ := strings.Cut(c.op.WhileTainted, "="); c.op.Bound != api.Always || want != "" && query.Get(want) != value {
		if err := s.svc.Agents.MayBeTainted(c.who); err != nil {
			return err
		}
	}
	if c.op.Taints {
		return s.svc.Agents.ReadAny(c.who)
	}
	return nil
}

// checkFields refuses body fields that a bound token must not set.
func checkFields(c *call) error {
	if !c.who.Bound || c.op.BoundFields == "" && c.op.Method != http.MethodPatch {
		return nil
	}
	may := strings.Fields(c.op.BoundFields)
	for _, field := range c.who.Request.Fields {
		if !slices.Contains(may, field) {
			return core.Errorf("forbidden_role", "This token is bound, and may change only %s here. A person must change the rest.", strings.Join(may, ", "))
		}
	}
	return nil
}

// fileOf returns the file of a result: the result itself, or the file in it if the client requested
// the file; nil if neither.
func fileOf(out any) *core.File {
	switch v := out.(type) {
	case *core.File:
		return v
	case interface{ Inline() *core.File }:
		return v.Inline()
	}
	return nil
}

// recover logs a panic and answers with status 500. It answers to w, because c.w may be a buffer
// that is not read any more.
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
	s.fail(c, core.Errorf("internal_error", "Something went wrong on the server. Try again; if it happens again, report the request id."))
}

var clientID = lazyregexp.New(`^[A-Za-z0-9._-]{1,64}$`)

// requestID returns the client's own request ID if it is valid, else a new one.
func (s *Server) requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); clientID().MatchString(id) {
		return id
	}
	return s.svc.Core.NewRequestID()
}

// authenticate finds the actor by the token of the request: in the Authorization header, or else in
// the cookie of a dashboard session, which another site must not have sent. Assistants cannot use
// sessions.
func (s *Server) authenticate(c *call) error {
	addr := remoteAddr(c.r)
	if err := s.badTokens.check(addr, s.now()); err != nil {
		return err
	}
	var who core.Actor
	var err error
	token := s.cookie(c.r)
	if token != "" && len(c.r.Header.Values("Authorization")) == 0 && c.r.URL.Path != mcpPath {
		if err := sameOrigin(c.r); err != nil {
			return err
		}
		who, err = s.svc.Signin.AuthenticateSession(c.r.Context(), token, addr)
		c.via = core.AuditDashboard
	} else {
		token = bearer(c.r)
		c.via = core.AuditAPI
		find := s.svc.Accounts.Authenticate
		if c.r.URL.Path == mcpPath {
			find = s.svc.Accounts.AuthenticateAssistant
		}
		who, err = find(c.r.Context(), token, addr)
	}
	if e := new(core.Error); errors.As(err, &e) && code.Status(e.Code) == http.StatusUnauthorized && token != "" {
		s.badTokens.count(addr, s.now())
	}
	c.who = who
	return err
}

// bearer returns the bearer token of the request, "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
