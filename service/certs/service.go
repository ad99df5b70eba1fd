// Package certs gets certificates from an ACME authority (RFC 8555), for the names of this host and
// of the domains that it serves, renews them in time, and gives them to the listeners. It does not
// know how a domain is set up, only its zone, in which challenges and keys are published.
//
// Where things are:
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

// Zones manages the zones of domains, in which challenges and keys are published.
type Zones interface {
	// Records returns the records of a domain's zone, with the data in the transaction.
	Records(tx *store.Tx, d *store.Domain) []dnsprov.Record
	// CheckZone returns an error if the zone of a domain cannot be served.
	CheckZone(tx *store.Tx, d *store.Domain) error
	// PutZone writes a domain and publishes its records.
	PutZone(tx *store.Tx, d *store.Domain) error
	// MakeZones returns when our own server serves what was published.
	MakeZones()
	// PublishAbove publishes the closest zones above names; d may be nil.
	PublishAbove(tx *store.Tx, d *store.Domain, names ...string) error
	// WithLookupSlot calls fn when one of the slots for DNS checks is free. fn looks up name.
	WithLookupSlot(ctx context.Context, accountID, name string, fn func() error) error
}

// A Service gets and serves TLS certificates.
type Service struct {
	*core.Core
	zones Zones

	certs *certificates
}

// New returns a Service that publishes challenges and keys in zones. Start queues its jobs.
func New(c *core.Core, z Zones) *Service {
	return &Service{Core: c, zones: z, certs: newCertificates(c.Store.Now)}
}

// Kinds returns the kinds of jobs that this room works on.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.certificateKind(), s.certificateSweepKind()}
}

// Start queues the job for the certificate of the host's own name.
func (s *Service) Start() error {
	if err := s.planHostCertificate(); err != nil {
		return fmt.Errorf("queue the job for the certificate of this host: %w", err)
	}
	return nil
}
