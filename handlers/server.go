// Package handlers listens: it turns HTTP requests into calls of the service by one table of
// operations, and what the service answers into HTTP. It knows no rules of its own and no store.
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

// New makes the API of a service.
func New(svc *service.Service) *Server {
	s := &Server{Log: slog.Default(), svc: svc, ops: api.All(svc), now: svc.Core.Now, ending: make(chan struct{})}
	s.rates = newRates(svc.Core.Config.Limits)
	s.badTokens = newBadTokens()
	s.autoconfigRate, s.anonymousRate = newRates(core.Limits{}), newRates(core.Limits{})
	s.oauthRate, s.registrations = newRates(core.Limits{}), limit.NewCounter[string](time.Hour)
	s.hooks = newHooks()
	s.bodies, s.uploads = &bodies{svc}, make(chan struct{}, uploadsMost)
	s.autoconfig = &autoconfig.Server{Service: svc, Now: func() time.Time { return s.now() }}
	s.description = sync.OnceValue(s.makeDescription)
	s.assistants = newAssistants(s)
	s.route()
	s.public = s.publicPaths()
	return s
}

// ServeHTTP answers requests of the network.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, leave, ok := s.fromProxy(w, r)
	if !ok {
		return
	}
	defer leave()
	dispatch(s.public, w, r)
}

// Local answers requests of the local socket. Their sender is the operator, who acts as the owner
// of the first account, or of the account in the header X-Mailstead-Account.
func (s *Server) Local() http.Handler {
	mux := s.paths(func(c *call) error {
		who, err := s.svc.Accounts.Operator(c.r.Context(), c.r.Header.Get("X-Mailstead-Account"))
		c.who, c.via = who, core.AuditCommands
		return err
	}, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { dispatch(mux, w, r) })
}

// serve makes a call of a request and has it answered.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, identify func(*call) error, answer func(*call)) {
	counted, began, id := &statusWriter{ResponseWriter: w}, time.Now(), s.requestID(r)
	ctx := s.svc.Core.Tracer.Continue(core.WithRequest(r.Context(), id), r.Header.Get("traceparent"))
	ctx, span := s.svc.Core.Tracer.Start(ctx, otlp.Server, "request")
	c := newCall(ctx, counted, r, id)
	c.identify = identify
	w.Header().Set("X-Request-Id", c.id)
	if s.needsHTTPS() && isSecure(r) && s.byName(r) { // browsers remember it (RFC 6797)
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	}
	defer func() { s.count(c, counted, span, began) }()
	defer s.recover(c, counted)
	answer(c)
}

// api answers what is below /v1.
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
	s.fixed.ServeHTTP(c.w, routed(c.r))
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

// pathValues gives the parameters of a path by name, unescaped where the routers saw them escaped.
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

// route fills the routers. httprouter refuses a fixed path beside a wildcard, so paths have a
// router by how many parameters they have, none, one or more, each of which falls through to the
// next.
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

// notAllowed names the methods that there are, each once.
func (s *Server) notAllowed(c *call, found []string) {
	methods := slices.Compact(slices.Sorted(slices.Values(found)))
	c.w.Header().Set("Allow", strings.Join(methods, ", "))
	s.fail(c, core.Errorf("method_not_allowed", "%s is not allowed here. Use one of: %s.", c.r.Method, strings.Join(methods, ", ")))
}

// routerPath turns {domain_id} into :domain_id.
func routerPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// run is the way of every operation: scope and role, body, the service, the answer.
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

// answer decodes, calls the service and writes what it says.
func (s *Server) answer(c *call, path func(name string) string, body []byte) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		s.fail(c, core.Invalid("query", "invalid", "the query string is not properly encoded"))
		return
	}
	if !c.op.Waits {
		s.svc.Inbound.WaitFiled(c.r.Context(), 0)
	}
	if err := s.checkReader(c, query); err != nil {
		s.fail(c, err)
		return
	}
	ctx := c.r.Context()
	if c.op.Waits && c.who.TokenKind == core.OAuthKind {
		waits, end := s.whileItStands(ctx, c.who)
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

// checkReader refuses what a tainted token may not do, and taints one that is to read what
// strangers wrote; messages do so one by one, where they are read.
func (s *Server) checkReader(c *call, query url.Values) error {
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

// checkFields refuses body fields that a bound token may not give.
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

// fileOf is the file that an answer is, or that it holds because the client asked for the file
// itself; nil if neither.
func fileOf(out any) *core.File {
	switch v := out.(type) {
	case *core.File:
		return v
	case interface{ Inline() *core.File }:
		return v.Inline()
	}
	return nil
}

// recover turns a panic into a line in the log and an answer 500. That goes to w, since c.w may be
// a buffer that nobody reads any more.
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

// requestID echoes the client's own id where it has the right form, else makes one.
func (s *Server) requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); clientID().MatchString(id) {
		return id
	}
	return s.svc.Core.NewRequestID()
}

// authenticate finds out whose token the request carries: in the header, or else in the cookie of a
// dashboard session, which no other site may have sent. Assistants have no sessions.
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

// bearer is the token in the request's header; "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
