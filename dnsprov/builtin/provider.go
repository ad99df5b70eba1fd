package builtin

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/dnsprov"
)

// Provider keeps the records of a domain as a zone that this server serves. For one domain it must
// be used by one goroutine at a time.
type Provider struct {
	Zones   *Zones
	Options Options // of the zones that it makes
}

// Records returns the records that the served zone was made from; none if there is no such zone.
func (p *Provider) Records(_ context.Context, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	z, ok := p.Zones.Zone(at.Domain)
	if !ok || z.Origin != at.Domain {
		return nil, nil
	}
	return slices.Clone(z.records), nil
}

// Apply builds the zone again, even if only the options have changed, and serves it instead of the
// previous zone. After an error the previous zone is still served. The records have no IDs.
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
