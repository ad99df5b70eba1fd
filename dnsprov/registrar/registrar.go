// Package registrar asks registrars for domains and buys them. It does not know for whom, nor what
// has been bought before: whoever calls Register keeps the intent first, and asks Find before a
// second try.
package registrar

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// A Registrar sells domains. Names are ASCII, lower-case, without the trailing dot. Prices are in
// cents of US dollars. Its methods may be called by any number of goroutines.
type Registrar interface {
	// Name is what people call it by in the configuration and in the API.
	Name() string
	// Quote says for each name, in their order, whether it can be had. The error is of the
	// registrar as a whole; what concerns one name is in its Offer.
	Quote(ctx context.Context, names []string) ([]Offer, error)
	// Register buys a domain, for Order.MaxPrice at most. The errors of this package say that
	// nothing was bought; after any other error that is not known, and Find tells.
	Register(ctx context.Context, o Order) (*Registration, error)
	// Find gives a domain of this registrar account, or ErrNotFound.
	Find(ctx context.Context, domain string) (*Registration, error)
	// Delegate sets the nameservers of a domain of this registrar account.
	Delegate(ctx context.Context, domain string, nameservers []string) error
}

// A GlueSetter is a Registrar that tells the registry the addresses of nameservers whose names lie
// inside of the domain that they serve, since nobody could look those up (RFC 1034 section 4.2.1).
// Setting the same again changes nothing.
type GlueSetter interface {
	// SetGlue sets the addresses of a host inside of a domain of this registrar account, or gives
	// ErrNotFound.
	SetGlue(ctx context.Context, domain, host string, ips []netip.Addr) error
}

// An AutoRenewer is a Registrar that can be told whether a domain is to be renewed without being
// asked.
type AutoRenewer interface {
	// SetAutoRenew changes a domain of this registrar account, or gives ErrNotFound.
	SetAutoRenew(ctx context.Context, domain string, on bool) error
}

// A Fixed is a Registrar that may be unable to change nameservers: its domains stay with its own
// DNS, and Delegate gives ErrFixedNameservers.
type Fixed interface {
	FixedNameservers() bool
}

// HasFixedNameservers reports whether a registrar cannot change nameservers.
func HasFixedNameservers(r Registrar) bool {
	f, ok := r.(Fixed)
	return ok && f.FixedNameservers()
}

// An Offer is what a registrar says about one name.
type Offer struct {
	Domain    string
	Available bool
	Premium   bool
	Price     int64 // of the first year
	Renewal   int64 // of each year after it
	Err       error // ErrNotSold, or why there is no answer about this name
}

// Total is the price of a number of years.
func (o Offer) Total(years int) int64 { return o.Price + o.Renewal*int64(years-1) }

// An Order is one purchase.
type Order struct {
	Key         string // the same at every try of one purchase, so that the registrar can know it again
	Domain      string
	Years       int
	MaxPrice    int64 // of all years
	AutoRenew   bool
	Nameservers []string // none: the registrar's own
}

// A Registration is a domain in a registrar account.
type Registration struct {
	Domain       string
	Key          string // of the order, where the registrar keeps it
	Price        int64  // what was paid; 0 where the registrar does not say
	AutoRenew    bool
	Nameservers  []string
	RegisteredAt time.Time
	ExpiresAt    time.Time
}

// Errors after which nothing was bought.
var (
	ErrNotFound  = errors.New("the domain is not in this registrar account")
	ErrNotSold   = errors.New("the registrar does not sell names of this ending")
	ErrTaken     = errors.New("the domain is not available")
	ErrPrice     = errors.New("the price is higher than was agreed to")
	ErrPremium   = errors.New("the domain is sold at a premium price")
	ErrNoFunds   = errors.New("the registrar account has not enough funds")
	ErrBadDomain = errors.New("the registrar does not take this name")
	// ErrNotNow says that the order was not taken for a reason that is not the order's: it never
	// left this host, the credentials are wrong, or it is one of too many. The same order may do
	// better later.
	ErrNotNow = errors.New("the registrar takes no orders now")
)

// ErrFixedNameservers is what Delegate gives where domains stay with the registrar's own
// nameservers.
var ErrFixedNameservers = errors.New("the registrar does not let nameservers be changed")
