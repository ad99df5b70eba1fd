// Package registrar checks the availability of domains and buys them at registrars. It does not
// know for whom domains are bought, or which were bought before. A caller of Register must first
// store that it is going to buy, and call Find before a second try.
package registrar

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// A Registrar sells domains. Names are ASCII, lower-case, without the trailing dot. Prices are in
// US cents. It is safe for concurrent use.
type Registrar interface {
	// Name returns the registrar's name in the settings and in the API, such as "namecom".
	Name() string
	// Quote returns an offer for each name, in the same order. An error about one name is in its
	// Offer. Quote returns an error if there is no offer at all.
	Quote(ctx context.Context, names []string) ([]Offer, error)
	// Register buys a domain for at most Order.MaxPrice. If it returns one of the errors of this
	// package, nothing was bought. After any other error, the caller must ask Find.
	Register(ctx context.Context, o Order) (*Registration, error)
	// Find returns a domain of the registrar account, or ErrNotFound.
	Find(ctx context.Context, domain string) (*Registration, error)
	// Delegate sets the nameservers of a domain of the registrar account.
	Delegate(ctx context.Context, domain string, nameservers []string) error
}

// A GlueSetter is a Registrar that can set glue: addresses of nameservers below the domain that
// they serve, which resolvers could not find otherwise (RFC 1034 section 4.2.1).
type GlueSetter interface {
	// SetGlue sets the addresses of a host below a domain of the registrar account. It returns
	// ErrNotFound if the account does not have the domain. It can be repeated.
	SetGlue(ctx context.Context, domain, host string, ips []netip.Addr) error
}

// An AutoRenewer is a Registrar that can switch the automatic renewal of a domain on or off.
type AutoRenewer interface {
	// SetAutoRenew switches the renewal of a domain of the registrar account on or off. It returns
	// ErrNotFound if the account does not have the domain.
	SetAutoRenew(ctx context.Context, domain string, on bool) error
}

// A NameserverPolicy is a Registrar that knows whether it can change nameservers. If
// FixedNameservers returns true, domains must use the registrar's own DNS, and Delegate returns
// ErrFixedNameservers.
type NameserverPolicy interface {
	FixedNameservers() bool
}

// HasFixedNameservers reports whether the domains of a registrar must use its own nameservers.
func HasFixedNameservers(r Registrar) bool {
	f, ok := r.(NameserverPolicy)
	return ok && f.FixedNameservers()
}

// An Offer is a registrar's answer about one name.
type Offer struct {
	Domain    string
	Available bool
	Premium   bool  // the name has a special price, and cannot be bought here
	Price     int64 // US cents for the first year
	Renewal   int64 // US cents for each further year
	Err       error // why the registrar makes no offer for this name, such as ErrNotSold; or nil
}

// Total returns the price of a number of years in US cents.
func (o Offer) Total(years int) int64 { return o.Price + o.Renewal*int64(years-1) }

// An Order says which domain to buy, and on which terms.
type Order struct {
	Key         string // an idempotency key, the same for every try of one purchase
	Domain      string
	Years       int
	MaxPrice    int64 // US cents for all years
	AutoRenew   bool
	Nameservers []string // empty for the registrar's own nameservers
}

// A Registration is a domain in a registrar account.
type Registration struct {
	Domain       string
	Key          string // Order.Key, if the registrar stores it
	Price        int64  // the amount paid in US cents; 0 if unknown
	AutoRenew    bool
	Nameservers  []string
	RegisteredAt time.Time
	ExpiresAt    time.Time
}

// Errors of Register after which nothing was bought. Other methods return some of them too.
var (
	ErrNotFound  = errors.New("the domain is not in this registrar account")
	ErrNotSold   = errors.New("the registrar does not sell names with this ending")
	ErrTaken     = errors.New("the domain is not available")
	ErrPrice     = errors.New("the price is higher than the maximum of the order")
	ErrPremium   = errors.New("the domain is sold at a premium price")
	ErrNoFunds   = errors.New("the registrar account does not have enough funds")
	ErrBadDomain = errors.New("the registrar does not accept this name")
	// ErrNotNow means that the order may succeed later: it could not be sent, the credentials are
	// wrong, or there were too many requests.
	ErrNotNow = errors.New("the registrar accepts no orders at the moment")
)

// ErrFixedNameservers is returned by Delegate if domains must use the registrar's own nameservers.
var ErrFixedNameservers = errors.New("the registrar does not allow other nameservers")
