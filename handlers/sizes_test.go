package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
	message "github.com/mailstead/mailstead/service/templates"
)

// A drawer draws requests of random sizes, up to what an operation takes.
type drawer struct {
	rnd   *rand.Rand
	real  map[string][]string // what there is, by the names of fields and parameters
	left  int                 // bytes of the body that are left
	large bool                // sizes are near their limits
}

// size draws a size up to most, small ones as often as large ones.
func (d *drawer) size(most int) int {
	if d.large && d.rnd.IntN(3) == 0 {
		return most
	}
	return int(math.Exp(d.rnd.Float64()*math.Log(float64(most+1)))) - 1 + d.rnd.IntN(2)
}

var alphabets = []string{"a", "{{v}}", "<", "&", "é", "😀", "\x01", " ", "a@b.test, ", "x\r\n", `"`, "."}

func (d *drawer) text(f reflect.StructField, name string) string {
	if known := d.real[name]; len(known) > 0 && d.rnd.IntN(10) > 0 {
		return known[d.rnd.IntN(len(known))]
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		all := strings.Split(enum, "|")
		return all[d.rnd.IntN(len(all))]
	}
	most := int(bound(f, "max", 1<<30))
	unit := alphabets[d.rnd.IntN(len(alphabets))]
	escaped, _ := json.Marshal(unit)
	cost := len(escaped) - len(`""`)
	n := min(d.size(min(most, max(d.left, 1))), max(d.left, 0)/cost)
	d.left -= n * cost
	return strings.Repeat(unit, n)
}

// value draws a value of a type.
func (d *drawer) value(t reflect.Type, f reflect.StructField, name string) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	d.left -= 8
	switch v := reflect.New(t).Interface().(type) {
	case *core.Time:
		return core.Time{Time: time.Now().Add(time.Duration(d.rnd.IntN(100)) * time.Hour)}
	case *json.RawMessage:
		return d.text(f, name)
	case *message.Variable:
		return d.text(f, name)
	case optional:
		return d.value(reflect.TypeOf(v.OptOf()), f, name)
	case interface{ Forms() []any }:
		forms := v.Forms()
		return d.value(reflect.TypeOf(forms[d.rnd.IntN(len(forms))]), f, name)
	}
	switch t.Kind() {
	case reflect.String:
		return d.text(f, name)
	case reflect.Bool:
		return d.rnd.IntN(2) == 0
	case reflect.Slice:
		out := []any{}
		item := reflect.StructField{Tag: reflect.StructTag(fmt.Sprintf("enum:%q", f.Tag.Get("enum")))}
		for n := d.size(int(bound(f, "max", 20000))); n > 0 && d.left > 0; n-- {
			out = append(out, d.value(t.Elem(), item, strings.TrimSuffix(name, "s")))
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for n := d.size(5000); n > 0 && d.left > 0; n-- {
			key := fmt.Sprintf("k%d", n)
			if n == 1 {
				key = "v"
			}
			d.left -= len(key)
			out[key] = d.value(t.Elem(), reflect.StructField{}, "")
		}
		return out
	case reflect.Struct:
		out := map[string]any{}
		d.fields(t, out)
		return out
	case reflect.Interface:
		return d.text(f, name)
	}
	low, high := bound(f, "min", 0), bound(f, "max", 1000)
	return int64(low + d.rnd.Float64()*(high-low))
}

func (d *drawer) fields(t reflect.Type, out map[string]any) {
	for _, i := range d.rnd.Perm(t.NumField()) {
		f := t.Field(i)
		name := openapi.JSONName(f)
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			d.fields(f.Type, out)
		case name == "" || f.Tag.Get("path") != "" || f.Tag.Get("query") != "" || f.Tag.Get("header") != "":
		case f.Tag.Get("required") != "" || d.rnd.IntN(2) == 0:
			out[name] = d.value(f.Type, f, name)
		}
	}
}

// request draws a request of an operation.
func (d *drawer) request(o *op) (path string, body []byte) {
	path = regexp.MustCompile(`\{\w+\}`).ReplaceAllStringFunc(o.path, func(name string) string {
		known := d.real[strings.Trim(name, "{}")]
		if o.method == "DELETE" || len(known) == 0 {
			return "none" + strconv.Itoa(d.rnd.IntN(1000))
		}
		return known[d.rnd.IntN(len(known))]
	})
	if o.method == "GET" || o.call.in == nil {
		return path, nil
	}
	most := int(max(o.body, defaultBody))
	d.large = d.rnd.IntN(4) == 0
	d.left = d.size(most) * 9 / 10
	body, _ = json.Marshal(d.value(o.call.in, reflect.StructField{}, ""))
	body = body[:min(len(body), most)] // what is cut is refused, and must cost little
	return path, body
}

// memoryInUse is what the process has of the system, but for what it has given back.
func memoryInUse() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// TestRequestsOfEverySizeAreBounded sends requests of random sizes, up to the limits of each
// operation, in every field that has a size. None makes the process large, and none fails for a
// fault of ours, such as a transaction that is over its bounds. make soak-sizes sends 10 000, and
// then no transaction may keep others waiting for long.
func TestRequestsOfEverySizeAreBounded(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("MAILSTEAD_SIZES"))
	soak := err == nil
	if !soak {
		n = 300
	}
	seed := uint64(1)
	if text := os.Getenv("MAILSTEAD_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	b := newSandbox(t, func(c *core.Config) { c.Limits.RatePerMinute, c.Limits.BurstPerMinute = 1e6, 1e6 })
	d := &drawer{rnd: rand.New(rand.NewPCG(seed, 1)), real: map[string][]string{
		"domain_id": {b.domain}, "domain": {"boxes.test"}, "to": {"a@far.test", "b@boxes.test"}, "cc": {"c@far.test"}, "bcc": {"d@far.test"},
		"recipient": {"a@far.test"}, "host": {"127.0.0.1"}, "message_id": {"1"}, "url": {"https://127.0.0.1/x"},
	}}
	for _, name := range []string{"ann", "bob"} {
		d.real["user_id"] = append(d.real["user_id"], b.box(name))
	}
	for _, text := range []string{"Hello {{v}}", strings.Repeat("{{v}}", 90_000)} {
		id := b.post("/v1/message-templates", map[string]any{"name": "t", "subject": "s", "text": text, "html": text}).is(201).text("id")
		d.real["template_id"], d.real["id"] = append(d.real["template_id"], id), append(d.real["id"], id)
	}

	// Watch the memory, and how long a transaction waits that does nothing itself.
	var most, longest atomic.Int64
	var now, during atomic.Value // the operation, and the one when a transaction waited longest
	now.Store("")
	during.Store("")
	var drawing atomic.Bool // the test itself uses memory
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if !drawing.Load() {
				most.Store(max(most.Load(), memoryInUse()))
			}
			began := time.Now()
			if err := b.Ping(); err != nil {
				t.Error(err)
			}
			if took := int64(time.Since(began)); took > longest.Load() {
				longest.Store(took)
				during.Store(now.Load())
			}
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	sent := map[int]int{}
	large, err := os.Create(filepath.Join(t.TempDir(), "body"))
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	for i := 0; i < n; {
		o := &b.server.ops[d.rnd.IntN(len(b.server.ops))]
		if o.waits || o.method == "GET" && d.rnd.IntN(5) > 0 {
			continue
		}
		i++
		drawing.Store(true)
		path, body := d.request(o)
		size, begin, from := len(body), string(body[:min(len(body), 300)]), io.Reader(bytes.NewReader(body))
		if size > 1<<20 { // a large one comes from a file, as if from a network: its memory is not the server's
			err := large.Truncate(0)
			if err == nil {
				_, err = large.WriteAt(body, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			from, body = io.NewSectionReader(large, 0, int64(size)), nil
			debug.FreeOSMemory()
		}
		drawing.Store(false)
		before := most.Load()
		r := httptest.NewRequest(o.method, path, from)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+b.token)
		if d.rnd.IntN(4) == 0 {
			r.Header.Set("Idempotency-Key", strconv.Itoa(i))
		}
		began := time.Now()
		now.Store(fmt.Sprintf("request %d: %s with %d bytes", i, o.name, size))
		resp := Do(b.server, r)
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		sent[resp.StatusCode]++
		most.Store(max(most.Load(), memoryInUse()))
		if resp.StatusCode == 500 {
			t.Errorf("request %d: %s with %d bytes: %s\n%s", i, o.name, size, text, begin)
		}
		if grown := most.Load(); grown > before+(8<<20) && grown > 200<<20 || time.Since(began) > 5*time.Second {
			t.Logf("%v took %v, and the process has %d MiB", now.Load(), time.Since(began), grown>>20)
		}
	}
	close(end)
	<-ended
	t.Logf("%d requests, answered with %v; at most %d MiB; a transaction waited at most %v, at %v", n, sent, most.Load()>>20, time.Duration(longest.Load()), during.Load())
	if most.Load() > 300<<20 {
		t.Errorf("the process had %d MiB", most.Load()>>20)
	}
	if soak && longest.Load() > int64(100*time.Millisecond) {
		t.Errorf("a transaction waited %v, at %v", time.Duration(longest.Load()), during.Load())
	}
}
