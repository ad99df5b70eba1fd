package dnsprov

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Provider keeps the records of domains at one DNS service. What a domain should have there is
// Wanted's to say, and what must change Plan's; a Provider only reads and writes. Its methods may
// be called by any number of goroutines.
type Provider interface {
	// Records lists what is published at and below a domain. Those that were made under its owner
	// tag have a Purpose; all others are foreign.
	Records(ctx context.Context, at ZoneRef) ([]Record, error)
	// Apply makes changes that Plan made from Records, and gives the records that it made or
	// adopted, with their IDs. It may be cut short anywhere: read, planned and applied again, it
	// comes to the same end. A Conflict or Refused says that it is one record that cannot be.
	Apply(ctx context.Context, at ZoneRef, changes []Change) ([]Record, error)
}

// A ZoneRef names the records of a domain at a provider.
type ZoneRef struct {
	Domain   string // as Record.Name
	OwnerTag string // tells the records of one domain of one installation from all others; letters, digits and _ only
}

// Errors of providers.
var (
	ErrCredential   = errors.New("the DNS provider does not take this token, or the token lacks a right")
	ErrZoneNotFound = errors.New("the DNS provider has no zone for the domain that this token may change")
)

// A Conflict is an error: what is wanted cannot be put beside a record that somebody else made.
type Conflict struct {
	Have Record // the foreign one
	Want Record
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("the zone has a record of somebody else's in the place of a needed one: %s %s %q", c.Have.Name, c.Have.Type, c.Have.Value)
}

// A Refused is an error: the provider does not take one record, whatever else it holds.
type Refused struct {
	Want Record
	Err  error
}

func (r *Refused) Error() string { return fmt.Sprintf("%s %s: %v", r.Want.Type, r.Want.Name, r.Err) }

// Unwrap gives what the provider said.
func (r *Refused) Unwrap() error { return r.Err }

// A Wait is an error: the provider wants to be asked again only after some time.
type Wait struct {
	For time.Duration
	Err error
}

func (w *Wait) Error() string { return fmt.Sprintf("%v; ask again in %s", w.Err, w.For) }

// Unwrap gives what the provider said.
func (w *Wait) Unwrap() error { return w.Err }
