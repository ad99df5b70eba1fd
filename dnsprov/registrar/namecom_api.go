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

// NameComURL is the URL of name.com's API. NameComTestURL is its test environment, for user names
// that end in -test.
const (
	NameComURL     = "https://api.name.com"
	NameComTestURL = "https://api.dev.name.com"
)

const (
	maxAnswer   = 1 << 20         // bytes of an answer's body; 50 results take 12 KiB
	maxPause    = 5 * time.Second // longest pause of a 429 that is waited for
	maxPauses   = 3
	callTimeout = 20 * time.Second // for one call, even if its context allows more
	maxDollars  = 10_000_000
)

// A nameComError is an answer other than success: {"message": …, "details": …}.
type nameComError struct {
	status           int
	message, details string
	told             bool // the body was written by the API
}

func (e *nameComError) Error() string {
	if e.details == "" {
		return fmt.Sprintf("name.com answered %d %.200q", e.status, e.message)
	}
	return fmt.Sprintf("name.com answered %d %.200q (%.200q)", e.status, e.message, e.details)
}

// says reports whether the error's texts contain one of the words.
func (e *nameComError) says(words ...string) bool {
	text := strings.ToLower(e.message + " " + e.details)
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// apiStatus returns the status of an answer that the API itself wrote; 0 for any other error.
func apiStatus(err error) int {
	var e *nameComError
	if errors.As(err, &e) && e.told {
		return e.status
	}
	return 0
}

// call sends a request, and decodes the answer into out. key is the idempotency key; "" for none.
// It waits for a 429 if that does not take long: a request that was refused so had no effect.
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

// attempt sends a request once. pause is how long a 429 asks to wait.
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
		err = fmt.Errorf("more than %d bytes", maxAnswer)
	}
	if err != nil {
		return 0, fmt.Errorf("read the answer of name.com: %w", n.scrubbed(err))
	}
	if resp.StatusCode != http.StatusOK {
		return n.pause(resp.Header), n.refusal(resp.StatusCode, body)
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
	// net/http itself repeats a request with an idempotency key when a connection breaks, if it can
	// read the body again. The caller decides on a second try, after a call of Find, so prevent
	// that.
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

// refusal reads the error in an answer of the API.
func (n *NameCom) refusal(status int, body []byte) error {
	var said struct {
		Message string `json:"message"`
		Details string `json:"details"`
	}
	e := &nameComError{status: status}
	if err := json.Unmarshal(body, &said); err == nil && said.Message != "" {
		e.told, e.message, e.details = true, n.scrub(said.Message), n.scrub(said.Details)
	}
	return e
}

// markUnsent wraps ErrNotNow around err if it is certain that the request was not sent.
func (n *NameCom) markUnsent(err error) error {
	var op *net.OpError
	var lookup *net.DNSError
	var cert *tls.CertificateVerificationError
	if errors.As(err, &op) && op.Op == "dial" || errors.As(err, &lookup) || errors.As(err, &cert) {
		return fmt.Errorf("%w: %w", ErrNotNow, err)
	}
	return err
}

// scrubbed removes the token from the text of an error.
func (n *NameCom) scrubbed(err error) error {
	if n.scrub(err.Error()) == err.Error() {
		return err
	}
	return errors.New(n.scrub(err.Error()))
}

func (n *NameCom) scrub(text string) string { return n.secrets.Replace(text) }

// pause returns how long a 429 asks to wait, by Retry-After, or by the Unix time in
// x-ratelimit-reset. The default is one second.
func (n *NameCom) pause(h http.Header) time.Duration {
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

// cents converts a dollar amount of name.com; an error if it cannot be a price.
func cents(dollars float64) (int64, error) {
	if !(dollars >= 0 && dollars <= maxDollars) {
		return 0, fmt.Errorf("%v is not a valid price", dollars)
	}
	return int64(math.Round(dollars * 100)), nil
}

// dollars writes cents as a JSON number in dollars, without rounding errors.
func dollars(cents int64) json.Number {
	return json.Number(fmt.Sprintf("%d.%02d", cents/100, cents%100))
}

// A nameComDomain is a domain in the account.
type nameComDomain struct {
	DomainName       string    `json:"domainName"`
	CreateDate       time.Time `json:"createDate"`
	ExpireDate       time.Time `json:"expireDate"`
	AutorenewEnabled bool      `json:"autorenewEnabled"`
	Nameservers      []string  `json:"nameservers"`
}

// registration checks that the answer is about the requested domain and complete, and converts it.
func (d nameComDomain) registration(name string) (*Registration, error) {
	if !strings.EqualFold(d.DomainName, name) || d.CreateDate.IsZero() || d.ExpireDate.IsZero() {
		return nil, fmt.Errorf("name.com answered with %.100q (created %s, expires %s) to a request for %s", d.DomainName, d.CreateDate, d.ExpireDate, name)
	}
	r := &Registration{Domain: name, AutoRenew: d.AutorenewEnabled, RegisteredAt: d.CreateDate, ExpiresAt: d.ExpireDate}
	for _, ns := range d.Nameservers {
		r.Nameservers = append(r.Nameservers, strings.ToLower(strings.TrimSuffix(ns, ".")))
	}
	return r, nil
}

// A nameComResult is the result of checkAvailability for a name. The fields about the purchase are
// absent if the name cannot be bought.
type nameComResult struct {
	DomainName    string  `json:"domainName"`
	Purchasable   bool    `json:"purchasable"`
	Premium       bool    `json:"premium"`
	PurchasePrice float64 `json:"purchasePrice"`
	PurchaseType  string  `json:"purchaseType"`
	RenewalPrice  float64 `json:"renewalPrice"`
	Reason        string  `json:"reason"`
}

// offer converts a result to an Offer. A name that is not for plain registration, such as one that
// its owner sells, counts as premium.
func (r nameComResult) offer(name string) Offer {
	o := Offer{Domain: name}
	if !r.Purchasable {
		if reason := strings.ToLower(r.Reason); strings.Contains(reason, "maintenance") || strings.Contains(reason, "temporar") {
			o.Err = fmt.Errorf("name.com cannot say now whether %s is available: %.200q", name, r.Reason)
		}
		return o
	}
	o.Available, o.Premium = true, r.Premium || cmp.Or(r.PurchaseType, plainPurchase) != plainPurchase
	var first, later error
	o.Price, first = cents(r.PurchasePrice)
	o.Renewal, later = cents(r.RenewalPrice)
	if err := errors.Join(first, later); err != nil || o.Price == 0 {
		return Offer{Domain: name, Err: fmt.Errorf("name.com sells %s but sends no valid price (%v)", name, err)}
	}
	return o
}

// A nameComGlue is a vanity name server. In answers its hostname is the full name; in requests that
// create it, only the part before the domain.
type nameComGlue struct {
	Hostname string       `json:"hostname,omitempty"`
	IPs      []netip.Addr `json:"ips"`
}
