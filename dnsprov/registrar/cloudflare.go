package registrar

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/cloudflare"
)

const (
	cloudflareNamesPerCheck = 20              // maximum number of names in one availability check
	cloudflareMaxYears      = 10              // maximum number of years in one order
	cloudflarePoll          = time.Second     // pause before the first poll of an order
	cloudflareMaxPoll       = 5 * time.Second // maximum pause between two polls
	cloudflarePollTimeout   = time.Minute     // how long to poll

	permissionReadDomains = "Account: Registrar: Domains Read" // permission of an API token
	permissionEditDomains = "Account: Registrar: Domains Edit" // permission of an API token
)

// CloudflareConfig names the Cloudflare account that buys domains. The account needs a payment
// method and a default entry in its address book, which becomes the registrant.
type CloudflareConfig struct {
	BaseURL   string // "" means cloudflare.BaseURL
	AccountID string
	Token     string
	HTTP      *http.Client // nil means http.DefaultClient
}

// Cloudflare is the Registrar at Cloudflare. It ignores Order.Key, because each name can be bought
// only once. Its domains must use Cloudflare's nameservers. Its API does not sell premium names.
type Cloudflare struct {
	api  *cloudflare.Client
	path string // path of the account's registrar in the API
}

// NewCloudflare returns the registrar without sending a request.
func NewCloudflare(c CloudflareConfig) *Cloudflare {
	return &Cloudflare{
		api:  cloudflare.New(cloudflare.Config{BaseURL: c.BaseURL, Token: c.Token, HTTP: c.HTTP}),
		path: "/accounts/" + url.PathEscape(c.AccountID) + "/registrar",
	}
}

// Name returns "cloudflare".
func (*Cloudflare) Name() string { return "cloudflare" }

// FixedNameservers returns true: a domain that is bought here must use Cloudflare's nameservers.
func (*Cloudflare) FixedNameservers() bool { return true }

// Delegate returns ErrFixedNameservers.
func (*Cloudflare) Delegate(context.Context, string, []string) error { return ErrFixedNameservers }

// availability is the result of an availability check for one name.
type availability struct {
	Name        string `json:"name"`
	Registrable bool   `json:"registrable"`
	Reason      string `json:"reason"`
	Tier        string `json:"tier"`
	Pricing     struct {
		Currency     string `json:"currency"`
		Registration string `json:"registration_cost"`
		Renewal      string `json:"renewal_cost"`
	} `json:"pricing"`
}

// Quote returns the availability and price of each name. It checks 20 names in one request.
func (r *Cloudflare) Quote(ctx context.Context, names []string) ([]Offer, error) {
	out := make([]Offer, 0, len(names))
	for part := range slices.Chunk(names, cloudflareNamesPerCheck) {
		var result struct {
			Domains []availability `json:"domains"`
		}
		body := map[string][]string{"domains": part}
		if _, err := r.api.Call(ctx, cloudflare.Request{Method: http.MethodPost, Path: r.path + "/domain-check", Body: body, Repeat: true, Needs: permissionReadDomains}, &result); err != nil {
			return nil, err
		}
		for _, name := range part {
			at := slices.IndexFunc(result.Domains, func(a availability) bool { return strings.EqualFold(a.Name, name) })
			if at < 0 {
				out = append(out, Offer{Domain: name, Err: ErrBadDomain})
				continue
			}
			out = append(out, result.Domains[at].offer(name))
		}
	}
	return out, nil
}

// offer converts the result to an Offer for name.
func (c availability) offer(name string) Offer {
	o := Offer{Domain: name, Premium: c.Tier == "premium" || c.Reason == "domain_premium"}
	switch {
	case c.Registrable && !o.Premium:
		return c.withPrice(o)
	case o.Premium:
		o.Available = true
	case c.Reason == "domain_unavailable":
	case c.Reason == "extension_not_supported", c.Reason == "extension_not_supported_via_api", c.Reason == "extension_disallows_registration":
		o.Err = ErrNotSold
	default:
		o.Err = fmt.Errorf("cloudflare does not sell the name: %.60q", c.Reason)
	}
	return o
}

// withPrice returns o with the prices of the result. It sets o.Err if they are invalid.
func (c availability) withPrice(o Offer) Offer {
	if c.Pricing.Currency != "USD" {
		o.Err = fmt.Errorf("the price of cloudflare is in %.10q, not in USD", c.Pricing.Currency)
		return o
	}
	var err, errRenewal error
	o.Price, err = parseCents(c.Pricing.Registration)
	o.Renewal, errRenewal = parseCents(c.Pricing.Renewal)
	if err = errors.Join(err, errRenewal); err != nil {
		return Offer{Domain: o.Domain, Err: fmt.Errorf("cloudflare sent no valid price: %w", err)}
	}
	o.Available = true
	return o
}

// parseCents parses a price in dollars, such as 10.44, and returns it in cents, rounded up.
func parseCents(price string) (int64, error) {
	invalid := func(r rune) bool { return (r < '0' || r > '9') && r != '.' }
	sum, ok := new(big.Rat).SetString(price)
	if len(price) == 0 || len(price) > 16 || strings.ContainsFunc(price, invalid) || !ok {
		return 0, fmt.Errorf("the price %.20q is not a number", price)
	}
	sum.Mul(sum, big.NewRat(100, 1))
	whole, rest := new(big.Int).QuoRem(sum.Num(), sum.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if whole.Sign() <= 0 || !whole.IsInt64() || whole.Int64() > 1<<40 {
		return 0, fmt.Errorf("the price %.20q is out of range", price)
	}
	return whole.Int64(), nil
}

// A workflow is Cloudflare's state of an order, or of a change of a domain, which takes some time.
type workflow struct {
	State string `json:"state"`
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Context struct {
		Action       string        `json:"action"`
		Registration *registration `json:"registration"`
	} `json:"context"`
}

// registration is a domain in the account at Cloudflare.
type registration struct {
	Name      string     `json:"domain_name"`
	AutoRenew bool       `json:"auto_renew"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"` // nil while it is being registered
}

// Register checks the price, orders the domain, and polls until the order has ended. It checks the
// price because an order at Cloudflare has no maximum price.
func (r *Cloudflare) Register(ctx context.Context, o Order) (*Registration, error) {
	if err := r.checkOrder(ctx, o); err != nil {
		return nil, err
	}
	body := map[string]any{"domain_name": o.Domain, "years": o.Years, "auto_renew": o.AutoRenew, "privacy_mode": "redaction"}
	var w workflow
	if _, err := r.api.Call(ctx, cloudflare.Request{Method: http.MethodPost, Path: r.path + "/registrations", Body: body, Needs: permissionEditDomains}, &w); err != nil {
		return nil, cloudflareOrderError(err)
	}
	err := r.poll(ctx, &w, r.statusPath(o.Domain))
	switch {
	case err != nil:
		return nil, err
	case w.State == "failed":
		return nil, w.failure(ErrBadDomain)
	case w.Context.Registration == nil:
		return r.Find(ctx, o.Domain)
	}
	return w.Context.Registration.toRegistration(o.Domain)
}

// checkOrder returns an error if the domain cannot be bought for at most o.MaxPrice. It buys
// nothing.
func (r *Cloudflare) checkOrder(ctx context.Context, o Order) error {
	if o.Years < 1 || o.Years > cloudflareMaxYears {
		return fmt.Errorf("%w: it cannot be registered for %d years", ErrBadDomain, o.Years)
	}
	offers, err := r.Quote(ctx, []string{o.Domain})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotNow, err)
	}
	switch offer := offers[0]; {
	case errors.Is(offer.Err, ErrNotSold), errors.Is(offer.Err, ErrBadDomain):
		return offer.Err
	case offer.Err != nil:
		return fmt.Errorf("%w: %w", ErrNotNow, offer.Err)
	case offer.Premium:
		return ErrPremium
	case !offer.Available:
		return ErrTaken
	case offer.Total(o.Years) > o.MaxPrice:
		return ErrPrice
	}
	return nil
}

// cloudflareOrderError converts an error of an order. If it is certain that nothing was bought, it
// wraps one of the package's errors, such as ErrTaken. Otherwise it returns err unchanged.
func cloudflareOrderError(err error) error {
	var (
		apiErr *cloudflare.Error
		wait   *dnsprov.Wait
		op     *net.OpError
		lookup *net.DNSError
		cert   *tls.CertificateVerificationError
	)
	as := func(known error) error { return fmt.Errorf("%w: %w", known, err) }
	switch {
	case errors.Is(err, dnsprov.ErrCredential), errors.As(err, &wait), errors.As(err, &lookup), errors.As(err, &cert), errors.As(err, &op) && op.Op == "dial":
		return as(ErrNotNow)
	case !errors.As(err, &apiErr):
		return err
	}
	switch apiErr.Status {
	case http.StatusPaymentRequired:
		return as(ErrNoFunds)
	case http.StatusConflict:
		return as(ErrTaken) // perhaps by our own earlier order, if its answer was lost
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return as(ErrBadDomain)
	}
	return as(ErrNotNow)
}

// failure returns the error of a failed workflow. It wraps known.
func (w *workflow) failure(known error) error {
	if w.Error == nil {
		return fmt.Errorf("%w: cloudflare gives no reason", known)
	}
	return fmt.Errorf("%w: cloudflare answered %.200q (%.60q)", known, w.Error.Message, w.Error.Code)
}

func (r *Cloudflare) domainPath(name string) string {
	return r.path + "/registrations/" + url.PathEscape(name)
}

func (r *Cloudflare) statusPath(name string) string {
	return r.domainPath(name) + "/registration-status"
}

// poll polls the workflow at a path until it has ended. If it returns an error, the workflow may
// still succeed.
func (r *Cloudflare) poll(ctx context.Context, w *workflow, path string) error {
	ctx, cancel := context.WithTimeout(ctx, cloudflarePollTimeout)
	defer cancel()
	for wait := cloudflarePoll; ; wait = min(wait+wait/2, cloudflareMaxPoll) {
		switch w.State {
		case "succeeded", "failed":
			return nil
		case "action_required":
			return fmt.Errorf("cloudflare waits for an action of the account's owner (%.60q)", w.Context.Action)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("cloudflare has not finished the workflow yet (state %.20q): %w", w.State, ctx.Err())
		case <-t.C:
		}
		*w = workflow{}
		if _, err := r.api.Call(ctx, cloudflare.Request{Method: http.MethodGet, Path: path, Repeat: true, Needs: permissionReadDomains}, w); err != nil {
			return fmt.Errorf("poll the workflow at cloudflare: %w", err)
		}
	}
}

// toRegistration converts a registration of Cloudflare to a Registration without a price. It
// returns an error if the domain is still being registered.
func (g *registration) toRegistration(domain string) (*Registration, error) {
	if !strings.EqualFold(g.Name, domain) || g.ExpiresAt == nil || g.ExpiresAt.IsZero() || g.CreatedAt.IsZero() {
		return nil, fmt.Errorf("cloudflare has not finished the registration of %s", domain)
	}
	return &Registration{Domain: domain, AutoRenew: g.AutoRenew, RegisteredAt: g.CreatedAt, ExpiresAt: *g.ExpiresAt}, nil
}

// Find returns a domain of the account, or ErrNotFound. It returns another error while the domain
// is being registered.
func (r *Cloudflare) Find(ctx context.Context, domain string) (*Registration, error) {
	var g registration
	_, err := r.api.Call(ctx, cloudflare.Request{Method: http.MethodGet, Path: r.domainPath(domain), Repeat: true, Needs: permissionReadDomains}, &g)
	if err == nil {
		return g.toRegistration(domain)
	}
	if !isAbsent(err) {
		return nil, err
	}
	var w workflow
	_, err = r.api.Call(ctx, cloudflare.Request{Method: http.MethodGet, Path: r.statusPath(domain), Repeat: true, Needs: permissionReadDomains}, &w)
	switch {
	case isAbsent(err), err == nil && w.State == "failed":
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	case w.State == "action_required":
		return nil, fmt.Errorf("cloudflare waits for an action of the account's owner (%.60q) to register %s", w.Context.Action, domain)
	}
	return nil, fmt.Errorf("cloudflare is still registering %s (state %.20q)", domain, w.State)
}

// isAbsent reports whether err means that the domain does not exist. A 404 that means that the
// account or the route does not exist does not count.
func isAbsent(err error) bool {
	var apiErr *cloudflare.Error
	const noRoute, badIdentifier = 7000, 7003
	return errors.As(err, &apiErr) && apiErr.Status == http.StatusNotFound && !apiErr.Has(noRoute, badIdentifier)
}

// SetAutoRenew switches the automatic renewal of a domain on or off.
func (r *Cloudflare) SetAutoRenew(ctx context.Context, domain string, on bool) error {
	var w workflow
	body := map[string]bool{"auto_renew": on}
	_, err := r.api.Call(ctx, cloudflare.Request{Method: http.MethodPatch, Path: r.domainPath(domain), Body: body, Repeat: true, Needs: permissionEditDomains}, &w)
	switch {
	case isAbsent(err):
		return ErrNotFound
	case err != nil:
		return err
	}
	if err := r.poll(ctx, &w, r.domainPath(domain)+"/update-status"); err != nil {
		return err
	}
	if w.State == "failed" {
		return w.failure(errors.New("the automatic renewal was not changed"))
	}
	return nil
}
