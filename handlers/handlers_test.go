package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

type mail = servicetest.Mail

// A sandbox is a service behind real HTTP with a complete domain, boxes.test.
type sandbox struct {
	*servicetest.Sandbox
	*client
	server *Server
	domain string // its id
}

// newSandbox starts one. change may be nil; it sees the configuration before the service does.
func newSandbox(t testing.TB, change func(*core.Config)) *sandbox {
	t.Helper()
	b := servicetest.New(t, change)
	s := New(b.Service)
	s.Log, s.Build = slog.New(slog.DiscardHandler), "abc"
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return &sandbox{
		Sandbox: b, server: s, client: &client{t, srv.URL, b.Owner.Token},
		domain: b.Domain(t, b.Owner.AccountID, "boxes.test", "builtin", "complete").ID,
	}
}

// A client sends requests with one token.
type client struct {
	t     testing.TB
	url   string
	token string
}

func (c *client) with(token string) *client { return &client{c.t, c.url, token} }

// A reply is an answer whose JSON, if it is some, is read.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	raw    []byte
	json   any
}

// do sends a request whose body is a text as it stands, or anything else as JSON, with pairs of
// header fields.
func (c *client) do(method, path string, body any, header ...string) *reply {
	c.t.Helper()
	var content []byte
	switch b := body.(type) {
	case nil:
	case string:
		content = []byte(b)
	default:
		var err error
		content, err = json.Marshal(b)
		if err != nil {
			c.t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader(content))
	if err != nil {
		c.t.Fatal(err)
	}
	if content != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return c.answer(r)
}

// answer sends a request and reads its answer.
func (c *client) answer(r *http.Request) *reply {
	c.t.Helper()
	method, path := r.Method, r.URL.RequestURI()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	out := &reply{t: c.t, status: resp.StatusCode, header: resp.Header}
	out.raw, err = io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") && len(out.raw) > 0 {
		if err := json.Unmarshal(out.raw, &out.json); err != nil {
			c.t.Fatalf("%s %s: %v in %s", method, path, err, out.raw)
		}
	}
	checkAnswer(c.t, method, path, out)
	return out
}

func (c *client) get(path string) *reply             { c.t.Helper(); return c.do("GET", path, nil) }
func (c *client) post(path string, body any) *reply  { c.t.Helper(); return c.do("POST", path, body) }
func (c *client) patch(path string, body any) *reply { c.t.Helper(); return c.do("PATCH", path, body) }
func (c *client) remove(path string) *reply          { c.t.Helper(); return c.do("DELETE", path, nil) }

// is checks the status.
func (r *reply) is(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("status %d, want %d: %.500s", r.status, status, r.raw)
	}
	return r
}

// fails checks status and error code.
func (r *reply) fails(status int, code string) *reply {
	r.t.Helper()
	r.is(status)
	if got := r.text("error.code"); got != code {
		r.t.Fatalf("error code %q, want %q: %.500s", got, code, r.raw)
	}
	if r.text("error.message") == "" || r.text("error.request_id") != r.header.Get("X-Request-Id") {
		r.t.Fatalf("error without message or with another request id: %s", r.raw)
	}
	return r
}

// at returns the value at a path such as "data.0.email"; ok is false if there is none.
func (r *reply) at(path string) (v any, ok bool) {
	v = r.json
	for name := range strings.SplitSeq(path, ".") {
		switch node := v.(type) {
		case map[string]any:
			v, ok = node[name]
			if !ok {
				return nil, false
			}
		case []any:
			var i int
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(node) {
				return nil, false
			}
			v = node[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// text returns the value at a path as text: "<nil>" for null, "" if there is none.
func (r *reply) text(path string) string {
	v, ok := r.at(path)
	if !ok {
		return ""
	}
	if f, isNumber := v.(float64); isNumber {
		return fmt.Sprint(int64(f))
	}
	return fmt.Sprint(v)
}

// has checks values at paths, given in pairs, as text gives them.
func (r *reply) has(pairs ...string) *reply {
	r.t.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		if got := r.text(pairs[i]); got != pairs[i+1] {
			r.t.Errorf("%s is %q, want %q in %.900s", pairs[i], got, pairs[i+1], r.raw)
		}
	}
	return r
}

// list returns the texts at a path below each item of a list.
func (r *reply) list(path, field string) []string {
	r.t.Helper()
	v, _ := r.at(path)
	items, ok := v.([]any)
	if !ok {
		r.t.Fatalf("%s is no list in %.500s", path, r.raw)
	}
	out := make([]string, 0, len(items))
	for i := range items {
		out = append(out, r.text(fmt.Sprintf("%s.%d.%s", path, i, field)))
	}
	return out
}

// box makes a mailbox on boxes.test with the password "correct horse" and gives its id.
func (b *sandbox) box(username string) string {
	b.t.Helper()
	return b.post("/v1/email-users", map[string]any{"username": username, "domain": "boxes.test", "password": "correct horse"}).is(201).text("user_id")
}
