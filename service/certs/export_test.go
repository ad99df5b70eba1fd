package certs

import (
	"context"

	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package use.

const (
	KeyKnownAfter = keyPublishTime
	OrdersBurst   = maxOrderBurst
	OrdersEvery   = orderInterval
	SweptAtATime  = domainsPerView
)

type (
	CertificateArgs = certificateArgs
	Issued          = servedCertificate
)

var (
	NewCertificates = newCertificates
)

func (s *Service) Authority(ctx context.Context) (*ca.Client, error) { return s.authorityClient(ctx) }

func (s *Service) Certify(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	return s.certify(ctx, j)
}

func (s *Service) Certs() *certificates { return s.certs }

func (s *Service) SweepCertificates(ctx context.Context, p1 *store.Job) (jobs.Writes, error) {
	return s.sweepCertificates(ctx, p1)
}

// SetCertificates replaces the served certificates.
func (s *Service) SetCertificates(c *certificates) { s.certs = c }
