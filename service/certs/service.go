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
	"context"
	"fmt"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Zones are the zones of domains, in which challenges and keys are published.
type Zones interface {
	// Records are those of a domain's zone as a transaction sees it, and CheckZone tells why the
	// zone cannot be served.
	Records(tx *store.Tx, d *store.Domain) []dnsprov.Record
	CheckZone(tx *store.Tx, d *store.Domain) error
	// PutZone writes a domain and publishes its records.
	PutZone(tx *store.Tx, d *store.Domain) error
	// PublishAbove publishes the zones above names again; d may be nil.
	PublishAbove(tx *store.Tx, d *store.Domain, names ...string) error
	// Looking calls fn when one of the places for live look-ups is free.
	Looking(ctx context.Context, fn func() error) error
}

// A Service holds what certificates need.
type Service struct {
	*core.Core
	zones Zones

	certs *certificates
}

// New puts the room together.
func New(c *core.Core, z Zones) *Service {
	return &Service{Core: c, zones: z, certs: newCertificates(c.Store.Now)}
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.certificateKind(), s.certificateSweepKind()}
}

// Start plans what is to be done about the host's own certificate.
func (s *Service) Start() error {
	if err := s.planHostCertificate(); err != nil {
		return fmt.Errorf("plan the certificate of this host: %w", err)
	}
	return nil
}
