// Package registrar checks and buys domains at registrars. It does not know for whom, nor what was
// bought before. A caller of Register must store the intent first, and call Find before a second
// try.
package registrar

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// A Registrar sells domains. Names are ASCII, lower-case, without the trailing dot. Prices are in
// cents of US dollars. Any number of goroutines may use it.
type Registrar interface {
	// Name returns the registrar's name in the configuration and in the API.
	Name() string
	// Quote returns an offer for each name, in the same order. The error means that the registrar
	// as a whole failed; an error about one name is in its Offer.
	Quote(ctx context.Context, names []string) ([]Offer, error)
	// Register buys a domain, for Order.MaxPrice at most. After an error of this package nothing
	// was bought; after any other error that is unknown, and Find must be called.
	Register(ctx context.Context, o Order) (*Registration, error)
	// Find returns a domain of this registrar account, or ErrNotFound.
	Find(ctx context.Context, domain string) (*Registration, error)
	// Delegate sets the name servers of a domain of this registrar account.
	Delegate(ctx context.Context, domain string, nameservers []string) error
}

// A GlueSetter is a Registrar that can set glue: the addresses of name servers whose names are
// inside the domain that they serve, which nobody could look up otherwise (RFC 1034 section 4.2.1).
// Setting the same addresses again changes nothing.
type GlueSetter interface {
	// SetGlue sets the addresses of a host inside a domain of this registrar account, or returns
	// ErrNotFound.
	SetGlue(ctx context.Context, domain, host string, ips []netip.Addr) error
}

// An AutoRenewer is a Registrar that can switch the automatic renewal of a domain on or off.
type AutoRenewer interface {
	// SetAutoRenew changes a domain of this registrar account, or returns ErrNotFound.
	SetAutoRenew(ctx context.Context, domain string, on bool) error
}

// A Fixed is a Registrar that may be unable to change name servers: its domains use its own DNS,
// and Delegate returns ErrFixedNameservers.
type Fixed interface {
	FixedNameservers() bool
}

// HasFixedNameservers reports whether a registrar cannot change name servers.
func HasFixedNameservers(r Registrar) bool {
	f, ok := r.(Fixed)
	return ok && f.FixedNameservers()
}

// An Offer is a registrar's answer about one name.
type Offer struct {
	Domain    string
	Available bool
	Premium   bool
	Price     int64 // for the first year
	Renewal   int64 // for each further year
	Err       error // ErrNotSold, or why the registrar did not answer for this name
}

// Total returns the price of a number of years.
func (o Offer) Total(years int) int64 { return o.Price + o.Renewal*int64(years-1) }

// An Order is one purchase.
type Order struct {
	Key         string // an idempotency key: the same at every try of one purchase
	Domain      string
	Years       int
	MaxPrice    int64 // for all years
	AutoRenew   bool
	Nameservers []string // empty: the registrar's own
}

// A Registration is a domain in a registrar account.
type Registration struct {
	Domain       string
	Key          string // of the order, if the registrar stores it
	Price        int64  // the amount paid; 0 if the registrar does not say
	AutoRenew    bool
	Nameservers  []string
	RegisteredAt time.Time
	ExpiresAt    time.Time
}

// Errors after which nothing was bought.
var (
	ErrNotFound  = errors.New("the domain is not in this registrar account")
	ErrNotSold   = errors.New("the registrar does not sell names with this ending")
	ErrTaken     = errors.New("the domain is not available")
	ErrPrice     = errors.New("the price is higher than was agreed to")
	ErrPremium   = errors.New("the domain is sold at a premium price")
	ErrNoFunds   = errors.New("the registrar account does not have enough funds")
	ErrBadDomain = errors.New("the registrar does not take this name")
	// ErrNotNow means that the order was not accepted for a reason unrelated to it: it was not
	// sent, the credentials are wrong, or there were too many requests. The same order may succeed
	// later.
	ErrNotNow = errors.New("the registrar accepts no orders at the moment")
)

// ErrFixedNameservers is returned by Delegate if domains must use the registrar's own name servers.
var ErrFixedNameservers = errors.New("the registrar does not let nameservers be changed")
