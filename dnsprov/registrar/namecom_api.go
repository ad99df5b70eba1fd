package registrar

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Base URLs of name.com's API. NameComTestURL is the test environment, for user names that end in
// -test.
const (
	NameComURL     = "https://api.name.com"
	NameComTestURL = "https://api.dev.name.com"
)

const (
	maxAnswer   = 1 << 20          // maximum size of an answer's body in bytes; 50 results take 12 KiB
	maxPause    = 5 * time.Second  // maximum pause after a 429; if the API asks for more, the call fails
	maxPauses   = 3                // maximum number of pauses after a 429 in one call
	callTimeout = 20 * time.Second // for one call with all its attempts
	maxDollars  = 10_000_000       // maximum price that is believed
)

// A nameComError is an answer with a status other than 200. Its body is usually
// {"message": …, "details": …}.
type nameComError struct {
	status           int
	message, details string
	fromAPI          bool // whether the body has the API's form, so that no proxy wrote it
}

func (e *nameComError) Error() string {
	if e.details == "" {
		return fmt.Sprintf("name.com answered %d %.200q", e.status, e.message)
	}
	return fmt.Sprintf("name.com answered %d %.200q (%.200q)", e.status, e.message, e.details)
}

// says reports whether the message or the details contain one of the phrases, in any letter case.
func (e *nameComError) says(phrases ...string) bool {
	text := strings.ToLower(e.message + " " + e.details)
	for _, phrase := range phrases {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}

// apiStatus returns the HTTP status of an error that the API sent, or 0 for any other error.
func apiStatus(err error) int {
	var e *nameComError
	if errors.As(err, &e) && e.fromAPI {
		return e.status
	}
	return 0
}

// call sends a request and decodes the answer into out. key is the idempotency key, or "". If the
// answer is 429, which means that the request had no effect, call waits and tries again.
func (n *NameCom) call(ctx context.Context, method, path, key string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for try := 1; ; try++ {
		pause, err := n.attempt(ctx, method, path, key, in, out)
		if apiStatus(err) != http.StatusTooManyRequests || try > maxPauses || pause > maxPause {
			return err
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= pause {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// attempt sends a request once. If the answer is 429, pause is how long to wait before the next
// attempt.
func (n *NameCom) attempt(ctx context.Context, method, path, key string, in, out any) (pause time.Duration, err error) {
	req, err := n.request(ctx, method, path, key, in)
	if err != nil {
		return 0, err
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return 0, n.markUnsent(n.scrubbed(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("it has more than %d bytes", maxAnswer)
	}
	if err != nil {
		return 0, fmt.Errorf("read the answer of name.com: %w", n.scrubbed(err))
	}
	if resp.StatusCode != http.StatusOK {
		return n.waitAfter429(resp.Header), n.refusal(resp.StatusCode, body)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return 0, fmt.Errorf("name.com answered 200 with an unexpected body: %w", n.scrubbed(err))
	}
	return 0, nil
}

func (n *NameCom) request(ctx context.Context, method, path, key string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("write a request to name.com: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, n.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("write a request to name.com: %w", err)
	}
	// With an idempotency key, net/http would send the request again if the connection breaks.
	// Prevent that: only the caller may order again, after Find.
	req.GetBody = nil
	req.SetBasicAuth(n.username, n.token)
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("X-Idempotency-Key", key)
	}
	return req, nil
}

// refusal returns the error of an answer whose status is not 200.
func (n *NameCom) refusal(status int, body []byte) error {
	var answer struct {
		Message string `json:"message"`
		Details string `json:"details"`
	}
	e := &nameComError{status: status}
	if err := json.Unmarshal(body, &answer); err == nil && answer.Message != "" {
		e.fromAPI, e.message, e.details = true, n.scrub(answer.Message), n.scrub(answer.Details)
	}
	return e
}

// markUnsent wraps err in ErrNotNow if it is certain that the request was not sent, and returns it
// unchanged otherwise.
func (n *NameCom) markUnsent(err error) error {
	var op *net.OpError
	var lookup *net.DNSError
	var cert *tls.CertificateVerificationError
	if errors.As(err, &op) && op.Op == "dial" || errors.As(err, &lookup) || errors.As(err, &cert) {
		return fmt.Errorf("%w: %w", ErrNotNow, err)
	}
	return err
}

// scrubbed returns err without the credentials in its text.
func (n *NameCom) scrubbed(err error) error {
	if n.scrub(err.Error()) == err.Error() {
		return err
	}
	return errors.New(n.scrub(err.Error()))
}

func (n *NameCom) scrub(text string) string { return n.secrets.Replace(text) }

// waitAfter429 returns how long an answer with status 429 asks to wait. It reads Retry-After, or
// the Unix time in X-Ratelimit-Reset. The default is one second.
func (n *NameCom) waitAfter429(h http.Header) time.Duration {
	if v, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31); err == nil {
		return time.Duration(v) * time.Second
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return max(at.Sub(n.now()), 0)
	}
	if v, err := strconv.ParseFloat(h.Get("X-Ratelimit-Reset"), 64); err == nil && v > 0 && v < 1<<40 {
		return max(time.Unix(int64(v), 0).Sub(n.now()), 0)
	}
	return time.Second
}

// dollarsToCents converts an amount in dollars to cents. It returns an error if the amount cannot
// be a price.
func dollarsToCents(dollars float64) (int64, error) {
	if !(dollars >= 0 && dollars <= maxDollars) {
		return 0, fmt.Errorf("the amount %v is not a valid price", dollars)
	}
	return int64(math.Round(dollars * 100)), nil
}

// centsToDollars converts cents to a JSON number in dollars, without rounding errors.
func centsToDollars(cents int64) json.Number {
	return json.Number(fmt.Sprintf("%d.%02d", cents/100, cents%100))
}

// A nameComDomain is a domain in the account, in the form of the API.
type nameComDomain struct {
	DomainName       string    `json:"domainName"`
	CreateDate       time.Time `json:"createDate"`
	ExpireDate       time.Time `json:"expireDate"`
	AutorenewEnabled bool      `json:"autorenewEnabled"`
	Nameservers      []string  `json:"nameservers"`
}

// registration converts the answer to a Registration. It returns an error if the answer is about
// another domain than name, or not complete.
func (d nameComDomain) registration(name string) (*Registration, error) {
	if !strings.EqualFold(d.DomainName, name) || d.CreateDate.IsZero() || d.ExpireDate.IsZero() {
		return nil, fmt.Errorf("name.com answered a request for %[4]s with %.100[1]q (created %[2]s, expires %[3]s)", d.DomainName, d.CreateDate, d.ExpireDate, name)
	}
	r := &Registration{Domain: name, AutoRenew: d.AutorenewEnabled, RegisteredAt: d.CreateDate, ExpiresAt: d.ExpireDate}
	for _, ns := range d.Nameservers {
		r.Nameservers = append(r.Nameservers, strings.ToLower(strings.TrimSuffix(ns, ".")))
	}
	return r, nil
}

// A nameComResult is the result of checkAvailability for one name. If the name cannot be bought, it
// has no price.
type nameComResult struct {
	DomainName    string  `json:"domainName"`
	Purchasable   bool    `json:"purchasable"`
	Premium       bool    `json:"premium"`
	PurchasePrice float64 `json:"purchasePrice"`
	PurchaseType  string  `json:"purchaseType"`
	RenewalPrice  float64 `json:"renewalPrice"`
	Reason        string  `json:"reason"`
}

// offer converts a result to an Offer for name. A name that cannot simply be registered, such as
// one that its owner sells, counts as premium.
func (r nameComResult) offer(name string) Offer {
	o := Offer{Domain: name}
	if !r.Purchasable {
		if reason := strings.ToLower(r.Reason); strings.Contains(reason, "maintenance") || strings.Contains(reason, "temporar") {
			o.Err = fmt.Errorf("name.com does not know at the moment whether %s is available: %.200q", name, r.Reason)
		}
		return o
	}
	o.Available, o.Premium = true, r.Premium || cmp.Or(r.PurchaseType, plainPurchase) != plainPurchase
	var first, later error
	o.Price, first = dollarsToCents(r.PurchasePrice)
	o.Renewal, later = dollarsToCents(r.RenewalPrice)
	if err := errors.Join(first, later); err != nil || o.Price == 0 {
		return Offer{Domain: name, Err: fmt.Errorf("name.com sells %s but sent no valid price (%v)", name, err)}
	}
	return o
}

// A nameComGlue is the glue of a nameserver, which name.com calls a vanity nameserver. Hostname
// is the full name in answers, but only the part before the domain in requests.
type nameComGlue struct {
	Hostname string       `json:"hostname,omitempty"`
	IPs      []netip.Addr `json:"ips"`
}
