package handlers

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/metrics"
	"github.com/mailstead/mailstead/internal/otlp"
)

// MetricsReaders says who may read /metrics. Clients of the local socket always may; the zero value
// allows nobody else.
type MetricsReaders struct {
	Token string         // for "Authorization: Bearer TOKEN"; "": no token is accepted
	From  []netip.Prefix // networks that need no token
}

// mayRead reports whether the client of a request may read the metrics.
func (m *MetricsReaders) mayRead(r *http.Request) bool {
	addr := remoteAddr(r)
	if ip, err := netip.ParseAddr(addr); addr == "" || err == nil && limit.Within(m.From, ip) {
		return true
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	given, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(m.Token))
	return subtle.ConstantTimeCompare(given[:], want[:]) == 1 && ok && m.Token != ""
}

// sendMetrics sends the metrics in Prometheus text format.
func (s *Server) sendMetrics(c *call) {
	c.w.Header().Set("Cache-Control", "no-store")
	if !s.Metrics.mayRead(c.r) {
		http.Error(c.w, "You may not read the metrics. Give the token of [metrics] token as Authorization: Bearer, or add your address to [metrics] allowed_networks.", http.StatusForbidden)
		return
	}
	c.w.Header().Set("Content-Type", metrics.ContentType)
	if err := s.svc.Core.Metrics.Registry.Write(c.w); err != nil {
		s.Log.Debug("send the metrics", "request_id", c.id, "error", err)
	}
}

// A statusWriter records the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the methods of the wrapped writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// countRequest counts and logs an answered request. In the metrics, requests outside the API have
// the name "other".
func (s *Server) countRequest(c *call, w *statusWriter, span *otlp.Span, began time.Time) {
	name := "other"
	if c.op != nil {
		name = c.op.Name
		s.svc.Core.Metrics.RequestTime.Observe(time.Since(began))
	}
	status := w.status
	if status == 0 {
		status = http.StatusOK
	}
	s.svc.Core.Metrics.Requests.Add(name, strconv.Itoa(status))
	if c.r.URL.Path == mcpPath {
		name = "mcp" // each tool call is logged under its own name as well
	}
	s.logRequest(c, span, name, status, began)
	s.record(c, status, began)
}

// logRequest logs an answered request. If the request is one of the API, it also ends its span. It
// does not log the path, which may contain a token.
func (s *Server) logRequest(c *call, span *otlp.Span, operation string, status int, began time.Time) {
	api := c.op != nil || operation == "mcp" || strings.HasPrefix(c.r.URL.Path, "/v1/")
	if api {
		span.Rename(operation)
		span.Set("request_id", c.id)
		span.SetInt("http.response.status_code", status)
		if status >= http.StatusInternalServerError {
			span.Fail()
		}
		span.End()
	}
	method, level := c.r.Method, slog.LevelInfo
	if c.op != nil {
		method = c.op.Method
	}
	if !api || operation == "mcp" || method == http.MethodGet || method == http.MethodHead {
		level = slog.LevelDebug
	}
	ctx := c.r.Context()
	if !s.Log.Enabled(ctx, level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 7), slog.String("request_id", c.id), slog.String("operation", operation), slog.String("method", method),
		slog.Int("status", status), slog.Int64("ms", time.Since(began).Milliseconds()), slog.String("account_id", c.who.AccountID))
	if c.clientID != "" {
		attrs = append(attrs, slog.String("client_request_id", c.clientID))
	}
	s.Log.LogAttrs(ctx, level, "request", attrs...)
}
