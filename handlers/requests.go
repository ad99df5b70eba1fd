package handlers

import (
	"net/http"
	"runtime/debug"
	"time"

	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/service/core"
)

// serve turns the request into a call and passes it to answer. It adds what every request has: a
// request ID, a trace, metrics, and recovery from panics.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, identify func(*call) error, answer func(*call)) {
	counted, began, id := &statusWriter{ResponseWriter: w}, time.Now(), s.requestID(r)
	ctx := s.svc.Core.Tracer.Continue(core.WithRequest(r.Context(), id), r.Header.Get("traceparent"))
	ctx, span := s.svc.Core.Tracer.Start(ctx, otlp.Server, "request")
	c := newCall(ctx, counted, r, id)
	c.identify = identify
	w.Header().Set("X-Request-Id", c.id)
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
	s.Log.Error("panic in a request", "request_id", c.id, "method", c.r.Method, "path", c.r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	c.w = w
	s.sendError(c, core.Errorf("internal_error", "Something went wrong on the server. Try again; if it happens again, report the request id."))
}

// requestIDForm matches a valid request ID of a client.
var requestIDForm = lazyregexp.New(`^[A-Za-z0-9._-]{1,64}$`)

// requestID returns the request ID that the client sent if it is valid, or else a new one.
func (s *Server) requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); requestIDForm().MatchString(id) {
		return id
	}
	return s.svc.Core.NewRequestID()
}
