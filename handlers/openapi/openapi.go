// Package openapi describes the HTTP API: as an OpenAPI document in JSON and YAML, and as the
// arguments of tools for assistants. It makes them from the table of operations and from the Go
// types of requests and responses with the comments of their fields, and adds general texts. It
// does not handle requests: package handlers does. Package handlers/docs makes the reference for
// people.
package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"sort"
	"strings"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/events"
	"go.yaml.in/yaml/v3"
)

// An API is the input of Describe.
type API struct {
	Operations []api.Operation
	URL        string // the URL of this installation; "": unknown

	// Errors returns examples of the two forms of an error body: our own, and that of RFC 9457.
	Errors func(status int, code, message, requestID string) (own, rfc9457 any)
}

// A Document is the OpenAPI 3.1 description of the API. It is made from the table of operations and
// their types, so it cannot contradict them.
type Document struct {
	OpenAPI    string                       `json:"openapi"`
	Info       documentInfo                 `json:"info"`
	Servers    []documentServer             `json:"servers"`
	Security   []map[string][]string        `json:"security"`
	Tags       []tag                        `json:"tags"`
	Paths      Dict[Dict[*operationObject]] `json:"paths"`
	Webhooks   Dict[Dict[*operationObject]] `json:"webhooks"`
	Components components                   `json:"components"`

	// Problems says what could not be described. It is empty in a build that passes its tests.
	Problems []string `json:"-"`
	Fields   []string `json:"-"` // names of the described fields, see Field.qualifiedName; may have duplicates
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
	Parameters      Dict[*Parameter]             `json:"parameters"`
	Headers         Dict[*header]                `json:"headers"`
	Responses       Dict[*response]              `json:"responses"`
	Schemas         Dict[*Schema]                `json:"schemas"`
}

type operationObject struct {
	OperationID string          `json:"operationId"`
	Summary     string          `json:"summary"`
	Description string          `json:"description,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Scope       string          `json:"x-scope,omitempty"`
	Roles       []string        `json:"x-roles,omitempty"`
	Whole       bool            `json:"x-whole-account,omitempty"`
	Bound       bool            `json:"x-bound,omitempty"`
	Security    *[]string       `json:"security,omitempty"`
	Parameters  []*Parameter    `json:"parameters,omitempty"`
	RequestBody *requestBody    `json:"requestBody,omitempty"`
	Responses   Dict[*response] `json:"responses"`

	Row *api.Operation `json:"-"` // the operation in the table; nil for an event
}

// A Parameter is a parameter object of OpenAPI.
type Parameter struct {
	Ref         string  `json:"$ref,omitempty"`
	Name        string  `json:"name,omitempty"`
	In          string  `json:"in,omitempty"`
	Required    bool    `json:"required,omitempty"`
	Description string  `json:"description,omitempty"`
	Schema      *Schema `json:"schema,omitempty"`
}

type requestBody struct {
	Required bool             `json:"required"`
	Content  Dict[*mediaType] `json:"content"`
}

type response struct {
	Ref         string           `json:"$ref,omitempty"`
	Description string           `json:"description,omitempty"`
	Headers     Dict[*header]    `json:"headers,omitempty"`
	Content     Dict[*mediaType] `json:"content,omitempty"`

	codes []string // of an error response
}

// Codes returns the error codes of the response, nil for a success.
func (r *response) Codes() []string { return r.codes }

type header struct {
	Ref         string  `json:"$ref,omitempty"`
	Description string  `json:"description,omitempty"`
	Schema      *Schema `json:"schema,omitempty"`
}

type mediaType struct {
	Schema  *Schema `json:"schema,omitempty"`
	Example any     `json:"example,omitempty"`
}

// A Dict is a JSON object whose members have an order.
type Dict[T any] []Member[T]

// A Member is a member of a Dict.
type Member[T any] struct {
	Name  string
	Value T
}

// MarshalJSON encodes the members in their order.
func (d Dict[T]) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // it is for whoever encodes the whole to decide
	out.WriteByte('{')
	for i, m := range d {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := enc.Encode(m.Name); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := enc.Encode(m.Value); err != nil {
			return nil, fmt.Errorf("encode the member %s as JSON: %w", m.Name, err)
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// Get returns the value of a member, the zero value if there is none.
func (d Dict[T]) Get(name string) (value T) {
	for _, m := range d {
		if m.Name == name {
			return m.Value
		}
	}
	return value
}

// Set adds a member, or replaces the value of the member with the same name.
func (d *Dict[T]) Set(name string, value T) {
	for i := range *d {
		if (*d)[i].Name == name {
			(*d)[i].Value = value
			return
		}
	}
	*d = append(*d, Member[T]{name, value})
}

const (
	jsonMedia    = "application/json"
	problemMedia = "application/problem+json"
)

// Describe returns the OpenAPI document of an API.
func Describe(api API) *Document {
	d := &describer{api: api, used: map[typeUse]string{}, doc: &Document{
		OpenAPI:  "3.1.0",
		Info:     apiInfo,
		Servers:  []documentServer{{"/", "this installation"}},
		Security: []map[string][]string{{"bearer": {}}},
		Tags:     operationGroups,
		Components: components{
			SecuritySchemes: map[string]map[string]string{"bearer": {
				"type": "http", "scheme": "bearer", "bearerFormat": "mst_…", "description": "An API token, created with create_token or `mailstead token create`.",
			}},
			Headers: apiHeaders,
		},
	}}
	if api.URL != "" {
		d.doc.Servers[0].URL = api.URL
	}
	d.doc.Components.Parameters = Dict[*Parameter]{{"IdempotencyKey", &Parameter{
		Name: "Idempotency-Key", In: "header", Description: idempotencyText, Schema: &Schema{Type: "string", MaxLength: new(255)},
	}}}
	d.addErrorSchemas()
	for i := range api.Operations {
		o := &api.Operations[i]
		item := d.doc.Paths.Get(o.Path)
		item.Set(strings.ToLower(o.Method), d.operationObject(o))
		d.doc.Paths.Set(o.Path, item)
	}
	for _, e := range service.EventTypes() {
		d.doc.Webhooks.Set(e.Name, Dict[*operationObject]{{"post", d.eventOperation(e)}})
	}
	schemas := d.doc.Components.Schemas
	sort.Slice(schemas, func(i, j int) bool { return schemas[i].Name < schemas[j].Name })
	d.addExamples()
	d.checkCodes()
	return d.doc
}

// operationObject returns the operation object of one operation.
func (d *describer) operationObject(o *api.Operation) *operationObject {
	if o.Group == "" || o.Summary == "" {
		d.addProblem("operation %s has no text", o.Name)
	}
	out := &operationObject{OperationID: o.Name, Summary: o.Summary, Tags: []string{o.Group}, Scope: o.Scope, Roles: o.Roles, Whole: o.WholeAccount, Bound: o.OpenToBound(), Row: o}
	if o.Alias {
		out.OperationID += "_" + strings.ToLower(o.Method)
	}
	out.Description = strings.TrimSpace(o.Text + " " + permissionText(o))
	out.Parameters = d.parameters(o)
	if body := d.requestBodyOf(o); body != nil {
		out.RequestBody = body
	}
	out.Responses.Set(fmt.Sprint(o.Status), d.successResponse(o))
	for _, r := range errorsOf(o) {
		out.Responses.Set(fmt.Sprint(r.status), d.errorRef(r.status, r.codes))
	}
	return out
}

// permissionText returns the sentence that says who may call an operation.
func permissionText(o *api.Operation) string {
	text := fmt.Sprintf("Needs the `%s` permission", o.Scope)
	if o.Restricted() {
		text += "; for the roles " + strings.Join(o.Roles, " and ")
	}
	if o.Strict {
		text += ". A body field that it does not know is refused"
	}
	return text + "."
}

// successResponse returns the response object for the success of an operation.
func (d *describer) successResponse(o *api.Operation) *response {
	r := &response{Description: http.StatusText(o.Status), Headers: headerRefs("X-Request-Id", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")}
	if o.Status == http.StatusAccepted {
		r.Headers = append(r.Headers, headerRefs("Location")...)
	}
	if o.Method == http.MethodPost {
		r.Headers = append(r.Headers, headerRefs("Idempotent-Replayed")...)
	}
	d.addContent(r, o)
	return r
}

// addContent adds the media types of a response. Most responses have one; an export may be JSON or
// a file.
func (d *describer) addContent(r *response, o *api.Operation) {
	var forms []*Schema
	for _, t := range FormsOf(o.Call.Out) {
		if t == fileType {
			media := o.Media
			if media == "" {
				media = "application/octet-stream"
			}
			r.Content.Set(media, &mediaType{Schema: &Schema{Type: "string", Format: "binary"}})
			continue
		}
		forms = append(forms, d.schemaOf(t, false))
	}
	switch len(forms) {
	case 0:
	case 1:
		r.Content.Set(jsonMedia, &mediaType{Schema: forms[0]})
	default:
		r.Content.Set(jsonMedia, &mediaType{Schema: &Schema{AnyOf: forms}})
	}
}

// headerRefs returns references to the headers with the names.
func headerRefs(names ...string) (out Dict[*header]) {
	for _, n := range names {
		out.Set(n, &header{Ref: "#/components/headers/" + n})
	}
	return out
}

// eventOperation returns the operation object for the request that a webhook endpoint gets for an
// event.
func (d *describer) eventOperation(e events.EventType) *operationObject {
	typed := &Schema{Type: "object", Properties: Dict[*Schema]{{"type", &Schema{Const: e.Name}}}}
	if e.Data != nil {
		typed.Properties.Set("data", d.schemaOf(reflect.TypeOf(e.Data), false))
	}
	out := &operationObject{
		OperationID: "on_" + strings.ReplaceAll(e.Name, ".", "_"), Summary: e.About, Tags: []string{"Events"}, Security: &[]string{},
		RequestBody: &requestBody{Required: true, Content: Dict[*mediaType]{{jsonMedia, &mediaType{
			Schema: &Schema{AllOf: []*Schema{d.schemaOf(envelopeType, false), typed}},
		}}}},
		Responses: Dict[*response]{
			{"2XX", &response{Description: "Accepted. Answer within 10 seconds; the body is ignored."}},
			{"410", &response{Description: "Gone: the endpoint is disabled at once."}},
			{"default", &response{Description: "Not accepted: the event is sent again, up to six times within 52 minutes."}},
		},
	}
	for _, h := range deliveryHeaders {
		out.Parameters = append(out.Parameters, &Parameter{Name: h.Name, In: "header", Required: true, Description: h.Value, Schema: &Schema{Type: "string"}})
	}
	return out
}

// JSON returns the document as JSON.
func (doc *Document) JSON() ([]byte, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document as JSON: %w", err)
	}
	return text, nil
}

// YAML returns the document as YAML in block style, with members in their order.
func (doc *Document) YAML() ([]byte, error) {
	text, err := doc.JSON()
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil { // JSON is valid YAML
		return nil, fmt.Errorf("parse the OpenAPI document as YAML: %w", err)
	}
	useBlockStyle(&root)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document as YAML: %w", err)
	}
	return out.Bytes(), enc.Close()
}

// useBlockStyle removes what is left of JSON: braces, brackets, and the quotes around names. Other
// texts stay quoted, so that no parser takes them for numbers or dates.
func useBlockStyle(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			child.Style = 0
		}
		useBlockStyle(child)
	}
}
