package rdap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxRedirects = 3 // of one request
	userAgent    = "Mailstead"

	defaultPause = 30 * time.Second // if the server asks for a pause but names no time
	maxPause     = 10 * time.Minute // even if the server asks for a longer pause
)

// An answer is the response of a server to one GET request.
type answer struct {
	status     int
	body       []byte // nil unless status is 200
	page       bool   // whether the response is a web page instead of JSON
	retryAfter string // the header Retry-After
	header     http.Header
}

// A statusError is the error that a response has no information about the domain.
type statusError struct {
	status int
	page   bool // whether the response is a web page
}

func (e *statusError) Error() string {
	if e.page {
		return fmt.Sprintf("the server answered %d with a web page", e.status)
	}
	return fmt.Sprintf("the server answered %d", e.status)
}

// A pauseError is the error that a server allows no queries for the duration pause. It wraps
// ErrBusy.
type pauseError struct {
	status int
	pause  time.Duration
}

func (e *pauseError) Error() string {
	return fmt.Sprintf("the server answered %d and allows no queries for %s", e.status, e.pause)
}

func (e *pauseError) Unwrap() error { return ErrBusy }

// get sends one GET request. It returns an error if the body of a response with status 200 is a web
// page, or longer than limit bytes.
func (c *Client) get(ctx context.Context, url, accept string, limit int64) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", userAgent)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	kind := strings.ToLower(resp.Header.Get("Content-Type"))
	a := &answer{
		status: resp.StatusCode, page: strings.HasPrefix(kind, "text/html") || strings.HasPrefix(kind, "application/xhtml"),
		retryAfter: resp.Header.Get("Retry-After"), header: resp.Header,
	}
	if a.status != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // the connection can be reused after the body was read
		return a, nil
	}
	if a.page {
		return nil, &statusError{a.status, true}
	}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(a.body)) > limit {
		err = fmt.Errorf("the answer is longer than %d bytes", limit)
	}
	return a, err
}

// checkRedirect allows up to maxRedirects redirects (RFC 7480 §5.2) to https, or to the same host
// with the same scheme.
func checkRedirect(req *http.Request, via []*http.Request) error {
	last := via[len(via)-1].URL
	switch {
	case len(via) > maxRedirects:
		return errors.New("the server redirects too often")
	case req.URL.User != nil, req.URL.Hostname() == "":
		return errors.New("the server redirects to a URL that is not allowed")
	case req.URL.Scheme == "https", req.URL.Scheme == last.Scheme && req.URL.Host == last.Host:
		return nil
	}
	return errors.New("the server redirects to another host without https")
}

// parseRetryAfter parses the header Retry-After, which is in seconds or a date (RFC 9110 §10.2.3).
// The result is at least one second and at most maxPause. It is defaultPause for an invalid header.
func parseRetryAfter(retryAfter string, now time.Time) time.Duration {
	wait := defaultPause
	if seconds, err := strconv.ParseUint(strings.TrimSpace(retryAfter), 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(retryAfter); err == nil {
		wait = date.Sub(now).Round(time.Second)
	}
	return min(max(wait, time.Second), maxPause)
}
