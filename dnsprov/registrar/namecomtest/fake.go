// Package namecomtest is a fake of name.com's API for tests. It checks requests strictly, and can
// fail in ways that the test chooses. It does not know its clients.
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

// A Fate says how a call to the API ends.
type Fate int

// The fates of a call. A call that does not end Well has no effect, except that a Late call has its
// effect later.
const (
	Well    Fate = iota // the call is performed
	Drop                // the connection is closed
	Fail                // the answer has status 500
	Garbage             // the answer has status 200 and a body that is not JSON
	Late                // the call is performed after Fake.Pause
	Busy                // the answer has status 429, with Fake.RetryAfter
)

// Price is the price of names with the same ending, in US cents.
type Price struct {
	First    int64 // for the first MinYears years
	Renewal  int64 // for each further year
	MinYears int   // minimum number of years in an order
}

// A Fake is an account at a fake name.com. Names that begin with "taken-", and names with the label
// "example", are not available. Names that begin with "premium-" have a premium price. Set the
// exported fields before the first call, or within Set.
type Fake struct {
	Username, Token string
	Prices          map[string]Price // by ending
	Balance         int64            // money in the account in cents
	Pause           time.Duration    // delay of a Late call
	RetryAfter      time.Duration    // Retry-After header of a Busy call; 0 for none
	Lag             time.Duration    // time until a sold name is visible in the account
	ForgetsKeys     bool             // ignore idempotency keys
	Oversells       bool             // sell a name again that was already sold
	Raise           int64            // cents by which prices rise after checkAvailability
	Down            []string         // endings whose registries are down

	// Meddle decides the Fate of a call; nil means that all end Well. domain is "" if the call is
	// about several. The calls are check, pricing, create, get, update, nameservers and glue, and
	// charged, which comes after the effect of create and before its answer. Meddle is not called
	// for an order with a known idempotency key.
	Meddle func(call, domain string) Fate

	mu      sync.Mutex
	domains map[string]*Domain
	keys    map[string]storedAnswer
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
	Glue        map[string][]string // addresses by host
}

// storedAnswer is the answer that is stored for an idempotency key.
type storedAnswer struct {
	request [32]byte // SHA-256 of the request's body
	status  int
	body    []byte
}

// New returns a Fake with the user name user-test and the token secret-token.
func New() *Fake {
	return &Fake{
		Username: "user-test", Token: "secret-token", Balance: 1_000_000_00, Pause: time.Minute,
		Prices: map[string]Price{
			"com": {1099, 1299, 1}, "net": {1299, 1399, 1}, "org": {899, 1299, 1}, "io": {3499, 4499, 1}, "dev": {1250, 1250, 1}, "ai": {15998, 7999, 2},
		},
		domains: map[string]*Domain{}, keys: map[string]storedAnswer{}, paid: map[string][]int64{}, calls: map[string]int{},
	}
}

// Set calls change while no call is in progress, so that it can change the fields.
func (f *Fake) Set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Purchases returns how many times a name was paid for.
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

// Calls returns the number of calls of a kind, such as "create", with any Fate. Orders with a known
// idempotency key count as "replay".
func (f *Fake) Calls(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

// Domain returns a copy of a domain of the account, or nil if the account does not have it.
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

// Put adds a domain to the account without payment.
func (f *Fake) Put(d Domain) {
	f.Set(func() { f.domains[d.Name] = &d })
}

// An answer is a response of the API before it is written.
type answer struct {
	status int
	body   any
	header map[string]string
}

// refuse returns an answer with an error.
func refuse(status int, message, details string) *answer {
	return &answer{status: status, body: map[string]string{"message": message, "details": details}}
}

// invalid returns the answer to an invalid request.
func invalid(format string, args ...any) *answer {
	return refuse(400, "Invalid argument", fmt.Sprintf(format, args...))
}

// nextFate counts a call and returns its Fate.
func (f *Fake) nextFate(call, domain string) Fate {
	f.mu.Lock()
	f.calls[call]++
	meddle := f.Meddle
	f.mu.Unlock()
	if meddle == nil {
		return Well
	}
	return meddle(call, domain)
}

// applyFate carries out a Fate. It returns the answer, or nil if the call must be performed.
func (f *Fake) applyFate(fate Fate) *answer {
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

// ServeHTTP answers one call.
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

// serve checks the credentials of a request and performs its call.
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
		return c.ifMethod("POST", c.answerCheck)
	case rest == "":
		return c.ifMethod("POST", c.createOnce)
	}
	return c.answerDomainCall(strings.TrimPrefix(rest, "/"))
}

// A call is a request with valid credentials.
type call struct {
	f    *Fake
	r    *http.Request
	body []byte
	name string // the domain in the path; "" if there is none
	host string // the nameserver in the path; "" if there is none
}

// ifMethod calls do if the request has the method, and answers with an error otherwise.
func (c *call) ifMethod(method string, do func() *answer) *answer {
	if c.r.Method != method {
		return refuse(405, "Method Not Allowed", "")
	}
	return do()
}

// answerDomainCall answers a request whose path has a domain.
func (c *call) answerDomainCall(rest string) *answer {
	name, below, _ := strings.Cut(rest, "/")
	name, verb, _ := strings.Cut(name, ":")
	c.name = name
	if !isDomainName(name) {
		return invalid("'domainName' is not a domain")
	}
	switch {
	case below == "" && verb == "getPricing":
		return c.ifMethod("GET", c.answerPricing)
	case below == "" && verb == "setNameservers":
		return c.ifMethod("POST", c.setNameservers)
	case below == "" && verb == "" && c.r.Method == "PATCH":
		return c.updateDomain()
	case below == "" && verb == "":
		return c.ifMethod("GET", c.get)
	case verb == "" && below == "vanity_nameservers":
		return c.ifMethod("POST", c.createGlue)
	}
	host, ok := strings.CutPrefix(below, "vanity_nameservers/")
	if !ok || verb != "" {
		return refuse(404, "Not Found", "")
	}
	c.host = host
	return c.answerGlueCall()
}

// decode decodes the body of the request. It returns an error answer for unknown fields.
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

// createOnce creates a domain. If the idempotency key is known, it returns the stored answer
// instead.
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
	return c.sellDomain(func(a *answer) {
		text, _ := json.Marshal(a.body)
		c.f.keys[key] = storedAnswer{sum, a.status, text}
	})
}
