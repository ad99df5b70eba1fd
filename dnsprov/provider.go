package dnsprov

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Provider reads and writes the DNS records of domains at one DNS service. It decides nothing:
// Wanted returns the records that a domain should have, and Plan the changes. It is safe for
// concurrent use.
type Provider interface {
	// FindZone returns the name of the zone that a domain is in, without reading its records. It
	// returns ErrZoneNotFound if there is none.
	FindZone(ctx context.Context, domain string) (name string, err error)
	// Records returns the records at and below a domain. Records that Apply made under the owner
	// tag have a Purpose; all other records are foreign. A provider that cannot mark records
	// returns all of them as foreign, with their Key as ID; the caller then sets the Purpose of
	// those that it has made. A record without an ID was never made by the caller.
	Records(ctx context.Context, at ZoneRef) ([]Record, error)
	// Apply carries out the changes that Plan returned for Records. It returns the records that it
	// created or adopted, with their IDs; adopted records, which are foreign, have no Purpose. A
	// provider that marks records does not mark a new record that is wanted without a Purpose. If
	// it is interrupted, the caller can read, plan and apply again. It returns a *Conflict or
	// *Refused if one record cannot be written; errors.Join may join those of several. After
	// ErrChanged or a *Conflict, it has created
	// only the records that it returns. After any other error it may have created more. A provider
	// that cannot mark records does not recognize these later, so its caller stores what it is
	// about to create before it calls Apply.
	Apply(ctx context.Context, at ZoneRef, changes []Change) ([]Record, error)
}

// A ZoneRef identifies the records of one domain at a provider.
type ZoneRef struct {
	Domain   string // in the form of Record.Name
	OwnerTag string // marks the records of this domain and installation; only letters, digits and _

	// Ask names the sets that are wanted and the sets with records of ours. A provider that cannot
	// list its zone asks for these.
	Ask []Set
}

// A Set is all records of one name and type.
type Set struct {
	Name string // in the form of Record.Name
	Type string
}

// Errors that providers return.
var (
	ErrCredential   = errors.New("the DNS provider rejects the credential, or it lacks a permission")
	ErrZoneNotFound = errors.New("the DNS provider has no zone of the domain that the credential may change")
	ErrChanged      = errors.New("somebody else has changed the records since they were read") // read and plan again
)

// A FieldError says which field of what a provider needs is wrong, by its name in the API, and why.
type FieldError struct {
	Field, Why string
}

func (e *FieldError) Error() string { return e.Field + " " + e.Why }

// A Conflict is the error that a foreign record prevents a wanted record.
type Conflict struct {
	Have Record // the foreign record
	Want Record // the wanted record
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("a foreign record of the zone conflicts with a needed record: %s %s %q", c.Have.Name, c.Have.Type, c.Have.Value)
}

// A Refused is the error that the provider does not accept a record, even without conflicts.
type Refused struct {
	Want Record
	Err  error
}

func (r *Refused) Error() string {
	return fmt.Sprintf("the DNS provider refuses the record %s %s: %v", r.Want.Type, r.Want.Name, r.Err)
}

// Unwrap returns the provider's error.
func (r *Refused) Unwrap() error { return r.Err }

const maxRefusals = 100 // that one Apply tells

// Refusals collects the records that a provider refuses in one Apply: the first 100, since the
// caller tries again without them.
type Refusals struct{ all []error }

// Add adds a refused record.
func (r *Refusals) Add(refused *Refused) {
	if len(r.all) < maxRefusals {
		r.all = append(r.all, refused)
	}
}

// Err returns an error that wraps each *Refused; nil if there are none.
func (r *Refusals) Err() error { return errors.Join(r.all...) }

// A Wait is the error that the provider allows no further request for the duration For.
type Wait struct {
	For time.Duration
	Err error
}

func (w *Wait) Error() string { return fmt.Sprintf("%v; try again in %s", w.Err, w.For) }

// Unwrap returns the provider's error.
func (w *Wait) Unwrap() error { return w.Err }
