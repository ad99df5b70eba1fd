package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service"
)

// A document is the OpenAPI 3.1 description of the API. It is made from the table of operations and
// the types of their requests and answers alone, so that it cannot say anything else than they do.
type document struct {
	OpenAPI    string                 `json:"openapi"`
	Info       documentInfo           `json:"info"`
	Servers    []documentServer       `json:"servers"`
	Security   []map[string][]string  `json:"security"`
	Tags       []tag                  `json:"tags"`
	Paths      dict[dict[*operation]] `json:"paths"`
	Webhooks   dict[dict[*operation]] `json:"webhooks"`
	Components components             `json:"components"`

	odd []string // what could not be described; always empty in a build that passes its tests
}

type documentInfo struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Summary     string `json:"summary"`
	Description string `json:"description"`
}

type documentServer struct {
	URL         string `json:"url"`
	Description string `json:"description"`
}

type tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type components struct {
	SecuritySchemes map[string]map[string]string `json:"securitySchemes"`
	Parameters      dict[*parameter]             `json:"parameters"`
	Headers         dict[*header]                `json:"headers"`
	Responses       dict[*response]              `json:"responses"`
	Schemas         dict[*schema]                `json:"schemas"`
}

type operation struct {
	OperationID string          `json:"operationId"`
	Summary     string          `json:"summary"`
	Description string          `json:"description,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Scope       string          `json:"x-scope,omitempty"`
	Roles       []string        `json:"x-roles,omitempty"`
	Security    *[]string       `json:"security,omitempty"`
	Parameters  []*parameter    `json:"parameters,omitempty"`
	RequestBody *requestBody    `json:"requestBody,omitempty"`
	Responses   dict[*response] `json:"responses"`
}

type parameter struct {
	Ref         string  `json:"$ref,omitempty"`
	Name        string  `json:"name,omitempty"`
	In          string  `json:"in,omitempty"`
	Required    bool    `json:"required,omitempty"`
	Description string  `json:"description,omitempty"`
	Schema      *schema `json:"schema,omitempty"`
}

type requestBody struct {
	Required bool             `json:"required"`
	Content  dict[*mediaType] `json:"content"`
}

type response struct {
	Ref         string           `json:"$ref,omitempty"`
	Description string           `json:"description,omitempty"`
	Headers     dict[*header]    `json:"headers,omitempty"`
	Content     dict[*mediaType] `json:"content,omitempty"`

	codes []string // of an error
}

// Codes are those that an error may carry; the reference page shows them.
func (r *response) Codes() []string { return r.codes }

type header struct {
	Ref         string  `json:"$ref,omitempty"`
	Description string  `json:"description,omitempty"`
	Schema      *schema `json:"schema,omitempty"`
}

type mediaType struct {
	Schema  *schema `json:"schema,omitempty"`
	Example any     `json:"example,omitempty"`
}

// A dict is a JSON object whose members keep their order.
type dict[T any] []member[T]

type member[T any] struct {
	Name  string
	Value T
}

// MarshalJSON writes the members in their order.
func (d dict[T]) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range d {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := json.Marshal(m.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		out.Write(append(append(name, ':'), value...))
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

func (d dict[T]) get(name string) (value T) {
	for _, m := range d {
		if m.Name == name {
			return m.Value
		}
	}
	return value
}

// set adds a member, or replaces the one of that name.
func (d *dict[T]) set(name string, value T) {
	for i := range *d {
		if (*d)[i].Name == name {
			(*d)[i].Value = value
			return
		}
	}
	*d = append(*d, member[T]{name, value})
}

const (
	jsonMedia    = "application/json"
	problemMedia = "application/problem+json"
)

// describe makes the description of the operations.
func describe(ops []op, c service.Config) *document {
	d := &describer{used: map[typeUse]string{}, doc: &document{
		OpenAPI:  "3.1.0",
		Info:     apiInfo,
		Servers:  []documentServer{{"/", "this installation"}},
		Security: []map[string][]string{{"bearer": {}}},
		Tags:     groups,
		Components: components{
			SecuritySchemes: map[string]map[string]string{"bearer": {
				"type": "http", "scheme": "bearer", "bearerFormat": "mst_…", "description": "An API token, made with create_token or `mailstead token create`.",
			}},
			Headers: apiHeaders,
		},
	}}
	if c.BaseURL != "" {
		d.doc.Servers[0].URL = c.BaseURL
	}
	d.doc.Components.Parameters = dict[*parameter]{{"IdempotencyKey", &parameter{
		Name: "Idempotency-Key", In: "header", Description: idempotencyText, Schema: &schema{Type: "string", MaxLength: new(255)},
	}}}
	d.errorSchemas()
	for i := range ops {
		o := &ops[i]
		item := d.doc.Paths.get(o.path)
		item.set(strings.ToLower(o.method), d.operation(o))
		d.doc.Paths.set(o.path, item)
	}
	for _, e := range service.EventTypes() {
		d.doc.Webhooks.set(e.Name, dict[*operation]{{"post", d.event(e)}})
	}
	slices.SortFunc(d.doc.Components.Schemas, func(a, b member[*schema]) int { return strings.Compare(a.Name, b.Name) })
	d.examples()
	return d.doc
}

// operation describes one row of the table.
func (d *describer) operation(o *op) *operation {
	a, ok := abouts[o.name]
	if !ok {
		d.oddly("operation %s has no entry in abouts", o.name)
	}
	out := &operation{OperationID: o.name, Summary: a.summary, Tags: []string{a.group}, Scope: o.scope, Roles: o.roles}
	if o.alias {
		out.OperationID += "_" + strings.ToLower(o.method)
	}
	out.Description = strings.TrimSpace(a.text + " " + o.needs())
	out.Parameters = d.parameters(o)
	if body := d.request(o, a); body != nil {
		out.RequestBody = body
	}
	out.Responses.set(fmt.Sprint(o.status), d.success(o, a))
	for _, r := range o.errors(a) {
		out.Responses.set(fmt.Sprint(r.status), d.failure(r.status, r.codes))
	}
	return out
}

// needs says in words who may call an operation.
func (o *op) needs() string {
	text := fmt.Sprintf("Needs the `%s` permission", o.scope)
	if !slices.Equal(o.roles, everyone) {
		text += "; for the roles " + strings.Join(o.roles, " and ")
	}
	if o.strict {
		text += ". A body field that it does not know is refused"
	}
	return text + "."
}

// success describes the answer of an operation that did what was asked.
func (d *describer) success(o *op, a about) *response {
	r := &response{Description: http.StatusText(o.status), Headers: headerRefs("X-Request-Id", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")}
	if o.status == http.StatusAccepted {
		r.Headers = append(r.Headers, headerRefs("Location")...)
	}
	if o.method == http.MethodPost {
		r.Headers = append(r.Headers, headerRefs("Idempotent-Replayed")...)
	}
	d.content(r, o, a)
	return r
}

// content lists the media types of an answer. Most have one; an export may be JSON or a file.
func (d *describer) content(r *response, o *op, a about) {
	var forms []*schema
	for _, t := range formsOf(o.call.out) {
		if t == fileType {
			media := a.media
			if media == "" {
				media = "application/octet-stream"
			}
			r.Content.set(media, &mediaType{Schema: &schema{Type: "string", Format: "binary"}})
			continue
		}
		forms = append(forms, d.of(t, false))
	}
	switch len(forms) {
	case 0:
	case 1:
		r.Content.set(jsonMedia, &mediaType{Schema: forms[0]})
	default:
		r.Content.set(jsonMedia, &mediaType{Schema: &schema{AnyOf: forms}})
	}
}

func headerRefs(names ...string) (out dict[*header]) {
	for _, n := range names {
		out.set(n, &header{Ref: "#/components/headers/" + n})
	}
	return out
}

// event describes the request that an endpoint gets when something happened.
func (d *describer) event(e service.EventType) *operation {
	typed := &schema{Type: "object", Properties: dict[*schema]{{"type", &schema{Const: e.Name}}}}
	if e.Data != nil {
		typed.Properties.set("data", d.of(reflect.TypeOf(e.Data), false))
	}
	out := &operation{
		OperationID: "on_" + strings.ReplaceAll(e.Name, ".", "_"), Summary: e.About, Tags: []string{"Events"}, Security: &[]string{},
		RequestBody: &requestBody{Required: true, Content: dict[*mediaType]{{jsonMedia, &mediaType{
			Schema: &schema{AllOf: []*schema{d.of(envelopeType, false), typed}},
		}}}},
		Responses: dict[*response]{
			{"2XX", &response{Description: "Taken. Answer within 10 seconds; the body is not looked at."}},
			{"410", &response{Description: "Gone: the endpoint is disabled at once."}},
			{"default", &response{Description: "Not taken: the event is tried again, up to six times within 52 minutes."}},
		},
	}
	for _, h := range deliveryHeaders {
		out.Parameters = append(out.Parameters, &parameter{Name: h.Name, In: "header", Required: true, Description: h.Value, Schema: &schema{Type: "string"}})
	}
	return out
}
