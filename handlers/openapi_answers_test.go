package handlers

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service"
)

// A contract is the description with its schemas ready to check answers with.
type contract struct {
	doc      *openapi.Document
	ops      []op
	text     []byte
	compiler *jsonschema.Compiler
	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
}

const contractURL = "https://mailstead.test/openapi.json"

// theContract is made once for all tests.
var theContract = sync.OnceValue(func() *contract {
	c := &contract{ops: operations(&service.Service{}), compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	c.doc = openapi.Describe(describedAPI(c.ops, ""))
	var err error
	if c.text, err = c.doc.JSON(); err != nil {
		panic(err)
	}
	resource, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.text))
	if err != nil {
		panic(err)
	}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource(contractURL, resource); err != nil {
		panic(err)
	}
	return c
})

// check tests a JSON value against the schema at a place in the document.
func (c *contract) check(value any, place ...string) error {
	pointer := "#"
	for _, p := range place {
		pointer += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.compiled[pointer]
	if s == nil {
		var err error
		if s, err = c.compiler.Compile(contractURL + pointer); err != nil {
			return err
		}
		c.compiled[pointer] = s
	}
	return s.Validate(value)
}

// find gives the row that a request goes to, or nil.
func (c *contract) find(method, path string) *op {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	var found *op
	for i := range c.ops {
		o := &c.ops[i]
		fits := slices.EqualFunc(strings.Split(o.path, "/"), parts, func(want, got string) bool {
			return want == got || strings.HasPrefix(want, "{") && got != ""
		})
		if fits && o.method == method && (found == nil || strings.Count(o.path, "{") < strings.Count(found.path, "{")) {
			found = o
		}
	}
	return found
}

// checkAnswer tests a real answer of the API against its description: status, headers, media type,
// form, and that an error's code is one of those that the operation tells of.
func checkAnswer(t testing.TB, method, path string, r *reply) {
	t.Helper()
	if err := theContract().checkAnswer(method, path, r); err != nil {
		t.Errorf("%s %s answered %d %.600s\nwhich is not as described: %v", method, path, r.status, r.raw, err)
	}
}

func (c *contract) checkAnswer(method, path string, r *reply) error {
	o := c.find(method, path)
	if o == nil {
		if !strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v1/openapi.") || r.status >= 400 {
			return nil // there is no such operation
		}
		return errors.New("it is no operation")
	}
	if r.text("error.code") == "cross_origin" {
		return nil // to browsers with a session, which are no part of the interface
	}
	place := []string{"paths", o.path, strings.ToLower(method), "responses", fmt.Sprint(r.status)}
	described := c.doc.Paths.Get(o.path).Get(strings.ToLower(method)).Responses.Get(fmt.Sprint(r.status))
	if described == nil {
		return fmt.Errorf("%s has no answer %d", o.name, r.status)
	}
	if code := cmp.Or(r.text("error.code"), r.text("code")); r.status >= 400 && !slices.Contains(described.Codes(), code) {
		return fmt.Errorf("%s does not tell of the code %q with %d", o.name, code, r.status)
	}
	if described.Ref != "" {
		place = []string{"components", "responses", openapi.RefName(described.Ref)}
		described = c.doc.Components.Responses.Get(openapi.RefName(described.Ref))
	}
	for _, h := range described.Headers {
		if h.Name != "Idempotent-Replayed" && r.header.Get(h.Name) == "" {
			return fmt.Errorf("the header %s is missing", h.Name)
		}
	}
	media, _, _ := strings.Cut(r.header.Get("Content-Type"), ";")
	if described.Content.Get(media) == nil {
		if described.Content.Get("application/octet-stream") != nil {
			return nil // a file of any type
		}
		return fmt.Errorf("%s does not tell of the media type %q", o.name, media)
	}
	if !strings.HasSuffix(media, "json") {
		return nil
	}
	if o.name == "list_events" && r.status == 200 {
		if err := c.checkEvents(r.json); err != nil {
			return err
		}
	}
	return c.check(r.json, append(place, "content", media, "schema")...)
}

// checkEvents tests each event of a list as endpoints get it.
func (c *contract) checkEvents(list any) error {
	page, _ := list.(map[string]any)
	events, _ := page["data"].([]any)
	for _, e := range events {
		kind, _ := e.(map[string]any)["type"].(string)
		if err := c.check(e, "webhooks", kind, "post", "requestBody", "content", jsonMedia, "schema"); err != nil {
			return fmt.Errorf("event %s: %w", kind, err)
		}
	}
	return nil
}
