package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"

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

// roundTrip sends a request and returns the body of the response. If the status is not 2xx, it
// returns an error with the API's message and the details of invalid fields.
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
	var refused struct {
		Error struct {
			Message string
			Details []struct{ Field, Message string }
		}
	}
	if err := json.Unmarshal(text, &refused); err != nil || refused.Error.Message == "" {
		return nil, errors.New(strings.TrimSpace(string(text)))
	}
	message := refused.Error.Message
	for _, d := range refused.Error.Details {
		message += " " + d.Field + " " + d.Message + "."
	}
	return nil, errors.New(message)
}

// list returns the objects from all pages of a list. The list is the field data, users or records
// of the response.
func (a *apiCaller) list(operation string, args jsonObject) ([]jsonObject, error) {
	out := []jsonObject{}
	for {
		text, err := a.call(operation, args)
		if err != nil {
			return nil, err
		}
		var page struct {
			Data, Users, Records []jsonObject
			Pagination           struct {
				Cursor  *string
				HasMore bool `json:"has_more"`
			}
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return nil, err
		}
		out = append(append(append(out, page.Data...), page.Users...), page.Records...)
		if !page.Pagination.HasMore || page.Pagination.Cursor == nil {
			return out, nil
		}
		args = args.withField("cursor", *page.Pagination.Cursor)
	}
}
