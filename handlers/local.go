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

	"github.com/mailstead/mailstead/service"
)

// An Operation is one row of the table, as others see it.
type Operation struct {
	Name, Method, Path string
}

// Operations lists all operations, for the command line.
func Operations() []Operation {
	var out []Operation
	for _, o := range operations(&service.Service{}) {
		if !o.alias {
			out = append(out, Operation{o.name, o.method, o.path})
		}
	}
	return out
}

// NewRequest makes the request of an operation from one JSON object that holds path parameters, query parameters and
// body fields alike. It is for the command line, in-process or over its socket.
func NewRequest(ctx context.Context, operation, args string) (*http.Request, error) {
	for _, o := range operations(&service.Service{}) {
		if o.name == operation {
			return o.request(ctx, args)
		}
	}
	return nil, fmt.Errorf("there is no operation %q; `mailstead call --list` names them", operation)
}

func (o *op) request(ctx context.Context, args string) (*http.Request, error) {
	fields := map[string]json.RawMessage{}
	if args != "" {
		var err error
		if fields, err = splitObject([]byte(args)); err != nil {
			return nil, fmt.Errorf("the arguments are not one JSON object: %w", err)
		}
	}
	path, query := o.path, url.Values{}
	for name, raw := range fields {
		text := plainText(raw)
		if hole := "{" + name + "}"; strings.Contains(path, hole) {
			path = strings.ReplaceAll(path, hole, url.PathEscape(text))
			delete(fields, name)
		} else if o.method == http.MethodGet || isQuery(o.call.in, name) {
			query.Set(name, text)
			delete(fields, name)
		}
	}
	if hole := strings.IndexByte(path, '{'); hole >= 0 {
		return nil, fmt.Errorf("%s needs %s", o.name, path[hole+1:hole+strings.IndexByte(path[hole:], '}')])
	}
	body, err := json.Marshal(fields)
	if err != nil || o.method == http.MethodGet {
		body = nil
	}
	r, err := http.NewRequestWithContext(ctx, o.method, path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request of %s: %w", o.name, err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// plainText is a JSON text without its quotes, and any other value as it is written.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
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
