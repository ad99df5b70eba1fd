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

const jsonMedia = "application/json"

// sendJSON sends a body with its status; the response with a job has its Location. The media type
// has no charset parameter: JSON defines none (RFC 8259 section 11), and generated clients compare
// the whole media type.
func (s *Server) sendJSON(c *call, status int, body any) {
	if at := locationOf(status, body); at != "" {
		c.w.Header().Set("Location", at)
	}
	s.send(c, status, jsonMedia, body)
}

func locationOf(status int, body any) string {
	if l, ok := body.(interface{ Location() string }); ok && status == http.StatusAccepted {
		return l.Location()
	}
	return ""
}

func encode(body any) ([]byte, error) {
	var buf bytes.Buffer
	err := encodeTo(&buf, body)
	return buf.Bytes(), err
}

func encodeTo(buf *bytes.Buffer, body any) error {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return enc.Encode(body)
}

func (s *Server) send(c *call, status int, contentType string, body any) {
	buf := buffers.Bytes()
	defer buffers.FreeBytes(buf)
	if err := encodeTo(buf, body); err != nil {
		s.Log.Error("encode a response", "request_id", c.id, "error", err)
		http.Error(c.w, `{"error":{"code":"internal_error","message":"The answer could not be written."}}`, http.StatusInternalServerError)
		return
	}
	c.w.Header().Set("Content-Type", contentType)
	c.w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(buf.Bytes()) // a client that has left needs no answer
}

// sendFile streams a file as a download, not for display.
func (s *Server) sendFile(c *call, status int, f *core.File) {
	s.sendBody(c, status, f, disposition(f.Name))
}

// disposition returns the Content-Disposition of a download (RFC 6266): with an ASCII name for old
// clients, and also a UTF-8 name if that differs.
func disposition(name string) string {
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
	if strings.ContainsAny(ascii, "*'") { // some readers take them for an encoding (RFC 2231)
		out = `attachment; filename="` + ascii + `"`
	}
	if ascii != name {
		out += "; filename*=UTF-8''" + strings.ReplaceAll(url.QueryEscape(strings.ToValidUTF8(name, "_")), "+", "%20")
	}
	return out
}

// sendBody streams a file. Its Content-Security-Policy lets nothing in it run in a browser.
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
		// Otherwise the client would take a part of the file for all of it.
		panic(http.ErrAbortHandler)
	}
}

// An errorBody is the JSON form of every error.
type errorBody struct {
	Error problem `json:"error"`
}

type problem struct {
	// What went wrong, for programs. New codes may be added.
	Code string `json:"code" words:"ours" example:"validation_error"`
	// For people; the text may change.
	Message    string        `json:"message" words:"ours" example:"name: is required"`
	Details    []core.Detail `json:"details,omitempty"`
	RequestID  string        `json:"request_id" words:"ours"` // The same as X-Request-Id.
	RetryAfter int           `json:"retry_after,omitempty"`   // Seconds to wait.
}

// A problemBody is the form of an error in RFC 9457.
type problemBody struct {
	Type     string `json:"type" example:"about:blank"`
	Title    string `json:"title"`
	Status   int    `json:"status" example:"400"`
	Detail   string `json:"detail"`
	Instance string `json:"instance"`
	problem
}

// fail answers with an error, and logs internal errors.
func (s *Server) fail(c *call, err error) {
	e := core.Explain(err)
	status := code.Status(e.Code)
	if status >= 500 && status != http.StatusServiceUnavailable {
		s.Log.Error("request failed", "request_id", c.id, "method", c.r.Method, "path", c.r.URL.Path, "error", err)
	}
	h := c.w.Header()
	p := problem{Code: e.Code, Message: e.Message, Details: e.Details, RequestID: c.id}
	if e.RetryAfter > 0 {
		p.RetryAfter = retrySeconds(e.RetryAfter)
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", s.challenge(c.r))
	}
	if wantsProblem(c.r) {
		s.send(c, status, "application/problem+json", problemBody{
			Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: e.Message, Instance: c.r.URL.Path, problem: p,
		})
		return
	}
	s.send(c, status, jsonMedia, errorBody{p})
}

// retrySeconds rounds up to whole seconds.
func retrySeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// notAllowed answers with an error that names the allowed methods, each once.
func (s *Server) notAllowed(c *call, found []string) {
	methods := slices.Compact(slices.Sorted(slices.Values(found)))
	c.w.Header().Set("Allow", strings.Join(methods, ", "))
	s.fail(c, core.Errorf("method_not_allowed", "%s is not allowed here. Use one of: %s.", c.r.Method, strings.Join(methods, ", ")))
}

func wantsProblem(r *http.Request) bool {
	return slices.Contains(core.MediaRanges(r.Header.Values("Accept")...), "application/problem+json")
}

// A bufferedResponse is an http.ResponseWriter that keeps the response in memory.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer

	limit int // maximum bytes to keep; 0: no limit
	// Called once when there are more; returns the writer for the whole response.
	overflow func() http.ResponseWriter
	target   http.ResponseWriter // that writer; nil: the response is kept
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
