package cloudflare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/dnsprov"
)

// Error codes of the API.
const (
	codeNoSuchRecord = 81044 // "Record does not exist"
	codeAddressThere = 81053 // an A, AAAA or CNAME record already exists at the name
	codeCNAMEThere   = 81054 // a CNAME record already exists at the name
	codeNSThere      = 81056 // NS records already exist at the name
	codeExists       = 81057 // "The record already exists"
	codeIdentical    = 81058 // "An identical record already exists"
)

// credentialCodes lists the codes that, with status 400, mean that the token is not accepted.
var credentialCodes = []int{6003, 6111, 9103, 9106, 9107, 9109, 10000, 10001}

// maxErrorText is how many characters of the API's error text are passed on.
const maxErrorText = 300

// An Error is a refusal by the API: nothing was changed.
type Error struct {
	Status int   // the HTTP status; 0: the request was not sent
	Codes  []int // error codes of the API
	what   string
}

func (e *Error) Error() string { return e.what }

// Has reports whether the API gave one of these codes.
func (e *Error) Has(codes ...int) bool {
	return slices.ContainsFunc(e.Codes, func(c int) bool { return slices.Contains(codes, c) })
}

// credential reports whether the error is about the token.
func (e *Error) credential() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden || e.Status == http.StatusBadRequest && e.Has(credentialCodes...)
}

// unknownOutcome is an error after which it is unknown whether anything was changed.
type unknownOutcome struct{ error }

func (u *unknownOutcome) Unwrap() error { return u.error }

// rateLimited is a refusal because of too many requests.
type rateLimited struct{ after time.Duration }

func (l *rateLimited) Error() string { return "there were too many requests" }

// nextTry reports whether a request is sent again after try n failed, and after what time.
func (c *Client) nextTry(ctx context.Context, err error, r Request, n int) (time.Duration, bool) {
	wait := time.Duration(n) * c.pause
	var limit *rateLimited
	var lost *unknownOutcome
	switch {
	case n == maxAttempts || ctx.Err() != nil:
		return 0, false
	case errors.As(err, &limit):
		wait = limit.after
	case !errors.As(err, &lost) || !r.Repeat:
		return 0, false
	}
	deadline, ok := ctx.Deadline()
	return wait, wait <= maxOwnWait && (!ok || time.Until(deadline) > wait)
}

// explain makes the final form of an error: it adds the request, and wraps the error that callers
// test for.
func explain(ctx context.Context, err error, r Request) error {
	asked := "cloudflare: " + r.Method + " " + r.Path
	var (
		limit *rateLimited
		said  *Error
	)
	switch {
	case errors.As(err, &limit):
		return &dnsprov.Wait{For: limit.after, Err: fmt.Errorf("%s: %w", asked, err)}
	case errors.As(err, &said) && said.credential():
		return fmt.Errorf("%s: %w; it needs the right %s: %w", asked, dnsprov.ErrCredential, r.Needs, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", asked, ctx.Err())
	}
	return fmt.Errorf("%s: %w", asked, err)
}

// envelope is the common form of all answers.
type envelope struct {
	Success bool            `json:"success"`
	Errors  []fault         `json:"errors"`
	Result  json.RawMessage `json:"result"`
	Info    *Info           `json:"result_info"`
}

type fault struct {
	Code    int     `json:"code"`
	Message string  `json:"message"`
	Chain   []fault `json:"error_chain"`
}

// decode reads an answer, and its result into out unless out is nil.
func decode(status int, h http.Header, body []byte, out any) (Info, error) {
	if status == http.StatusTooManyRequests {
		return Info{}, &rateLimited{retryAfter(h.Get("Retry-After"))}
	}
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return Info{}, &unknownOutcome{fmt.Errorf("status %d, and the body is not an answer of this API", status)}
	}
	refused := status >= 400 && status < 500 && status != http.StatusRequestTimeout
	switch {
	case refused && !e.Success:
		codes, said := e.said()
		return Info{}, &Error{Status: status, Codes: codes, what: fmt.Sprintf("status %d: %s", status, said)}
	case status < 200 || status > 299 || !e.Success:
		_, said := e.said()
		return Info{}, &unknownOutcome{fmt.Errorf("status %d: %s", status, said)}
	}
	if out != nil {
		if len(e.Result) == 0 || bytes.Equal(e.Result, []byte("null")) {
			return Info{}, &unknownOutcome{fmt.Errorf("status %d, and the answer has no result", status)}
		}
		if err := json.Unmarshal(e.Result, out); err != nil {
			return Info{}, &unknownOutcome{fmt.Errorf("status %d, and the result has an unexpected form: %w", status, err)}
		}
	}
	info := Info{}
	if e.Info != nil {
		info = *e.Info
	}
	info.Status = status
	return info, nil
}

// said returns the codes and the texts of the errors.
func (e envelope) said() ([]int, string) {
	var codes []int
	var words []string
	for _, f := range e.Errors {
		codes, words = f.list(codes, words)
	}
	if len(words) == 0 {
		return nil, "no reason was given"
	}
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.Join(words, "; "))
	return codes, fmt.Sprintf("%.*s", maxErrorText, text)
}

// list adds the code and text of a fault and of its direct causes.
func (f fault) list(codes []int, words []string) ([]int, []string) {
	codes, words = append(codes, f.Code), append(words, fmt.Sprintf("%s (%d)", f.Message, f.Code))
	for _, c := range f.Chain {
		codes, words = append(codes, c.Code), append(words, fmt.Sprintf("%s (%d)", c.Message, c.Code))
	}
	return codes, words
}

// retryAfter reads a Retry-After header (RFC 9110 section 10.2.3).
func retryAfter(header string) time.Duration {
	after := defaultBlock
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		after = time.Until(at)
	}
	return min(max(after, time.Second), longestWait)
}
