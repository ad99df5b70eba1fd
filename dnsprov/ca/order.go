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

// A Challenge is the proof that the authority wants before it believes that a name is ours.
type Challenge struct {
	Name   string // the name to be proven, without a wildcard
	Token  string // for http-01: the last part of the path
	Answer string // for http-01: the body; for dns-01: the TXT value at _acme-challenge below the name
}

// A Request asks for one certificate.
type Request struct {
	Names []string      // lower-case, without a trailing dot
	Key   crypto.Signer // of the certificate
	Kind  string        // HTTP01, DNS01
	Order string        // the URL of an unfinished order of the same names and key; "" = none
	// Begun stores the URL of a new order before the order is worked on, so that a crash in between
	// does not waste it.
	Begun func(order string) error
	// Publish makes every challenge visible to the authority. The caller removes them after Obtain
	// has returned.
	Publish func(ctx context.Context, all []Challenge) error
}

const (
	validationTimeout = 2 * time.Minute
	issuingTimeout    = 2 * time.Minute
	firstPoll         = 250 * time.Millisecond
	slowestPoll       = 10 * time.Second
	tokenLetters      = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)

// Obtain gets a certificate: the leaf, followed by its chain. The errors are a *Refusal for names
// that the authority refuses, a *Wait after too many requests, ErrNoAccount for an unknown account.
// It can be called again after an interruption.
func (c *Client) Obtain(ctx context.Context, r Request) ([][]byte, error) {
	chain, err := c.obtain(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("obtain a certificate for %s: %w", strings.Join(r.Names, ", "), c.explain(err))
	}
	return chain, nil
}

func (c *Client) obtain(ctx context.Context, r Request) ([][]byte, error) {
	if o, err := c.earlierOrder(ctx, r); o != nil || err != nil {
		if err != nil {
			return nil, err
		}
		chain, err := c.follow(ctx, r, o)
		if !stale(err) {
			return chain, err
		}
		// The authority may have checked the challenges while this server was down. That proves
		// nothing about the names, so try again with a new order.
	}
	o, err := c.acme.AuthorizeOrder(ctx, acme.DomainIDs(r.Names...))
	if err != nil {
		return nil, err
	}
	if o.URI == "" || !sameNames(o.Identifiers, r.Names) || len(o.AuthzURLs) > len(r.Names) {
		return nil, fmt.Errorf("%w: the authority's order is for other names than requested", ErrOrder)
	}
	if err := r.Begun(o.URI); err != nil {
		return nil, err
	}
	return c.follow(ctx, r, o)
}

// follow completes an order: it proves the names, finalizes the order, and fetches the certificate.
func (c *Client) follow(ctx context.Context, r Request, o *acme.Order) ([][]byte, error) {
	if o.Status == acme.StatusPending {
		if err := c.authorize(ctx, r, o); err != nil {
			return nil, err
		}
	}
	o, err := c.await(ctx, o)
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

// stale reports whether err means that an earlier order has failed.
func stale(err error) bool {
	var e *acme.Error
	return errors.As(err, new(*Refusal)) || errors.Is(err, ErrOrder) ||
		errors.As(err, &e) && e.StatusCode < 500 && e.StatusCode != http.StatusTooManyRequests
}

// earlierOrder returns the earlier order of a request; nil if there is none that can still succeed.
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

func sameNames(ids []acme.AuthzID, names []string) bool {
	got := make([]string, 0, len(ids))
	for _, id := range ids {
		got = append(got, strings.ToLower(id.Value))
	}
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(names)))
}

// authorize proves every name of an order that is not yet authorized.
func (c *Client) authorize(ctx context.Context, r Request, o *acme.Order) error {
	refused := &Refusal{Names: map[string]string{}}
	var open []proof
	for _, url := range o.AuthzURLs {
		z, err := c.acme.GetAuthorization(ctx, url)
		if err != nil {
			return err
		}
		p, why, err := c.proofOf(r, url, z)
		switch {
		case err != nil:
			return err
		case why != "":
			refused.Names[z.Identifier.Value] = why
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

// A proof is a pending authorization.
type proof struct {
	url       string // of the authorization
	wire      *acme.Challenge
	challenge Challenge
}

// proofOf returns the proof that an authorization needs; nil if it needs none. why says why it
// cannot succeed.
func (c *Client) proofOf(r Request, url string, z *acme.Authorization) (p *proof, why string, err error) {
	if z.Identifier.Type != "dns" || !slices.Contains(r.Names, z.Identifier.Value) {
		return nil, "", fmt.Errorf("%w: it asks for a proof of %.100q", ErrOrder, z.Identifier.Value)
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
		return nil, "", fmt.Errorf("%w: the challenge's token is empty or has forbidden characters", ErrOrder) // RFC 8555 section 8.3
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
		return fmt.Errorf("publish challenges: %w", err)
	}
	for _, p := range open {
		if p.wire.Status != acme.StatusPending { // the check began before this process was restarted
			continue
		}
		if _, err := c.acme.Accept(ctx, p.wire); err != nil {
			// The check may have begun already, since it was requested before this process was
			// restarted.
			if z, lost := c.acme.GetAuthorization(ctx, p.url); lost != nil || z.Status == acme.StatusPending {
				return err
			}
		}
	}
	refused := &Refusal{Names: map[string]string{}}
	for _, p := range open {
		why, err := c.awaitValidation(ctx, p)
		if err != nil {
			return err
		}
		if why != "" {
			refused.Names[p.challenge.Name] = why
		}
	}
	if len(refused.Names) > 0 {
		return refused
	}
	return nil
}

// awaitValidation waits until the authority has checked a proof. why says what failed; "" if
// nothing did.
func (c *Client) awaitValidation(ctx context.Context, p proof) (why string, err error) {
	err = poll(ctx, validationTimeout, func() (bool, error) {
		z, err := c.acme.GetAuthorization(ctx, p.url)
		if err != nil {
			return false, err
		}
		if z.Status == acme.StatusPending {
			return false, nil
		}
		if z.Status != acme.StatusValid {
			why = failureReason(z)
		}
		return true, nil
	})
	return why, err
}

// failureReason returns why an authorization failed.
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

// await polls an order until it can be finalized, or has been.
func (c *Client) await(ctx context.Context, o *acme.Order) (*acme.Order, error) {
	settled := func(o *acme.Order) bool { return o.Status == acme.StatusReady || o.Status == acme.StatusValid }
	if settled(o) {
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
		return settled(o), nil
	})
	return o, err
}

// poll calls ask, at growing intervals, until it is done or fails.
func poll(ctx context.Context, most time.Duration, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for pause := firstPoll; ; pause = min(2*pause, slowestPoll) {
		done, err := ask()
		if done || err != nil {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w: the certificate authority is not done after %s", ctx.Err(), most)
		}
	}
}
