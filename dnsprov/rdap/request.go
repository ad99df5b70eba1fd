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
	maxRedirects = 3
	userAgent    = "Mailstead"

	defaultPause = 30 * time.Second
	maxPause     = 10 * time.Minute
)

// An answer is a server's response to one GET.
type answer struct {
	status     int
	body       []byte // only with status 200
	page       bool   // it is a web page for people
	retryAfter string
	header     http.Header
}

// A statusError is a response without information about the domain.
type statusError struct {
	status int
	page   bool
}

func (e *statusError) Error() string {
	if e.page {
		return fmt.Sprintf("it answered %d with a web page", e.status)
	}
	return fmt.Sprintf("it answered %d", e.status)
}

// A pauseError is a server's request for a pause.
type pauseError struct {
	status int
	pause  time.Duration
}

func (e *pauseError) Error() string {
	return fmt.Sprintf("it answered %d and wants no questions for %s", e.status, e.pause)
}

func (e *pauseError) Unwrap() error { return ErrBusy }

// get sends one request and reads at most limit bytes.
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
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // lets the connection be reused; the status is enough
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

// checkRedirect allows a few redirects (RFC 7480 §5.2): to https, or to the same host with the same
// scheme.
func checkRedirect(req *http.Request, via []*http.Request) error {
	last := via[len(via)-1].URL
	switch {
	case len(via) > maxRedirects:
		return errors.New("the server redirects too often")
	case req.URL.User != nil, req.URL.Hostname() == "":
		return errors.New("it redirects to a URL that is not allowed")
	case req.URL.Scheme == "https", req.URL.Scheme == last.Scheme && req.URL.Host == last.Host:
		return nil
	}
	return errors.New("it redirects to another host without https")
}

// pause parses Retry-After, in seconds or as a date (RFC 9110 §10.2.3), and keeps it within bounds.
func pause(retryAfter string, now time.Time) time.Duration {
	wait := defaultPause
	if seconds, err := strconv.ParseUint(strings.TrimSpace(retryAfter), 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(retryAfter); err == nil {
		wait = date.Sub(now).Round(time.Second)
	}
	return min(max(wait, time.Second), maxPause)
}
