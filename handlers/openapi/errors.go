package openapi

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/core/code"
)

// An errorStatus is an error status of an operation, with its possible error codes.
type errorStatus struct {
	status int
	codes  []string
}

// errorsOf returns the error statuses of an operation in ascending order. They have the error codes
// that follow from the row of the operation, and those that the row lists.
func errorsOf(o *api.Operation) []errorStatus {
	codes := []string{"validation_error", "unauthorized", "token_expired", "token_revoked", "account_suspended", "rate_limited", "internal_error", "shutting_down", "storage_unavailable"}
	if o.Scope != "read" {
		codes = append(codes, "insufficient_scope")
	}
	if o.Restricted() || !o.OpenToBound() {
		codes = append(codes, "forbidden_role")
	}
	if o.OperatorNow {
		codes = append(codes, "person_required", "sign_in_again")
	}
	if o.Taintable() {
		codes = append(codes, "tainted")
	}
	if strings.Contains(o.Path, "{") {
		codes = append(codes, "not_found")
	}
	if o.Method != http.MethodGet {
		codes = append(codes, "invalid_json", "payload_too_large", "unsupported_media_type", "storage_full")
	}
	if AcceptsIdempotencyKey(o.Method, o.Scope) {
		codes = append(codes, "idempotency_in_progress", "answer_not_kept", "idempotency_key_reused")
	}
	if o.Method == http.MethodPatch {
		codes = append(codes, "nothing_to_update")
	}
	for _, f := range Fields(o.Call.In) {
		if f.Tag.Get("query") == "cursor" {
			codes = append(codes, "invalid_cursor")
		}
		if f.Tag.Get("max") != "" && isList(f.Type) {
			codes = append(codes, "too_many_items")
		}
	}
	return groupByStatus(append(codes, o.Errors...))
}

// isList reports whether a type is a list.
func isList(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Slice
}

// groupByStatus groups error codes by their HTTP status, in the order of code.Documented.
func groupByStatus(codes []string) (out []errorStatus) {
	for _, c := range code.Documented {
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

// errorRef returns a reference to the response with this status and these codes. It makes the
// response at the first call; operations share it.
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

// errorResponse returns the response with this status and these error codes.
func (d *describer) errorResponse(status int, codes []string) *response {
	r := &response{codes: codes, Headers: headerRefs("X-Request-Id")}
	var text []string
	for _, c := range code.Documented {
		if slices.Contains(codes, c.Code) {
			text = append(text, "`"+c.Code+"`: "+c.Means+".")
		}
	}
	r.Description = strings.Join(text, " ")
	switch status {
	case http.StatusUnauthorized:
		r.Headers = append(r.Headers, headerRefs("WWW-Authenticate")...)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage:
		r.Headers = append(r.Headers, headerRefs("Retry-After")...)
	}
	own, rfc9457 := d.errorExamples(status, codes[0])
	r.Content = Dict[*mediaType]{
		{jsonMedia, &mediaType{Schema: d.schemaOf(reflect.TypeOf(own), false), Example: own}},
		{problemMedia, &mediaType{Schema: d.schemaOf(reflect.TypeOf(rfc9457), false), Example: rfc9457}},
	}
	return r
}

// errorExamples returns examples of an error body in both forms, see API.Errors. name is the error
// code.
func (d *describer) errorExamples(status int, name string) (own, rfc9457 any) {
	message := ""
	for _, c := range code.Documented {
		if c.Code == name {
			message = strings.ToUpper(c.Means[:1]) + c.Means[1:] + "."
		}
	}
	return d.api.Errors(status, name, message, exampleRequestID)
}

// addErrorSchemas makes the schemas of errors. It runs first, so that no other schema takes their
// names.
func (d *describer) addErrorSchemas() {
	own, rfc9457 := d.errorExamples(code.Documented[0].Status, code.Documented[0].Code)
	d.schemaOf(reflect.TypeOf(own), false)
	d.schemaOf(reflect.TypeOf(rfc9457), false)
}

// checkCodes notes a problem for each undocumented error code that an operation lists.
func (d *describer) checkCodes() {
	for _, o := range d.api.Operations {
		for _, one := range o.Errors {
			if !slices.ContainsFunc(code.Documented, func(c code.Code) bool { return c.Code == one }) {
				d.addProblem("%s lists the error code %s, which is not documented", o.Name, one)
			}
		}
	}
}
