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

// api answers requests to the paths of the API, below /v1.
func (s *Server) api(c *call) {
	w := &compressor{ResponseWriter: c.w, c: c}
	defer w.finish()
	c.w = w
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := c.identify(c); err != nil {
		s.sendError(c, err)
		return
	}
	if err := s.countCall(c); err != nil {
		s.sendError(c, err)
		return
	}
	s.noParam.ServeHTTP(c.w, routerRequest(c.r))
}

// routerRequest returns the request that the routers get. A slash within a path parameter (%2F)
// stays escaped, so that it does not split the parameter.
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

// pathValues returns a function that returns a path parameter by name. If the routers saw the path
// escaped (see routerRequest), the function unescapes the parameter.
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

// fillRouters adds the operations to the routers. There are three routers because httprouter
// refuses a fixed path and a parameter at the same place. They are for paths without parameters,
// with one, and with more. A path that one router does not have goes to the next.
func (s *Server) fillRouters() {
	s.noParam, s.oneParam, s.manyParams = httprouter.New(), httprouter.New(), httprouter.New()
	routers := []*httprouter.Router{s.noParam, s.oneParam, s.manyParams}
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
	s.noParam.NotFound, s.oneParam.NotFound = s.oneParam, s.manyParams
	s.manyParams.NotFound = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, router := range routers {
			for _, method := range methods {
				if handle, _, _ := router.Lookup(method, r.URL.Path); handle != nil {
					allowed = append(allowed, method)
				}
			}
		}
		if len(allowed) > 0 {
			s.sendNotAllowed(callOf(r.Context()), allowed)
			return
		}
		s.sendError(callOf(r.Context()), core.Errorf("not_found", "There is no %s %s in this API. See /v1/openapi.json for what there is.", r.Method, r.URL.Path))
	})
}

// routerPath returns a path in the form of httprouter: {domain_id} becomes :domain_id.
func routerPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// run handles a request for an operation. It checks the permission, reads the body and answers.
// Requests with an Idempotency-Key and uploads are handled by answerOnce and answerUpload.
func (s *Server) run(c *call, o *api.Operation, path func(name string) string) {
	c.op = o
	s.startRecording(c, c.r.URL.Path)
	length, done := c.r.ContentLength, func() {}
	defer func() {
		s.recordBody(c, length)
		done()
	}()
	if err := o.Permit(c.who); err != nil {
		s.sendError(c, err)
		return
	}
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err == nil && o.Upload != nil && kind == mboxType {
		s.answerUpload(c, path)
		return
	}
	body, free, err := s.bodies.read(c)
	if err != nil {
		s.sendError(c, err)
		return
	}
	length, done = int64(len(body)), free
	if key := c.r.Header.Get("Idempotency-Key"); key != "" && openapi.AcceptsIdempotencyKey(o.Method, o.Scope) {
		s.answerOnce(c, path, key, body)
		return
	}
	s.answer(c, path, body)
}

// answer decodes the request, calls the service and sends its result or its error.
func (s *Server) answer(c *call, path func(name string) string, body []byte) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		s.sendError(c, core.Invalid("query", "invalid", "the query string is not properly encoded"))
		return
	}
	if !c.op.Waits {
		s.svc.Inbound.WaitFiled(c.r.Context(), 0)
	}
	if err := s.checkTaint(c, query); err != nil {
		s.sendError(c, err)
		return
	}
	ctx := c.r.Context()
	if c.op.Waits && c.who.TokenKind == core.OAuthKind {
		waits, end := s.contextUntilRevoked(ctx, c.who)
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
		err = decode(in, requestParts{
			path: path, query: query, header: c.r.Header, body: body, strict: c.op.Strict, isPatch: c.op.Method == http.MethodPatch, givenFields: &c.who.Request.Fields, bodyFields: &c.rec.fields,
		})
		if err != nil {
			return err
		}
		if err := c.op.CheckLinkedFields(c.who, c.who.Request.Fields); err != nil {
			return err
		}
		return checkBoundFields(c)
	})
	if c.op.Waits {
		err = cmp.Or(s.svc.Accounts.CheckActor(c.r.Context(), c.who), err)
	}
	if err != nil {
		s.sendError(c, err)
		return
	}
	if f := fileOf(out); f != nil {
		s.sendFile(c, c.op.Status, f)
		return
	}
	s.sendJSON(c, c.op.Status, out)
}

// grantCheckInterval is the time between two checks whether the token of a waiting request is still
// valid.
const grantCheckInterval = time.Second

// contextUntilRevoked returns a context that ends when the token of the request becomes invalid.
func (s *Server) contextUntilRevoked(ctx context.Context, who core.Actor) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		look := time.NewTicker(grantCheckInterval)
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

// checkTaint refuses operations that a tainted token must not use. It taints a token that is about
// to read many messages of strangers. An operation on a single message taints the token itself when
// it reads the message.
func (s *Server) checkTaint(c *call, query url.Values) error {
	if !c.who.Policy.Taint {
		return nil
	}
	if want, value, _ := strings.Cut(c.op.QueryWhenTainted, "="); c.op.Bound != api.Always || want != "" && query.Get(want) != value {
		if err := s.svc.Agents.RequireUntainted(c.who); err != nil {
			return err
		}
	}
	if c.op.Taints {
		return s.svc.Agents.ReadAny(c.who)
	}
	return nil
}

// checkBoundFields returns an error if the request has body fields that a bound token must not set.
func checkBoundFields(c *call) error {
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

// fileOf returns the file to send as the response: the result itself if it is a file, or the file
// in the result if the client asked for that. It returns nil if the response is JSON.
func fileOf(out any) *core.File {
	switch v := out.(type) {
	case *core.File:
		return v
	case interface{ Inline() *core.File }:
		return v.Inline()
	}
	return nil
}
