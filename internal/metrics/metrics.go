// Package metrics counts events, and writes the counts in the text format of Prometheus, version
// 0.0.4. It does not know what is counted.
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

// A Registry holds families of metrics, in the order of their creation. The zero value is empty.
type Registry struct {
	mu       sync.Mutex
	families []family
}

// A family is all metrics with the same name.
type family struct {
	name, help, kind string
	write            func(*lines)
}

func (r *Registry) add(name, help, kind string, write func(*lines)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.families, func(f family) bool { return f.name == name }) {
		panic("metrics: " + name + " is registered twice")
	}
	r.families = append(r.families, family{name, help, kind, write})
}

// Write writes all families, each with its metrics in a fixed order.
func (r *Registry) Write(w io.Writer) error {
	r.mu.Lock()
	families := slices.Clone(r.families)
	r.mu.Unlock()
	out := bufio.NewWriter(w)
	for _, f := range families {
		fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", f.name, escapeHelp.Replace(f.help), f.name, f.kind)
		f.write(&lines{out, f.name})
	}
	return out.Flush()
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// lines writes the lines of one family.
type lines struct {
	w    *bufio.Writer
	name string
}

func (l *lines) write(suffix string, labels, values []string, v float64) {
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

// A Counter counts events separately by the values of its labels. Its methods do nothing on nil.
type Counter struct {
	labels []string
	values sync.Map // the values of the labels, joined by NUL, to *atomic.Uint64
}

// Counter creates a family of counters. By convention its name ends with _total. If it has one
// label, first lists values of that label that are shown with 0 from the start.
func (r *Registry) Counter(name, help string, labels []string, first ...string) *Counter {
	c := &Counter{labels: labels}
	for _, v := range first {
		c.at(v)
	}
	if len(labels) == 0 {
		c.at("")
	}
	r.add(name, help, "counter", func(out *lines) {
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

func (c *Counter) at(key string) *atomic.Uint64 {
	if n, ok := c.values.Load(key); ok {
		return n.(*atomic.Uint64)
	}
	n, _ := c.values.LoadOrStore(key, new(atomic.Uint64))
	return n.(*atomic.Uint64)
}

// Add counts one event. values has a value for each label. Values stay in memory for ever, so they
// must be fixed words of the program and never data from a peer.
func (c *Counter) Add(values ...string) {
	if c == nil {
		return
	}
	if len(values) != len(c.labels) {
		panic(fmt.Sprintf("metrics: %d values for the labels %v", len(values), c.labels))
	}
	c.at(strings.Join(values, "\x00")).Add(1)
}

// Gauge creates a family whose values are read when the metrics are written. find calls emit for
// each metric, with a value for each label.
func (r *Registry) Gauge(name, help string, labels []string, find func(emit func(v float64, values ...string))) {
	r.sampled(name, help, "gauge", labels, find)
}

// CounterFunc is Gauge for a count that is kept elsewhere.
func (r *Registry) CounterFunc(name, help string, labels []string, find func(emit func(v float64, values ...string))) {
	r.sampled(name, help, "counter", labels, find)
}

func (r *Registry) sampled(name, help, kind string, labels []string, find func(emit func(v float64, values ...string))) {
	r.add(name, help, kind, func(out *lines) {
		find(func(v float64, values ...string) { out.write("", labels, values, v) })
	})
}

// A Histogram counts durations in buckets. Its methods do nothing on nil.
type Histogram struct {
	bounds []time.Duration // upper bounds, inclusive
	counts []atomic.Uint64 // one for each bound, and one for durations above all
	sum    atomic.Int64    // in nanoseconds
}

// Histogram creates a family with one histogram, in seconds, with these upper bounds.
func (r *Registry) Histogram(name, help string, bounds ...time.Duration) *Histogram {
	h := &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
	r.add(name, help, "histogram", func(out *lines) {
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
