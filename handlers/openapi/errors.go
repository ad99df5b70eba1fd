package openapi

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// An errorStatus is one status that an operation can answer with, and the codes that it can carry.
type errorStatus struct {
	status int
	codes  []string
}

// errors lists the error statuses of an operation in rising order: those that follow from its row,
// and those of its text.
func (o *Operation) errors(a operationText) []errorStatus {
	codes := []string{"validation_error", "unauthorized", "token_expired", "token_revoked", "account_suspended", "rate_limited", "internal_error", "shutting_down"}
	if o.Scope != "read" {
		codes = append(codes, "insufficient_scope")
	}
	if o.Restricted {
		codes = append(codes, "forbidden_role")
	}
	if strings.Contains(o.Path, "{") {
		codes = append(codes, "not_found")
	}
	if o.Method != http.MethodGet {
		codes = append(codes, "invalid_json", "payload_too_large", "unsupported_media_type")
	}
	if o.Method == http.MethodPost {
		codes = append(codes, "idempotency_in_progress", "idempotency_key_reused")
	}
	if o.Method == http.MethodPatch {
		codes = append(codes, "nothing_to_update")
	}
	for _, f := range Fields(o.In) {
		if f.Tag.Get("query") == "cursor" {
			codes = append(codes, "invalid_cursor")
		}
		if f.Tag.Get("max") != "" && listType(f.Type) {
			codes = append(codes, "too_many_items")
		}
	}
	return byStatus(append(codes, strings.Fields(a.errors)...))
}

// listType tells whether a field holds a list.
func listType(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Slice
}

// byStatus sorts codes to their statuses, in the order of errorCodes.
func byStatus(codes []string) (out []errorStatus) {
	for _, c := range errorCodes {
		if !slices.Contains(codes, c.Code) {
			continue
		}
		if n := len(out); n > 0 && out[n-1].status == c.Status {
			out[n-1].codes = append(out[n-1].codes, c.Code)
			continue
		}
		out = append(out, errorStatus{c.Status, []string{c.Code}})
	}
	return out
}

// errorRef refers to the answer of a status with these codes, which operations share.
func (d *describer) errorRef(status int, codes []string) *response {
	name := strings.ReplaceAll(http.StatusText(status), " ", "")
	for _, m := range d.doc.Components.Responses {
		if base, _, _ := strings.Cut(m.Name, "_"); base == name && slices.Equal(m.Value.codes, codes) {
			return &response{Ref: "#/components/responses/" + m.Name, codes: codes}
		}
	}
	for n := 1; d.doc.Components.Responses.Get(name) != nil; n++ {
		base, _, _ := strings.Cut(name, "_")
		name = base + "_" + strconv.Itoa(n+1)
	}
	d.doc.Components.Responses.Set(name, d.errorResponse(status, codes))
	return &response{Ref: "#/components/responses/" + name, codes: codes}
}

func (d *describer) errorResponse(status int, codes []string) *response {
	r := &response{codes: codes, Headers: headerRefs("X-Request-Id")}
	var text []string
	for _, c := range errorCodes {
		if slices.Contains(codes, c.Code) {
			text = append(text, "`"+c.Code+"`: "+c.Means+".")
		}
	}
	r.Description = strings.Join(text, " ")
	switch status {
	case http.StatusUnauthorized:
		r.Headers = append(r.Headers, headerRefs("WWW-Authenticate")...)
	case http.StatusTooManyRequests:
		r.Headers = append(r.Headers, headerRefs("Retry-After")...)
	}
	own, rfc9457 := d.errorExamples(status, codes[0])
	r.Content = Dict[*mediaType]{
		{jsonMedia, &mediaType{Schema: d.of(reflect.TypeOf(own), false), Example: own}},
		{problemMedia, &mediaType{Schema: d.of(reflect.TypeOf(rfc9457), false), Example: rfc9457}},
	}
	return r
}

func (d *describer) errorExamples(status int, code string) (own, rfc9457 any) {
	message := ""
	for _, c := range errorCodes {
		if c.Code == code {
			message = strings.ToUpper(c.Means[:1]) + c.Means[1:] + "."
		}
	}
	return d.api.Errors(status, code, message, glossary["request_id"].example.(string))
}

// errorSchemas names the forms of errors before anything else does, and says which codes there are.
func (d *describer) errorSchemas() {
	own, rfc9457 := d.errorExamples(errorCodes[0].Status, errorCodes[0].Code)
	d.of(reflect.TypeOf(own), false)
	d.of(reflect.TypeOf(rfc9457), false)
	for _, name := range []string{"ErrorDetails", "ProblemDetails"} {
		code := d.doc.Components.Schemas.Get(name).Properties.Get("code")
		code.Description = "What went wrong, for programs. More codes may come."
		code.Examples = []any{errorCodes[0].Code}
	}
}

// checkWords finds texts about operations, codes and fields that do not exist.
func (d *describer) checkWords() {
	names := map[string]*Operation{}
	for i := range d.api.Operations {
		names[d.api.Operations[i].Name] = &d.api.Operations[i]
	}
	for name, a := range operationTexts {
		if names[name] == nil {
			d.problem("there is a text about %s, which is no operation", name)
		}
		for _, code := range strings.Fields(a.errors) {
			if !slices.ContainsFunc(errorCodes, func(c errorCode) bool { return c.Code == code }) {
				d.problem("%s tells of the code %s, which is none", name, code)
			}
		}
	}
	for key := range glossary {
		owner, field, ok := strings.Cut(key, ".")
		if s := d.doc.Components.Schemas.Get(owner); !ok || s != nil && s.Properties.Get(field) != nil {
			continue
		}
		hasParameter := func(f reflect.StructField) bool { return f.Tag.Get("query") == field || f.Tag.Get("path") == field }
		if o := names[owner]; o == nil || !slices.ContainsFunc(Fields(o.In), hasParameter) {
			d.problem("the glossary tells of %s, which is nowhere", key)
		}
	}
}
