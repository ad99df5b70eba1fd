// Package otlp records the spans of traces and sends them to a collector. It uses the OpenTelemetry
// Protocol 1 (OTLP) over HTTP in JSON. It does not know what the spans mean.
package otlp

import (
	"context"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Limits of memory.
const (
	maxQueue = 4096 // maximum number of spans that wait to be sent
	maxLinks = 4096 // maximum number of links in a generation; two generations are kept
	maxText  = 256  // maximum length of an attribute's value in bytes
)

// A Kind is the role of a span.
type Kind int

// Kinds of spans, with their numbers in OTLP.
const (
	Internal Kind = 1 // an operation within the program
	Server   Kind = 2 // answering a request of a client
	Client   Kind = 3 // a request to a server
	Consumer Kind = 5 // processing something from a queue
)

// A Tracer makes spans and sends them to a collector. The methods of a nil Tracer and of a nil Span
// do nothing.
type Tracer struct {
	endpoint string
	version  string
	client   *http.Client
	log      *slog.Logger

	mu      sync.Mutex
	queue   []*Span // ended spans that wait to be sent
	dropped uint64
	links   map[string]spanIdentity // spans by the key of Link; the newer generation
	older   map[string]spanIdentity // the older generation of links

	notEmpty chan struct{} // has an element if the queue is not empty
	full     chan struct{} // has an element if the queue has a whole batch

	logged   uint64    // number of dropped spans in the last log message; only Run uses it
	loggedAt time.Time // time of the last log message about dropped spans
}

// New returns a Tracer that sends spans to endpoint/v1/traces while Run runs. version is the
// version of the program.
func New(endpoint, version string, transport http.RoundTripper, log *slog.Logger) *Tracer {
	return &Tracer{
		endpoint: endpoint + "/v1/traces", version: version, log: log,
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		links:  map[string]spanIdentity{}, notEmpty: make(chan struct{}, 1), full: make(chan struct{}, 1),
	}
}

// A spanIdentity identifies a span to its children.
type spanIdentity struct {
	trace     [16]byte // trace ID
	span      [8]byte  // span ID
	unsampled bool     // whether the client that started the trace does not want it recorded
}

// A Span is one operation with its start and end. It is queued for sending when it ends. Only one
// goroutine at a time may use it.
type Span struct {
	spanIdentity
	tracer     *Tracer // nil for a span of another program, which is only a parent
	parent     [8]byte // span ID of the parent; zero if there is none
	kind       Kind
	name       string
	began      time.Time
	took       time.Duration
	failed     bool
	ended      bool
	attributes []attribute
}

// spanKey is the context key of the span.
type spanKey struct{}

// Start starts a span. Its parent is the span in ctx, if there is one. The returned context has the
// new span.
func (t *Tracer) Start(ctx context.Context, kind Kind, name string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	s := &Span{tracer: t, kind: kind, name: name, began: time.Now()}
	if parent := SpanOf(ctx); parent != nil {
		s.trace, s.parent, s.unsampled = parent.trace, parent.span, parent.unsampled
	} else {
		putRandom(s.trace[:])
	}
	putRandom(s.span[:])
	return context.WithValue(ctx, spanKey{}, s), s
}

// putRandom sets an ID to random bytes that are not all zero.
func putRandom(id []byte) {
	for i := 0; i < len(id); i += 8 {
		for j, bits := 0, rand.Uint64()|1; j < 8; j, bits = j+1, bits>>8 {
			id[i+j] = byte(bits)
		}
	}
}

// SpanOf returns the span in ctx, or nil if there is none.
func SpanOf(ctx context.Context) *Span {
	s, _ := ctx.Value(spanKey{}).(*Span)
	return s
}

// Continue returns a context whose spans belong to the trace of a client. traceparent is the header
// field of the client's request (W3C Trace Context section 3.2). If it is invalid, Continue returns
// ctx.
func (t *Tracer) Continue(ctx context.Context, traceparent string) context.Context {
	if t == nil {
		return ctx
	}
	id, ok := parseTraceparent(traceparent)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, spanKey{}, &Span{spanIdentity: id})
}

// parseTraceparent parses a traceparent header: version "-" trace "-" span "-" flags. Versions
// after 00 may have more fields.
func parseTraceparent(text string) (id spanIdentity, ok bool) {
	if len(text) < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-' || len(text) > 55 && (text[:2] == "00" || text[55] != '-') {
		return id, false
	}
	for i, c := range []byte(text[:55]) {
		if i != 2 && i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return id, false
		}
	}
	_, _ = hex.Decode(id.trace[:], []byte(text[3:35])) // valid, because all characters were checked
	_, _ = hex.Decode(id.span[:], []byte(text[36:52]))
	flags, _ := strconv.ParseUint(text[53:55], 16, 8)
	id.unsampled = flags&1 == 0
	return id, text[:2] != "ff" && id.trace != [16]byte{} && id.span != [8]byte{}
}

// Link records that the span in ctx created the object with a key, such as a job. Follow finds the
// span when the object is processed later.
func (t *Tracer) Link(ctx context.Context, key string) {
	s := SpanOf(ctx)
	if t == nil || s == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.links) >= maxLinks {
		t.older, t.links = t.links, make(map[string]spanIdentity, maxLinks)
	}
	t.links[key] = s.spanIdentity
}

// Follow returns a context whose spans are children of the span that created the object with a key
// (see Link). If that span is not known any more, Follow returns ctx.
func (t *Tracer) Follow(ctx context.Context, key string) context.Context {
	if t == nil {
		return ctx
	}
	t.mu.Lock()
	id, ok := t.links[key]
	if !ok {
		id, ok = t.older[key]
	}
	t.mu.Unlock()
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, spanKey{}, &Span{spanIdentity: id})
}

// Rename changes the name of the span. Collectors group spans by name, so there should be few
// names.
func (s *Span) Rename(name string) {
	if s != nil {
		s.name = name
	}
}

// Set adds an attribute to the span. The value should be an ID or a word; it must not be an
// address, a text that people wrote, or a secret. Set truncates it to 256 bytes.
func (s *Span) Set(key, value string) {
	if s != nil {
		s.attributes = append(s.attributes, attribute{key, anyValue{String: new(value[:min(len(value), maxText)])}})
	}
}

// SetInt adds a number as an attribute to the span.
func (s *Span) SetInt(key string, value int) {
	if s != nil {
		s.attributes = append(s.attributes, attribute{key, anyValue{Int: new(strconv.Itoa(value))}})
	}
}

// Fail marks the operation of the span as failed.
func (s *Span) Fail() {
	if s != nil {
		s.failed = true
	}
}

// End ends the span and queues it for sending. If the queue is full, it drops the span.
func (s *Span) End() {
	if s == nil || s.tracer == nil || s.ended {
		return
	}
	s.ended, s.took = true, time.Since(s.began)
	if s.unsampled {
		return
	}
	t := s.tracer
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) >= maxQueue {
		t.dropped++
		return
	}
	t.queue = append(t.queue, s)
	notify(t.notEmpty)
	if len(t.queue) >= maxBatch {
		notify(t.full)
	}
}

// notify puts an element into a channel of capacity 1, unless it has one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Dropped returns how many spans were lost because the queue was full or the collector did not
// accept them.
func (t *Tracer) Dropped() uint64 {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped
}
