package openapi

import (
	"bytes"
	_ "embed" // the style sheet
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/handlers/markup"
	"github.com/mailstead/mailstead/service/core/code"
)

// ReferenceCSS is the style sheet of the reference page, which loads it from /docs/reference.css.
//
//go:embed reference.css
var ReferenceCSS []byte

// Reference returns the description as an HTML page for people.
func (doc *Document) Reference() ([]byte, error) {
	page := &referencePage{doc: doc}
	page.write(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%[1]s</title>
<link rel="stylesheet" href="/docs/reference.css">
</head>
<body>
<nav aria-label="Operations">
<p><a href="#top"><strong>%[1]s</strong></a></p>`, doc.Info.Title)
	for _, group := range doc.Tags {
		page.write("\n<details open><summary>%s</summary>\n<ul>", group.Name)
		for _, o := range doc.InGroup(group.Name) {
			shown := o.Path
			if o.Security == nil {
				shown = o.OperationID
			}
			page.write("\n"+`<li><a href="#%s">%s</a></li>`, o.OperationID, shown)
		}
		page.write("\n</ul></details>")
	}
	page.write(`
<p><a href="#errors">Errors</a></p>
<p><a href="#schemas">Schemas</a></p>
</nav>
<main id="top">
<h1>%s</h1>
<p class="lead">%s For programs: <a href="/v1/openapi.json">openapi.json</a>, <a href="/v1/openapi.yaml">openapi.yaml</a>.</p>
`, doc.Info.Title, doc.Info.Summary)
	for paragraph := range strings.SplitSeq(doc.Info.Description, "\n\n") {
		page.write("<p>%s</p>\n", formatText(paragraph))
	}
	for _, group := range doc.Tags {
		page.write("\n<section>\n<h2>%s</h2>\n<p>%s</p>", group.Name, formatText(group.Description))
		for _, o := range doc.InGroup(group.Name) {
			page.writeOperation(o)
		}
		page.write("\n</section>")
	}
	page.write(`
<section id="errors">
<h2>Errors</h2>
<p>Every error has the form of <a href="#schema-Error">Error</a>.</p>
<div class="wide"><table>
<thead><tr><th scope="col">Status</th><th scope="col">Code</th><th scope="col">Meaning</th></tr></thead>
<tbody>`)
	for _, e := range code.Documented {
		page.write("\n"+`<tr id="error-%[1]s"><td>%[2]s</td><td><code>%[1]s</code></td><td>%[3]s</td></tr>`, e.Code, e.Status, formatText(e.Means))
	}
	page.write(`
</tbody></table></div>
</section>
<section id="schemas">
<h2>Schemas</h2>`)
	for _, s := range doc.Components.Schemas {
		page.write("\n"+`<article id="schema-%[1]s">
<h3><a href="#schema-%[1]s">%[1]s</a></h3>
`, s.Name)
		page.writeFields(s.Value)
		page.write("\n</article>")
	}
	page.write("\n</section>\n</main>\n</body>\n</html>\n")
	if page.err != nil {
		return nil, fmt.Errorf("write the API reference page: %w", page.err)
	}
	return page.out.Bytes(), nil
}

// A referencePage is the HTML page while it is being written.
type referencePage struct {
	doc *Document
	out bytes.Buffer
	err error // the first error, or nil
}

// write formats HTML, in which it escapes args, and appends it to the page.
func (page *referencePage) write(form markup.Form, args ...any) {
	page.out.WriteString(string(markup.Format(form, args...)))
}

// writeOperation writes the description of one operation or event.
func (page *referencePage) writeOperation(o pathOperation) {
	page.write("\n"+`<article id="%[1]s">
<h3><a href="#%[1]s">%[2]s</a></h3>
<p class="route"><span class="method %[3]s">%[4]s</span> <code>%[5]s</code> <span class="id">%[1]s</span></p>
`, o.OperationID, o.Summary, strings.ToLower(o.Method), o.Method, o.Path)
	if o.Description != "" {
		page.write("<p>%s</p>", formatText(o.Description))
	}
	if len(o.Parameters) > 0 {
		page.write("\n" + `<div class="wide"><table><caption>Parameters</caption>
<thead><tr><th scope="col">Name</th><th scope="col">Type</th><th scope="col">Meaning</th></tr></thead>
<tbody>`)
		for _, p := range o.Parameters {
			p = paramOf(page.doc, p)
			where := p.In
			if p.Required {
				where += ", required"
			}
			page.write("\n<tr><td><code>%s</code> <small>%s</small></td><td>%s</td><td>%s</td></tr>", p.Name, where, typeHTML(p.Schema), formatText(p.Description))
		}
		page.write("\n</tbody></table></div>")
	}
	if body := o.RequestBody; body != nil {
		optional := ""
		if !body.Required {
			optional = " (optional)"
		}
		page.write("\n<h4>Body%s</h4>\n", optional)
		page.writeContent(body.Content)
	}
	page.write("\n<h4>Answers</h4>")
	for _, r := range o.Responses {
		if len(r.Value.codes) == 0 {
			page.write("\n<p><code>%s</code> %s</p>\n", r.Name, formatText(r.Value.Description))
			page.writeContent(r.Value.Content)
		}
	}
	page.write("\n" + `<ul class="codes">`)
	for _, r := range o.Responses {
		if len(r.Value.codes) > 0 {
			page.write("\n<li><code>%s</code>", r.Name)
			for _, code := range r.Value.codes {
				page.write(` <a href="#error-%[1]s">%[1]s</a>`, code)
			}
			page.write("</li>")
		}
	}
	page.write("\n</ul>\n</article>")
}

// writeContent writes the media types of a body, with its fields and example.
func (page *referencePage) writeContent(media Dict[*mediaType]) {
	for _, m := range media {
		if m.Name == problemMedia {
			continue
		}
		page.write("\n<p><small>%s</small> %s</p>", m.Name, typeHTML(m.Value.Schema))
		for _, part := range m.Value.Schema.AllOf {
			page.writeFields(page.doc.Resolve(part))
		}
		if m.Value.Example != nil {
			example, err := indentedJSON(m.Value.Example)
			if err != nil && page.err == nil {
				page.err = err
			}
			page.write("\n"+`<pre tabindex="0">%s</pre>`, example)
		}
	}
}

// writeFields writes the table of an object's properties.
func (page *referencePage) writeFields(s *Schema) {
	if len(s.Properties) == 0 {
		return
	}
	page.write("\n" + `<div class="wide"><table>
<thead><tr><th scope="col">Field</th><th scope="col">Type</th><th scope="col">Meaning</th></tr></thead>
<tbody>`)
	for _, p := range s.Properties {
		var optional markup.HTML
		if !slices.Contains(s.Required, p.Name) {
			optional = " <small>optional</small>"
		}
		page.write("\n<tr><td><code>%s</code>%s</td><td>%s</td><td>%s</td></tr>", p.Name, optional, typeHTML(p.Value), formatText(p.Value.Description))
	}
	page.write("\n</tbody></table></div>")
}

// typeHTML returns the type that a schema describes, as HTML with links to other schemas.
func typeHTML(s *Schema) (out markup.HTML) {
	joined := func(all []*Schema, by markup.HTML) {
		for i, part := range all {
			if i > 0 {
				out += by
			}
			out += typeHTML(part)
		}
	}
	switch {
	case s.Ref != "":
		out = markup.Format(`<a href="#schema-%[1]s">%[1]s</a>`, RefName(s.Ref))
	case len(s.AnyOf) > 0:
		joined(s.AnyOf, " or ")
	case len(s.OneOf) > 0:
		joined(s.OneOf, " or ")
	case len(s.AllOf) > 0:
		joined(s.AllOf, " with ")
	case s.Items != nil:
		out = "list of " + typeHTML(s.Items)
	default:
		out = markup.Format("%s", typeNames(s))
	}
	if bounds := limitsText(s); bounds != "" {
		out += markup.Format(" <small>%s</small>", bounds)
	}
	return out
}

// formatText formats a text as HTML. Parts between backticks become code.
func formatText(text string) (out markup.HTML) {
	for i, piece := range strings.Split(text, "`") {
		switch {
		case piece == "":
		case i%2 == 1:
			out += markup.Format("<code>%s</code>", piece)
		default:
			out += markup.Format("%s", piece)
		}
	}
	return out
}

// A pathOperation is an operation with its method and path. For an event, Path is the type of the
// event.
type pathOperation struct {
	Method, Path string
	*operationObject
}

// InGroup returns the operations and events that have the group as their tag.
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

// paramOf returns p, or the shared parameter that p refers to.
func paramOf(doc *Document, p *Parameter) *Parameter {
	if p.Ref != "" {
		return doc.Components.Parameters.Get(RefName(p.Ref))
	}
	return p
}

// RefName returns the name of the schema or parameter that a reference points to.
func RefName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// indentedJSON returns v as JSON with indentation.
func indentedJSON(v any) (string, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return strings.TrimSpace(out.String()), err
}

// typeNames returns the types that a schema without sub-schemas allows, such as "string or null".
func typeNames(s *Schema) string {
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

// limitsText returns the format, the values and the limits of a schema as text, "" if it has none.
func limitsText(s *Schema) string {
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
		out = append(out, limitsText(s.Items))
	}
	for _, r := range []struct {
		low, high *int
		of        string
	}{{s.MinLength, s.MaxLength, " characters"}, {s.MinItems, s.MaxItems, " items"}} {
		if text := rangeText(r.low, r.high); text != "" {
			out = append(out, text+r.of)
		}
	}
	if text := rangeText(s.Minimum, s.Maximum); text != "" {
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// rangeText returns a range as text, such as "1 to 5". nil means no limit.
func rangeText[T any](low, high *T) string {
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
