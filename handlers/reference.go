package handlers

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"
)

// A page is a body that never changes while the server runs, and its ETag.
type page struct {
	contentType string
	body        []byte
	zipped      []byte
	tag         string
}

func newPage(contentType string, body []byte) page {
	sum := sha256.Sum256(body)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(body) // a bytes.Buffer takes all
	_ = w.Close()
	return page{contentType, body, zipped.Bytes(), hex.EncodeToString(sum[:12])}
}

// A description is what is served about the API, by path.
type description map[string]page

// makeDescription describes the API. It works from what is compiled in alone, so that an error is a
// bug, which tests find.
func (s *Server) makeDescription() *description {
	doc := describe(s.ops, s.svc.Config)
	text, err := json.Marshal(doc)
	if err != nil {
		panic(fmt.Errorf("write OpenAPI document: %w", err))
	}
	yaml, err := toYAML(text)
	if err != nil {
		panic(err)
	}
	reference, err := referencePage(doc)
	if err != nil {
		panic(fmt.Errorf("write reference page: %w", err))
	}
	css, err := referenceFiles.ReadFile("reference.css")
	if err != nil {
		panic(err)
	}
	return &description{
		"/v1/openapi.json":    newPage("application/json", text),
		"/v1/openapi.yaml":    newPage("application/yaml", yaml),
		"/docs":               newPage("text/html; charset=utf-8", reference),
		"/docs/reference.css": newPage("text/css; charset=utf-8", css),
	}
}

// sendDescription answers GET and HEAD of a part of the description; it needs no token.
func (s *Server) sendDescription(c *call) {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		s.notAllowed(c, []string{"GET", "HEAD"})
		return
	}
	p := (*s.description())[c.r.URL.Path]
	h := c.w.Header()
	h.Set("Content-Type", p.contentType)
	h.Set("Vary", "Accept-Encoding")
	body, tag := p.body, p.tag
	if strings.Contains(c.r.Header.Get("Accept-Encoding"), "gzip") {
		body, tag = p.zipped, p.tag+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", `"`+tag+`"`)
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	http.ServeContent(c.w, c.r, "", time.Time{}, bytes.NewReader(body))
}

//go:embed reference.html reference.css
var referenceFiles embed.FS

// referencePage writes the description for people.
func referencePage(doc *document) ([]byte, error) {
	t := template.New("reference.html").Funcs(template.FuncMap{
		"prose": prose, "words": words, "pretty": pretty, "refName": refName, "types": types, "limits": limits,
		"lower": strings.ToLower, "codes": func() []errorCode { return errorCodes },
		"param":  func(p *parameter) *parameter { return paramOf(doc, p) },
		"schema": func(s *schema) *schema { return (&describer{doc: doc}).resolve(s) },
		"requires": func(s *schema, name string) bool {
			return strings.Contains(" "+strings.Join(s.Required, " ")+" ", " "+name+" ")
		},
		"inGroup": func(group string) []pathOperation { return inGroup(doc, group) },
	})
	t, err := t.ParseFS(referenceFiles, "reference.html")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, doc)
	return out.Bytes(), err
}

// A pathOperation is an operation with its method and path; for an event the path is the event's
// type.
type pathOperation struct {
	Method, Path string
	*operation
}

func inGroup(doc *document, group string) (out []pathOperation) {
	for _, paths := range []dict[dict[*operation]]{doc.Paths, doc.Webhooks} {
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

func paramOf(doc *document, p *parameter) *parameter {
	if p.Ref != "" {
		return doc.Components.Parameters.get(refName(p.Ref))
	}
	return p
}

func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

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
func types(s *schema) string {
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
func limits(s *schema) string {
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
