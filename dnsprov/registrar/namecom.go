package registrar

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	plainPurchase  = "registration"   // purchaseType of a name that nobody owns
	namesPerCheck  = 50               // maximum number of names in one checkAvailability
	parallelChecks = 4                // number of parallel checks; the API allows 20 requests a second
	maxSplitChecks = 24               // additional checks of parts of a batch, to find invalid names
	checkTimeout   = 10 * time.Second // how long the check before an order may take
)

// A NameCom is the Registrar at name.com. It uses version 1 of name.com's Core API (docs.name.com,
// OpenAPI description 1.27):
//
//	POST  /core/v1/domains:checkAvailability  {domainNames: [≤ 50]}
//	    → {results: [nameComResult]}, in any order
//	GET   /core/v1/domains/{name}:getPricing?years=N
//	    → {premium, purchasePrice: number|null}, the price of all N years
//	POST  /core/v1/domains  {domain, purchasePrice, purchaseType, years}, X-Idempotency-Key
//	    → {domain, order, totalPaid}; keys are known for 12 hours
//	GET   /core/v1/domains/{name}                     → nameComDomain
//	PATCH /core/v1/domains/{name}                     {autorenewEnabled} → nameComDomain
//	POST  /core/v1/domains/{name}:setNameservers      {nameservers} → nameComDomain
//	GET   /core/v1/domains/{name}/vanity_nameservers/{host}; PUT there {ips}
//	POST  /core/v1/domains/{name}/vanity_nameservers  {hostname, ips}
//
// Requests use basic authentication with the user name and an API token. Prices are in US dollars;
// the amount paid may include VAT. Every order names a price; name.com refuses the order if the
// price has changed. Use NewNameCom to make one.
type NameCom struct {
	base, username, token string
	http                  *http.Client
	now                   func() time.Time
	secrets               *strings.Replacer // removes the credentials from error texts
}

// NameComConfig configures a NameCom.
type NameComConfig struct {
	BaseURL         string // "" means NameComURL
	Username, Token string
	HTTP            *http.Client     // nil means http.DefaultClient; redirects are never followed
	Now             func() time.Time // nil means time.Now
}

// NewNameCom returns the registrar without sending a request. It returns an error if the
// configuration is invalid.
func NewNameCom(c NameComConfig) (*NameCom, error) {
	if c.Username == "" || c.Token == "" {
		return nil, errors.New("name.com: the user name and the token are required")
	}
	if c.BaseURL == "" {
		c.BaseURL = NameComURL
	}
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("name.com: %.200q is not a base URL such as %s", c.BaseURL, NameComURL)
	}
	n := &NameCom{base: strings.TrimRight(c.BaseURL, "/"), username: c.Username, token: c.Token, http: &http.Client{}, now: c.Now}
	if c.HTTP != nil {
		*n.http = *c.HTTP
	}
	n.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if n.now == nil {
		n.now = time.Now
	}
	basic := base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Token))
	n.secrets = strings.NewReplacer(basic, "[credentials]", c.Token, "[token]")
	return n, nil
}

// Name returns "namecom".
func (n *NameCom) Name() string { return "namecom" }

// domainPath returns the path of a domain of the account. It returns ErrBadDomain for names that
// are not safe in a path.
func domainPath(name string) (string, error) {
	plain := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' }
	if name == "" || len(name) > 253 || !strings.Contains(name, ".") || strings.Contains(name, "..") || strings.HasPrefix(name, ".") ||
		strings.ContainsFunc(name, func(c rune) bool { return !plain(c) }) {
		return "", fmt.Errorf("%w: %.100q", ErrBadDomain, name)
	}
	return "/core/v1/domains/" + name, nil
}

// Quote returns the availability and price of each name. It checks batches of names in parallel. If
// a batch fails, its offers have the error. If all batches fail, Quote returns the error.
func (n *NameCom) Quote(ctx context.Context, names []string) ([]Offer, error) {
	out := make([]Offer, len(names))
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallelChecks)
	for from := 0; from < len(names); from += namesPerCheck {
		part := out[from:min(from+namesPerCheck, len(names))]
		for i := range part {
			part[i].Domain = names[from+i]
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			budget := maxSplitChecks
			n.checkBatch(ctx, part, &budget)
		})
	}
	wg.Wait()
	for _, o := range out {
		if o.Err == nil || errors.Is(o.Err, ErrNotSold) || errors.Is(o.Err, ErrBadDomain) {
			return out, nil
		}
	}
	if len(out) > 0 {
		return nil, out[0].Err
	}
	return out, nil
}

// checkBatch fills in the offers of one batch of names. If the API refuses the batch because of one
// name, or cannot reach one of the registries, checkBatch tries both halves of the batch. budget is
// the number of further requests that it may send.
func (n *NameCom) checkBatch(ctx context.Context, offers []Offer, budget *int) {
	results, err := n.availability(ctx, offers)
	status := apiStatus(err)
	divisible := status == http.StatusBadRequest || status == http.StatusBadGateway
	if divisible && len(offers) > 1 && *budget >= 2 && ctx.Err() == nil {
		*budget -= 2
		n.checkBatch(ctx, offers[:len(offers)/2], budget)
		n.checkBatch(ctx, offers[len(offers)/2:], budget)
		return
	}
	for i := range offers {
		o := &offers[i]
		r, ok := results[o.Domain]
		switch {
		case status == http.StatusUnprocessableEntity, err == nil && !ok: // 422 means that none of the names is sold
			o.Err = ErrNotSold
		case status == http.StatusBadRequest:
			o.Err = fmt.Errorf("%w: %w", ErrBadDomain, err)
		case err != nil:
			o.Err = err
		default:
			*o = r.offer(o.Domain)
		}
	}
}

// availability calls checkAvailability for a batch, and returns the results by name.
func (n *NameCom) availability(ctx context.Context, offers []Offer) (map[string]nameComResult, error) {
	var in struct {
		DomainNames []string `json:"domainNames"`
	}
	for _, o := range offers {
		in.DomainNames = append(in.DomainNames, o.Domain)
	}
	var out struct {
		Results []nameComResult `json:"results"`
	}
	if err := n.call(ctx, "POST", "/core/v1/domains:checkAvailability", "", in, &out); err != nil {
		return nil, err
	}
	if out.Results == nil {
		return nil, errors.New("name.com answered 200 without results")
	}
	results := make(map[string]nameComResult, len(out.Results))
	for _, r := range out.Results {
		name := strings.ToLower(r.DomainName)
		// A name may have several results, but only plain registration can be bought here.
		if had, ok := results[name]; !ok || !had.Purchasable || r.PurchaseType == plainPurchase {
			results[name] = r
		}
	}
	return results, nil
}

// Register buys a domain at name.com's current price. It returns ErrPrice if that is above
// o.MaxPrice.
func (n *NameCom) Register(ctx context.Context, o Order) (*Registration, error) {
	if _, err := domainPath(o.Domain); err != nil {
		return nil, err
	}
	if o.Years < 1 || o.Years > 10 {
		return nil, fmt.Errorf("%w: it cannot be registered for %d years", ErrBadDomain, o.Years)
	}
	price, err := n.priceInCents(ctx, o)
	if err != nil {
		return nil, err
	}
	type order struct {
		DomainName       string   `json:"domainName"`
		AutorenewEnabled bool     `json:"autorenewEnabled"`
		Nameservers      []string `json:"nameservers,omitempty"`
	}
	in := struct {
		Domain        order       `json:"domain"`
		PurchasePrice json.Number `json:"purchasePrice"`
		PurchaseType  string      `json:"purchaseType"`
		Years         int         `json:"years"`
	}{order{o.Domain, o.AutoRenew, o.Nameservers}, centsToDollars(price), plainPurchase, o.Years}
	var out struct {
		Domain    nameComDomain `json:"domain"`
		TotalPaid float64       `json:"totalPaid"`
	}
	if err := n.call(ctx, "POST", "/core/v1/domains", o.Key, in, &out); err != nil {
		return nil, nameComOrderError(err)
	}
	r, err := out.Domain.registration(o.Domain)
	if err != nil {
		return nil, err
	}
	r.Price, err = dollarsToCents(out.TotalPaid)
	if err != nil {
		r.Price = 0 // the price is unknown, but the domain was bought
	}
	return r, nil
}

// priceInCents checks that the domain is available, and returns the price of all years in cents. It
// buys nothing.
func (n *NameCom) priceInCents(ctx context.Context, o Order) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	offers, err := n.Quote(ctx, []string{o.Domain})
	if err == nil {
		err = offers[0].Err
	}
	switch {
	case errors.Is(err, ErrNotSold), errors.Is(err, ErrBadDomain), errors.Is(err, ErrNotNow):
		return 0, err
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrNotNow, err)
	case !offers[0].Available:
		return 0, ErrTaken
	case offers[0].Premium:
		return 0, ErrPremium
	}
	var out struct {
		Premium       bool     `json:"premium"`
		PurchasePrice *float64 `json:"purchasePrice"`
	}
	err = n.call(ctx, "GET", fmt.Sprintf("/core/v1/domains/%s:getPricing?years=%d", o.Domain, o.Years), "", nil, &out)
	switch status := apiStatus(err); {
	case status == http.StatusUnprocessableEntity:
		return 0, ErrNotSold
	case status == http.StatusBadRequest, err == nil && out.PurchasePrice == nil && !out.Premium:
		return 0, fmt.Errorf("%w: it cannot be registered for %d years", ErrBadDomain, o.Years)
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrNotNow, err)
	case out.Premium:
		return 0, ErrPremium
	}
	total, err := dollarsToCents(*out.PurchasePrice)
	switch {
	case err != nil || total == 0:
		return 0, fmt.Errorf("%w: name.com sent no valid price of %s (%v)", ErrNotNow, o.Domain, err)
	case total > o.MaxPrice:
		return 0, ErrPrice
	}
	return total, nil
}

// nameComOrderError converts an error of an order. If the answer clearly says that nothing was
// bought, it wraps one of the package's errors, such as ErrTaken. Otherwise it returns err
// unchanged, and the domain may have been bought.
func nameComOrderError(err error) error {
	var e *nameComError
	if !errors.As(err, &e) || !e.fromAPI {
		return err
	}
	as := func(known error) error { return fmt.Errorf("%w: %w", known, err) }
	switch e.status {
	case http.StatusPaymentRequired:
		return as(ErrNoFunds)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return as(ErrNotNow)
	case http.StatusUnavailableForLegalReasons:
		return as(ErrBadDomain)
	case http.StatusUnprocessableEntity:
		if e.says("unsupported tld", "tld not supported") {
			return as(ErrNotSold)
		}
		if e.says("pricing unavailable") {
			return as(ErrNotNow)
		}
	case http.StatusBadRequest:
		return nameComErrorFromText(e, as)
	}
	return err
}

// nameComErrorFromText converts an error of an order by the words of its message. The message is
// written for people and may change, so it looks only for unambiguous phrases.
func nameComErrorFromText(e *nameComError, as func(error) error) error {
	switch {
	case e.says("required for premium domains"):
		return as(ErrPremium)
	case e.says("domain is not available", "domain not available", "domain is unavailable", "domain is already registered"):
		return as(ErrTaken)
	case e.says("purchase price", "purchaseprice"):
		return as(ErrPrice)
	case e.says("unsupported tld", "tld not supported"):
		return as(ErrNotSold)
	case e.says("invalid domain"):
		return as(ErrBadDomain)
	}
	return e
}

// Find returns a domain of the account, or ErrNotFound. A 404 that the API itself did not send, but
// for example a proxy, is another error.
func (n *NameCom) Find(ctx context.Context, domain string) (*Registration, error) {
	path, err := domainPath(domain)
	if err != nil {
		return nil, err
	}
	var out nameComDomain
	if err := n.call(ctx, "GET", path, "", nil, &out); err != nil {
		return nil, markNotFound(err)
	}
	return out.registration(domain)
}

// markNotFound wraps err in ErrNotFound if the API answered 404, and returns it unchanged
// otherwise.
func markNotFound(err error) error {
	if apiStatus(err) == http.StatusNotFound {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// Delegate sets the nameservers of a domain of the account.
func (n *NameCom) Delegate(ctx context.Context, domain string, nameservers []string) error {
	path, err := domainPath(domain)
	if err != nil {
		return err
	}
	in := struct {
		Nameservers []string `json:"nameservers"`
	}{nameservers}
	var out nameComDomain
	return markNotFound(n.call(ctx, "POST", path+":setNameservers", "", in, &out))
}

// SetAutoRenew switches the automatic renewal of a domain of the account on or off.
func (n *NameCom) SetAutoRenew(ctx context.Context, domain string, on bool) error {
	path, err := domainPath(domain)
	if err != nil {
		return err
	}
	in := struct {
		AutorenewEnabled bool `json:"autorenewEnabled"`
	}{on}
	var out nameComDomain
	if err := n.call(ctx, "PATCH", path, "", in, &out); err != nil {
		return markNotFound(err)
	}
	if out.AutorenewEnabled != on {
		return fmt.Errorf("name.com answered 200 but did not change the automatic renewal of %s", domain)
	}
	return nil
}

// SetGlue sets the glue addresses of a nameserver below a domain of the account.
func (n *NameCom) SetGlue(ctx context.Context, domain, host string, ips []netip.Addr) error {
	path, err := domainPath(domain)
	if err != nil {
		return err
	}
	label, inside := strings.CutSuffix(host, "."+domain)
	if _, err := domainPath(host); err != nil || !inside || len(ips) == 0 {
		return fmt.Errorf("%w: %.100q with %d addresses is not a nameserver below %s", ErrBadDomain, host, len(ips), domain)
	}
	path += "/vanity_nameservers"
	var has nameComGlue
	err = n.call(ctx, "GET", path+"/"+host, "", nil, &has)
	switch {
	case apiStatus(err) == http.StatusNotFound:
		return markNotFound(n.call(ctx, "POST", path, "", nameComGlue{label, ips}, &has))
	case err != nil:
		return err
	case sameAddresses(has.IPs, ips):
		return nil
	}
	return n.call(ctx, "PUT", path+"/"+host, "", nameComGlue{IPs: ips}, &has)
}

// sameAddresses reports whether two lists contain the same addresses, in any order.
func sameAddresses(a, b []netip.Addr) bool {
	count := map[netip.Addr]int{}
	for _, ip := range a {
		count[ip]++
	}
	for _, ip := range b {
		if count[ip]--; count[ip] < 0 {
			return false
		}
	}
	return len(a) == len(b)
}
