package domains

import (
	"context"

	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package use.

const (
	ClaimedElsewhere = claimedElsewhere
)

type (
	Look = dnsCheck
)

func (s *Service) ActivateMany(ctx context.Context, domainID string) error {
	return s.activateMostMailboxes(ctx, domainID)
}

func (s *Service) CompleteDomain(tx *store.Tx, d *store.Domain, l *dnsCheck) error {
	return s.completeDomain(tx, d, l)
}

func (s *Service) KeepLook(tx *store.Tx, d *store.Domain, l *dnsCheck) error {
	return s.saveCheck(tx, d, l)
}

func (s *Service) LookAt(ctx context.Context, d *store.Domain) *dnsCheck { return s.checkNow(ctx, d) }

// MakeKeys runs the step of a setup that makes the keys of a domain, and returns the domain.
func (s *Service) MakeKeys(ctx context.Context, d *store.Domain) (*store.Domain, error) {
	p := &setupRun{s: s, ctx: ctx, d: d}
	err := p.generateKeys()
	return p.d, err
}
