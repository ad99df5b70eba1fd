// Package cloudflare manages DNS records at Cloudflare through version 4 of its API. It does not
// know which records a domain should have, or to whom a token belongs.
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

	"github.com/mailstead/mailstead/dnsprov/rest"
)

// BaseURL is the default URL of the API.
const BaseURL = "https://api.cloudflare.com/client/v4"

const (
	maxAnswer   = 8 << 20   // maximum size of an answer in bytes
	longestWait = time.Hour // maximum wait after too many requests
)

// Config configures a Client.
type Config struct {
	BaseURL string        // "" means the constant BaseURL
	Token   string        // an API token of a user or of an account
	HTTP    *http.Client  // nil means http.DefaultClient
	Pause   time.Duration // wait before the second attempt; 0 means half a second
}

// A Client uses the API with one token. It is a dnsprov.Provider. It is safe for concurrent use.
type Client struct {
	base       string
	token      string
	http       *http.Client
	firstPause time.Duration
}

// New returns a client without sending a request.
func New(c Config) *Client {
	if c.BaseURL == "" {
		c.BaseURL = BaseURL
	}
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	if c.Pause == 0 {
		c.Pause = rest.FirstPause
	}
	own := *c.HTTP
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // or the token would be sent to another address
	return &Client{base: strings.TrimSuffix(c.BaseURL, "/"), token: c.Token, http: &own, firstPause: c.Pause}
}

// A Request is one call of the API.
type Request struct {
	Method string
	Path   string // escaped path below the base URL, with a leading slash
	Query  url.Values
	Body   any    // sent as JSON; nil for no body
	Repeat bool   // whether to send it again if the result of an attempt is unknown
	Needs  string // the permission that the token needs, as Cloudflare's dashboard names it
}

// Info has the parts of an answer other than the result.
type Info struct {
	Status     int    `json:"-"` // HTTP status
	TotalPages int    `json:"total_pages"`
	Cursor     string `json:"cursor"` // cursor of the next page of a list; "" if there is none
}

// Call sends a request and decodes the result of the answer into out. If nothing was changed, it
// returns dnsprov.ErrCredential, a *dnsprov.Wait, or an *Error. After any other error it is unknown
// whether something was changed.
func (c *Client) Call(ctx context.Context, r Request, out any) (Info, error) {
	if err := rest.CheckToken("cloudflare", c.token); err != nil {
		return Info{}, err
	}
	for n := 1; ; n++ {
		info, err := c.attempt(ctx, r, out)
		if err == nil {
			return info, nil
		}
		wait, again := time.Duration(n)*c.firstPause, r.Repeat && errors.As(err, new(*unknownOutcome))
		var limit *rateLimited
		if errors.As(err, &limit) {
			wait, again = limit.after, true
		}
		if !again || !rest.Again(ctx, n, wait) {
			return Info{}, explain(ctx, err, r)
		}
	}
}

// attempt sends a request once and decodes the answer.
func (c *Client) attempt(ctx context.Context, r Request, out any) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.AttemptTimeout)
	defer cancel()
	req, err := c.request(ctx, r)
	if err != nil {
		return Info{}, &Error{text: err.Error()}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Info{}, &unknownOutcome{rest.WithoutURL(ctx, err)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return Info{}, &unknownOutcome{rest.WithoutURL(ctx, err)}
	case len(body) > maxAnswer:
		return Info{}, &unknownOutcome{fmt.Errorf("the answer has more than %d bytes", maxAnswer)}
	}
	info, err := decode(resp.StatusCode, resp.Header, body, out)
	return info, c.scrubbed(err)
}

// scrubbed removes the token from the text of an error, because the API may repeat it.
func (c *Client) scrubbed(err error) error {
	var refused *Error
	var lost *unknownOutcome
	switch {
	case errors.As(err, &refused):
		refused.text = strings.ReplaceAll(refused.text, c.token, "…")
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
