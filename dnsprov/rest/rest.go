// Package rest sends requests to APIs of DNS services that speak JSON over HTTP. Clients of other
// make share its limits. It does not know what the requests are about.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/dnsprov"
)

const (
	maxToken     = 512              // bytes
	maxErrorText = 300              // characters of an error text of the API
	maxOwnWait   = 10 * time.Second // for longer waits, Call returns a *dnsprov.Wait
	defaultBlock = 5 * time.Minute  // wait after too many requests if the API names no time
	longestWait  = 24 * time.Hour   // maximum wait after too many requests
)

// Limits of all APIs.
const (
	WorkTimeout    = 60 * time.Second       // for reading or changing the records of one domain
	AttemptTimeout = 30 * time.Second       // for one request and its answer
	MaxAttempts    = 3                      // of one call
	FirstPause     = 500 * time.Millisecond // before the second attempt; later ones wait longer
	MaxAnswer      = 5 << 20                // bytes of an answer
)

// Config configures a Client.
type Config struct {
	Service string // the name of the service, with which errors begin
	BaseURL string // the URL of the API
	Scheme  string // the word before the token in the header Authorization (RFC 9110 section 11.4)
	Token   string // the secret
	// Reason reads a refusal, which is an answer with a status from 400 to 499: it returns the
	// reason in the API's words, and whether the API refuses the token.
	Reason func(status int, body []byte) (text string, credential bool)
	HTTP   *http.Client  // nil means http.DefaultClient
	Pause  time.Duration // wait before the second attempt; 0 means half a second
}

// A Client uses an API with one token. It is safe for concurrent use.
type Client struct {
	Config
	http *http.Client
}

// New returns a client without sending a request.
func New(c Config) *Client {
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	if c.Pause == 0 {
		c.Pause = FirstPause
	}
	c.BaseURL = strings.TrimSuffix(c.BaseURL, "/")
	own := *c.HTTP
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // or the token would be sent to another address
	return &Client{Config: c, http: &own}
}

// A Request is one call of an API.
type Request struct {
	Method string
	Path   string // escaped path below the base URL, with a leading slash
	Query  url.Values
	Body   any  // sent as JSON; nil for no body
	Repeat bool // whether to send it again if the result of an attempt is unknown
}

// An Answer is what the API says to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// An Error means that the API refused a request, and not because of the token.
type Error struct {
	Answer
	what string
}

func (e *Error) Error() string { return e.what }

// lost is an error after which it is unknown whether the request had an effect.
type lost struct{ error }

func (l *lost) Unwrap() error { return l.error }

// rateLimited is the error that there were too many requests. The next one is permitted after the
// given time.
type rateLimited struct{ after time.Duration }

func (l *rateLimited) Error() string { return "too many requests" }

// Call sends a request and decodes the JSON of the answer into out, but not if the status is 204.
// If nothing was changed, it returns dnsprov.ErrCredential, a *dnsprov.Wait or an *Error. After any
// other error it is unknown whether something was changed.
func (c *Client) Call(ctx context.Context, r Request, out any) (*Answer, error) {
	if err := CheckToken(c.Service, c.Token); err != nil {
		return nil, err
	}
	for n := 1; ; n++ {
		answer, err := c.attempt(ctx, r, out)
		if err == nil {
			return answer, nil
		}
		wait, again := time.Duration(n)*c.Pause, r.Repeat && errors.As(err, new(*lost))
		var limit *rateLimited
		if errors.As(err, &limit) {
			wait, again = limit.after, true
		}
		if !again || !Again(ctx, n, wait) {
			return nil, c.explain(ctx, err, r)
		}
	}
}

// CheckToken returns dnsprov.ErrCredential for a token that no API accepts, because of its form.
func CheckToken(service, token string) error {
	invalid := func(r rune) bool { return r <= ' ' || r > '~' }
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, invalid) {
		return fmt.Errorf("%s: %w: it does not have the form of a token", service, dnsprov.ErrCredential)
	}
	return nil
}

// Again reports whether a request is to be sent again after its attempt n has failed, and waits
// before that. It is not after MaxAttempts, if the wait is longer than ten seconds, or if ctx ends
// before.
func Again(ctx context.Context, n int, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	if n >= MaxAttempts || ctx.Err() != nil || wait > maxOwnWait || ok && time.Until(deadline) <= wait {
		return false
	}
	return Sleep(ctx, wait) == nil
}

// Sleep waits, or returns the error of ctx if that ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// explain adds the request to an error, and makes a *dnsprov.Wait.
func (c *Client) explain(ctx context.Context, err error, r Request) error {
	request := c.Service + ": " + r.Method + " " + r.Path
	var limit *rateLimited
	switch {
	case errors.As(err, &limit):
		return &dnsprov.Wait{For: limit.after, Err: fmt.Errorf("%s: %w", request, err)}
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", request, ctx.Err())
	}
	return fmt.Errorf("%s: %w", request, err)
}

// attempt sends a request once and decodes the answer.
func (c *Client) attempt(ctx context.Context, r Request, out any) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	req, err := c.request(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &lost{WithoutURL(ctx, err)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	switch {
	case err != nil:
		return nil, &lost{WithoutURL(ctx, err)}
	case len(body) > MaxAnswer:
		return nil, &lost{fmt.Errorf("the answer has more than %d bytes", MaxAnswer)}
	}
	answer := &Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
	return answer, c.judge(answer, out)
}

// judge finds out whether an answer is a success, and decodes it then.
func (c *Client) judge(a *Answer, out any) error {
	switch {
	case a.Status == http.StatusTooManyRequests:
		return &rateLimited{RetryAfter(a.Header)}
	case a.Status >= 400 && a.Status < 500 && a.Status != http.StatusRequestTimeout:
		why, credential := c.Reason(a.Status, a.Body)
		text := fmt.Sprintf("status %d: %s", a.Status, Clean(why, c.Token))
		if credential {
			return fmt.Errorf("%w: %s", dnsprov.ErrCredential, text)
		}
		return &Error{Answer: *a, what: text}
	case a.Status < 200 || a.Status > 299:
		return &lost{fmt.Errorf("the answer has status %d", a.Status)}
	case a.Status == http.StatusNoContent:
		return nil
	}
	if err := json.Unmarshal(a.Body, out); err != nil {
		return &lost{fmt.Errorf("the answer with status %d is not JSON of the API", a.Status)}
	}
	return nil
}

func (c *Client) request(ctx context.Context, r Request) (*http.Request, error) {
	at := c.BaseURL + r.Path
	if len(r.Query) > 0 {
		at += "?" + r.Query.Encode()
	}
	var body io.Reader
	if r.Body != nil {
		text, err := json.Marshal(r.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, at, body)
	if err != nil {
		return nil, errors.New("the base URL is not a valid URL")
	}
	req.Header.Set("Authorization", c.Scheme+" "+c.Token)
	req.Header.Set("Accept", "application/json")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// Clean returns a text of an API for an error: in one line, not too long, and without the secret.
func Clean(text, secret string) string {
	if secret != "" {
		text = strings.ReplaceAll(text, secret, "…")
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return fmt.Sprintf("%.*s", maxErrorText, strings.TrimSpace(text))
}

// WithoutURL removes the URL from an error of net/http, because the URL may contain the password of
// a proxy.
func WithoutURL(ctx context.Context, err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("the API did not answer in time")
	}
	return err
}

// RetryAfter returns how long to wait after an answer with status 429: from one second to
// longestWait. It reads the headers Retry-After (RFC 9110 section 10.2.3) and RateLimit-Reset, a
// Unix time.
func RetryAfter(h http.Header) time.Duration {
	after := defaultBlock
	if seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		after = time.Until(at)
	} else if reset, err := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 40); err == nil {
		after = time.Until(time.Unix(reset, 0)).Round(time.Second)
	}
	return min(max(after, time.Second), longestWait)
}
