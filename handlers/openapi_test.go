package handlers

import (
	"bytes"
	"encoding/json"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

// TestDescriptionIsValid lets a foreign library judge the document: its form, its references and
// its examples.
func TestDescriptionIsValid(t *testing.T) {
	c := theContract()
	for _, problem := range c.doc.Problems {
		t.Error(problem)
	}
	doc, err := openapi3.NewLoader().LoadFromData(c.text)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
	if len(doc.Webhooks) != len(service.EventTypes()) {
		t.Errorf("%d webhooks, want one for each of %d event types", len(doc.Webhooks), len(service.EventTypes()))
	}
}

// TestDescriptionIsLinted holds what linters ask for and the library does not.
func TestDescriptionIsLinted(t *testing.T) {
	c := theContract()
	ids := map[string]bool{}
	for _, g := range c.doc.Tags {
		for _, o := range c.doc.InGroup(g.Name) {
			if ids[o.OperationID] {
				t.Errorf("operationId %s is given twice", o.OperationID)
			}
			ids[o.OperationID] = true
			if o.Summary == "" {
				t.Errorf("%s has no summary", o.OperationID)
			}
			for _, hole := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(o.Path, -1) {
				declared := func(p *openapi.Parameter) bool { return p.In == "path" && p.Name == hole[1] }
				if !slices.ContainsFunc(o.Parameters, declared) {
					t.Errorf("%s does not declare its path parameter %s", o.OperationID, hole[1])
				}
			}
		}
	}
	if want := len(c.ops) + len(service.EventTypes()); len(ids) != want {
		t.Errorf("%d operations belong to a group, want %d", len(ids), want)
	}
	defined := func(kind, name string) bool {
		switch kind {
		case "schemas":
			return c.doc.Components.Schemas.Get(name) != nil
		case "responses":
			return c.doc.Components.Responses.Get(name) != nil
		case "headers":
			return c.doc.Components.Headers.Get(name) != nil
		}
		return c.doc.Components.Parameters.Get(name) != nil
	}
	for _, ref := range regexp.MustCompile(`"\$ref":"#/components/(\w+)/([^"]+)"`).FindAllStringSubmatch(string(c.text), -1) {
		if !defined(ref[1], ref[2]) {
			t.Errorf("%s leads nowhere", ref[0])
		}
	}
}

// TestExamplesAreTaken sends every example of a request through the decoder that the handlers use.
func TestExamplesAreTaken(t *testing.T) {
	c := theContract()
	for _, o := range c.ops {
		described := c.doc.Paths.Get(o.path).Get(strings.ToLower(o.method))
		src := source{path: func(string) string { return "x" }, query: url.Values{}, strict: true}
		for _, p := range described.Parameters {
			if p.In == "query" {
				text, _ := json.Marshal(c.doc.Example(p.Schema))
				src.query.Set(p.Name, plainText(text))
			}
		}
		if described.RequestBody != nil {
			src.body, _ = json.Marshal(described.RequestBody.Content.Get(jsonMedia).Example)
			if string(src.body) == "null" {
				t.Errorf("%s has no example of its body", o.name)
			}
		}
		if err := decode(reflect.New(o.call.in).Interface(), src); err != nil {
			t.Errorf("the example of %s is refused: %v: %s %v", o.name, err, src.body, src.query)
		}
	}
}

// TestYAMLSaysTheSame reads the description in both its forms.
func TestYAMLSaysTheSame(t *testing.T) {
	c := theContract()
	text, err := c.doc.YAML()
	if err != nil {
		t.Fatal(err)
	}
	var fromYAML, fromJSON any
	if err := yaml.Unmarshal(text, &fromYAML); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(c.text, &fromJSON); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(fromJSON)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, want) {
		t.Error("YAML differs from JSON")
	}
	if !bytes.HasPrefix(text, []byte("openapi: \"3.1.0\"\ninfo:\n  title: ")) {
		t.Errorf("it begins with %.100s", text)
	}
}

// TestDescriptionIsDeterministic makes it twice, on its way to people too.
func TestDescriptionIsDeterministic(t *testing.T) {
	s := &Server{svc: &service.Service{Core: &core.Core{}}, ops: operations(&service.Service{})}
	first, second := *s.makeDescription(), *s.makeDescription()
	for path := range first {
		if first[path].tag != second[path].tag {
			t.Errorf("%s differs from one time to the next", path)
		}
	}
}

// TestAnswersAreChecked proves that the check of answers refuses what it should.
func TestAnswersAreChecked(t *testing.T) {
	b := newSandbox(t, nil)
	good := b.get("/v1/auth/tokens").is(200)
	for name, spoil := range map[string]func(r *reply){
		"status":     func(r *reply) { r.status = 404 },
		"header":     func(r *reply) { r.header.Del("X-RateLimit-Reset") },
		"media type": func(r *reply) { r.header.Set("Content-Type", "text/html") },
		"type":       func(r *reply) { r.json.(map[string]any)["count"] = "1" },
		"null":       func(r *reply) { r.json.(map[string]any)["data"] = nil },
		"missing":    func(r *reply) { delete(r.json.(map[string]any), "count") },
		"item": func(r *reply) {
			r.json.(map[string]any)["data"].([]any)[0].(map[string]any)["created_at"] = "yesterday"
		},
		"code": func(r *reply) {
			r.status = 403
			r.json = map[string]any{"error": map[string]any{"code": "email_user_exists", "message": "m", "request_id": "r"}}
		},
	} {
		r := &reply{t: t, status: good.status, header: good.header.Clone()}
		if err := json.Unmarshal(good.raw, &r.json); err != nil {
			t.Fatal(err)
		}
		spoil(r)
		if err := theContract().checkAnswer("GET", "/v1/auth/tokens", r); err == nil {
			t.Errorf("an answer with a wrong %s passes", name)
		}
	}
}

// TestDescriptionIsServed gets every part without a token.
func TestDescriptionIsServed(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.BaseURL = "https://mail.boxes.test" })
	stranger := b.with("")
	for path, media := range map[string]string{
		"/v1/openapi.json": "application/json", "/v1/openapi.yaml": "application/yaml", "/docs": "text/html; charset=utf-8", "/docs/reference.css": "text/css; charset=utf-8",
	} {
		r := stranger.get(path).is(200)
		if got := r.header.Get("Content-Type"); got != media || len(r.raw) < 1000 {
			t.Errorf("%s is %d bytes of %s", path, len(r.raw), got)
		}
		if csp := r.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'self';") {
			t.Errorf("%s has the policy %q", path, csp)
		}
		plain := stranger.do("GET", path, nil, "Accept-Encoding", "identity").is(200)
		if !bytes.Equal(plain.raw, r.raw) {
			t.Errorf("%s differs with and without gzip", path)
		}
		stranger.do("GET", path, nil, "If-None-Match", r.header.Get("ETag")).is(304)
		if head := stranger.do("HEAD", path, nil).is(200); len(head.raw) != 0 || head.header.Get("ETag") != plain.header.Get("ETag") {
			t.Errorf("HEAD of %s is another thing than GET", path)
		}
		stranger.do("POST", path, "{}").fails(405, "method_not_allowed")
	}
	stranger.get("/v1/openapi.json").has("openapi", "3.1.0", "servers.0.url", "https://mail.boxes.test")
	stranger.get("/v1/openapi").fails(401, "unauthorized")
}

// TestEventsAreAsDescribed lists real events; the client checks their data by the webhooks section.
func TestEventsAreAsDescribed(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("anna")
	hook := b.post("/v1/webhooks", map[string]any{"url": "https://example.com/hook", "events": []string{"*"}}).is(201).text("id")
	b.post("/v1/webhooks/"+hook+"/test", nil).is(200)
	events := b.get("/v1/events").is(200).list("data", "type")
	for _, want := range []string{"email_user.created", "test.ping"} {
		if !slices.Contains(events, want) {
			t.Errorf("there is no %s among %v", want, events)
		}
	}
	spoiled := map[string]any{"data": []any{map[string]any{"type": "test.ping", "data": map[string]any{}}}}
	if err := theContract().checkEvents(spoiled); err == nil {
		t.Error("an event without its data passes")
	}
}

// TestReferencePage holds that it needs nobody else and that no link in it is dead.
func TestReferencePage(t *testing.T) {
	b := newSandbox(t, nil)
	page := string(b.with("").get("/docs").is(200).raw)
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		link := m[1]
		if id, ok := strings.CutPrefix(link, "#"); ok {
			if !strings.Contains(page, ` id="`+id+`"`) {
				t.Errorf("%s leads nowhere", link)
			}
			continue
		}
		if !slices.Contains([]string{"/v1/openapi.json", "/v1/openapi.yaml", "/docs", "/docs/reference.css"}, link) {
			t.Errorf("the page asks for %s", link)
		}
	}
	for _, bad := range []string{"<script", "style=", "javascript:", " on"} {
		if bad == " on" {
			if regexp.MustCompile(`<[^>]* on[a-z]+=`).MatchString(page) {
				t.Error("the page has an event handler")
			}
			continue
		}
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q, which its policy forbids", bad)
		}
	}
	for _, o := range operations(&service.Service{}) {
		if !strings.Contains(page, ` id="`+o.name+`"`) {
			t.Errorf("%s is not on the page", o.name)
		}
	}
}
