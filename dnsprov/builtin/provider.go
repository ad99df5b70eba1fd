package builtin

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/dnsprov"
)

// Provider is the dnsprov.Provider of the zones that this program serves itself. Only one goroutine
// at a time may use it for the same domain.
type Provider struct {
	Zones   *Zones
	Options Options // options of the zones that Apply makes
}

// Records returns the records from which the zone was made, or nil if there is no zone.
func (p *Provider) Records(_ context.Context, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	z, ok := p.Zones.Zone(at.Domain)
	if !ok || z.Origin != at.Domain {
		return nil, nil
	}
	return slices.Clone(z.records), nil
}

// Apply makes a new zone from the changed records and p.Options, and serves it instead of the
// previous zone. If it returns an error, the previous zone stays. The returned records have no IDs.
func (p *Provider) Apply(ctx context.Context, at dnsprov.ZoneRef, changes []dnsprov.Change) ([]dnsprov.Record, error) {
	records, err := p.Records(ctx, at)
	if err != nil {
		return nil, err
	}
	var made []dnsprov.Record
	for _, c := range changes {
		if c.Have != nil {
			if i := slices.Index(records, *c.Have); i >= 0 {
				records = slices.Delete(records, i, i+1)
			}
		}
		if c.Want != nil {
			records, made = append(records, *c.Want), append(made, *c.Want)
		}
	}
	z, err := NewZone(at.Domain, records, p.Options)
	if err != nil {
		return nil, err
	}
	z.records = records
	p.Zones.Put(z)
	return made, nil
}
