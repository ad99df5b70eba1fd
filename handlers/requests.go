package handlers

import (
	"encoding/json"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/requests"
)

// serve turns the request into a call and passes it to answer. It adds what every request has: a
// request ID, a trace, metrics, and recovery from panics.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, identify func(*call) error, answer func(*call)) {
	counted, began, id := &statusWriter{ResponseWriter: w}, time.Now(), s.svc.Core.NewRequestID()
	ctx := s.svc.Core.Tracer.Continue(core.WithRequest(r.Context(), id), r.Header.Get("traceparent"))
	ctx, span := s.svc.Core.Tracer.Start(ctx, otlp.Server, "request")
	c := newCall(ctx, counted, r, id)
	c.identify = identify
	if own := r.Header.Get("X-Request-Id"); clientIDForm().MatchString(own) {
		c.clientID = own
	}
	w.Header().Set("X-Request-Id", c.shownID())
	// Browsers remember Strict-Transport-Security for the host (RFC 6797), so only requests
	// for our own host name get it.
	if s.needsHTTPS() && isSecure(r) && s.usesOwnName(r) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
	}
	defer func() { s.countRequest(c, counted, span, began) }()
	defer s.recoverPanic(c, counted)
	answer(c)
}

// recoverPanic logs a panic and answers with status 500. It writes the answer to w, because c.w may
// be a buffer that nobody reads any more.
func (s *Server) recoverPanic(c *call, w http.ResponseWriter) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // net/http panics with the sentinel itself
		panic(v)
	}
	s.Log.With(c.logIDs()...).Error("panic in a request", "method", c.r.Method, "path", c.r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	c.w = w
	s.sendError(c, core.Errorf("internal_error", "Something went wrong on the server. Try again; if it happens again, report the request id."))
}

// clientIDForm matches a request ID that a client may choose.
var clientIDForm = lazyregexp.New(`^[A-Za-z0-9._-]{1,64}$`)

// maxRecordedPath is the maximum length in bytes of a path in the request log.
const maxRecordedPath = 500

// startRecording notes that the request log gets a row of the call, with this path. Commands of the
// operator get none.
func (s *Server) startRecording(c *call, path string) {
	c.rec.wanted = s.svc.Requests.On() && c.who.TokenID != core.LocalToken
	c.rec.path = path
}

// recordBody notes what the request log shows of the body, which has length bytes. It must be
// called while the body may be used. The bodies of people who sign in to their mailbox are not
// shown.
func (s *Server) recordBody(c *call, length int64) {
	fields := c.rec.fields
	c.rec.fields = nil
	switch {
	case !c.rec.wanted || c.who.MailboxID != "" || length <= 0:
	case fields == nil:
		c.rec.body = shownLength(length)
	default:
		c.rec.body = shownObject(s.loggable()[c.op.Call.In], fields)
	}
}

// loggableError is what the request log shows of an error.
var loggableError = sync.OnceValue(func() *loggable { return loggableObject(reflect.TypeFor[errorBody]()) })

// recordError notes the error that a call is answered with.
func (c *call) recordError(status int, p *problem) {
	c.rec.code = p.Code
	if !c.rec.wanted || c.who.MailboxID != "" || status < 400 || status > 499 {
		return
	}
	text, err := encodeJSON(errorBody{*p})
	if err != nil {
		return // sending the error logs it
	}
	fields := map[string]json.RawMessage{}
	eachValue(text, func(name string, part []byte) { fields[name] = part })
	c.rec.answer = shownObject(loggableError(), fields)
}

// record adds an answered call to the request log, if that gets a row of it.
func (s *Server) record(c *call, status int, began time.Time) {
	if !c.rec.wanted || c.who.AccountID == "" {
		return
	}
	took := time.Since(began)
	path := c.rec.path
	if len(path) > maxRecordedPath {
		path = strings.ToValidUTF8(path[:maxRecordedPath], "") + "…"
	}
	row := requests.Row{
		ID: c.id, ClientID: c.clientID, At: s.now().Add(-took), Method: c.op.Method, Path: path, Operation: c.op.Name, Status: status,
		Duration: took.Milliseconds(), IP: c.who.IP, ErrorCode: c.rec.code, Owner: c.who.Role == core.RoleOwner, Body: c.rec.body, Answer: c.rec.answer,
	}
	if c.who.TokenKind != core.SessionKind {
		row.TokenID, row.TokenName = c.who.TokenID, c.who.TokenName
	}
	s.svc.Requests.Record(c.who.AccountID, row)
}
