package domains

import (
	"context"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package look at.

const (
	ClaimedElsewhere = claimedElsewhere
	MaxCustomRecords = maxCustomRecords
	RenewCopies      = renewCopies
	ZonesAtATime     = zonesAtATime
)

type (
	Look = dnsCheck
)

var (
	DNSSECOf = dnssecOf
)

func (s *Service) ActivateMany(ctx context.Context, domainID string) error {
	return s.activateMany(ctx, domainID)
}

func (s *Service) CompleteDomain(tx *store.Tx, d *store.Domain, l *dnsCheck) error {
	return s.completeDomain(tx, d, l)
}

func (s *Service) Copied(origin string) (builtin.Copied, bool) { return s.copied(origin) }

func (s *Service) DropZone(d *store.Domain) error { return s.dropZone(d) }

func (s *Service) EraseCustomRecords(ctx context.Context, domainID string) error {
	return s.eraseCustomRecords(ctx, domainID)
}

func (s *Service) KeepLook(tx *store.Tx, d *store.Domain, l *dnsCheck) error {
	return s.saveCheck(tx, d, l)
}

func (s *Service) LookAt(ctx context.Context, d *store.Domain) *dnsCheck { return s.checkNow(ctx, d) }

func (s *Service) RenewZones() error { return s.renewZones() }

func (s *Service) Resign(ctx context.Context, p1 *store.Job) (jobs.Writes, error) {
	return s.resign(ctx, p1)
}

func (s *Service) Zones() *zones { return s.zones }

// MakeKeys does the step of a set-up that makes the keys of a domain, and gives the domain then.
func (s *Service) MakeKeys(ctx context.Context, d *store.Domain) (*store.Domain, error) {
	p := &setup{s: s, ctx: ctx, d: d}
	err := p.keys()
	return p.d, err
}
