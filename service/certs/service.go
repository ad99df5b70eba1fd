// Package certs gets certificates from an ACME authority (RFC 8555), for the names of this host and
// of the domains that it serves, renews them in time, and hands them to the listeners. It does not
// know how a domain is set up, only its zone, in which challenges and keys are published.
//
// Where things stand:
//   - certificates.go: which certificate a name gets, and which names one covers.
//   - renewal.go: when one is due, and one run of the job that gets it.
//   - acme.go: the ACME account and its challenges. host_keys.go: keys of the host for DANE.
package certs

import (
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
)

// A Service holds what certificates need.
type Service struct {
	*core.Core
	domains *domains.Service

	certs *certificates
}

// New puts the room together.
func New(c *core.Core, d *domains.Service) *Service {
	return &Service{Core: c, domains: d, certs: newCertificates(c.Store.Now)}
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.certificateKind(), s.certificateSweepKind()}
}

// Start plans what is to be done about the host's own certificate.
func (s *Service) Start() {
	if err := s.planHostCertificate(); err != nil {
		s.Log.Error("plan the certificate of this host", "error", err)
	}
}
