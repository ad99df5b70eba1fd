// Package otlptest has a fake trace collector for tests.
package otlptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A Span is a span that a collector has received.
type Span struct {
	TraceID, SpanID, ParentID string // hexadecimal; ParentID is "" if there is no parent
	Name                      string
	Kind                      int
	Start, End                time.Time
	Attributes                map[string]string
	Failed                    bool
}

// A Collector is a fake collector: it receives spans at /v1/traces, by OTLP over HTTP in JSON. The
// test fails if a request violates OTLP.
type Collector struct {
	*httptest.Server
	t      testing.TB
	mu     sync.Mutex
	answer http.HandlerFunc // the handler of Refuse
	spans  []Span
	text   bytes.Buffer // all received bodies
}

// New starts a collector that runs until the test ends.
func New(t testing.TB) *Collector {
	c := &Collector{t: t}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// Refuse lets h answer all requests. The collector does not record them. Refuse(nil) ends that.
func (c *Collector) Refuse(h http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = h
}

// Spans returns the received spans.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Text returns all received bodies, unchanged.
func (c *Collector) Text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// Await waits for a span for which `is` returns true. what names the span, for the error.
func (c *Collector) Await(what string, is func(Span) bool) Span {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, s := range c.Spans() {
			if is(s) {
				return s
			}
		}
	}
	c.t.Fatalf("there is no span of %s among %+v", what, c.Spans())
	return Span{}
}

// ServeHTTP answers one request and records its spans.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	refuse := c.answer
	c.mu.Unlock()
	if refuse != nil {
		refuse(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client was killed
	}
	spans, err := parseSpans(body)
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
		err = fmt.Errorf("the request is %s %s with the content type %s", r.Method, r.URL.Path, r.Header.Get("Content-Type"))
	}
	if err != nil {
		c.t.Errorf("the collector got a request that is not OTLP: %v\n%s", err, body)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, spans...)
	c.text.Write(body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

var (
	traceID = regexp.MustCompile(`^[0-9a-f]{32}$`)
	spanID  = regexp.MustCompile(`^[0-9a-f]{16}$`)
	zeros   = regexp.MustCompile(`^0+$`)
)

type attribute struct {
	Key   string
	Value struct{ StringValue, IntValue *string }
}

// parseSpans parses an ExportTraceServiceRequest. It returns an error for fields that OTLP does not
// have.
func parseSpans(body []byte) ([]Span, error) {
	var in struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []attribute }
			ScopeSpans []struct {
				Scope struct{ Name, Version string }
				Spans []struct {
					TraceID, SpanID, ParentSpanID, Name string
					Kind                                int
					StartTimeUnixNano, EndTimeUnixNano  string
					Attributes                          []attribute
					Status                              struct{ Code int }
				}
			}
		}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, err
	}
	for _, name := range []string{"resourceSpans", "scopeSpans", "traceId", "spanId", "startTimeUnixNano", "endTimeUnixNano", "kind", "stringValue"} {
		if !bytes.Contains(body, []byte(`"`+name+`":`)) { // the JSON decoder ignores the case of names
			return nil, fmt.Errorf("the field %s is missing", name)
		}
	}
	if len(in.ResourceSpans) != 1 || len(in.ResourceSpans[0].ScopeSpans) != 1 {
		return nil, fmt.Errorf("the request has %d resources, or not one scope", len(in.ResourceSpans))
	}
	of, err := values(in.ResourceSpans[0].Resource.Attributes)
	if err != nil || of["service.name"] != "mailstead" || of["service.version"] == "" {
		return nil, fmt.Errorf("the resource has wrong attributes %v: %w", of, err)
	}
	var out []Span
	for _, s := range in.ResourceSpans[0].ScopeSpans[0].Spans {
		switch {
		case !traceID.MatchString(s.TraceID) || zeros.MatchString(s.TraceID) || !spanID.MatchString(s.SpanID) || zeros.MatchString(s.SpanID):
			return nil, fmt.Errorf("a span has invalid IDs: trace %q, span %q", s.TraceID, s.SpanID)
		case s.ParentSpanID != "" && (!spanID.MatchString(s.ParentSpanID) || zeros.MatchString(s.ParentSpanID)):
			return nil, fmt.Errorf("a span has the invalid parent ID %q", s.ParentSpanID)
		case s.Name == "" || s.Kind < 1 || s.Kind > 5 || s.Status.Code != 0 && s.Status.Code != 2:
			return nil, fmt.Errorf("a span has an invalid name %q, kind %d or status %d", s.Name, s.Kind, s.Status.Code)
		}
		from, err1 := strconv.ParseInt(s.StartTimeUnixNano, 10, 64)
		to, err2 := strconv.ParseInt(s.EndTimeUnixNano, 10, 64)
		start, end := time.Unix(0, from), time.Unix(0, to)
		if err1 != nil || err2 != nil || end.Before(start) || time.Since(start).Abs() > time.Hour {
			return nil, fmt.Errorf("a span has invalid times, from %q to %q", s.StartTimeUnixNano, s.EndTimeUnixNano)
		}
		says, err := values(s.Attributes)
		if err != nil {
			return nil, err
		}
		out = append(out, Span{s.TraceID, s.SpanID, s.ParentSpanID, s.Name, s.Kind, start, end, says, s.Status.Code == 2})
	}
	return out, nil
}

// values returns the values of attributes by key.
func values(list []attribute) (map[string]string, error) {
	out := map[string]string{}
	for _, a := range list {
		_, twice := out[a.Key]
		switch {
		case a.Key == "" || twice || (a.Value.StringValue == nil) == (a.Value.IntValue == nil):
			return nil, fmt.Errorf("the attribute %q has no value, two values, or appears twice", a.Key)
		case a.Value.StringValue != nil:
			out[a.Key] = *a.Value.StringValue
		default:
			if _, err := strconv.ParseInt(*a.Value.IntValue, 10, 64); err != nil {
				return nil, err
			}
			out[a.Key] = *a.Value.IntValue
		}
	}
	return out, nil
}
