package handlers

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A failing is one status that an operation can answer with, and the codes that it can carry.
type failing struct {
	status int
	codes  []string
}

// errors are the failings of an operation in rising order: those that follow from its row, and
// those of its entry in abouts.
func (o *op) errors(a about) []failing {
	codes := []string{"validation_error", "unauthorized", "token_expired", "token_revoked", "account_suspended", "rate_limited", "internal_error", "shutting_down"}
	if o.scope != "read" {
		codes = append(codes, "insufficient_scope")
	}
	if !slices.Equal(o.roles, everyone) {
		codes = append(codes, "forbidden_role")
	}
	if strings.Contains(o.path, "{") {
		codes = append(codes, "not_found")
	}
	if o.method != http.MethodGet {
		codes = append(codes, "invalid_json", "payload_too_large", "unsupported_media_type")
	}
	if o.method == http.MethodPost {
		codes = append(codes, "idempotency_in_progress", "idempotency_key_reused")
	}
	if o.method == http.MethodPatch {
		codes = append(codes, "nothing_to_update")
	}
	for _, f := range flatten(o.call.in) {
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
func byStatus(codes []string) (out []failing) {
	for _, c := range errorCodes {
		if !slices.Contains(codes, c.Code) {
			continue
		}
		if n := len(out); n > 0 && out[n-1].status == c.Status {
			out[n-1].codes = append(out[n-1].codes, c.Code)
			continue
		}
		out = append(out, failing{c.Status, []string{c.Code}})
	}
	return out
}

// failure refers to the answer of a status with these codes, which operations share.
func (d *describer) failure(status int, codes []string) *response {
	name := strings.ReplaceAll(http.StatusText(status), " ", "")
	for _, m := range d.doc.Components.Responses {
		if base, _, _ := strings.Cut(m.Name, "_"); base == name && slices.Equal(m.Value.codes, codes) {
			return &response{Ref: "#/components/responses/" + m.Name, codes: codes}
		}
	}
	for n := 1; d.doc.Components.Responses.get(name) != nil; n++ {
		base, _, _ := strings.Cut(name, "_")
		name = base + "_" + strconv.Itoa(n+1)
	}
	d.doc.Components.Responses.set(name, d.errorResponse(status, codes))
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
	e := problem{Code: codes[0], Message: errorExample(codes[0]), RequestID: glossary["request_id"].example.(string)}
	if status == http.StatusTooManyRequests {
		e.RetryAfter = 17
	}
	r.Content = dict[*mediaType]{
		{jsonMedia, &mediaType{Schema: d.of(reflect.TypeFor[errorBody](), false), Example: errorBody{e}}},
		{problemMedia, &mediaType{Schema: d.of(reflect.TypeFor[problemBody](), false), Example: problemBody{
			Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: e.Message, Instance: "/v1/…", problem: e,
		}}},
	}
	return r
}

func errorExample(code string) string {
	for _, c := range errorCodes {
		if c.Code == code {
			return strings.ToUpper(c.Means[:1]) + c.Means[1:] + "."
		}
	}
	return ""
}

// errorSchemas names the forms of errors before anything else does, and says which codes there are.
func (d *describer) errorSchemas() {
	d.of(reflect.TypeFor[errorBody](), false)
	d.of(reflect.TypeFor[problemBody](), false)
	for _, name := range []string{"ErrorDetails", "ProblemDetails"} {
		code := d.doc.Components.Schemas.get(name).Properties.get("code")
		code.Description = "What went wrong, for programs. More codes may come."
		code.Examples = []any{errorCodes[0].Code}
	}
}
