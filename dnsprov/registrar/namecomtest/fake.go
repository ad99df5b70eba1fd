// Package namecomtest is a fake of name.com for tests: it strictly checks requests, and misbehaves
// on request. It does not know its clients.
package namecomtest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Fate is the outcome of a call.
type Fate int

// Outcomes of a call. Decided before the call, the call has no effect; decided after it, it has its
// full effect.
const (
	Well    Fate = iota
	Drop         // the connection is cut
	Fail         // 500
	Garbage      // 200 with a body that is not the answer
	Late         // the call is only handled after Fake.Pause
	Busy         // 429, with Fake.RetryAfter
)

// Price is the price of a name with some ending, in cents.
type Price struct {
	First, Renewal int64 // First is for MinYears, Renewal for each further year
	MinYears       int
}

// A Fake is one account at a fake name.com. Names that begin with "taken-", and those with the
// label "example", are taken; those with "premium-" have a premium price. Set the fields before it
// is used, or with Set.
type Fake struct {
	Username, Token string
	Prices          map[string]Price
	Balance         int64         // money in the account, in cents
	Pause           time.Duration // of Late
	RetryAfter      time.Duration // of Busy; 0: no Retry-After header
	Lag             time.Duration // until a sale is visible in the account and the name is no longer available
	ForgetsKeys     bool          // idempotency keys have no effect
	Oversells       bool          // a name that was sold can be sold again
	Raise           int64         // cents by which prices rise after the check
	Down            []string      // endings that the API cannot serve now

	// Meddle decides the outcome of a call about a domain ("" if there are several). The calls are
	// check, pricing, create, get, update, nameservers and glue, and, after a domain was paid for,
	// charged. nil: all succeed. An order with a known key is not passed to Meddle, and counts as
	// the call replay.
	Meddle func(call, domain string) Fate

	mu      sync.Mutex
	domains map[string]*Domain
	keys    map[string]kept
	paid    map[string][]int64
	calls   map[string]int
	orders  int
}

// A Domain is a domain in the account.
type Domain struct {
	Name        string
	Created     time.Time
	Expires     time.Time
	AutoRenew   bool
	Nameservers []string
	Glue        map[string][]string // host to addresses
}

// kept is the stored answer for an idempotency key.
type kept struct {
	request [32]byte
	status  int
	body    []byte
}

// New returns a fake with the credentials user-test and secret-token.
func New() *Fake {
	return &Fake{
		Username: "user-test", Token: "secret-token", Balance: 1_000_000_00, Pause: time.Minute,
		Prices: map[string]Price{
			"com": {1099, 1299, 1}, "net": {1299, 1399, 1}, "org": {899, 1299, 1}, "io": {3499, 4499, 1}, "dev": {1250, 1250, 1}, "ai": {15998, 7999, 2},
		},
		domains: map[string]*Domain{}, keys: map[string]kept{}, paid: map[string][]int64{}, calls: map[string]int{},
	}
}

// Set changes the fake while it is in use.
func (f *Fake) Set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Purchases returns how often a name was paid for.
func (f *Fake) Purchases(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.paid[name])
}

// Paid returns the sum that was paid for a name, in cents.
func (f *Fake) Paid(name string) (sum int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cents := range f.paid[name] {
		sum += cents
	}
	return sum
}

// Spent returns the sum of all payments, in cents.
func (f *Fake) Spent() (sum int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, all := range f.paid {
		for _, cents := range all {
			sum += cents
		}
	}
	return sum
}

// Calls returns how many calls of a kind there were, with any outcome.
func (f *Fake) Calls(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

// Domain returns a copy of a domain of the account; nil if it does not exist.
func (f *Fake) Domain(name string) *Domain {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.domains[name]
	if d == nil {
		return nil
	}
	c := *d
	c.Glue = maps.Clone(d.Glue)
	return &c
}

// Put adds a domain to the account without a payment.
func (f *Fake) Put(d Domain) {
	f.Set(func() { f.domains[d.Name] = &d })
}

// An answer is a response of the fake.
type answer struct {
	status int
	body   any
	header map[string]string
}

func refuse(status int, message, details string) *answer {
	return &answer{status: status, body: map[string]string{"message": message, "details": details}}
}

func invalid(format string, args ...any) *answer {
	return refuse(400, "Invalid argument", fmt.Sprintf(format, args...))
}

// fate counts a call and returns its outcome.
func (f *Fake) fate(call, domain string) Fate {
	f.mu.Lock()
	f.calls[call]++
	meddle := f.Meddle
	f.mu.Unlock()
	if meddle == nil {
		return Well
	}
	return meddle(call, domain)
}

// suffer carries out an outcome. It returns nil if the call is to be handled normally.
func (f *Fake) suffer(fate Fate) *answer {
	switch fate {
	case Drop:
		panic(http.ErrAbortHandler)
	case Fail:
		return refuse(500, "Internal Server Error", "Something went wrong.")
	case Garbage:
		return &answer{status: 200, body: json.RawMessage("<html>It works!</html>")}
	case Busy:
		a := refuse(429, "Rate Limit Exceeded", "")
		if f.RetryAfter > 0 {
			a.header = map[string]string{"Retry-After": fmt.Sprint(int(f.RetryAfter.Seconds()))}
		}
		return a
	case Late:
		time.Sleep(f.Pause)
	}
	return nil
}

// ServeHTTP handles one call.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := f.serve(r)
	w.Header().Set("Content-Type", "application/json")
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.status)
	if raw, ok := a.body.(json.RawMessage); ok {
		_, _ = w.Write(raw)
		return
	}
	_ = json.NewEncoder(w).Encode(a.body)
}

func (f *Fake) serve(r *http.Request) *answer {
	user, token, ok := r.BasicAuth()
	if !ok || user != f.Username || token != f.Token {
		return refuse(401, "Unauthorized", "")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if r.Method != "GET" && r.Method != "DELETE" && r.Header.Get("Content-Type") != "application/json" {
		return refuse(415, "Unsupported Media Type", "")
	}
	c := &call{f: f, r: r, body: body}
	rest, ok := strings.CutPrefix(r.URL.Path, "/core/v1/domains")
	switch {
	case !ok:
		return refuse(404, "Not Found", "")
	case rest == ":checkAvailability":
		return c.on("POST", c.check)
	case rest == "":
		return c.on("POST", c.createOnce)
	}
	return c.domain(strings.TrimPrefix(rest, "/"))
}

// A call is one request.
type call struct {
	f    *Fake
	r    *http.Request
	body []byte
	name string // the domain in the path
	host string // the nameserver in the path
}

func (c *call) on(method string, do func() *answer) *answer {
	if c.r.Method != method {
		return refuse(405, "Method Not Allowed", "")
	}
	return do()
}

// domain serves the paths below one domain.
func (c *call) domain(rest string) *answer {
	name, below, _ := strings.Cut(rest, "/")
	name, verb, _ := strings.Cut(name, ":")
	c.name = name
	if !plain(name) {
		return invalid("'domainName' is not a domain")
	}
	switch {
	case below == "" && verb == "getPricing":
		return c.on("GET", c.pricing)
	case below == "" && verb == "setNameservers":
		return c.on("POST", c.setNameservers)
	case below == "" && verb == "" && c.r.Method == "PATCH":
		return c.update()
	case below == "" && verb == "":
		return c.on("GET", c.get)
	case verb == "" && below == "vanity_nameservers":
		return c.on("POST", c.createGlue)
	}
	host, ok := strings.CutPrefix(below, "vanity_nameservers/")
	if !ok || verb != "" {
		return refuse(404, "Not Found", "")
	}
	c.host = host
	return c.glue()
}

// decode parses the body, and refuses unknown fields.
func (c *call) decode(into any) *answer {
	d := json.NewDecoder(strings.NewReader(string(c.body)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return invalid("%s", err)
	}
	if d.More() {
		return invalid("text after the body")
	}
	return nil
}

// createOnce creates a domain. A known idempotency key gets the stored answer.
func (c *call) createOnce() *answer {
	key := c.r.Header.Get("X-Idempotency-Key")
	if len(key) > 255 {
		return invalid("the idempotency key is too long")
	}
	sum := sha256.Sum256(c.body)
	c.f.mu.Lock()
	had, known := c.f.keys[key]
	known = known && key != "" && !c.f.ForgetsKeys
	if known {
		c.f.calls["replay"]++
	}
	c.f.mu.Unlock()
	switch {
	case known && had.request != sum:
		return refuse(409, "Idempotency key has been reused for a different request", "")
	case known:
		return &answer{had.status, json.RawMessage(had.body), map[string]string{"X-Idempotency-Key": key, "X-Idempotent-Replay": "1"}}
	}
	return c.create(func(a *answer) {
		text, _ := json.Marshal(a.body)
		c.f.keys[key] = kept{sum, a.status, text}
	})
}
