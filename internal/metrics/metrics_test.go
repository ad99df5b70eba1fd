package metrics

import (
	"strings"
	"sync"
	"testing"
	"time"
)

func TestWrite(t *testing.T) {
	var r Registry
	plain := r.Counter("plain_total", "Counts.\nIn \\ two lines.", nil)
	labelled := r.Counter("labelled_total", "By two.", []string{"a", "b"})
	first := r.Counter("first_total", "With a first value.", []string{"result"}, "ok")
	r.Gauge("state", "By state.", []string{"state"}, func(emit func(float64, ...string)) {
		emit(2.5, `odd "quoted" \ value`)
		emit(-1, "two\nlines")
	})
	r.CounterFunc("seen_total", "Somebody else's.", nil, func(emit func(float64, ...string)) { emit(7) })
	took := r.Histogram("took_seconds", "How long.", time.Millisecond, time.Second)
	plain.Add()
	labelled.Add("y", "z")
	labelled.Add("x", "z")
	labelled.Add("x", "z")
	first.Add("failed")
	for _, d := range []time.Duration{time.Microsecond, time.Millisecond, 2 * time.Millisecond, time.Minute} {
		took.Observe(d)
	}
	var none *Counter
	none.Add("whatever")
	var noneEither *Histogram
	noneEither.Observe(1)
	var out strings.Builder
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	const want = `# HELP plain_total Counts.\nIn \\ two lines.
# TYPE plain_total counter
plain_total 1
# HELP labelled_total By two.
# TYPE labelled_total counter
labelled_total{a="x",b="z"} 2
labelled_total{a="y",b="z"} 1
# HELP first_total With a first value.
# TYPE first_total counter
first_total{result="failed"} 1
first_total{result="ok"} 0
# HELP state By state.
# TYPE state gauge
state{state="odd \"quoted\" \\ value"} 2.5
state{state="two\nlines"} -1
# HELP seen_total Somebody else's.
# TYPE seen_total counter
seen_total 7
# HELP took_seconds How long.
# TYPE took_seconds histogram
took_seconds_bucket{le="0.001"} 2
took_seconds_bucket{le="1"} 3
took_seconds_bucket{le="+Inf"} 4
took_seconds_sum 60.003001
took_seconds_count 4
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestCountersAreShared(t *testing.T) {
	var r Registry
	c := r.Counter("c_total", "Shared.", []string{"l"})
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 1000 {
				c.Add([]string{"x", "y"}[n%2])
			}
		})
	}
	all.Wait()
	var out strings.Builder
	if err := r.Write(&out); err != nil || !strings.Contains(out.String(), "{l=\"x\"} 4000\n") || !strings.Contains(out.String(), "{l=\"y\"} 4000\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestNamesAreThereOnce(t *testing.T) {
	var r Registry
	r.Counter("twice", "One.", nil)
	defer func() {
		if recover() == nil {
			t.Error("two families have one name")
		}
	}()
	r.Counter("twice", "Two.", nil)
}

func TestProcess(t *testing.T) {
	var r Registry
	r.AddProcess(time.Unix(1_700_000_000, 500_000_000))
	var out strings.Builder
	if err := r.Write(&out); err != nil || !strings.Contains(out.String(), "\nprocess_start_time_seconds 1.7000000005e+09\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func BenchmarkAdd(b *testing.B) {
	var r Registry
	c := r.Counter("c_total", "Benchmark.", []string{"a", "b"})
	b.ReportAllocs()
	for b.Loop() {
		c.Add("get_account", "200")
	}
}
