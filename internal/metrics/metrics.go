// Package metrics counts events, and writes metrics in the text format of Prometheus, version
// 0.0.4. It does not know what the metrics mean.
package metrics

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ContentType is the media type of the output of Registry.Write.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// A Registry has families of metrics, in the order in which they were added. The zero value is
// empty.
type Registry struct {
	mu       sync.Mutex
	families []family
}

// A family is all metrics with the same name.
type family struct {
	name, help, kind string
	write            func(*familyWriter) // writes the metrics
}

// add adds a family. It panics if the registry has one with the same name.
func (r *Registry) add(name, help, kind string, write func(*familyWriter)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.families, func(f family) bool { return f.name == name }) {
		panic("metrics: " + name + " is registered twice")
	}
	r.families = append(r.families, family{name, help, kind, write})
}

// Write writes the metrics of all families, in a fixed order.
func (r *Registry) Write(w io.Writer) error {
	r.mu.Lock()
	families := slices.Clone(r.families)
	r.mu.Unlock()
	out := bufio.NewWriter(w)
	for _, f := range families {
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", f.name, escapeHelp.Replace(f.help), f.name, f.kind)
		f.write(&familyWriter{out, f.name})
	}
	return out.Flush()
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// A familyWriter writes the metrics of one family.
type familyWriter struct {
	w    *bufio.Writer
	name string // name of the family
}

// write writes one metric. suffix is appended to the name of the family.
func (l *familyWriter) write(suffix string, labels, values []string, v float64) {
	l.w.WriteString(l.name)
	l.w.WriteString(suffix)
	for i, label := range labels {
		l.w.WriteString([]string{"{", ","}[min(i, 1)])
		l.w.WriteString(label + `="` + escapeLabel.Replace(values[i]) + `"`)
	}
	if len(labels) > 0 {
		l.w.WriteByte('}')
	}
	l.w.WriteString(" " + strconv.FormatFloat(v, 'g', -1, 64) + "\n")
}

// A Counter counts events by the values of its labels. The methods of a nil Counter do nothing.
type Counter struct {
	labels []string
	values sync.Map // counts (*atomic.Uint64) by the values of the labels, joined by NUL
}

// Counter adds a family of counters. By convention its name ends with _total. If it has one label,
// presetValues lists values of the label that are written with the count 0 from the beginning.
func (r *Registry) Counter(name, help string, labels []string, presetValues ...string) *Counter {
	c := &Counter{labels: labels}
	for _, v := range presetValues {
		c.countOf(v)
	}
	if len(labels) == 0 {
		c.countOf("")
	}
	r.add(name, help, "counter", func(out *familyWriter) {
		for _, key := range sortedKeys(&c.values) {
			n, _ := c.values.Load(key)
			out.write("", labels, strings.Split(key, "\x00"), float64(n.(*atomic.Uint64).Load()))
		}
	})
	return c
}

func sortedKeys(m *sync.Map) (keys []string) {
	for key := range m.Range {
		keys = append(keys, key.(string))
	}
	slices.Sort(keys)
	return keys
}

// countOf returns the count for the values of the labels, joined by NUL. It makes a missing count.
func (c *Counter) countOf(key string) *atomic.Uint64 {
	if n, ok := c.values.Load(key); ok {
		return n.(*atomic.Uint64)
	}
	n, _ := c.values.LoadOrStore(key, new(atomic.Uint64))
	return n.(*atomic.Uint64)
}

// Add counts one event. values has a value for each label. Values stay in memory forever, so they
// must be words from a fixed list, and never data from outside.
func (c *Counter) Add(values ...string) {
	if c == nil {
		return
	}
	if len(values) != len(c.labels) {
		panic(fmt.Sprintf("metrics: %d values were given for the labels %v", len(values), c.labels))
	}
	c.countOf(strings.Join(values, "\x00")).Add(1)
}

// Gauge adds a family of gauges. When the metrics are written, find is called. It calls emit for
// each metric, with the value of the metric and a value for each label.
func (r *Registry) Gauge(name, help string, labels []string, find func(emit func(v float64, values ...string))) {
	r.addSampled(name, help, "gauge", labels, find)
}

// CounterFunc adds a family of counters whose counts are kept elsewhere. find works as in Gauge.
func (r *Registry) CounterFunc(name, help string, labels []string, find func(emit func(v float64, values ...string))) {
	r.addSampled(name, help, "counter", labels, find)
}

// addSampled adds a family whose values find returns by calls of emit.
func (r *Registry) addSampled(name, help, kind string, labels []string, find func(emit func(v float64, values ...string))) {
	r.add(name, help, kind, func(out *familyWriter) {
		find(func(v float64, values ...string) { out.write("", labels, values, v) })
	})
}

// A Histogram counts durations in buckets. The methods of a nil Histogram do nothing.
type Histogram struct {
	bounds []time.Duration // inclusive upper bounds of the buckets
	counts []atomic.Uint64 // counts of the buckets; the last is for durations above all bounds
	sum    atomic.Int64    // sum of all durations in nanoseconds
}

// Histogram adds a family with one histogram of durations. Its values are in seconds, and its
// buckets have these upper bounds.
func (r *Registry) Histogram(name, help string, bounds ...time.Duration) *Histogram {
	h := &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
	r.add(name, help, "histogram", func(out *familyWriter) {
		var n uint64
		for i := range h.counts {
			bound := math.Inf(1)
			if i < len(bounds) {
				bound = bounds[i].Seconds()
			}
			n += h.counts[i].Load()
			out.write("_bucket", []string{"le"}, []string{strconv.FormatFloat(bound, 'g', -1, 64)}, float64(n))
		}
		out.write("_sum", nil, nil, time.Duration(h.sum.Load()).Seconds())
		out.write("_count", nil, nil, float64(n))
	})
	return h
}

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration) {
	if h == nil {
		return
	}
	i, _ := slices.BinarySearch(h.bounds, d)
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}
