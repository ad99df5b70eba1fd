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
	cloudflareNamesPerCheck = 20 // names in one check
	cloudflareMaxYears      = 10
	cloudflarePoll          = time.Second     // before the first poll of an order
	cloudflareMaxPoll       = 5 * time.Second // longest pause between two polls
	cloudflarePollTimeout   = time.Minute     // of polling, if the caller's context does not end before

	readDomains = "Account: Registrar: Domains Read"
	editDomains = "Account: Registrar: Domains Edit"
)

// CloudflareConfig configures the account at Cloudflare Registrar that buys domains. The account
// needs a payment method and a default entry in its address book, which becomes the registrant;
// both are set in Cloudflare's dashboard.
type CloudflareConfig struct {
	BaseURL   string // "" is cloudflare.BaseURL
	AccountID string
	Token     string
	HTTP      *http.Client // nil: http.DefaultClient
}

// Cloudflare is Cloudflare Registrar. It needs no idempotency keys, since it sells each name only
// once. Its domains must use the name servers of Cloudflare's DNS. Its API sells no premium names.
type Cloudflare struct {
	api  *cloudflare.Client
	path string // of the account in the API
}

// NewCloudflare returns the registrar. It sends no request yet.
func NewCloudflare(c CloudflareConfig) *Cloudflare {
	return &Cloudflare{
		api:  cloudflare.New(cloudflare.Config{BaseURL: c.BaseURL, Token: c.Token, HTTP: c.HTTP}),
		path: "/accounts/" + url.PathEscape(c.AccountID) + "/registrar",
	}
}

// Name returns "cloudflare".
func (*Cloudflare) Name() string { return "cloudflare" }

// FixedNameservers returns true: a domain bought here has its zone at Cloudflare's DNS.
func (*Cloudflare) FixedNameservers() bool { return true }

// Delegate returns ErrFixedNameservers.
func (*Cloudflare) Delegate(context.Context, string, []string) error { return ErrFixedNameservers }

// checked is the result of an availability check for one name.
type checked struct {
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

// Quote checks the names at the registries, twenty at a time.
func (r *Cloudflare) Quote(ctx context.Context, names []string) ([]Offer, error) {
	out := make([]Offer, 0, len(names))
	for part := range slices.Chunk(names, cloudflareNamesPerCheck) {
		var said struct {
			Domains []checked `json:"domains"`
		}
		body := map[string][]string{"domains": part}
		if _, err := r.api.Call(ctx, cloudflare.Request{Method: http.MethodPost, Path: r.path + "/domain-check", Body: body, Repeat: true, Needs: readDomains}, &said); err != nil {
			return nil, err
		}
		for _, name := range part {
			at := slices.IndexFunc(said.Domains, func(c checked) bool { return strings.EqualFold(c.Name, name) })
			if at < 0 {
				out = append(out, Offer{Domain: name, Err: ErrBadDomain})
				continue
			}
			out = append(out, said.Domains[at].offer(name))
		}
	}
	return out, nil
}

func (c checked) offer(name string) Offer {
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
		o.Err = fmt.Errorf("cloudflare does not sell it: %.60q", c.Reason)
	}
	return o
}

// withPrice fills in the prices of an offer.
func (c checked) withPrice(o Offer) Offer {
	if c.Pricing.Currency != "USD" {
		o.Err = fmt.Errorf("cloudflare gives its price in %.10q, not in USD", c.Pricing.Currency)
		return o
	}
	var err, errRenewal error
	o.Price, err = parseCents(c.Pricing.Registration)
	o.Renewal, errRenewal = parseCents(c.Pricing.Renewal)
	if err = errors.Join(err, errRenewal); err != nil {
		return Offer{Domain: o.Domain, Err: fmt.Errorf("cloudflare sends no valid price: %w", err)}
	}
	o.Available = true
	return o
}

// parseCents parses a decimal such as 10.44. Fractions of a cent are rounded up.
func parseCents(price string) (int64, error) {
	odd := func(r rune) bool { return (r < '0' || r > '9') && r != '.' }
	sum, ok := new(big.Rat).SetString(price)
	if len(price) == 0 || len(price) > 16 || strings.ContainsFunc(price, odd) || !ok {
		return 0, fmt.Errorf("%.20q is not an amount", price)
	}
	sum.Mul(sum, big.NewRat(100, 1))
	whole, rest := new(big.Int).QuoRem(sum.Num(), sum.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if whole.Sign() <= 0 || !whole.IsInt64() || whole.Int64() > 1<<40 {
		return 0, fmt.Errorf("%.20q is not a price", price)
	}
	return whole.Int64(), nil
}

// A workflow is the state of an order, or of a change of a domain.
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

// registration is a domain in the account.
type registration struct {
	Name      string     `json:"domain_name"`
	AutoRenew bool       `json:"auto_renew"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"` // nil while it is being registered
}

// Register checks the price first, since the order has no field for it, then orders, and polls
// until the order has ended.
func (r *Cloudflare) Register(ctx context.Context, o Order) (*Registration, error) {
	if err := r.checkOrder(ctx, o); err != nil {
		return nil, err
	}
	body := map[string]any{"domain_name": o.Domain, "years": o.Years, "auto_renew": o.AutoRenew, "privacy_mode": "redaction"}
	var w workflow
	if _, err := r.api.Call(ctx, cloudflare.Request{Method: http.MethodPost, Path: r.path + "/registrations", Body: body, Needs: editDomains}, &w); err != nil {
		return nil, refusal(err)
	}
	err := r.follow(ctx, &w, r.status(o.Domain))
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

// checkOrder checks that an order can be had on the agreed terms. When it returns an error, nothing
// was bought.
func (r *Cloudflare) checkOrder(ctx context.Context, o Order) error {
	if o.Years < 1 || o.Years > cloudflareMaxYears {
		return fmt.Errorf("%w: not for %d years", ErrBadDomain, o.Years)
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

// refusal wraps an error of this package around err if it is certain that the order was not
// accepted. Otherwise it returns err unchanged.
func refusal(err error) error {
	var (
		said   *cloudflare.Error
		wait   *dnsprov.Wait
		op     *net.OpError
		lookup *net.DNSError
		cert   *tls.CertificateVerificationError
	)
	as := func(known error) error { return fmt.Errorf("%w: %w", known, err) }
	switch {
	case errors.Is(err, dnsprov.ErrCredential), errors.As(err, &wait), errors.As(err, &lookup), errors.As(err, &cert), errors.As(err, &op) && op.Op == "dial":
		return as(ErrNotNow)
	case !errors.As(err, &said):
		return err
	}
	switch said.Status {
	case http.StatusPaymentRequired:
		return as(ErrNoFunds)
	case http.StatusConflict:
		return as(ErrTaken) // perhaps by an earlier order of ours that got no answer
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return as(ErrBadDomain)
	}
	return as(ErrNotNow)
}

// failure returns the error of a failed workflow.
func (w *workflow) failure(known error) error {
	if w.Error == nil {
		return fmt.Errorf("%w: cloudflare does not say why", known)
	}
	return fmt.Errorf("%w: cloudflare: %.200q (%.60q)", known, w.Error.Message, w.Error.Code)
}

func (r *Cloudflare) domain(name string) string {
	return r.path + "/registrations/" + url.PathEscape(name)
}

func (r *Cloudflare) status(name string) string { return r.domain(name) + "/registration-status" }

// follow polls a workflow until it has ended. After an error the result is not known yet.
func (r *Cloudflare) follow(ctx context.Context, w *workflow, at string) error {
	ctx, cancel := context.WithTimeout(ctx, cloudflarePollTimeout)
	defer cancel()
	for wait := cloudflarePoll; ; wait = min(wait+wait/2, cloudflareMaxPoll) {
		switch w.State {
		case "succeeded", "failed":
			return nil
		case "action_required":
			return fmt.Errorf("cloudflare waits for the owner of the account to act (%.60q)", w.Context.Action)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("cloudflare has not finished the workflow yet (%.20q): %w", w.State, ctx.Err())
		case <-t.C:
		}
		*w = workflow{}
		if _, err := r.api.Call(ctx, cloudflare.Request{Method: http.MethodGet, Path: at, Repeat: true, Needs: readDomains}, w); err != nil {
			return fmt.Errorf("poll the workflow: %w", err)
		}
	}
}

// toRegistration converts a registration to the form that all registrars share, without a price.
func (g *registration) toRegistration(domain string) (*Registration, error) {
	if !strings.EqualFold(g.Name, domain) || g.ExpiresAt == nil || g.ExpiresAt.IsZero() || g.CreatedAt.IsZero() {
		return nil, fmt.Errorf("cloudflare has not finished the registration of %s", domain)
	}
	return &Registration{Domain: domain, AutoRenew: g.AutoRenew, RegisteredAt: g.CreatedAt, ExpiresAt: *g.ExpiresAt}, nil
}

// Find returns a domain of the account. While the domain is being registered, Find returns an error
// other than ErrNotFound.
func (r *Cloudflare) Find(ctx context.Context, domain string) (*Registration, error) {
	var g registration
	_, err := r.api.Call(ctx, cloudflare.Request{Method: http.MethodGet, Path: r.domain(domain), Repeat: true, Needs: readDomains}, &g)
	if err == nil {
		return g.toRegistration(domain)
	}
	if !isAbsent(err) {
		return nil, err
	}
	var w workflow
	_, err = r.api.Call(ctx, cloudflare.Request{Method: http.MethodGet, Path: r.status(domain), Repeat: true, Needs: readDomains}, &w)
	switch {
	case isAbsent(err), err == nil && w.State == "failed":
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	case w.State == "action_required":
		return nil, fmt.Errorf("cloudflare waits for the owner of the account to act (%.60q), then registers %s", w.Context.Action, domain)
	}
	return nil, fmt.Errorf("cloudflare is registering %s (%.20q)", domain, w.State)
}

// isAbsent reports whether the API answered that the domain does not exist, and not that the
// account or the operation does not.
func isAbsent(err error) bool {
	var said *cloudflare.Error
	const noRoute, badIdentifier = 7000, 7003
	return errors.As(err, &said) && said.Status == http.StatusNotFound && !said.Has(noRoute, badIdentifier)
}

// SetAutoRenew switches the automatic renewal of a domain on or off.
func (r *Cloudflare) SetAutoRenew(ctx context.Context, domain string, on bool) error {
	var w workflow
	body := map[string]bool{"auto_renew": on}
	_, err := r.api.Call(ctx, cloudflare.Request{Method: http.MethodPatch, Path: r.domain(domain), Body: body, Repeat: true, Needs: editDomains}, &w)
	switch {
	case isAbsent(err):
		return ErrNotFound
	case err != nil:
		return err
	}
	if err := r.follow(ctx, &w, r.domain(domain)+"/update-status"); err != nil {
		return err
	}
	if w.State == "failed" {
		return w.failure(errors.New("Cloudflare did not change the automatic renewal"))
	}
	return nil
}
