// Package ca obtains certificates from a certificate authority by ACME (RFC 8555): accounts,
// orders, authorizations, and the resulting chains. It does not know which domains need a
// certificate, how a challenge is published, or where anything is stored.
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

// LetsEncrypt is the directory of the default authority.
const LetsEncrypt = acme.LetsEncryptURL

// Config names an authority and the account to use there.
type Config struct {
	Directory string // URL of its directory (RFC 8555 section 7.1.1)
	Email     string // contact address for the authority; "" = none
	EABKeyID  string // external account binding, for authorities that require an existing account (RFC 8555 section 7.3.4); "" = none
	EABKey    []byte
	HTTP      http.RoundTripper
	Agent     string           // User-Agent
	Now       func() time.Time // nil: time.Now
}

// An Account is our account at the authority. Using it means agreeing to the authority's terms of
// service.
type Account struct {
	Key crypto.Signer // ECDSA P-256
	URL string        // the account's URL at the authority; "" before Register
}

// A Client talks to one authority as one account. Any number of goroutines may use it.
type Client struct {
	config Config
	acme   *acme.Client
}

const (
	requestTimeout = 30 * time.Second
	maxBody        = 256 << 10 // bytes of an answer; a chain of certificates is a few KiB
	nonceTries     = 20
	busyTries      = 2
	requestBurst   = 60 // requests at once; after that one every requestEvery
	requestEvery   = 200 * time.Millisecond
)

// New returns a client. It sends no request yet.
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

// backoff returns how long to wait before a request is sent again, or 0 to give up. A nonce can
// expire through nobody's fault (RFC 8555 section 6.5), so that is retried often. A failing
// authority gets few quick retries; later ones are left to the caller.
func backoff(n int, _ *http.Request, resp *http.Response) time.Duration {
	switch {
	case resp.StatusCode == http.StatusBadRequest && n <= nonceTries:
		return time.Duration(n) * 20 * time.Millisecond
	case resp.StatusCode >= 500 && resp.Header.Get("Retry-After") == "" && n <= busyTries:
		return time.Duration(n) * time.Second
	}
	return 0
}

// Register creates the account, or finds the existing account of the key, and returns its URL.
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
		return "", fmt.Errorf("register with %s: %w", c.config.Directory, c.explain(err))
	}
	if c.acme.KID == "" {
		return "", fmt.Errorf("register with %s: the answer has no account URL", c.config.Directory)
	}
	return string(c.acme.KID), nil
}

// DecodeEABKey decodes the key of an external account binding: base64url, with or without padding.
func DecodeEABKey(text string) ([]byte, error) {
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err == nil && len(key) == 0 {
		err = errors.New("it is empty")
	}
	return key, err
}

// Errors of the authority, besides those of the network.
var (
	// ErrNoAccount means that the authority does not know the account; Register creates it again.
	ErrNoAccount = errors.New("the certificate authority does not know our account")
	// ErrUnfit means that a certificate must not be used: it is for other names or another key, not
	// valid now, or its chain is broken.
	ErrUnfit = errors.New("the certificate authority sent a certificate that cannot be used")
	// ErrOrder means that an order failed or does not exist; a new order may succeed.
	ErrOrder = errors.New("the order failed")
)

// A Wait is an error: the authority asks to wait before the next request.
type Wait struct {
	For time.Duration // at least a minute, at most a day
	Err error
}

func (w *Wait) Error() string { return fmt.Sprintf("%v; ask again in %s", w.Err, w.For) }

// Unwrap returns the authority's error.
func (w *Wait) Unwrap() error { return w.Err }

// A Refusal is an error: the authority refuses some of the names. Without them it may issue a
// certificate.
type Refusal struct{ Names map[string]string } // why, by name

func (r *Refusal) Error() string {
	text := make([]string, 0, len(r.Names))
	for name, why := range r.Names {
		text = append(text, name+": "+why)
	}
	return "the certificate authority refuses " + strings.Join(text, "; ")
}

// explain converts errors of the acme library into those of this package.
func (c *Client) explain(err error) error {
	var e *acme.Error
	if !errors.As(err, &e) {
		return err
	}
	e.Detail = truncate(e.Detail) // if the answer is not a problem document, Detail is the whole answer
	after := e.Header.Get("Retry-After")
	switch kind := strings.ToLower(e.ProblemType[strings.LastIndexByte(e.ProblemType, ':')+1:]); {
	case kind == "ratelimited", e.StatusCode == http.StatusTooManyRequests, e.StatusCode == http.StatusServiceUnavailable && after != "":
		return &Wait{For: c.waitFor(after), Err: err}
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

// waitFor reads a Retry-After header (RFC 9110 section 10.2.3). A missing or extreme value is
// replaced with one within bounds.
func (c *Client) waitFor(after string) time.Duration {
	wait := time.Hour
	if n, err := strconv.ParseUint(after, 10, 31); err == nil {
		wait = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(after); err == nil {
		wait = at.Sub(c.config.Now())
	}
	return min(max(wait, time.Minute), 24*time.Hour)
}

// truncate shortens a text of the authority to a length that can be stored.
func truncate(text string) string {
	const most = 500
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
