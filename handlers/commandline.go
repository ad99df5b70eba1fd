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

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service"
)

// An Operation is one operation of the API, as `mailstead call --list` shows it.
type Operation struct {
	Name, Method, Path string
}

// Operations lists all operations of the API, for the command line.
func Operations() []Operation {
	var out []Operation
	for _, o := range api.All(&service.Service{}) {
		if !o.Alias {
			out = append(out, Operation{o.Name, o.Method, o.Path})
		}
	}
	return out
}

// Description returns the API document of a server with default settings.
func Description() *openapi.Document {
	return openapi.Describe(openapi.API{Operations: api.All(&service.Service{}), Errors: exampleErrors})
}

// NewRequest builds the HTTP request of an operation, for the command line. args is one JSON object
// with the path parameters, query parameters and body fields; "" is an empty object.
func NewRequest(ctx context.Context, operation, args string) (*http.Request, error) {
	for _, o := range api.All(&service.Service{}) {
		if o.Name == operation {
			return requestOf(ctx, &o, args)
		}
	}
	return nil, fmt.Errorf("there is no operation %q; `mailstead call --list` lists them", operation)
}

func requestOf(ctx context.Context, o *api.Operation, args string) (*http.Request, error) {
	values, query, body, err := splitArguments(o, args)
	if err != nil {
		return nil, err
	}
	path := o.Path
	for name, value := range values {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	r, err := http.NewRequestWithContext(ctx, o.Method, path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("build the HTTP request of %s: %w", o.Name, err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// splitArguments splits one JSON object of arguments into path parameters, query parameters and a
// JSON body.
func splitArguments(o *api.Operation, args string) (path map[string]string, query url.Values, body []byte, err error) {
	fields := map[string]json.RawMessage{}
	if args != "" {
		fields, err = splitObject([]byte(args))
		if err != nil {
			return nil, nil, nil, fmt.Errorf("the arguments of %s are not one JSON object: %w", o.Name, err)
		}
	}
	path = map[string]string{}
	for part := range strings.SplitSeq(o.Path, "/") {
		name, ok := strings.CutPrefix(part, "{")
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, "}")
		text := unquoteJSON(fields[name])
		if text == "" {
			return nil, nil, nil, fmt.Errorf("%s needs %s", o.Name, name)
		}
		path[name] = text
		delete(fields, name)
	}
	query = url.Values{}
	for name, raw := range fields {
		if o.Method != http.MethodGet && !isQuery(o.Call.In, name) {
			continue
		}
		if string(raw) != "null" {
			query.Set(name, unquoteJSON(raw))
		}
		delete(fields, name)
	}
	if o.Method == http.MethodGet {
		return path, query, nil, nil
	}
	body, err = json.Marshal(fields)
	return path, query, body, err
}

// isQuery reports whether the request type has a query parameter of that name.
func isQuery(t reflect.Type, name string) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("query") == name || f.Anonymous && f.Type.Kind() == reflect.Struct && isQuery(f.Type, name) {
			return true
		}
	}
	return false
}
