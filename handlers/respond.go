package handlers

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
)

// The media types of answers in JSON.
const (
	jsonMedia    = "application/json"
	problemMedia = "application/problem+json" // of errors as RFC 9457 has them
)

// sendJSON sends body as JSON. If the response names a job, it gets a Location header. The media
// type has no charset parameter, because JSON defines none (RFC 8259 section 11) and generated
// clients compare the whole media type.
func (s *Server) sendJSON(c *call, status int, body any) {
	if at := jobLocation(status, body); at != "" {
		c.w.Header().Set("Location", at)
	}
	s.send(c, status, jsonMedia, body)
}

// jobLocation returns the URL of the job that the body of a response with status 202 names, "" if
// there is none.
func jobLocation(status int, body any) string {
	if l, ok := body.(interface{ Location() string }); ok && status == http.StatusAccepted {
		return l.Location()
	}
	return ""
}

func encodeJSON(body any) ([]byte, error) {
	var buf bytes.Buffer
	err := encodeJSONTo(&buf, body)
	return buf.Bytes(), err
}

func encodeJSONTo(buf *bytes.Buffer, body any) error {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return enc.Encode(body)
}

// send encodes body as JSON and sends it with the media type contentType.
func (s *Server) send(c *call, status int, contentType string, body any) {
	buf := buffers.Bytes()
	defer buffers.FreeBytes(buf)
	if err := encodeJSONTo(buf, body); err != nil {
		s.Log.Error("encode a response", "request_id", c.id, "error", err)
		http.Error(c.w, `{"error":{"code":"internal_error","message":"The answer could not be written."}}`, http.StatusInternalServerError)
		return
	}
	c.w.Header().Set("Content-Type", contentType)
	c.w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(buf.Bytes()) // a client that has left needs no answer
}

// sendFile sends a file as a download.
func (s *Server) sendFile(c *call, status int, f *core.File) {
	s.sendBody(c, status, f, contentDisposition(f.Name))
}

// contentDisposition returns the Content-Disposition of a download (RFC 6266). It has an ASCII file
// name for old clients, and also a UTF-8 name if the two differ.
func contentDisposition(name string) string {
	ascii := strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f || strings.ContainsRune(`"\%/`, r) {
			return '_'
		}
		return r
	}, name)
	out := mime.FormatMediaType("attachment", map[string]string{"filename": ascii})
	if name == "" || out == "" {
		return "attachment"
	}
	if strings.ContainsAny(ascii, "*'") { // some clients would take them for an encoding (RFC 2231)
		out = `attachment; filename="` + ascii + `"`
	}
	if ascii != name {
		out += "; filename*=UTF-8''" + strings.ReplaceAll(url.QueryEscape(strings.ToValidUTF8(name, "_")), "+", "%20")
	}
	return out
}

// sendBody sends a file with the given Content-Disposition. Its Content-Security-Policy prevents
// scripts in the file from running in a browser.
func (s *Server) sendBody(c *call, status int, f *core.File, disposition string) {
	defer f.Body.Close()
	h := c.w.Header()
	h.Set("Content-Type", f.ContentType)
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	if f.Size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(f.Size, 10))
	}
	h.Set("Content-Disposition", disposition)
	h.Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(status)
	if _, err := io.Copy(c.w, f.Body); err != nil {
		s.Log.Debug("send a file", "request_id", c.id, "error", err)
		// Without an aborted connection the client would take the part for the whole file.
		panic(http.ErrAbortHandler)
	}
}

// An errorBody is the JSON form of an error.
type errorBody struct {
	Error problem `json:"error"`
}

// A problem has the fields that errors have in both forms.
type problem struct {
	// What went wrong, for programs. New codes may be added.
	Code string `json:"code" words:"ours" example:"validation_error" log:"true"`
	// For people; the text may change.
	Message    string        `json:"message" words:"ours" example:"name: is required"`
	Details    []core.Detail `json:"details,omitempty"`
	RequestID  string        `json:"request_id" words:"ours" log:"true"` // The same as X-Request-Id.
	RetryAfter int           `json:"retry_after,omitempty" log:"true"`   // Seconds to wait.
}

// A problemBody is the JSON form of an error for clients that accept application/problem+json (RFC
// 9457).
type problemBody struct {
	Type     string `json:"type" example:"about:blank"`
	Title    string `json:"title"`
	Status   int    `json:"status" example:"400"`
	Detail   string `json:"detail"`
	Instance string `json:"instance"`
	problem
}

// sendError answers with an error. It logs internal errors.
func (s *Server) sendError(c *call, err error) {
	e := core.Explain(err)
	status := code.Status(e.Code)
	if status >= 500 && status != http.StatusServiceUnavailable {
		s.Log.With(c.logIDs()...).Error("request failed", "method", c.r.Method, "path", c.r.URL.Path, "error", err)
	}
	h := c.w.Header()
	p := problem{Code: e.Code, Message: e.Message, Details: e.Details, RequestID: c.shownID()}
	if e.RetryAfter > 0 {
		p.RetryAfter = retrySeconds(e.RetryAfter)
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	c.recordError(status, &p)
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", s.wwwAuthenticate(c.r))
	}
	if wantsProblem(c.r) {
		s.send(c, status, problemMedia, problemBody{
			Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: e.Message, Instance: c.r.URL.Path, problem: p,
		})
		return
	}
	s.send(c, status, jsonMedia, errorBody{p})
}

// retrySeconds returns d in seconds, rounded up.
func retrySeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// sendNotAllowed answers with status 405. allowed are the allowed methods, in any order and perhaps
// with duplicates.
func (s *Server) sendNotAllowed(c *call, allowed []string) {
	methods := slices.Compact(slices.Sorted(slices.Values(allowed)))
	c.w.Header().Set("Allow", strings.Join(methods, ", "))
	s.sendError(c, core.Errorf("method_not_allowed", "%s is not allowed here. Use one of: %s.", c.r.Method, strings.Join(methods, ", ")))
}

// wantsProblem reports whether the client accepts errors in the form of RFC 9457.
func wantsProblem(r *http.Request) bool {
	return slices.Contains(core.MediaRanges(r.Header.Values("Accept")...), problemMedia)
}

// A bufferedResponse is an http.ResponseWriter that keeps the response in memory. If the body grows
// beyond limit, it passes the response on to the writer that overflow returns.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer

	limit int // maximum bytes of the body to keep; 0: no limit
	// overflow is called once, when the body exceeds limit.
	overflow func() http.ResponseWriter
	target   http.ResponseWriter // what overflow returned; nil: the whole response is kept
}

func newBufferedResponse(header http.Header) *bufferedResponse {
	return &bufferedResponse{header: header, status: http.StatusOK}
}

func (b *bufferedResponse) Header() http.Header    { return b.header }
func (b *bufferedResponse) WriteHeader(status int) { b.status = status }

func (b *bufferedResponse) Write(p []byte) (int, error) {
	if b.target == nil && (b.limit == 0 || b.body.Len()+len(p) <= b.limit) {
		return b.body.Write(p)
	}
	if b.target == nil {
		b.target = b.overflow()
		if _, err := b.body.WriteTo(b.target); err != nil {
			return 0, err
		}
	}
	return b.target.Write(p)
}

// Do passes a request to a handler and returns its response, without a network.
func Do(h http.Handler, r *http.Request) *http.Response {
	b := newBufferedResponse(http.Header{})
	h.ServeHTTP(b, r)
	return &http.Response{
		Status: http.StatusText(b.status), StatusCode: b.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: b.header, Body: io.NopCloser(&b.body), ContentLength: int64(b.body.Len()), Request: r,
	}
}
