package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/handlers"
)

// A jsonObject is a JSON object that the API returns or accepts.
type jsonObject map[string]any

// stringField returns the value of a string field, or "" if the field is missing or not a string.
func (o jsonObject) stringField(field string) string {
	s, _ := o[field].(string)
	return s
}

// pickFields returns a new object with those of the named fields that are not null. names are
// separated by spaces.
func (o jsonObject) pickFields(names string) jsonObject {
	out := jsonObject{}
	for name := range strings.FieldsSeq(names) {
		if o[name] != nil {
			out[name] = o[name]
		}
	}
	return out
}

// withField returns a copy of the object with one more field.
func (o jsonObject) withField(field string, value any) jsonObject {
	out := maps.Clone(o)
	if out == nil {
		out = jsonObject{}
	}
	out[field] = value
	return out
}

// An apiCaller calls operations of the API as the owner of an account.
type apiCaller struct {
	ctx     context.Context // the context of the command
	account string          // account ID or owner's address; "" means the only account
	send    sender
}

// call calls an operation of the API and returns the body of the response.
func (a *apiCaller) call(operation string, args jsonObject) (json.RawMessage, error) {
	text := []byte("{}")
	if args != nil {
		var err error
		text, err = json.Marshal(args)
		if err != nil {
			return nil, err
		}
	}
	r, err := handlers.NewRequest(a.ctx, operation, string(text))
	if err != nil {
		return nil, err
	}
	return a.roundTrip(r)
}

// An apiError is an error response of the API.
type apiError struct {
	status  int
	body    []byte // as JSON, or as text if the API did not answer it
	code    string // "" if the body is text
	message string
	details []struct{ Field, Message string }
}

// Error returns the message as a sentence, then a line for each wrong field.
func (e *apiError) Error() string {
	first, size := utf8.DecodeRuneInString(e.message)
	text := string(unicode.ToUpper(first)) + strings.TrimRight(e.message[size:], " ")
	word := strings.Fields(text + " ")[0]
	isField := func(d struct{ Field, Message string }) bool { return strings.EqualFold(d.Field, word) }
	if strings.ContainsAny(word, "_.:") || slices.ContainsFunc(e.details, isField) {
		text = e.message // it begins with the name of a field
	}
	if !strings.ContainsRune(".!?)", rune(text[len(text)-1])) {
		text += "."
	}
	if e.code != "" {
		text += " (" + e.code + ")"
	}
	for _, d := range e.details {
		if line := d.Field + ": " + d.Message; line != strings.TrimSuffix(e.message, ".") && !(isField(d) && strings.Contains(e.message, d.Message)) {
			text += "\n  " + line
		}
	}
	return text
}

// newAPIError returns the error of a response with this status and body.
func newAPIError(status int, body []byte) error {
	e := &apiError{status: status, body: body}
	var refused struct {
		Error struct {
			Code, Message string
			Details       []struct{ Field, Message string }
		}
	}
	if err := json.Unmarshal(body, &refused); err != nil || refused.Error.Message == "" {
		e.message = cmp.Or(strings.TrimSpace(string(body)), fmt.Sprintf("the server answered with the status %d", status))
		return e
	}
	e.code, e.message, e.details = refused.Error.Code, refused.Error.Message, refused.Error.Details
	return e
}

// roundTrip sends a request and returns the body of the response. If the status is not 2xx, it
// returns an *apiError.
func (a *apiCaller) roundTrip(r *http.Request) ([]byte, error) {
	r.Header.Set("X-Mailstead-Account", a.account)
	resp, err := a.send(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 == 2 {
		return text, err
	}
	return nil, newAPIError(resp.StatusCode, text)
}

// get calls an operation of the API and returns the object that it answers.
func (a *apiCaller) get(operation string, args jsonObject) (jsonObject, error) {
	text, err := a.call(operation, args)
	if err != nil {
		return nil, err
	}
	var out jsonObject
	return out, json.Unmarshal(text, &out)
}

// list returns the objects from all pages of a list.
func (a *apiCaller) list(operation string, args jsonObject) ([]jsonObject, error) {
	out := []jsonObject{}
	for {
		list, next, err := a.page(operation, args)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
		if next == "" {
			return out, nil
		}
		args = args.withField("cursor", next)
	}
}

// page returns the objects of one page of a list, and the cursor of the next page, "" if there is
// none. The list is the field data, users or records of the response.
func (a *apiCaller) page(operation string, args jsonObject) (list []jsonObject, next string, err error) {
	text, err := a.call(operation, args)
	if err != nil {
		return nil, "", err
	}
	var page struct {
		Data, Users, Records []jsonObject
		Pagination           struct {
			Cursor  *string
			HasMore bool `json:"has_more"`
		}
	}
	if err := json.Unmarshal(text, &page); err != nil {
		return nil, "", err
	}
	if page.Pagination.HasMore && page.Pagination.Cursor != nil {
		next = *page.Pagination.Cursor
	}
	return slices.Concat(page.Data, page.Users, page.Records), next, nil
}
