package dnsprov

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Provider keeps the records of domains at one DNS service. Wanted decides which records a domain
// should have there, and Plan what must change; a Provider only reads and writes. Any number of
// goroutines may use it.
type Provider interface {
	// Records lists the records at and below a domain. Those made under its owner tag have a
	// Purpose; all others are foreign.
	Records(ctx context.Context, at ZoneRef) ([]Record, error)
	// Apply carries out changes that Plan made from Records, and returns the records that it made
	// or adopted, with their IDs. It may be interrupted at any point: reading, planning and
	// applying again leads to the same result. A Conflict or Refused error is about a single
	// record.
	Apply(ctx context.Context, at ZoneRef, changes []Change) ([]Record, error)
}

// A ZoneRef names the records of a domain at a provider.
type ZoneRef struct {
	Domain   string // as Record.Name
	OwnerTag string // distinguishes the records of one domain of one installation from all others; only letters, digits and _
}

// Errors of providers.
var (
	ErrCredential   = errors.New("the DNS provider does not take this token, or the token lacks a right")
	ErrZoneNotFound = errors.New("the DNS provider has no zone for the domain that this token may change")
)

// A Conflict is an error: a foreign record excludes the wanted one.
type Conflict struct {
	Have Record // the foreign one
	Want Record
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("the zone has a foreign record in the place of a needed one: %s %s %q", c.Have.Name, c.Have.Type, c.Have.Value)
}

// A Refused is an error: the provider does not accept one record, whatever else the zone has.
type Refused struct {
	Want Record
	Err  error
}

func (r *Refused) Error() string { return fmt.Sprintf("%s %s: %v", r.Want.Type, r.Want.Name, r.Err) }

// Unwrap returns the provider's error.
func (r *Refused) Unwrap() error { return r.Err }

// A Wait is an error: the provider asks to wait before the next request.
type Wait struct {
	For time.Duration
	Err error
}

func (w *Wait) Error() string { return fmt.Sprintf("%v; ask again in %s", w.Err, w.For) }

// Unwrap returns the provider's error.
func (w *Wait) Unwrap() error { return w.Err }
