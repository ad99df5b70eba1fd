package service

import (
	"context"

	"github.com/mailstead/mailstead/store"
)

// MakeKeys does the step of a set-up that makes the keys of a domain.
func (s *Service) MakeKeys(ctx context.Context, d *store.Domain) error {
	return (&provisioning{s: s, ctx: ctx, d: d}).keys()
}

// SetCertificates has the service know other certificates.
func (s *Service) SetCertificates(c *certificates) { s.certs = c }
