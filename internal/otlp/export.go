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
	maxBatch    = 512 // spans in one request
	gatherFor   = time.Second
	sendTimeout = 5 * time.Second
	flushWithin = 2 * time.Second // at the end of the program
	firstPause  = time.Second     // after a request that the collector did not accept
	maxPause    = 30 * time.Second
	dropsEvery  = time.Minute // between two log lines about dropped spans
	maxAnswer   = 64 << 10
)

// Run sends ended spans until ctx ends; then it sends the rest, for at most two seconds. If the
// collector is unreachable, or asks to retry, Run retries while the queue has room.
func (t *Tracer) Run(ctx context.Context) error {
	if t == nil {
		return nil
	}
	defer t.client.CloseIdleConnections()
	for {
		select {
		case <-t.some:
		case <-ctx.Done():
			t.flush(ctx)
			return nil
		}
		wait(ctx, gatherFor, t.full)
		for batch := t.nextBatch(); len(batch) > 0 && ctx.Err() == nil; batch = t.nextBatch() {
			t.deliver(ctx, batch)
		}
	}
}

// wait returns after a time, at an event, or when ctx ends.
func wait(ctx context.Context, d time.Duration, event <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-event:
	case <-ctx.Done():
	}
}

// nextBatch returns the spans for the next request. They stay in the queue until remove is called.
func (t *Tracer) nextBatch() []*Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.queue[:min(len(t.queue), maxBatch)])
}

// remove removes the first n spans from the queue; lost is how many of them the collector did not
// accept.
func (t *Tracer) remove(n int, lost uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = slices.Delete(t.queue, 0, n)
	t.dropped += lost
}

// deliver sends a batch until the collector accepts or refuses it, or ctx ends.
func (t *Tracer) deliver(ctx context.Context, batch []*Span) {
	pause, away := firstPause, false
	for {
		lost, again, err := t.send(ctx, batch)
		switch {
		case ctx.Err() != nil && err != nil:
			return
		case again:
			if !away {
				t.log.Warn("the trace collector does not accept spans; they are queued while there is room", "error", err)
			}
			away = true
			wait(ctx, pause, nil)
			pause = min(2*pause, maxPause)
			continue
		case err != nil:
			t.log.Warn("the trace collector refused spans", "spans", len(batch), "error", err)
		case away:
			t.log.Info("the trace collector accepts spans again", "spans_dropped", t.Dropped())
		}
		t.remove(len(batch), lost)
		t.logDropped()
		return
	}
}

// logDropped logs how many spans were dropped, if the number has grown and was not logged in the
// last minute.
func (t *Tracer) logDropped() {
	if n := t.Dropped(); n > t.logged && time.Since(t.loggedAt) > dropsEvery {
		t.logged, t.loggedAt = n, time.Now()
		t.log.Warn("trace spans were dropped since the start: the collector did not accept them, or not in time", "spans_dropped", n)
	}
}

// flush sends the remaining spans.
func (t *Tracer) flush(ctx context.Context) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	for batch := t.nextBatch(); len(batch) > 0; batch = t.nextBatch() {
		lost, _, err := t.send(limited, batch)
		if err != nil {
			t.log.Warn("the trace collector did not accept the last spans", "error", err)
			return
		}
		t.remove(len(batch), lost)
	}
}

// send makes one request. lost is how many spans the collector refused; again reports whether it
// may accept them later (OTLP/HTTP "Failures").
func (t *Tracer) send(ctx context.Context, batch []*Span) (lost uint64, again bool, err error) {
	all := uint64(len(batch))
	body, err := json.Marshal(t.request(batch))
	if err != nil {
		return all, false, fmt.Errorf("write spans: %w", err)
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
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // the status has decided
	switch resp.StatusCode {
	case http.StatusOK:
		var answer struct {
			PartialSuccess struct {
				RejectedSpans json.RawMessage `json:"rejectedSpans"` // a number, or a text of one
			} `json:"partialSuccess"`
		}
		_ = json.Unmarshal(text, &answer) // some collectors answer nothing, or text
		lost, _ = strconv.ParseUint(strings.Trim(string(answer.PartialSuccess.RejectedSpans), `"`), 10, 64)
		return min(lost, all), false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return all, true, fmt.Errorf("%s answered %s", t.endpoint, resp.Status)
	}
	return all, false, fmt.Errorf("%s answered %s", t.endpoint, resp.Status)
}

// An exportRequest is ExportTraceServiceRequest of OTLP in JSON: ids are hexadecimal, numbers of 64
// bits are texts, enumerations are numbers.
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

const statusError = 2

// request makes the body of a request.
func (t *Tracer) request(batch []*Span) exportRequest {
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
