package otlp_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/internal/otlp/otlptest"
)

// start runs a tracer for a collector. stop ends it, and returns how long that took.
func start(t *testing.T, c *otlptest.Collector, log *slog.Logger) (tracer *otlp.Tracer, stop func() time.Duration) {
	tracer = otlp.New(c.URL, "1.2.3", http.DefaultTransport, log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tracer.Run(ctx) }()
	stop = sync.OnceValue(func() time.Duration {
		began := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return time.Since(began)
	})
	t.Cleanup(func() { stop() })
	return tracer, stop
}

func TestSpansReachTheCollector(t *testing.T) {
	c := otlptest.New(t)
	tracer, stop := start(t, c, slog.New(slog.DiscardHandler))
	ctx, outer := tracer.Start(t.Context(), otlp.Server, "request")
	outer.Rename("send_email")
	outer.Set("request_id", "req_1")
	outer.Set("long", strings.Repeat("x", 1000))
	_, inner := tracer.Start(ctx, otlp.Client, "deliver message")
	inner.SetInt("smtp.code", 550)
	inner.Fail()
	time.Sleep(time.Millisecond)
	inner.End()
	inner.End()
	tracer.Link(ctx, "job_1")
	outer.End()
	_, later := tracer.Start(tracer.Follow(t.Context(), "job_1"), otlp.Consumer, "job direct")
	later.End()
	_, unrelated := tracer.Start(tracer.Follow(t.Context(), "job_2"), otlp.Internal, "job check")
	unrelated.End()
	_, _ = tracer.Start(t.Context(), otlp.Server, "never ends")
	stop()

	by := map[string]otlptest.Span{}
	for _, s := range c.Spans() {
		by[s.Name] = s
	}
	if len(c.Spans()) != 4 || len(by) != 4 {
		t.Fatalf("%d spans: %+v", len(c.Spans()), by)
	}
	request, delivery, job, other := by["send_email"], by["deliver message"], by["job direct"], by["job check"]
	if request.Kind != 2 || request.ParentID != "" || request.Attributes["request_id"] != "req_1" || len(request.Attributes["long"]) != 256 || request.Failed {
		t.Errorf("the request: %+v", request)
	}
	if delivery.Kind != 3 || delivery.TraceID != request.TraceID || delivery.ParentID != request.SpanID || delivery.Attributes["smtp.code"] != "550" || !delivery.Failed ||
		delivery.End.Sub(delivery.Start) < time.Millisecond || delivery.End.After(request.End) {
		t.Errorf("what it did: %+v", delivery)
	}
	if job.Kind != 5 || job.TraceID != request.TraceID || job.ParentID != request.SpanID {
		t.Errorf("what it caused: %+v", job)
	}
	if other.Kind != 1 || other.TraceID == request.TraceID || other.ParentID != "" {
		t.Errorf("what it did not cause: %+v", other)
	}
}

func TestNilTracerDoesNothing(t *testing.T) {
	var tracer *otlp.Tracer
	if err := tracer.Run(t.Context()); err != nil {
		t.Error(err)
	}
	none := testing.AllocsPerRun(10, func() {
		ctx, s := tracer.Start(tracer.Continue(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), otlp.Server, "x")
		s.Rename("y")
		s.Set("a", "b")
		s.SetInt("c", 1)
		s.Fail()
		s.End()
		tracer.Link(ctx, "job")
		if tracer.Follow(ctx, "job") != t.Context() || tracer.Dropped() != 0 {
			t.Error("it does something")
		}
	})
	if none != 0 {
		t.Errorf("it allocates %v times", none)
	}
}

// TestTraceparent tests W3C Trace Context section 3.2.
func TestTraceparent(t *testing.T) {
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	c := otlptest.New(t)
	tracer, stop := start(t, c, slog.New(slog.DiscardHandler))
	cases := map[string]string{ // what becomes of a span: continued, begun anew, silent
		"00-" + trace + "-" + span + "-01":                    "continued",
		"00-" + trace + "-" + span + "-03":                    "continued",
		"cc-" + trace + "-" + span + "-01-what-comes":         "continued",
		"cc-" + trace + "-" + span + "-01":                    "continued",
		"00-" + trace + "-" + span + "-00":                    "silent",
		"00-" + trace + "-" + span + "-01-more":               "anew",
		"cc-" + trace + "-" + span + "-01.more":               "anew",
		"ff-" + trace + "-" + span + "-01":                    "anew",
		"00-" + strings.ToUpper(trace) + "-" + span + "-01":   "anew",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01":  "anew",
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-01": "anew",
		"00-" + trace + "-" + span + "-0":                     "anew",
		"00-" + trace + "_" + span + "-01":                    "anew",
		"00-" + trace[1:] + "g-" + span + "-01":               "anew",
		"":                                                    "anew",
	}
	for text := range cases {
		ctx, s := tracer.Start(tracer.Continue(t.Context(), text), otlp.Server, "of "+text)
		_, inner := tracer.Start(ctx, otlp.Internal, "in "+text)
		inner.End()
		s.End()
	}
	stop()
	got := map[string]otlptest.Span{}
	for _, s := range c.Spans() {
		got[s.Name] = s
	}
	for text, want := range cases {
		s, there := got["of "+text]
		inner, alsoThere := got["in "+text]
		is := "anew"
		switch {
		case !there && !alsoThere:
			is = "silent"
		case s.TraceID == trace && s.ParentID == span:
			is = "continued"
		case s.ParentID != "":
			is = "neither"
		}
		if is != want || there && (inner.TraceID != s.TraceID || inner.ParentID != s.SpanID) {
			t.Errorf("%q: %s, want %s: %+v", text, is, want, s)
		}
	}
}

// TestCollectorThatHangs: nothing waits for it, memory is limited, and the program still ends soon.
func TestCollectorThatHangs(t *testing.T) {
	c := otlptest.New(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	var asked atomic.Int32
	c.Refuse(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	tracer, stop := start(t, c, slog.New(slog.DiscardHandler))
	const spans = 100_000
	began := time.Now()
	for range spans {
		_, s := tracer.Start(t.Context(), otlp.Internal, "x")
		s.End()
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("%d spans took %s", spans, took)
	}
	if n := tracer.Dropped(); n < spans-5000 || n >= spans {
		t.Errorf("%d of %d spans were dropped", n, spans)
	}
	for deadline := time.Now().Add(5 * time.Second); asked.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the collector was not asked")
		}
	}
	if took := stop(); took > 4*time.Second {
		t.Errorf("the end took %s", took)
	}
}

// TestCollectorThatRefuses: refused spans are dropped, counted and logged; spans that the collector
// wants later are sent again.
func TestCollectorThatRefuses(t *testing.T) {
	for _, tc := range []struct {
		status  int
		body    string
		arrives bool
		dropped uint64
	}{
		{500, "", false, 1}, {400, "", false, 1}, {302, "", false, 1}, {503, "", true, 0}, {429, "", true, 0},
		{200, `{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no room"}}`, false, 1}, {200, `{"partialSuccess":{}}`, false, 0}, {200, "ok", false, 0},
	} {
		t.Run(tc.body+http.StatusText(tc.status), func(t *testing.T) {
			t.Parallel()
			c := otlptest.New(t)
			answered := make(chan struct{})
			once := sync.OnceFunc(func() { close(answered) })
			c.Refuse(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
				c.Refuse(nil)
				once()
			})
			var log bytes.Buffer
			tracer, stop := start(t, c, slog.New(slog.NewTextHandler(&log, nil)))
			_, s := tracer.Start(t.Context(), otlp.Internal, "first")
			s.End()
			<-answered
			if tc.arrives {
				c.Await("first", func(s otlptest.Span) bool { return s.Name == "first" })
			}
			_, s = tracer.Start(t.Context(), otlp.Internal, "second")
			s.End()
			c.Await("second", func(s otlptest.Span) bool { return s.Name == "second" })
			stop()
			if n := len(c.Spans()); n != map[bool]int{true: 2, false: 1}[tc.arrives] || tracer.Dropped() != tc.dropped {
				t.Errorf("%d spans, %d dropped", n, tracer.Dropped())
			}
			if told := strings.Contains(log.String(), "collector"); told != (tc.status != 200 || tc.dropped > 0) {
				t.Errorf("the log: %s", log.String())
			}
		})
	}
}

// TestManyLinks: some thousand causes are kept, not all.
func TestManyLinks(t *testing.T) {
	tracer := otlp.New("http://127.0.0.1:1", "1", http.DefaultTransport, slog.New(slog.DiscardHandler))
	known := func(key string) bool { return otlp.SpanOf(tracer.Follow(context.Background(), key)) != nil }
	ctx, _ := tracer.Start(t.Context(), otlp.Internal, "x")
	key := func(n int) string { return "job_" + strings.Repeat("i", n%100) + "_" + strings.Repeat("j", n/100) }
	for n := range 10_000 {
		tracer.Link(ctx, key(n))
	}
	if !known(key(9_999)) || !known(key(6_000)) || known(key(0)) {
		t.Errorf("the last %v, one before %v, the first %v", known(key(9_999)), known(key(6_000)), known(key(0)))
	}
	tracer.Link(context.Background(), "of nothing")
	if known("of nothing") {
		t.Error("a context without a span is a cause")
	}
}
