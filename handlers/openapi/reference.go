package openapi

import (
	"bytes"
	_ "embed" // the page
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
)

//go:embed reference.html
var referencePage string

// ReferenceCSS is the style sheet of the reference page, which expects it at /docs/reference.css.
//
//go:embed reference.css
var ReferenceCSS []byte

// Reference writes the description as a page for people.
func (doc *Document) Reference() ([]byte, error) {
	t := template.New("").Funcs(template.FuncMap{
		"prose": prose, "words": words, "pretty": pretty, "refName": RefName, "types": types, "limits": limits,
		"lower": strings.ToLower, "codes": func() []errorCode { return errorCodes },
		"param":  func(p *Parameter) *Parameter { return paramOf(doc, p) },
		"schema": func(s *Schema) *Schema { return doc.Resolve(s) },
		"requires": func(s *Schema, name string) bool {
			return strings.Contains(" "+strings.Join(s.Required, " ")+" ", " "+name+" ")
		},
		"inGroup": doc.InGroup,
	})
	t, err := t.Parse(referencePage)
	if err != nil {
		return nil, fmt.Errorf("read reference page: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, doc); err != nil {
		return nil, fmt.Errorf("write reference page: %w", err)
	}
	return out.Bytes(), nil
}

// A pathOperation is an operation with its method and path; for an event the path is the event's
// type.
type pathOperation struct {
	Method, Path string
	*operationObject
}

// InGroup lists the operations and events of a group, which is a tag.
func (doc *Document) InGroup(group string) (out []pathOperation) {
	for _, paths := range []Dict[Dict[*operationObject]]{doc.Paths, doc.Webhooks} {
		for _, path := range paths {
			for _, m := range path.Value {
				if m.Value.Tags[0] == group {
					out = append(out, pathOperation{strings.ToUpper(m.Name), path.Name, m.Value})
				}
			}
		}
	}
	return out
}

func paramOf(doc *Document, p *Parameter) *Parameter {
	if p.Ref != "" {
		return doc.Components.Parameters.Get(RefName(p.Ref))
	}
	return p
}

// RefName is the name of what a reference leads to.
func RefName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// A span is a piece of a text; code where it stood between backticks.
type span struct {
	Text string
	Code bool
}

// prose splits a text into paragraphs.
func prose(text string) []string { return strings.Split(text, "\n\n") }

func words(text string) (out []span) {
	for i, piece := range strings.Split(text, "`") {
		if piece != "" {
			out = append(out, span{piece, i%2 == 1})
		}
	}
	return out
}

func pretty(v any) (string, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return strings.TrimSpace(out.String()), err
}

// types names what a schema without parts allows.
func types(s *Schema) string {
	if s.Const != "" {
		return fmt.Sprintf("%q", s.Const)
	}
	switch t := s.Type.(type) {
	case string:
		return t
	case []string:
		return strings.Join(t, " or ")
	}
	return "any"
}

// limits says in words what bounds a value.
func limits(s *Schema) string {
	var out []string
	if s.Format != "" && s.Format != "int64" {
		out = append(out, s.Format)
	}
	if s.Enum != nil {
		var values []string
		for _, v := range s.Enum {
			if v != nil {
				values = append(values, fmt.Sprint(v))
			}
		}
		out = append(out, strings.Join(values, " | "))
	}
	if s.Items != nil && s.Items.Enum != nil {
		out = append(out, limits(s.Items))
	}
	for _, r := range []struct {
		low, high *int
		of        string
	}{{s.MinLength, s.MaxLength, " characters"}, {s.MinItems, s.MaxItems, " items"}} {
		if text := between(r.low, r.high); text != "" {
			out = append(out, text+r.of)
		}
	}
	if text := between(s.Minimum, s.Maximum); text != "" {
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func between[T any](low, high *T) string {
	switch {
	case low != nil && high != nil:
		return fmt.Sprintf("%v to %v", *low, *high)
	case low != nil:
		return fmt.Sprintf("at least %v", *low)
	case high != nil:
		return fmt.Sprintf("at most %v", *high)
	}
	return ""
}
