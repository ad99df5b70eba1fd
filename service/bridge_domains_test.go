package service

import (
	"context"

	"github.com/mailstead/mailstead/store"
)

// MakeKeys does the step of a set-up that makes the keys of a domain, and gives the domain then.
func (s *Service) MakeKeys(ctx context.Context, d *store.Domain) (*store.Domain, error) {
	p := &provisioning{s: s, ctx: ctx, d: d}
	err := p.keys()
	return p.d, err
}

// SetCertificates has the service know other certificates.
func (s *Service) SetCertificates(c *certificates) { s.certs = c }
