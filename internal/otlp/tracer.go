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

// Bounds of what is kept in memory.
const (
	maxQueue = 4096 // spans that wait to be sent
	maxLinks = 4096 // causes of what begins later; as many older ones are kept too
	maxText  = 256  // bytes of an attribute
)

// A Kind is the role of a span.
type Kind int

// The kinds, with their numbers of OTLP.
const (
	Internal Kind = 1
	Server   Kind = 2 // answers a request of a client
	Client   Kind = 3 // asks a server
	Consumer Kind = 5 // does what was queued before
)

// A Tracer makes spans and sends them. Nil makes none: its methods, and those of nil spans, do
// nothing.
type Tracer struct {
	endpoint string
	version  string
	client   *http.Client
	log      *slog.Logger

	mu      sync.Mutex
	queue   []*Span
	dropped uint64
	links   map[string]identity // by what they have caused
	older   map[string]identity
	some    chan struct{} // has one where the queue is not empty
	full    chan struct{} // has one where the queue has a whole batch

	told   uint64 // of dropped, in the log; for Run alone
	toldAt time.Time
}

// New makes a tracer whose spans go to endpoint/v1/traces once Run runs. version is that of the
// program.
func New(endpoint, version string, transport http.RoundTripper, log *slog.Logger) *Tracer {
	return &Tracer{
		endpoint: endpoint + "/v1/traces", version: version, log: log,
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		links:  map[string]identity{}, some: make(chan struct{}, 1), full: make(chan struct{}, 1),
	}
}

// An identity is what other spans must know of one.
type identity struct {
	trace  [16]byte
	span   [8]byte
	silent bool // whoever began the trace wants it not recorded
}

// A Span is something that was done, from its start to its end. It is sent when it ends; one that
// never ends is forgotten. Its methods are for one goroutine at a time.
type Span struct {
	identity
	tracer     *Tracer // nil: it only stands for what others are children of
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

// Start begins a span, as a child of the one in ctx. The context that it gives has the new one.
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

// putRandom fills an id, which is not to be all zero.
func putRandom(id []byte) {
	for i := 0; i < len(id); i += 8 {
		for j, bits := 0, rand.Uint64()|1; j < 8; j, bits = j+1, bits>>8 {
			id[i+j] = byte(bits)
		}
	}
}

// SpanOf is the span that ctx is of; nil if there is none.
func SpanOf(ctx context.Context) *Span {
	s, _ := ctx.Value(spanKey{}).(*Span)
	return s
}

// Continue has spans that are begun in the context belong to the trace of a client, by the header
// field traceparent (W3C Trace Context section 3.2). One that is not valid changes nothing.
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
	// version "-" trace "-" span "-" flags; later versions may go on after another "-"
	if len(text) < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-' || len(text) > 55 && (text[:2] == "00" || text[55] != '-') {
		return id, false
	}
	for i, c := range []byte(text[:55]) {
		if i != 2 && i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return id, false
		}
	}
	_, _ = hex.Decode(id.trace[:], []byte(text[3:35])) // it is hexadecimal
	_, _ = hex.Decode(id.span[:], []byte(text[36:52]))
	flags, _ := strconv.ParseUint(text[53:55], 16, 8)
	id.silent = flags&1 == 0
	return id, text[:2] != "ff" && id.trace != [16]byte{} && id.span != [8]byte{}
}

// Link notes that what key names, and what begins later, was caused by the span of ctx.
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

// Follow has spans that are begun in the context be children of the one that has caused what key
// names, if that is known still.
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

// Rename gives the span another name: one of a few, as names are what spans are grouped by.
func (s *Span) Rename(name string) {
	if s != nil {
		s.name = name
	}
}

// Set says something of the span: an id or a word, of at most 256 bytes, never an address, a text
// of people or a secret.
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

// Fail says that what the span is of has not succeeded.
func (s *Span) Fail() {
	if s != nil {
		s.failed = true
	}
}

// End ends the span and has it sent. Where too many wait it is dropped.
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

// Dropped is how many spans were not sent: too many waited, or the collector did not take them.
func (t *Tracer) Dropped() uint64 {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped
}
