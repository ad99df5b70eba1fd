package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
	message "github.com/mailstead/mailstead/service/templates"
)

// A drawer draws requests of random sizes, up to what an operation takes.
type drawer struct {
	rnd    *rand.Rand
	real   map[string][]string // what there is, by the names of fields and parameters
	left   int                 // bytes of the body that are left
	kept   map[string]int      // how many of each are never deleted
	large  bool                // sizes are near their limits
	atOnce bool                // and as many bytes as may be
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
	most := int(numberTag(f, "max", 1<<30))
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
	case nullable:
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
		for n := d.size(int(numberTag(f, "max", 20000))); n > 0 && d.left > 0; n-- {
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
	low, high := numberTag(f, "min", 0), numberTag(f, "max", 1000)
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

// query draws the fields of the query; the URL is at most 8 KB.
func (d *drawer) query(t reflect.Type, out url.Values) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("query")
		switch {
		case f.Anonymous:
			d.query(f.Type, out)
		case name != "" && (f.Tag.Get("required") != "" || d.rnd.IntN(3) == 0):
			d.left = 2000
			if v := d.value(f.Type, f, name); v != nil {
				out.Set(name, fmt.Sprint(v))
			}
		}
	}
}

// idOf is what an operation's {id} names: /v1/mail-templates/{id} a mail_template_id.
func idOf(path string) string {
	before, _, _ := strings.Cut(path, "/{id}")
	kind := before[strings.LastIndexByte(before, '/')+1:]
	return strings.ReplaceAll(strings.TrimSuffix(kind, "s"), "-", "_") + "_id"
}

// learn keeps the ids of what an answer says was made.
func (d *drawer) learn(o *api.Operation, status int, answer []byte) {
	if o.Method != "POST" || status >= 300 {
		return
	}
	var made map[string]any
	if json.Unmarshal(answer, &made) != nil {
		return
	}
	for name, v := range made {
		id, ok := v.(string)
		if name == "id" {
			name = idOf(o.Path + "/{id}")
		}
		if ok && id != "" && strings.HasSuffix(name, "_id") && name != "message_id" && name != "request_id" && len(d.real[name]) < 40 && !slices.Contains(d.real[name], id) {
			d.real[name] = append(d.real[name], id)
		}
	}
}

// request draws a request of an operation.
func (d *drawer) request(o *api.Operation) (path string, body []byte) {
	path = regexp.MustCompile(`\{\w+\}`).ReplaceAllStringFunc(o.Path, func(name string) string {
		name = strings.Trim(name, "{}")
		if name == "id" {
			name = idOf(o.Path)
		}
		known := d.real[name]
		if last := strings.HasSuffix(o.Path, "{"+name+"}") || strings.HasSuffix(o.Path, "{id}"); last && o.Method == "DELETE" && len(known) > 0 {
			if kept := d.kept[name]; len(known) > kept { // what was made on the way
				gone := known[len(known)-1]
				d.real[name] = known[:len(known)-1]
				return gone
			}
			known = nil
		}
		if len(known) == 0 {
			return "none" + strconv.Itoa(d.rnd.IntN(1000))
		}
		return known[d.rnd.IntN(len(known))]
	})
	if o.Call.In != nil {
		query := url.Values{}
		d.query(o.Call.In, query)
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
	}
	if o.Method == "GET" || o.Call.In == nil {
		return path, nil
	}
	most := int(max(o.Body, defaultMaxBody))
	d.large = d.rnd.IntN(4) == 0
	d.left = d.size(most) * 9 / 10
	if d.atOnce {
		d.large, d.left = true, most*9/10
	}
	body, _ = json.Marshal(d.value(o.Call.In, reflect.StructField{}, ""))
	body = body[:min(len(body), most)] // what is cut is refused, and must cost little
	return path, body
}

// memoryInUse returns the bytes of memory that the process has from the system and has not
// released.
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
	// What is in use, not what waits for a collector that a busy machine delays.
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(250 << 20))
	seed := uint64(1)
	if text := os.Getenv("MAILSTEAD_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
	}
	b := newSandbox(t, func(c *core.Config) { c.Limits.RatePerMinute, c.Limits.BurstPerMinute = 1e6, 1e6 })
	d := &drawer{rnd: rand.New(rand.NewPCG(seed, 1)), real: map[string][]string{
		"domain_id": {b.domain}, "domain": {"boxes.test"}, "to": {"a@far.test", "b@boxes.test"}, "cc": {"c@far.test"}, "bcc": {"d@far.test"},
		"recipient": {"a@far.test"}, "host": {"127.0.0.1"}, "message_id": {"1"}, "url": {"https://127.0.0.1/x"},
	}}
	for _, file := range []struct{ records, bytes int }{{5000, 1}, {5000, 200}, {500, 2000}} {
		var text strings.Builder
		for i := range file.records {
			fmt.Fprintf(&text, "r%d 300 IN TXT %q\n", i, strings.Repeat("v", file.bytes))
		}
		d.real["zone_file"] = append(d.real["zone_file"], text.String())
	}
	for _, name := range []string{"ann", "bob"} {
		d.real["user_id"] = append(d.real["user_id"], b.box(name))
	}
	for _, text := range []string{"Hello {{v}}", strings.Repeat("{{v}}", 90_000)} {
		id := b.post("/v1/message-templates", map[string]any{"name": "t", "subject": "s", "text": text, "html": text}).is(201).text("id")
		d.real["template_id"], d.real["message_template_id"] = append(d.real["template_id"], id), append(d.real["message_template_id"], id)
	}
	for n := range 4 {
		for kind, made := range map[string]struct {
			path string
			body map[string]any
		}{
			"group_id":      {"/v1/groups", map[string]any{"email": fmt.Sprintf("team%d@boxes.test", n), "members": []any{map[string]any{"email": "a@far.test"}}}},
			"rule_id":       {"/v1/email-users/" + d.real["user_id"][0] + "/rules", map[string]any{"name": "r", "actions": []any{map[string]any{"type": "mark_read"}}}},
			"folder_id":     {"/v1/email-users/" + d.real["user_id"][0] + "/folders", map[string]any{"name": fmt.Sprint("Folder", n)}},
			"credential_id": {"/v1/email-users/" + d.real["user_id"][0] + "/credentials", map[string]any{"name": "c"}},
		} {
			d.real[kind] = append(d.real[kind], b.post(made.path, made.body).is(201).text("id"))
		}
	}
	d.kept = map[string]int{"group_id": 1, "rule_id": 1, "folder_id": 1, "credential_id": 1}
	for name, known := range d.real {
		if d.kept[name] == 0 {
			d.kept[name] = len(known)
		}
	}

	// Watch the memory beyond what the tests before this one have left, and how long a transaction
	// waits that does nothing itself.
	debug.FreeOSMemory()
	left := memoryInUse()
	var most, longest atomic.Int64
	var now, during atomic.Value // the operation, and the one when a transaction waited longest
	now.Store("")
	during.Store("")
	var drawing atomic.Bool // the test itself uses memory and processors
	var drawn atomic.Int64  // how often it has begun to
	pings := 0
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if !drawing.Load() {
				most.Store(max(most.Load(), memoryInUse()-left))
			}
			draws, alone := drawn.Load(), !drawing.Load()
			began := time.Now()
			if err := b.Ping(); err != nil {
				t.Error(err)
			}
			alone = alone && drawn.Load() == draws
			if alone {
				pings++
			}
			if took := int64(time.Since(began)); alone && took > longest.Load() {
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
	sent, deleted := map[int]int{}, 0
	var large [4]*os.File
	for k := range large {
		large[k], err = os.Create(filepath.Join(t.TempDir(), "body"))
		if err != nil {
			t.Fatal(err)
		}
		defer large[k].Close()
	}
	type call struct {
		o      *api.Operation
		size   int
		begin  string
		r      *http.Request
		status int
		answer []byte
	}
	for i := 0; i < n; {
		// Draw one request, or at times four large ones that are sent at once.
		together := 1
		d.atOnce = d.rnd.IntN(20) == 0
		if d.atOnce {
			together = len(large)
		}
		var calls []*call
		drawing.Store(true)
		drawn.Add(1)
		for len(calls) < together {
			o := &b.server.ops[d.rnd.IntN(len(b.server.ops))]
			if o.Waits || o.Method == "GET" && d.rnd.IntN(5) > 0 || d.atOnce && o.Method != "POST" && o.Method != "PUT" {
				continue
			}
			path, body := d.request(o)
			size, from := len(body), io.Reader(bytes.NewReader(body))
			c := &call{o: o, size: size, begin: string(body[:min(len(body), 300)])}
			if size > 1<<20 { // a large one comes from a file, as if from a network: its memory is not the server's
				file := large[len(calls)]
				err := file.Truncate(0)
				if err == nil {
					_, err = file.WriteAt(body, 0)
				}
				if err != nil {
					t.Fatal(err)
				}
				from, body = io.NewSectionReader(file, 0, int64(size)), nil
				debug.FreeOSMemory() // twice, since encoding/json keeps the buffer that it was made in over one collection
				debug.FreeOSMemory()
			}
			c.r = httptest.NewRequest(o.Method, path, from)
			c.r.Header.Set("Content-Type", "application/json")
			c.r.Header.Set("Authorization", "Bearer "+b.token)
			if d.rnd.IntN(4) == 0 {
				c.r.Header.Set("Idempotency-Key", strconv.Itoa(i))
			}
			calls = append(calls, c)
			i++
		}
		drawing.Store(false)

		before, began := most.Load(), time.Now()
		var all sync.WaitGroup
		what := ""
		for _, c := range calls {
			what += fmt.Sprintf("request %d: %s with %d bytes; ", i, c.o.Name, c.size)
		}
		now.Store(what)
		for _, c := range calls {
			all.Go(func() {
				resp := Do(b.server, c.r)
				c.status = resp.StatusCode
				c.answer, _ = io.ReadAll(io.LimitReader(resp.Body, 20_000))
			})
		}
		all.Wait()
		most.Store(max(most.Load(), memoryInUse()-left))
		for _, c := range calls {
			sent[c.status]++
			if c.status == 500 {
				t.Errorf("request %d: %s with %d bytes: %.500s\n%s", i, c.o.Name, c.size, c.answer, c.begin)
			}
			if c.o.Method == "DELETE" && c.status < 300 {
				deleted++
			}
			d.learn(c.o, c.status, c.answer)
		}
		if grown := most.Load(); grown > before+(8<<20) && grown > 200<<20 || time.Since(began) > 5*time.Second {
			t.Logf("%v took %v, and the process has %d MiB", now.Load(), time.Since(began), grown>>20)
		}
	}
	close(end)
	<-ended
	t.Logf("%d requests, answered with %v, %d deletions; at most %d MiB; a transaction of %d waited at most %v, at %v", n, sent, deleted, most.Load()>>20, pings, time.Duration(longest.Load()), during.Load())
	if most.Load() > 300<<20 {
		t.Errorf("the process had %d MiB", most.Load()>>20)
	}
	if soak && longest.Load() > int64(100*time.Millisecond) {
		t.Errorf("a transaction waited %v, at %v", time.Duration(longest.Load()), during.Load())
	}
}
