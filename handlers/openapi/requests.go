package openapi

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/handlers/api"
)

// parameters returns the path, query and header parameters of an operation.
func (d *describer) parameters(o *api.Operation) []*Parameter {
	var out []*Parameter
	for _, f := range Fields(o.Call.In) {
		name, in := f.Tag.Get("path"), "path"
		if name == "" {
			name, in = f.Tag.Get("query"), "query"
		}
		if name == "" {
			continue
		}
		s := d.fieldSchema(o.Name, &f, name, true)
		p := &Parameter{Name: name, In: in, Required: in == "path" || f.Tag.Get("required") != "", Description: s.Description, Schema: s}
		s.Description = ""
		out = append(out, p)
	}
	if AcceptsIdempotencyKey(o.Method, o.Scope) {
		out = append(out, &Parameter{Ref: "#/components/parameters/IdempotencyKey"})
	}
	return out
}

// AcceptsIdempotencyKey reports whether an operation with this method and scope accepts an
// Idempotency-Key. Operations that only read do not, since they can be repeated anyway.
func AcceptsIdempotencyKey(method, scope string) bool {
	return method == http.MethodPost && scope != "read"
}

// requestBodyOf returns the request body of an operation, nil if it has none.
func (d *describer) requestBodyOf(o *api.Operation) *requestBody {
	if o.Method == http.MethodGet || !hasBody(o.Call.In) {
		return nil
	}
	ref := d.schemaOf(o.Call.In, true)
	s := d.doc.Resolve(ref)
	show := strings.Fields(o.Show)
	if len(show) == 0 {
		show = s.Required
	}
	var example Dict[any]
	for _, name := range show {
		p := s.Properties.Get(name)
		if p == nil {
			d.addProblem("the example of %s names %s, which is no field of it", o.Name, name)
			continue
		}
		example.Set(name, d.doc.Example(p))
	}
	// A PATCH needs a body, since without fields it changes nothing.
	required := len(s.Required) > 0 || o.Method == http.MethodPatch
	return &requestBody{Required: required, Content: Dict[*mediaType]{{jsonMedia, &mediaType{Schema: ref, Example: example}}}}
}

// hasBody reports whether a request type has fields in the body.
func hasBody(in reflect.Type) bool {
	for _, f := range Fields(in) {
		if JSONName(f.StructField) != "" {
			return true
		}
	}
	return false
}

// Resolve returns the schema that s refers to, or s itself if it is no reference.
func (doc *Document) Resolve(s *Schema) *Schema {
	if s.Ref == "" {
		return s
	}
	return doc.Components.Schemas.Get(strings.TrimPrefix(s.Ref, "#/components/schemas/"))
}

// addExamples adds the examples of responses and events. It runs when all schemas exist.
func (d *describer) addExamples() {
	for _, paths := range []Dict[Dict[*operationObject]]{d.doc.Paths, d.doc.Webhooks} {
		for _, path := range paths {
			for _, m := range path.Value {
				d.addExamplesTo(m.Value)
			}
		}
	}
}

// addExamplesTo adds an example to each JSON body of an operation that has none.
func (d *describer) addExamplesTo(o *operationObject) {
	var media []Member[*mediaType]
	if o.RequestBody != nil {
		media = append(media, o.RequestBody.Content...)
	}
	for _, r := range o.Responses {
		media = append(media, r.Value.Content...)
	}
	for _, m := range media {
		if m.Name == jsonMedia && m.Value.Example == nil {
			m.Value.Example = d.doc.Example(m.Value.Schema)
		}
	}
}

// Example returns a value that a schema allows, made from the examples of its properties.
func (doc *Document) Example(s *Schema) any {
	s = doc.Resolve(s)
	switch {
	case len(s.Examples) > 0:
		return s.Examples[0]
	case s.Const != "":
		return s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.AnyOf) > 0:
		return doc.Example(s.AnyOf[0])
	case len(s.OneOf) > 0:
		return doc.Example(s.OneOf[0])
	case len(s.AllOf) > 0:
		return doc.mergedExample(s.AllOf)
	case s.Is("null"):
		return nil
	case s.AdditionalProperties != nil:
		return Dict[any]{{"X-Campaign", "spring"}}
	case s.Is("object"):
		return doc.objectExample(s)
	case s.Is("array"):
		return []any{doc.Example(s.Items)}
	}
	return scalarExample(s)
}

// objectExample returns the example of an object.
func (doc *Document) objectExample(s *Schema) Dict[any] {
	out := Dict[any]{}
	for _, p := range s.Properties {
		switch {
		case p.Value.rare && p.Value.AllowsNull():
			out.Set(p.Name, nil)
			continue
		case p.Value.rare && !slices.Contains(s.Required, p.Name):
			continue
		}
		out.Set(p.Name, doc.Example(p.Value))
	}
	fixPageCounts(out)
	return out
}

// fixPageCounts makes the example of a list consistent. Its count becomes the number of its rows.
// has_more becomes true, because the example has a cursor.
func fixPageCounts(list Dict[any]) {
	rows, ok := list.Get("data").([]any)
	if !ok {
		return
	}
	if _, counted := list.Get("count").(int); counted {
		list.Set("count", len(rows))
	}
	if page, ok := list.Get("pagination").(Dict[any]); ok {
		page.Set("count", len(rows))
		page.Set("has_more", true)
	}
}

// AllowsNull reports whether a schema allows null.
func (s *Schema) AllowsNull() bool {
	return s.Is("null") || slices.ContainsFunc(s.AnyOf, (*Schema).AllowsNull) || slices.ContainsFunc(s.OneOf, (*Schema).AllowsNull)
}

// mergedExample returns one object with the examples of all parts.
func (doc *Document) mergedExample(parts []*Schema) Dict[any] {
	var out Dict[any]
	for _, part := range parts {
		for _, m := range doc.objectExample(doc.Resolve(part)) {
			out.Set(m.Name, m.Value)
		}
	}
	return out
}

// scalarExample returns the example of a text, number or boolean that has no example of its own.
func scalarExample(s *Schema) any {
	switch s.Type {
	case "string":
		if s.Format == "date-time" {
			return "2026-11-05T09:30:00.000Z"
		}
		return "text"
	case "integer", "number":
		if s.Minimum != nil {
			return *s.Minimum
		}
		return 1
	case "boolean":
		return true
	}
	return nil
}

// Arguments returns a schema without references for each operation: one object with the path
// parameters, query parameters and body fields. It leaves out the field that the operation's tool
// hides.
func Arguments(operations []api.Operation) []*Schema {
	d := &describer{used: map[typeUse]string{}, doc: &Document{}}
	var out []*Schema
	for i := range operations {
		out = append(out, d.arguments(&operations[i]))
	}
	return out
}

func (d *describer) arguments(o *api.Operation) *Schema {
	in := &Schema{Type: "object"}
	for _, p := range d.parameters(o) {
		if p.Ref != "" {
			continue // a reference is a header parameter
		}
		s := d.inlineRefs(p.Schema)
		s.Description = p.Description
		in.Add(p.Name, s, p.Required)
	}
	if o.Method != http.MethodGet && hasBody(o.Call.In) {
		body := d.doc.Resolve(d.schemaOf(o.Call.In, true))
		for _, p := range body.Properties {
			if o.Tool.Hidden != p.Name {
				in.Add(p.Name, d.inlineRefs(p.Value), slices.Contains(body.Required, p.Name))
			}
		}
	}
	return in
}

// Add adds a property to the schema of an object.
func (s *Schema) Add(name string, p *Schema, required bool) {
	s.Properties.Set(name, p)
	if required {
		s.Required = append(s.Required, name)
	}
}

// inlineRefs returns a copy of a schema with its references resolved. The copy has neither examples
// nor x-loggable, which would cost assistants tokens without need.
func (d *describer) inlineRefs(s *Schema) *Schema {
	out := *d.doc.Resolve(s)
	out.Examples, out.Loggable = nil, false
	if s.Description != "" {
		out.Description = s.Description
	}
	if out.Items != nil {
		out.Items = d.inlineRefs(out.Items)
	}
	if out.AdditionalProperties != nil {
		out.AdditionalProperties = d.inlineRefs(out.AdditionalProperties)
	}
	out.Properties, out.AnyOf = nil, nil
	for _, p := range d.doc.Resolve(s).Properties {
		out.Properties.Set(p.Name, d.inlineRefs(p.Value))
	}
	for _, form := range d.doc.Resolve(s).AnyOf {
		out.AnyOf = append(out.AnyOf, d.inlineRefs(form))
	}
	return &out
}
