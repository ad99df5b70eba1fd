// Package otlp records spans of traces and sends them to a collector: OTLP over HTTP, in its JSON
// encoding (OpenTelemetry Protocol 1). It does not know what the spans are about.
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

// Limits of what is kept in memory.
const (
	maxQueue = 4096 // spans waiting to be sent
	maxLinks = 4096 // links to causes in one generation; two generations are kept
	maxText  = 256  // bytes of an attribute's value
)

// A Kind is the role of a span.
type Kind int

// The kinds, with their numbers in OTLP.
const (
	Internal Kind = 1
	Server   Kind = 2 // answers a request of a client
	Client   Kind = 3 // sends a request to a server
	Consumer Kind = 5 // processes something that was queued before
)

// A Tracer makes spans and sends them. A nil Tracer makes no spans; its methods, and those of nil
// spans, do nothing.
type Tracer struct {
	endpoint string
	version  string
	client   *http.Client
	log      *slog.Logger

	mu      sync.Mutex
	queue   []*Span
	dropped uint64
	links   map[string]identity // causes, by the key given to Link
	older   map[string]identity
	some    chan struct{} // has an element when the queue is not empty
	full    chan struct{} // has an element when the queue holds a whole batch

	logged   uint64 // how many dropped spans the log has reported; used only by Run
	loggedAt time.Time
}

// New returns a tracer whose spans are sent to endpoint/v1/traces while Run runs. version is the
// version of the program.
func New(endpoint, version string, transport http.RoundTripper, log *slog.Logger) *Tracer {
	return &Tracer{
		endpoint: endpoint + "/v1/traces", version: version, log: log,
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		links:  map[string]identity{}, some: make(chan struct{}, 1), full: make(chan struct{}, 1),
	}
}

// An identity is the part of a span that other spans need.
type identity struct {
	trace  [16]byte
	span   [8]byte
	silent bool // the client that began the trace does not want it recorded
}

// A Span is an operation with its start and end. It is sent when it ends; a span that never ends is
// dropped. Its methods must be called by one goroutine at a time.
type Span struct {
	identity
	tracer     *Tracer // nil: it is only the parent of other spans, and is not sent
	parent     [8]byte // zero: none
	kind       Kind
	name       string
	began      time.Time
	took       time.Duration
	failed     bool
	ended      bool
	attributes []attribute
}

type spanKey struct{}

// Start begins a span, as a child of the one in ctx. The returned context carries the new span.
func (t *Tracer) Start(ctx context.Context, kind Kind, name string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	s := &Span{tracer: t, kind: kind, name: name, began: time.Now()}
	if parent := SpanOf(ctx); parent != nil {
		s.trace, s.parent, s.silent = parent.trace, parent.span, parent.silent
	} else {
		putRandom(s.trace[:])
	}
	putRandom(s.span[:])
	return context.WithValue(ctx, spanKey{}, s), s
}

// putRandom fills an id with random bytes, which are never all zero.
func putRandom(id []byte) {
	for i := 0; i < len(id); i += 8 {
		for j, bits := 0, rand.Uint64()|1; j < 8; j, bits = j+1, bits>>8 {
			id[i+j] = byte(bits)
		}
	}
}

// SpanOf returns the span that ctx carries; nil if there is none.
func SpanOf(ctx context.Context) *Span {
	s, _ := ctx.Value(spanKey{}).(*Span)
	return s
}

// Continue makes spans that begin in the returned context part of a client's trace, which the
// header field traceparent names (W3C Trace Context section 3.2). An invalid traceparent has no
// effect.
func (t *Tracer) Continue(ctx context.Context, traceparent string) context.Context {
	if t == nil {
		return ctx
	}
	id, ok := parseTraceparent(traceparent)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, spanKey{}, &Span{identity: id})
}

func parseTraceparent(text string) (id identity, ok bool) {
	// version "-" trace "-" span "-" flags; later versions may add "-" and more
	if len(text) < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-' || len(text) > 55 && (text[:2] == "00" || text[55] != '-') {
		return id, false
	}
	for i, c := range []byte(text[:55]) {
		if i != 2 && i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return id, false
		}
	}
	_, _ = hex.Decode(id.trace[:], []byte(text[3:35])) // checked above
	_, _ = hex.Decode(id.span[:], []byte(text[36:52]))
	flags, _ := strconv.ParseUint(text[53:55], 16, 8)
	id.silent = flags&1 == 0
	return id, text[:2] != "ff" && id.trace != [16]byte{} && id.span != [8]byte{}
}

// Link records that the span of ctx caused the object that key names, which is processed later.
func (t *Tracer) Link(ctx context.Context, key string) {
	s := SpanOf(ctx)
	if t == nil || s == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.links) >= maxLinks {
		t.older, t.links = t.links, make(map[string]identity, maxLinks)
	}
	t.links[key] = s.identity
}

// Follow makes spans that begin in the returned context children of the span that caused the object
// that key names, if that is still known.
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
	return context.WithValue(ctx, spanKey{}, &Span{identity: id})
}

// Rename gives the span another name. Use few different names, since spans are grouped by them.
func (s *Span) Rename(name string) {
	if s != nil {
		s.name = name
	}
}

// Set adds an attribute to the span. The value is an id or a word, cut to 256 bytes; it must not be
// an address, a text that people wrote, or a secret.
func (s *Span) Set(key, value string) {
	if s != nil {
		s.attributes = append(s.attributes, attribute{key, anyValue{String: new(value[:min(len(value), maxText)])}})
	}
}

// SetInt is Set for a number.
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

// End ends the span and queues it to be sent. If the queue is full, the span is dropped.
func (s *Span) End() {
	if s == nil || s.tracer == nil || s.ended {
		return
	}
	s.ended, s.took = true, time.Since(s.began)
	if s.silent {
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
	notify(t.some)
	if len(t.queue) >= maxBatch {
		notify(t.full)
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Dropped returns how many spans were not sent, because the queue was full or the collector did not
// accept them.
func (t *Tracer) Dropped() uint64 {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped
}
