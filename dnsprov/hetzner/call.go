package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rest"
)

// bounded ends answers that are too large, and takes a redirect for an error.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.RoundTripper == nil {
		b.RoundTripper = http.DefaultTransport
	}
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 && resp.StatusCode < 400 {
		resp.Body.Close()
		return nil, fmt.Errorf("the answer has status %d", resp.StatusCode)
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, rest.MaxAnswer)
	return resp, nil
}

// A refusal is the error that the API did not do what a request asks for, and not because of the
// token.
type refusal struct {
	status int
	code   hcloud.ErrorCode // "" if the answer is not of the API
	text   string
}

func (r *refusal) Error() string { return r.text }

// call sends a request, and again after a short wait if that can help; with repeat also if it is
// unknown whether it has had an effect. If nothing was changed, the error is dnsprov.ErrCredential,
// a *dnsprov.Wait or a *refusal. After any other error it is unknown whether something was changed.
func call[T any](ctx context.Context, c *Client, what string, repeat bool, send func(context.Context) (T, *hcloud.Response, error)) (T, error) {
	var none T
	if err := rest.CheckToken("hetzner", c.token); err != nil {
		return none, err
	}
	for n := 1; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, rest.AttemptTimeout)
		out, answer, err := send(attempt)
		lost := false
		if err != nil {
			err, lost = c.explain(attempt, answer, err)
		}
		cancel()
		if err == nil {
			return out, nil
		}
		pause := time.Duration(n) * c.pause
		var wait *dnsprov.Wait
		again := lost && repeat
		if errors.As(err, &wait) {
			pause, again = wait.For, true
		}
		if again && rest.Again(ctx, n, pause) {
			continue
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if wait != nil {
			return none, wait
		}
		return none, fmt.Errorf("hetzner: %s: %w", what, err)
	}
}

// explain converts an error of a request. lost means that it is unknown whether the request has had
// an effect.
func (c *Client) explain(ctx context.Context, answer *hcloud.Response, err error) (_ error, lost bool) {
	if answer == nil || answer.Response == nil || answer.StatusCode < 400 {
		return errors.New(rest.Clean(rest.WithoutURL(ctx, err).Error(), c.token)), true
	}
	var of hcloud.Error
	_ = errors.As(err, &of) // there is none if the answer is not of the API
	text := rest.Clean(fmt.Sprintf("status %d: %s (%s)", answer.StatusCode, of.Message, of.Code), c.token)
	switch status := answer.StatusCode; {
	case status == http.StatusTooManyRequests:
		return &dnsprov.Wait{For: rest.RetryAfter(answer.Header), Err: errors.New("hetzner: too many requests")}, false
	case status == http.StatusUnauthorized, of.Code == hcloud.ErrorCodeForbidden, of.Code == codeReadOnly:
		return fmt.Errorf("%w: %s", dnsprov.ErrCredential, text), false
	case status >= 500, status == http.StatusRequestTimeout:
		return errors.New(text), true
	}
	return &refusal{answer.StatusCode, of.Code, text}, false
}

// codeReadOnly is the error code for a change with a token that may only read, as the API answered
// it before it answered hcloud.ErrorCodeForbidden.
const codeReadOnly hcloud.ErrorCode = "token_readonly"
