// Package ca obtains certificates from a certificate authority by ACME (RFC 8555). It does not know
// which domains need a certificate, how challenges are published, or where orders and certificates
// are stored.
package ca

import (
	"context"
	"crypto"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/acme"
)

// LetsEncrypt is the directory URL of Let's Encrypt, the default authority.
const LetsEncrypt = acme.LetsEncryptURL

// Config configures a Client.
type Config struct {
	Directory string            // directory URL of the authority (RFC 8555 section 7.1.1)
	Email     string            // contact address of the account; "" for none
	EABKeyID  string            // key ID for external account binding (RFC 8555 section 7.3.4); "" for none
	EABKey    []byte            // MAC key for external account binding
	HTTP      http.RoundTripper // nil means http.DefaultTransport
	Agent     string            // the header User-Agent
	Now       func() time.Time  // nil means time.Now
}

// An Account is our account at the authority. Register accepts the authority's terms of service.
type Account struct {
	Key crypto.Signer // ECDSA P-256
	URL string        // the account's URL at the authority; "" before Register
}

// A Client uses one account at one authority. It is safe for concurrent use.
type Client struct {
	config Config
	acme   *acme.Client
}

const (
	requestTimeout = 30 * time.Second
	maxBody        = 256 << 10              // maximum size of an answer in bytes; a chain has a few KiB
	nonceTries     = 20                     // maximum number of retries after status 400
	busyTries      = 2                      // maximum number of retries after status 500 or higher
	requestBurst   = 60                     // number of requests at once; then one every requestEvery
	requestEvery   = 200 * time.Millisecond // average time between two requests
)

// New returns a client without sending a request.
func New(c Config, a Account) *Client {
	if c.Now == nil {
		c.Now = time.Now
	}
	transport := &limitedTransport{next: c.HTTP, rate: NewRateLimiter(requestBurst, requestEvery, time.Now)}
	return &Client{config: c, acme: &acme.Client{
		Key: a.Key, KID: acme.KeyID(a.URL), DirectoryURL: c.Directory, UserAgent: c.Agent, RetryBackoff: backoff,
		HTTPClient: &http.Client{Timeout: requestTimeout, Transport: transport},
	}}
}

// backoff returns how long to wait before retry n of a request, or 0 to give up. Status 400 can
// mean an expired nonce, for which clients should retry (RFC 8555 section 6.5).
func backoff(n int, _ *http.Request, resp *http.Response) time.Duration {
	switch {
	case resp.StatusCode == http.StatusBadRequest && n <= nonceTries:
		return time.Duration(n) * 20 * time.Millisecond
	case resp.StatusCode >= 500 && resp.Header.Get("Retry-After") == "" && n <= busyTries:
		return time.Duration(n) * time.Second
	}
	return 0
}

// Register creates the account, or finds the existing account with the same key, and returns its
// URL.
func (c *Client) Register(ctx context.Context) (string, error) {
	a := &acme.Account{}
	if c.config.Email != "" {
		a.Contact = []string{"mailto:" + c.config.Email}
	}
	if c.config.EABKeyID != "" {
		a.ExternalAccountBinding = &acme.ExternalAccountBinding{KID: c.config.EABKeyID, Key: c.config.EABKey}
	}
	_, err := c.acme.Register(ctx, a, acme.AcceptTOS)
	if err != nil && !errors.Is(err, acme.ErrAccountAlreadyExists) {
		return "", fmt.Errorf("register with %s: %w", c.config.Directory, c.convertError(err))
	}
	if c.acme.KID == "" {
		return "", fmt.Errorf("register with %s: the answer has no account URL", c.config.Directory)
	}
	return string(c.acme.KID), nil
}

// DecodeEABKey decodes the MAC key for external account binding. The text is base64url, with or
// without padding.
func DecodeEABKey(text string) ([]byte, error) {
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err == nil && len(key) == 0 {
		err = errors.New("the key is empty")
	}
	return key, err
}

// Errors that Client methods return.
var (
	// ErrNoAccount means that the authority does not have the account. Register creates it again.
	ErrNoAccount = errors.New("the certificate authority does not know our account")
	// ErrUnfit means that a certificate cannot be used: it is for other names or another key, it is
	// not valid now, or its chain is broken.
	ErrUnfit = errors.New("the certificate authority sent a certificate that cannot be used")
	// ErrOrder means that an order has failed. A new order may succeed.
	ErrOrder = errors.New("the certificate order failed")
)

// A Wait is the error that the authority allows no further request for the duration For.
type Wait struct {
	For time.Duration // from a minute to a day
	Err error         // the authority's error
}

func (w *Wait) Error() string { return fmt.Sprintf("%v; try again in %s", w.Err, w.For) }

// Unwrap returns the authority's error.
func (w *Wait) Unwrap() error { return w.Err }

// A Refusal is the error that the authority refuses some of the names. It may issue a certificate
// for the other names.
type Refusal struct{ Names map[string]string } // reasons by name

func (r *Refusal) Error() string {
	text := make([]string, 0, len(r.Names))
	for name, why := range r.Names {
		text = append(text, name+": "+why)
	}
	return "the certificate authority refuses " + strings.Join(text, "; ")
}

// convertError converts errors of package acme to errors of this package.
func (c *Client) convertError(err error) error {
	var e *acme.Error
	if !errors.As(err, &e) {
		return err
	}
	e.Detail = truncate(e.Detail) // Detail is the whole answer if that is not a problem document
	after := e.Header.Get("Retry-After")
	switch kind := strings.ToLower(e.ProblemType[strings.LastIndexByte(e.ProblemType, ':')+1:]); {
	case kind == "ratelimited", e.StatusCode == http.StatusTooManyRequests, e.StatusCode == http.StatusServiceUnavailable && after != "":
		return &Wait{For: c.parseRetryAfter(after), Err: err}
	case kind == "accountdoesnotexist":
		return fmt.Errorf("%w: %w", ErrNoAccount, err)
	}
	r := &Refusal{Names: map[string]string{}}
	for _, sub := range e.Subproblems {
		if sub.Identifier != nil && sub.Identifier.Type == "dns" {
			r.Names[sub.Identifier.Value] = truncate(sub.Detail)
		}
	}
	if len(r.Names) > 0 {
		return r
	}
	return err
}

// parseRetryAfter parses a Retry-After header (RFC 9110 section 10.2.3). The result is at least a
// minute and at most a day. It is an hour if the header is missing or invalid.
func (c *Client) parseRetryAfter(header string) time.Duration {
	wait := time.Hour
	if n, err := strconv.ParseUint(header, 10, 31); err == nil {
		wait = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(c.config.Now())
	}
	return min(max(wait, time.Minute), 24*time.Hour)
}

// truncate shortens a text of the authority to 500 bytes.
func truncate(text string) string {
	const limit = 500
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}
