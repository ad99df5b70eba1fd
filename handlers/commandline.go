package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service"
)

// An Operation is one row of the table of operations.
type Operation struct {
	Name, Method, Path string
}

// Operations lists all operations for the command line.
func Operations() []Operation {
	var out []Operation
	for _, o := range operations(&service.Service{}) {
		if !o.alias {
			out = append(out, Operation{o.name, o.method, o.path})
		}
	}
	return out
}

// OpenAPI is the description of the API as JSON, as a server with default settings serves it at
// /v1/openapi.json.
func OpenAPI() ([]byte, error) {
	return openapi.Describe(describedAPI(operations(&service.Service{}), "")).JSON()
}

// NewRequest makes the request of an operation from one JSON object with its path parameters, query
// parameters and body fields. The command line uses it.
func NewRequest(ctx context.Context, operation, args string) (*http.Request, error) {
	for _, o := range operations(&service.Service{}) {
		if o.name == operation {
			return o.request(ctx, args)
		}
	}
	return nil, fmt.Errorf("there is no operation %q; `mailstead call --list` lists them", operation)
}

func (o *op) request(ctx context.Context, args string) (*http.Request, error) {
	values, query, body, err := o.split(args)
	if err != nil {
		return nil, err
	}
	path := o.path
	for name, value := range values {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	r, err := http.NewRequestWithContext(ctx, o.method, path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request of %s: %w", o.name, err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// split divides one JSON object of arguments into path parameters, query and body.
func (o *op) split(args string) (path map[string]string, query url.Values, body []byte, err error) {
	fields := map[string]json.RawMessage{}
	if args != "" {
		fields, err = splitObject([]byte(args))
		if err != nil {
			return nil, nil, nil, fmt.Errorf("the arguments of %s are not one JSON object: %w", o.name, err)
		}
	}
	path = map[string]string{}
	for part := range strings.SplitSeq(o.path, "/") {
		name, ok := strings.CutPrefix(part, "{")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, "}")
		text := plainText(fields[name])
		if text == "" {
			return nil, nil, nil, fmt.Errorf("%s needs %s", o.name, name)
		}
		path[name] = text
		delete(fields, name)
	}
	query = url.Values{}
	for name, raw := range fields {
		if o.method != http.MethodGet && !isQuery(o.call.in, name) {
			continue
		}
		if string(raw) != "null" {
			query.Set(name, plainText(raw))
		}
		delete(fields, name)
	}
	if o.method == http.MethodGet {
		return path, query, nil, nil
	}
	body, err = json.Marshal(fields)
	return path, query, body, err
}

// plainText is a JSON text without its quotes, and any other value as it is written, but whole
// numbers without a fraction.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(plainWholes(raw))
}

// isQuery tells whether the request has a query parameter of that name.
func isQuery(t reflect.Type, name string) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("query") == name || f.Anonymous && f.Type.Kind() == reflect.Struct && isQuery(f.Type, name) {
			return true
		}
	}
	return false
}
