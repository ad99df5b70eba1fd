package handlers

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// parameters describes what a request says in its path, its query and its headers.
func (d *describer) parameters(o *op) []*parameter {
	var out []*parameter
	for _, f := range flatten(o.call.in) {
		name, in := f.Tag.Get("path"), "path"
		if name == "" {
			name, in = f.Tag.Get("query"), "query"
		}
		if name == "" {
			continue
		}
		s := d.field(o.name, f, name, true)
		p := &parameter{Name: name, In: in, Required: in == "path" || f.Tag.Get("required") != "", Description: s.Description, Schema: s}
		s.Description = ""
		out = append(out, p)
	}
	if o.method == http.MethodPost {
		out = append(out, &parameter{Ref: "#/components/parameters/IdempotencyKey"})
	}
	return out
}

// request describes the body of an operation; nil if it takes none.
func (d *describer) request(o *op, a about) *requestBody {
	if o.method == http.MethodGet || !hasBody(o.call.in) {
		return nil
	}
	ref := d.of(o.call.in, true)
	s := d.resolve(ref)
	show := strings.Fields(a.show)
	if len(show) == 0 {
		show = s.Required
	}
	var example dict[any]
	for _, name := range show {
		p := s.Properties.get(name)
		if p == nil {
			d.oddly("the example of %s names %s, which is no field of it", o.name, name)
			continue
		}
		example.set(name, d.example(p))
	}
	required := len(s.Required) > 0 || o.method == http.MethodPatch // {} would change nothing
	return &requestBody{Required: required, Content: dict[*mediaType]{{jsonMedia, &mediaType{Schema: ref, Example: example}}}}
}

func hasBody(in reflect.Type) bool {
	for _, f := range flatten(in) {
		if jsonName(f) != "" {
			return true
		}
	}
	return false
}

// resolve follows a reference to a named schema.
func (d *describer) resolve(s *schema) *schema {
	if s.Ref == "" {
		return s
	}
	return d.doc.Components.Schemas.get(strings.TrimPrefix(s.Ref, "#/components/schemas/"))
}

// examples fills in the examples of answers and events; all schemas are there by then.
func (d *describer) examples() {
	for _, paths := range []dict[dict[*operation]]{d.doc.Paths, d.doc.Webhooks} {
		for _, path := range paths {
			for _, m := range path.Value {
				d.exampleOf(m.Value)
			}
		}
	}
}

func (d *describer) exampleOf(o *operation) {
	var media []member[*mediaType]
	if o.RequestBody != nil {
		media = append(media, o.RequestBody.Content...)
	}
	for _, r := range o.Responses {
		media = append(media, r.Value.Content...)
	}
	for _, m := range media {
		if m.Name == jsonMedia && m.Value.Example == nil {
			m.Value.Example = d.example(m.Value.Schema)
		}
	}
}

// example makes a value that a schema allows, of the examples of its parts.
func (d *describer) example(s *schema) any {
	s = d.resolve(s)
	switch {
	case len(s.Examples) > 0:
		return s.Examples[0]
	case s.Const != "":
		return s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.AnyOf) > 0:
		return d.example(s.AnyOf[0])
	case len(s.AllOf) > 0:
		return d.merged(s.AllOf)
	case s.is("null"):
		return nil
	case s.AdditionalProperties != nil:
		return dict[any]{{"X-Campaign", "spring"}}
	case s.is("object"):
		return d.members(s)
	case s.is("array"):
		return []any{d.example(s.Items)}
	}
	return plainExample(s)
}

func (d *describer) members(s *schema) dict[any] {
	out := dict[any]{}
	for _, p := range s.Properties {
		if p.Value.rare && p.Value.allowsNull() {
			out.set(p.Name, nil)
			continue
		}
		out.set(p.Name, d.example(p.Value))
	}
	return out
}

func (s *schema) allowsNull() bool {
	return s.is("null") || slices.ContainsFunc(s.AnyOf, (*schema).allowsNull)
}

func (d *describer) merged(parts []*schema) dict[any] {
	var out dict[any]
	for _, part := range parts {
		for _, m := range d.members(d.resolve(part)) {
			out.set(m.Name, m.Value)
		}
	}
	return out
}

func plainExample(s *schema) any {
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
