package openapi

import (
	"net/http"
	"slices"
)

// About gives the summary of an operation, and what is to be known of it beyond its row.
func About(operation string) (summary, text string) {
	a := operationTexts[operation]
	return a.summary, a.text
}

// Arguments describes what each operation takes in its path, its query and its body, as one object
// without references. hidden names a field of a body that is left out, by operation.
func Arguments(operations []Operation, hidden map[string]string) []*Schema {
	d := &describer{used: map[typeUse]string{}, doc: &Document{}}
	var out []*Schema
	for i := range operations {
		out = append(out, d.arguments(&operations[i], hidden[operations[i].Name]))
	}
	return out
}

func (d *describer) arguments(o *Operation, hidden string) *Schema {
	in := &Schema{Type: "object"}
	for _, p := range d.parameters(o) {
		if p.Ref != "" {
			continue // a header
		}
		s := d.inline(p.Schema)
		s.Description = p.Description
		in.Add(p.Name, s, p.Required)
	}
	if o.Method != http.MethodGet && hasBody(o.In) {
		body := d.doc.Resolve(d.of(o.In, true))
		for _, p := range body.Properties {
			if hidden != p.Name {
				in.Add(p.Name, d.inline(p.Value), slices.Contains(body.Required, p.Name))
			}
		}
	}
	return in
}

// Add gives an object a property.
func (s *Schema) Add(name string, p *Schema, required bool) {
	s.Properties.Set(name, p)
	if required {
		s.Required = append(s.Required, name)
	}
}

// inline copies a schema with what it refers to, without examples, which assistants pay for and do
// not need.
func (d *describer) inline(s *Schema) *Schema {
	out := *d.doc.Resolve(s)
	out.Examples = nil
	if s.Description != "" {
		out.Description = s.Description
	}
	if out.Items != nil {
		out.Items = d.inline(out.Items)
	}
	if out.AdditionalProperties != nil {
		out.AdditionalProperties = d.inline(out.AdditionalProperties)
	}
	out.Properties, out.AnyOf = nil, nil
	for _, p := range d.doc.Resolve(s).Properties {
		out.Properties.Set(p.Name, d.inline(p.Value))
	}
	for _, form := range d.doc.Resolve(s).AnyOf {
		out.AnyOf = append(out.AnyOf, d.inline(form))
	}
	return &out
}
