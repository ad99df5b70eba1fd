package cloudflare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rest"
)

// Error codes of the API.
const (
	codeNoSuchRecord  = 81044 // "Record does not exist"
	codeAddressExists = 81053 // an A, AAAA or CNAME record already has the name
	codeCNAMEExists   = 81054 // a CNAME record already has the name
	codeNSExists      = 81056 // NS records already have the name
	codeExists        = 81057 // "The record already exists"
	codeIdentical     = 81058 // "An identical record already exists"
)

// credentialCodes lists the error codes that mean, with status 400, that the token is not accepted.
var credentialCodes = []int{6003, 6111, 9103, 9106, 9107, 9109, 10000, 10001}

// An Error means that the API refused a request, or that it could not be sent. Nothing was changed.
type Error struct {
	Status int    // the HTTP status; 0 if the request was not sent
	Codes  []int  // error codes of the API
	text   string // the text of the error
}

func (e *Error) Error() string { return e.text }

// Has reports whether e has one of these error codes.
func (e *Error) Has(codes ...int) bool {
	return slices.ContainsFunc(e.Codes, func(c int) bool { return slices.Contains(codes, c) })
}

// isCredential reports whether the API refused the token.
func (e *Error) isCredential() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden || e.Status == http.StatusBadRequest && e.Has(credentialCodes...)
}

// unknownOutcome is an error after which it is unknown whether the request had an effect.
type unknownOutcome struct{ error }

func (u *unknownOutcome) Unwrap() error { return u.error }

// rateLimited is the error that there were too many requests. The next one is permitted after the
// given time.
type rateLimited struct{ after time.Duration }

func (l *rateLimited) Error() string { return "too many requests" }

// explain converts the error of a request to the form that callers get: it adds the request, and
// wraps dnsprov.ErrCredential or makes a *dnsprov.Wait.
func explain(ctx context.Context, err error, r Request) error {
	request := "cloudflare: " + r.Method + " " + r.Path
	var (
		limit  *rateLimited
		apiErr *Error
	)
	switch {
	case errors.As(err, &limit):
		return &dnsprov.Wait{For: limit.after, Err: fmt.Errorf("%s: %w", request, err)}
	case errors.As(err, &apiErr) && apiErr.isCredential():
		return fmt.Errorf("%s: %w; the API token needs the permission %s: %w", request, dnsprov.ErrCredential, r.Needs, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", request, ctx.Err())
	}
	return fmt.Errorf("%s: %w", request, err)
}

// envelope is the JSON object that all answers of the API have.
type envelope struct {
	Success bool            `json:"success"`
	Errors  []fault         `json:"errors"`
	Result  json.RawMessage `json:"result"`
	Info    *Info           `json:"result_info"`
}

// fault is an error in an answer of the API.
type fault struct {
	Code    int     `json:"code"`
	Message string  `json:"message"`
	Chain   []fault `json:"error_chain"`
}

// decode parses an answer. It decodes the result into out unless out is nil.
func decode(status int, h http.Header, body []byte, out any) (Info, error) {
	if status == http.StatusTooManyRequests {
		return Info{}, &rateLimited{min(rest.RetryAfter(h), longestWait)}
	}
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return Info{}, &unknownOutcome{fmt.Errorf("the answer has status %d and is not JSON of the API", status)}
	}
	refused := status >= 400 && status < 500 && status != http.StatusRequestTimeout
	switch {
	case refused && !e.Success:
		codes, text := e.errorText()
		return Info{}, &Error{Status: status, Codes: codes, text: fmt.Sprintf("status %d: %s", status, text)}
	case status < 200 || status > 299 || !e.Success:
		_, text := e.errorText()
		return Info{}, &unknownOutcome{fmt.Errorf("the answer has status %d: %s", status, text)}
	}
	if out != nil {
		if len(e.Result) == 0 || bytes.Equal(e.Result, []byte("null")) {
			return Info{}, &unknownOutcome{fmt.Errorf("the answer with status %d has no result", status)}
		}
		if err := json.Unmarshal(e.Result, out); err != nil {
			return Info{}, &unknownOutcome{fmt.Errorf("the answer with status %d has an unexpected result: %w", status, err)}
		}
	}
	info := Info{}
	if e.Info != nil {
		info = *e.Info
	}
	info.Status = status
	return info, nil
}

// errorText returns the codes of all errors in the answer, and their joined messages.
func (e envelope) errorText() (codes []int, text string) {
	var messages []string
	for _, f := range e.Errors {
		codes, messages = f.appendTo(codes, messages)
	}
	if len(messages) == 0 {
		return nil, "no reason was given"
	}
	return codes, rest.Clean(strings.Join(messages, "; "), "")
}

// appendTo appends the code and message of f and of its direct causes.
func (f fault) appendTo(codes []int, messages []string) ([]int, []string) {
	codes, messages = append(codes, f.Code), append(messages, fmt.Sprintf("%s (%d)", f.Message, f.Code))
	for _, c := range f.Chain {
		codes, messages = append(codes, c.Code), append(messages, fmt.Sprintf("%s (%d)", c.Message, c.Code))
	}
	return codes, messages
}
