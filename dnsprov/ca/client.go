// Package ca gets certificates from a certificate authority by ACME (RFC 8555): accounts, orders,
// authorizations, and what comes back. It does not know who wants a certificate, how a challenge is
// published, or where anything is kept.
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

// LetsEncrypt is the directory of the authority that is asked where none is named.
const LetsEncrypt = acme.LetsEncryptURL

// Config says which authority is asked, and as whom.
type Config struct {
	Directory string // URL of its directory (RFC 8555 section 7.1.1)
	Email     string // where the authority may write to; "" = nowhere
	EABKeyID  string // of an account that the authority knows from elsewhere (RFC 8555 section 7.3.4); "" = none
	EABKey    []byte
	HTTP      http.RoundTripper
	Agent     string           // User-Agent
	Now       func() time.Time // nil: time.Now
}

// An Account is ours at the authority. Its use agrees to the authority's terms of service.
type Account struct {
	Key crypto.Signer // ECDSA P-256
	URL string        // the authority's name for it; "" before Register
}

// A Client speaks to one authority as one account. Its methods may be called by any number of
// goroutines.
type Client struct {
	config Config
	acme   *acme.Client
}

const (
	requestFor   = 30 * time.Second
	maxBody      = 256 << 10 // bytes of an answer; a chain of certificates is a few KiB
	nonceTries   = 20
	busyTries    = 2
	requestBurst = 60 // requests at once; then a few in a second
	requestEvery = 200 * time.Millisecond
)

// New returns a client that has asked nothing yet.
func New(c Config, a Account) *Client {
	if c.Now == nil {
		c.Now = time.Now
	}
	transport := &bounded{next: c.HTTP, rate: NewRateLimiter(requestBurst, requestEvery, time.Now)}
	return &Client{config: c, acme: &acme.Client{
		Key: a.Key, KID: acme.KeyID(a.URL), DirectoryURL: c.Directory, UserAgent: c.Agent, RetryBackoff: backoff,
		HTTPClient: &http.Client{Timeout: requestFor, Transport: transport},
	}}
}

// backoff is how long one request waits before it is sent again. Nonces get stale without anybody's
// fault (RFC 8555 section 6.5); an authority in trouble gets a second chance at once, and then the
// caller's patience.
func backoff(n int, _ *http.Request, resp *http.Response) time.Duration {
	switch {
	case resp.StatusCode == http.StatusBadRequest && n <= nonceTries:
		return time.Duration(n) * 20 * time.Millisecond
	case resp.StatusCode >= 500 && resp.Header.Get("Retry-After") == "" && n <= busyTries:
		return time.Duration(n) * time.Second
	}
	return 0
}

// Register makes the account, or finds the one that the key has, and gives its URL.
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
		return "", fmt.Errorf("register with %s: it gave the account no URL", c.config.Directory)
	}
	return string(c.acme.KID), nil
}

// DecodeEABKey reads the key of an external account as authorities hand it out: base64url, with or
// without padding.
func DecodeEABKey(text string) ([]byte, error) {
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err == nil && len(key) == 0 {
		err = errors.New("it is empty")
	}
	return key, err
}

// Errors of the authority, beside those of the network.
var (
	// ErrNoAccount says that the authority does not know the account; Register makes it again.
	ErrNoAccount = errors.New("the certificate authority does not know our account")
	// ErrUnfit is what a certificate is that must not be used: for other names or another key, not
	// valid now, or in a chain that does not hold together.
	ErrUnfit = errors.New("the certificate authority sent a certificate that cannot be used")
	// ErrOrder says that an order came to nothing, or is none; another may do better.
	ErrOrder = errors.New("the order came to nothing")
)

// A Wait is an error: the authority wants to be asked again only after some time.
type Wait struct {
	For time.Duration // at least a minute, at most a day
	Err error
}

func (w *Wait) Error() string { return fmt.Sprintf("%v; ask again in %s", w.Err, w.For) }

// Unwrap gives what the authority said.
func (w *Wait) Unwrap() error { return w.Err }

// A Refusal is an error: the authority gives no certificate for some of the names. Without them it
// may give one.
type Refusal struct{ Names map[string]string } // why, by name

func (r *Refusal) Error() string {
	text := make([]string, 0, len(r.Names))
	for name, why := range r.Names {
		text = append(text, name+": "+why)
	}
	return "the certificate authority refuses " + strings.Join(text, "; ")
}

// explain turns the library's errors into ours.
func (c *Client) explain(err error) error {
	var e *acme.Error
	if !errors.As(err, &e) {
		return err
	}
	e.Detail = cut(e.Detail) // of an answer that is no problem document it is all of it
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
			r.Names[sub.Identifier.Value] = cut(sub.Detail)
		}
	}
	if len(r.Names) > 0 {
		return r
	}
	return err
}

// waitFor reads a Retry-After (RFC 9110 section 10.2.3). What it does not say, or says absurdly, is
// kept within bounds.
func (c *Client) waitFor(after string) time.Duration {
	wait := time.Hour
	if n, err := strconv.ParseUint(after, 10, 31); err == nil {
		wait = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(after); err == nil {
		wait = at.Sub(c.config.Now())
	}
	return min(max(wait, time.Minute), 24*time.Hour)
}

// cut shortens what a stranger says to what a record may keep.
func cut(text string) string {
	const most = 500
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
