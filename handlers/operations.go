package handlers

import (
	"cmp"
	"context"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
)

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

// grantCheck is the interval of the checks whether the grant of a waiting request is still valid.
const grantCheck = time.Second

// untilRevoked returns a context that is cancelled when the grant of a waiting request is revoked.
func (s *Server) untilRevoked(ctx context.Context, who core.Actor) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		look := time.NewTicker(grantCheck)
		defer look.Stop()
		for s.svc.Accounts.CheckActor(ctx, who) == nil {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
		}
	}()
	return ctx, cancel
}

// checkTaint refuses operations that a tainted token must not use, and taints a token that is
// about to read content of strangers. Operations on single messages taint when they read the
// message.
func (s *Server) checkTaint(c *call, query url.Values) error {
	if !c.who.Policy.Taint {
		return nil
	}
	if want, value, _ := strings.Cut(c.op.WhileTainted, "="); c.op.Bound != api.Always || want != "" && query.Get(want) != value {
		if err := s.svc.Agents.RequireUntainted(c.who); err != nil {
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
