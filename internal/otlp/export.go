package otlp

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxBatch        = 512              // maximum number of spans in one request
	batchDelay      = time.Second      // how long to wait for more spans before a request
	sendTimeout     = 5 * time.Second  // for one request
	flushTimeout    = 2 * time.Second  // for sending the remaining spans after ctx has ended
	firstPause      = time.Second      // before the first retry of a request; later pauses are longer
	maxPause        = 30 * time.Second // maximum pause before a retry
	dropLogInterval = time.Minute      // minimum time between two log messages about dropped spans
	maxAnswer       = 64 << 10         // maximum number of bytes that are read of a response
)

// Run sends ended spans until ctx ends. Then it sends the remaining spans for up to 2 seconds. If
// the collector is unreachable or busy, Run retries; spans are dropped if the queue becomes full
// meanwhile.
func (t *Tracer) Run(ctx context.Context) error {
	if t == nil {
		return nil
	}
	defer t.client.CloseIdleConnections()
	for {
		select {
		case <-t.notEmpty:
		case <-ctx.Done():
			t.flush(ctx)
			return nil
		}
		wait(ctx, batchDelay, t.full)
		for batch := t.nextBatch(); len(batch) > 0 && ctx.Err() == nil; batch = t.nextBatch() {
			t.deliver(ctx, batch)
		}
	}
}

// wait waits for the duration d. It returns earlier if there is an event or ctx ends.
func wait(ctx context.Context, d time.Duration, event <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-event:
	case <-ctx.Done():
	}
}

// nextBatch returns the spans for the next request. It does not remove them from the queue.
func (t *Tracer) nextBatch() []*Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.queue[:min(len(t.queue), maxBatch)])
}

// removeFromQueue removes the first n spans from the queue, and counts lost of them as dropped.
func (t *Tracer) removeFromQueue(n int, lost uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = slices.Delete(t.queue, 0, n)
	t.dropped += lost
}

// deliver sends a batch, and retries until the collector accepts or refuses it, or until ctx ends.
func (t *Tracer) deliver(ctx context.Context, batch []*Span) {
	pause, retrying := firstPause, false
	for {
		lost, again, err := t.send(ctx, batch)
		switch {
		case ctx.Err() != nil && err != nil:
			return
		case again:
			if !retrying {
				t.log.Warn("the trace collector does not accept spans; they are queued while there is room", "error", err)
			}
			retrying = true
			wait(ctx, pause, nil)
			pause = min(2*pause, maxPause)
			continue
		case err != nil:
			t.log.Warn("the trace collector refused spans", "spans", len(batch), "error", err)
		case retrying:
			t.log.Info("the trace collector accepts spans again", "spans_dropped", t.Dropped())
		}
		t.removeFromQueue(len(batch), lost)
		t.logDropped()
		return
	}
}

// logDropped logs how many spans were dropped, if there are new ones and the last message is more
// than dropLogInterval ago.
func (t *Tracer) logDropped() {
	if n := t.Dropped(); n > t.logged && time.Since(t.loggedAt) > dropLogInterval {
		t.logged, t.loggedAt = n, time.Now()
		t.log.Warn("trace spans were dropped since the start: the collector did not accept them, or not in time", "spans_dropped", n)
	}
}

// flush sends the remaining spans after ctx has ended. It stops at the first error.
func (t *Tracer) flush(ctx context.Context) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	for batch := t.nextBatch(); len(batch) > 0; batch = t.nextBatch() {
		lost, _, err := t.send(limited, batch)
		if err != nil {
			t.log.Warn("the trace collector did not accept the last spans", "error", err)
			return
		}
		t.removeFromQueue(len(batch), lost)
	}
}

// send sends a batch once. lost is the number of spans that the collector did not accept, and retry
// says whether it may accept them later (OTLP/HTTP "Failures").
func (t *Tracer) send(ctx context.Context, batch []*Span) (lost uint64, retry bool, err error) {
	all := uint64(len(batch))
	body, err := json.Marshal(t.requestBody(batch))
	if err != nil {
		return all, false, fmt.Errorf("encode trace spans: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.endpoint, bytes.NewReader(body))
	if err != nil {
		return all, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Mailstead")
	resp, err := t.client.Do(req)
	if err != nil {
		return all, true, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // an unreadable body does not matter, because the status decides
	switch resp.StatusCode {
	case http.StatusOK:
		var answer struct {
			PartialSuccess struct {
				RejectedSpans json.RawMessage `json:"rejectedSpans"` // a JSON number, or a string with a number
			} `json:"partialSuccess"`
		}
		_ = json.Unmarshal(text, &answer) // the bodies of some collectors are empty or not JSON
		lost, _ = strconv.ParseUint(strings.Trim(string(answer.PartialSuccess.RejectedSpans), `"`), 10, 64)
		return min(lost, all), false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return all, true, fmt.Errorf("the collector %s answered %s", t.endpoint, resp.Status)
	}
	return all, false, fmt.Errorf("the collector %s answered %s", t.endpoint, resp.Status)
}

// An exportRequest is an ExportTraceServiceRequest of OTLP in JSON. IDs are hexadecimal, 64-bit
// numbers are strings, and enumerations are numbers.
type exportRequest struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource   resource     `json:"resource"`
	ScopeSpans []scopeSpans `json:"scopeSpans"`
}

type resource struct {
	Attributes []attribute `json:"attributes"`
}

type scopeSpans struct {
	Scope scope      `json:"scope"`
	Spans []spanJSON `json:"spans"`
}

type scope struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// A spanJSON is a span in OTLP.
type spanJSON struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	ParentID   string      `json:"parentSpanId,omitempty"`
	Name       string      `json:"name"`
	Kind       Kind        `json:"kind"`
	Start      string      `json:"startTimeUnixNano"`
	End        string      `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes,omitempty"`
	Status     struct {
		Code int `json:"code,omitempty"`
	} `json:"status"`
}

type attribute struct {
	Key   string   `json:"key"`
	Value anyValue `json:"value"`
}

type anyValue struct {
	String *string `json:"stringValue,omitempty"`
	Int    *string `json:"intValue,omitempty"`
}

const statusError = 2 // STATUS_CODE_ERROR

// requestBody returns the body of a request with a batch of spans.
func (t *Tracer) requestBody(batch []*Span) exportRequest {
	const name = "mailstead"
	var out []spanJSON
	for _, s := range batch {
		j := spanJSON{
			TraceID: hex.EncodeToString(s.trace[:]), SpanID: hex.EncodeToString(s.span[:]), Name: s.name, Kind: s.kind,
			Start: strconv.FormatInt(s.began.UnixNano(), 10), End: strconv.FormatInt(s.began.UnixNano()+int64(s.took), 10), Attributes: s.attributes,
		}
		if s.parent != [8]byte{} {
			j.ParentID = hex.EncodeToString(s.parent[:])
		}
		if s.failed {
			j.Status.Code = statusError
		}
		out = append(out, j)
	}
	return exportRequest{[]resourceSpans{{
		Resource:   resource{[]attribute{{"service.name", anyValue{String: new(name)}}, {"service.version", anyValue{String: &t.version}}}},
		ScopeSpans: []scopeSpans{{scope{name, t.version}, out}},
	}}}
}
