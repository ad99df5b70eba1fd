// Package cloudflare manages DNS records at Cloudflare through version 4 of its API. It does not
// know which records a domain should have, whose token it uses, or where the token is stored.
package cloudflare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
)

// BaseURL is the default URL of the API.
const BaseURL = "https://api.cloudflare.com/client/v4"

const (
	attemptTimeout = 30 * time.Second // for one request and its answer
	maxAttempts    = 3
	pause          = 500 * time.Millisecond
	maxAnswer      = 8 << 20          // bytes
	maxToken       = 512              // bytes; today's tokens have 40 to 53
	maxOwnWait     = 10 * time.Second // a longer wait that the API asks for is left to the caller
	defaultBlock   = 5 * time.Minute  // wait after too many requests if the API does not name one: the window over which it counts
	longestWait    = time.Hour
)

// Config configures a Client. The defaults of BaseURL and HTTP are Cloudflare and
// http.DefaultClient.
type Config struct {
	BaseURL string
	Token   string // an API token of a user or of an account; never a global key
	HTTP    *http.Client
	Pause   time.Duration // before the second attempt; later ones wait longer; 0: half a second
}

// A Client uses the API with one token. It is a dnsprov.Provider, and any number of goroutines may
// use it.
type Client struct {
	base  string
	token string
	http  *http.Client
	pause time.Duration
}

// New returns a client. It sends no request yet.
func New(c Config) *Client {
	if c.BaseURL == "" {
		c.BaseURL = BaseURL
	}
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	if c.Pause == 0 {
		c.Pause = pause
	}
	own := *c.HTTP
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token must not be sent to another address
	return &Client{base: strings.TrimSuffix(c.BaseURL, "/"), token: c.Token, http: &own, pause: c.Pause}
}

// A Request is one call of the API.
type Request struct {
	Method string
	Path   string // below the base URL, with a leading slash, escaped
	Query  url.Values
	Body   any    // sent as JSON; nil: no body
	Repeat bool   // it may be sent again if the result of the first attempt is unknown
	Needs  string // the permission that the token needs, as Cloudflare's dashboard names it
}

// Info is the part of an answer apart from its result.
type Info struct {
	Status     int    `json:"-"` // HTTP status
	TotalPages int    `json:"total_pages"`
	Cursor     string `json:"cursor"` // of the next page, in lists with cursors
}

// Call sends a request and decodes the result of its answer into out. The errors are
// dnsprov.ErrCredential, an *Error if the API refused, a *dnsprov.Wait, and others after which it
// is unknown whether anything was changed.
func (c *Client) Call(ctx context.Context, r Request, out any) (Info, error) {
	if err := c.checkToken(); err != nil {
		return Info{}, err
	}
	for n := 1; ; n++ {
		info, err := c.attempt(ctx, r, out)
		if err == nil {
			return info, nil
		}
		wait, again := c.nextTry(ctx, err, r, n)
		if !again {
			return Info{}, explain(ctx, err, r)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return Info{}, explain(ctx, err, r)
		case <-t.C:
		}
	}
}

// checkToken refuses a token that cannot be valid.
func (c *Client) checkToken() error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if c.token == "" || len(c.token) > maxToken || strings.ContainsFunc(c.token, odd) {
		return fmt.Errorf("cloudflare: %w: it does not look like one", dnsprov.ErrCredential)
	}
	return nil
}

// attempt sends a request once.
func (c *Client) attempt(ctx context.Context, r Request, out any) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req, err := c.request(ctx, r)
	if err != nil {
		return Info{}, &Error{what: err.Error()}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Info{}, &unknownOutcome{withoutURL(ctx, err)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return Info{}, &unknownOutcome{withoutURL(ctx, err)}
	case len(body) > maxAnswer:
		return Info{}, &unknownOutcome{fmt.Errorf("the answer has more than %d bytes", maxAnswer)}
	}
	info, err := decode(resp.StatusCode, resp.Header, body, out)
	return info, c.scrubbed(err)
}

// scrubbed removes the token from an error text of the API.
func (c *Client) scrubbed(err error) error {
	var refused *Error
	var lost *unknownOutcome
	switch {
	case errors.As(err, &refused):
		refused.what = strings.ReplaceAll(refused.what, c.token, "…")
	case errors.As(err, &lost) && strings.Contains(lost.Error(), c.token):
		return &unknownOutcome{errors.New(strings.ReplaceAll(lost.Error(), c.token, "…"))}
	}
	return err
}

func (c *Client) request(ctx context.Context, r Request) (*http.Request, error) {
	at := c.base + r.Path
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
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept", "application/json")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// withoutURL removes the URL, which may contain a proxy's password, from an error of net/http.
func withoutURL(ctx context.Context, err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	return err
}
