package ca

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/acme"
)

// Kinds of challenge.
const (
	HTTP01 = "http-01" // RFC 8555 section 8.3
	DNS01  = "dns-01"  // RFC 8555 section 8.4
)

// A Challenge says what to publish to prove to the authority that a name is ours.
type Challenge struct {
	Name   string // the name to prove, without a wildcard
	Token  string // for http-01: the last part of the URL's path
	Answer string // for http-01: the body; for dns-01: the TXT value of _acme-challenge.NAME
}

// A Request says which certificate Obtain should get, and how.
type Request struct {
	Names []string      // lower-case, without a trailing dot
	Key   crypto.Signer // private key of the certificate
	Kind  string        // HTTP01 or DNS01
	Order string        // URL of an unfinished order with the same names and key; "" for a new order
	// Begun is called with the URL of a new order before anything else. It should store the URL, so
	// that the order can be continued after a crash.
	Begun func(order string) error
	// Publish makes the challenges visible to the authority. The caller of Obtain removes them
	// afterwards.
	Publish func(ctx context.Context, all []Challenge) error
}

const (
	validationTimeout = 2 * time.Minute        // how long the authority may check one challenge
	issuingTimeout    = 2 * time.Minute        // how long the authority may take to issue
	firstPollPause    = 250 * time.Millisecond // pause after the first poll; later pauses are longer
	maxPollPause      = 10 * time.Second       // maximum pause between two polls
	tokenLetters      = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)

// Obtain gets a certificate and returns it in DER, followed by the rest of its chain. It returns a
// *Refusal if the authority refuses names, a *Wait after too many requests, and ErrNoAccount for an
// unknown account. After an interruption, call it again with Request.Order.
func (c *Client) Obtain(ctx context.Context, r Request) ([][]byte, error) {
	chain, err := c.obtain(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("obtain a certificate for %s: %w", strings.Join(r.Names, ", "), c.convertError(err))
	}
	return chain, nil
}

// obtain continues the earlier order of a request, if there is one, or makes a new order.
func (c *Client) obtain(ctx context.Context, r Request) ([][]byte, error) {
	if o, err := c.earlierOrder(ctx, r); o != nil || err != nil {
		if err != nil {
			return nil, err
		}
		chain, err := c.completeOrder(ctx, r, o)
		if !isOrderFailed(err) {
			return chain, err
		}
		// The authority may have checked the challenges while this server was down, so try a new
		// order.
	}
	o, err := c.acme.AuthorizeOrder(ctx, acme.DomainIDs(r.Names...))
	if err != nil {
		return nil, err
	}
	if o.URI == "" || !sameNames(o.Identifiers, r.Names) || len(o.AuthzURLs) > len(r.Names) {
		return nil, fmt.Errorf("%w: the order of the authority is not for the requested names", ErrOrder)
	}
	if err := r.Begun(o.URI); err != nil {
		return nil, err
	}
	return c.completeOrder(ctx, r, o)
}

// completeOrder proves the names of an order, finalizes the order, and fetches the certificate.
func (c *Client) completeOrder(ctx context.Context, r Request, o *acme.Order) ([][]byte, error) {
	if o.Status == acme.StatusPending {
		if err := c.authorize(ctx, r, o); err != nil {
			return nil, err
		}
	}
	o, err := c.awaitOrder(ctx, o)
	if err != nil {
		return nil, err
	}
	var chain [][]byte
	if o.Status == acme.StatusReady {
		csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: r.Names}, r.Key)
		if err != nil {
			return nil, err
		}
		limited, cancel := context.WithTimeout(ctx, issuingTimeout)
		defer cancel()
		chain, _, err = c.acme.CreateCertFromOrder(limited, o, csr, true)
		if failed := (*acme.OrderError)(nil); errors.As(err, &failed) && failed.Problem != nil {
			return nil, fmt.Errorf("%w: %w", ErrOrder, failed.Problem)
		}
		if err != nil {
			return nil, err
		}
	} else {
		chain, err = c.acme.FetchCert(ctx, o.CertURL, true)
		if err != nil {
			return nil, err
		}
	}
	return chain, Check(chain, r.Names, r.Key.Public(), c.config.Now())
}

// isOrderFailed reports whether err means that the order has failed, so that a new order may
// succeed.
func isOrderFailed(err error) bool {
	var e *acme.Error
	return errors.As(err, new(*Refusal)) || errors.Is(err, ErrOrder) ||
		errors.As(err, &e) && e.StatusCode < 500 && e.StatusCode != http.StatusTooManyRequests
}

// earlierOrder fetches the earlier order of a request. It returns nil if there is none, or if it
// has failed.
func (c *Client) earlierOrder(ctx context.Context, r Request) (*acme.Order, error) {
	if r.Order == "" {
		return nil, nil
	}
	o, err := c.acme.GetOrder(ctx, r.Order)
	if err == nil && o.Status != acme.StatusInvalid && sameNames(o.Identifiers, r.Names) {
		return o, nil
	}
	if e := (*acme.Error)(nil); err != nil && (!errors.As(err, &e) || e.StatusCode >= 500) {
		return nil, err
	}
	return nil, nil
}

// sameNames reports whether an order is for exactly these names.
func sameNames(ids []acme.AuthzID, names []string) bool {
	got := make([]string, 0, len(ids))
	for _, id := range ids {
		got = append(got, strings.ToLower(id.Value))
	}
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(names)))
}

// authorize proves all names of an order that are not yet authorized. It returns a *Refusal if that
// is impossible for some names.
func (c *Client) authorize(ctx context.Context, r Request, o *acme.Order) error {
	refused := &Refusal{Names: map[string]string{}}
	var open []proof
	for _, url := range o.AuthzURLs {
		z, err := c.acme.GetAuthorization(ctx, url)
		if err != nil {
			return err
		}
		p, reason, err := c.proofOf(r, url, z)
		switch {
		case err != nil:
			return err
		case reason != "":
			refused.Names[z.Identifier.Value] = reason
		case p != nil:
			open = append(open, *p)
		}
	}
	if len(refused.Names) > 0 {
		return refused
	}
	if len(open) == 0 {
		return nil
	}
	return c.prove(ctx, r, open)
}

// A proof is a pending authorization with the challenge that will prove it.
type proof struct {
	url       string          // URL of the authorization
	wire      *acme.Challenge // the challenge as the authority sent it
	challenge Challenge       // the challenge to publish
}

// proofOf returns the proof that an authorization needs, or nil if it is already valid. If the
// authorization cannot succeed, reason says why.
func (c *Client) proofOf(r Request, url string, z *acme.Authorization) (p *proof, reason string, err error) {
	if z.Identifier.Type != "dns" || !slices.Contains(r.Names, z.Identifier.Value) {
		return nil, "", fmt.Errorf("%w: the authority asks for a proof of %.100q, which was not requested", ErrOrder, z.Identifier.Value)
	}
	switch z.Status {
	case acme.StatusValid:
		return nil, "", nil
	case acme.StatusPending:
	default:
		return nil, "its authorization is " + truncate(z.Status), nil
	}
	at := slices.IndexFunc(z.Challenges, func(ch *acme.Challenge) bool { return ch.Type == r.Kind })
	if at < 0 {
		return nil, "the authority offers no challenge of the kind " + r.Kind, nil
	}
	p = &proof{url: url, wire: z.Challenges[at], challenge: Challenge{Name: z.Identifier.Value, Token: z.Challenges[at].Token}}
	if p.challenge.Token == "" || strings.Trim(p.challenge.Token, tokenLetters) != "" {
		return nil, "", fmt.Errorf("%w: the token of the challenge is empty or has forbidden characters", ErrOrder) // RFC 8555 section 8.3
	}
	if r.Kind == DNS01 {
		p.challenge.Answer, err = c.acme.DNS01ChallengeRecord(p.challenge.Token)
	} else {
		p.challenge.Answer, err = c.acme.HTTP01ChallengeResponse(p.challenge.Token)
	}
	return p, "", err
}

// prove publishes all challenges, asks the authority to check them, and waits for the results.
func (c *Client) prove(ctx context.Context, r Request, open []proof) error {
	all := make([]Challenge, 0, len(open))
	for _, p := range open {
		all = append(all, p.challenge)
	}
	if err := r.Publish(ctx, all); err != nil {
		return fmt.Errorf("publish ACME challenges: %w", err)
	}
	for _, p := range open {
		if p.wire.Status != acme.StatusPending { // the check was requested before a restart of this process
			continue
		}
		if _, err := c.acme.Accept(ctx, p.wire); err != nil {
			// Ignore the error if the check was already requested before a restart of this process.
			if z, lost := c.acme.GetAuthorization(ctx, p.url); lost != nil || z.Status == acme.StatusPending {
				return err
			}
		}
	}
	refused := &Refusal{Names: map[string]string{}}
	for _, p := range open {
		reason, err := c.awaitValidation(ctx, p)
		if err != nil {
			return err
		}
		if reason != "" {
			refused.Names[p.challenge.Name] = reason
		}
	}
	if len(refused.Names) > 0 {
		return refused
	}
	return nil
}

// awaitValidation waits until the authority has checked a challenge. If the check failed, reason
// says why.
func (c *Client) awaitValidation(ctx context.Context, p proof) (reason string, err error) {
	err = poll(ctx, validationTimeout, func() (bool, error) {
		z, err := c.acme.GetAuthorization(ctx, p.url)
		if err != nil {
			return false, err
		}
		if z.Status == acme.StatusPending {
			return false, nil
		}
		if z.Status != acme.StatusValid {
			reason = failureReason(z)
		}
		return true, nil
	})
	return reason, err
}

// failureReason returns the authority's text about why an authorization failed.
func failureReason(z *acme.Authorization) string {
	var out []string
	for _, ch := range z.Challenges {
		if e := (*acme.Error)(nil); errors.As(ch.Error, &e) {
			out = append(out, e.Detail)
		} else if ch.Error != nil {
			out = append(out, ch.Error.Error())
		}
	}
	if len(out) == 0 {
		out = append(out, "its authorization is "+z.Status)
	}
	return truncate(strings.Join(out, "; "))
}

// awaitOrder polls an order until it can be finalized, or is valid. It returns ErrOrder if the
// order has failed.
func (c *Client) awaitOrder(ctx context.Context, o *acme.Order) (*acme.Order, error) {
	isDone := func(o *acme.Order) bool { return o.Status == acme.StatusReady || o.Status == acme.StatusValid }
	if isDone(o) {
		return o, nil
	}
	err := poll(ctx, issuingTimeout, func() (bool, error) {
		now, err := c.acme.GetOrder(ctx, o.URI)
		if err != nil {
			return false, err
		}
		o = now
		if o.Status == acme.StatusInvalid {
			if o.Error != nil {
				return false, fmt.Errorf("%w: %w", ErrOrder, o.Error)
			}
			return false, ErrOrder
		}
		return isDone(o), nil
	})
	return o, err
}

// poll calls check until that returns true or an error, with longer and longer pauses. It returns
// an error after the timeout.
func poll(ctx context.Context, timeout time.Duration, check func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for pause := firstPollPause; ; pause = min(2*pause, maxPollPause) {
		done, err := check()
		if done || err != nil {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w: the certificate authority has not finished after %s", ctx.Err(), timeout)
		}
	}
}
