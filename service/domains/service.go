// Package domains connects, buys, proves, sets up, watches and deletes domains. It does not
// know what is in their zones, nor mail; mailboxes it makes and deletes only together with their
// domain.
//
// Where things stand:
//   - domains.go: reading, changing and deleting domains.
//   - connect.go: adding domains that one owns.
//   - claims.go: whose a name is: what proves a claim (Service.claimProof), and what a proof
//     changes (Service.prove).
//   - login_proof.go: proof by a log-in to a mailbox of that name on its present server.
//   - setup.go: the request to set up a domain.
//   - setup_job.go: the steps that do it, as one table (setup.steps).
//   - health.go: checks the DNS of a domain, decides whether it is healthy (dnsCheck.healthy), and
//     says what to mend.
//   - dns.go: DNS status, nameservers.
//   - redirects.go: redirects and forwards.
//   - search.go: finds names for sale.
//   - purchase.go: buys a name, never twice.
package domains

import (
	"context"
	"fmt"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// Certificates are those of domains.
type Certificates interface {
	// PlanCertificate queues the work on a domain's certificate if there is something to do.
	PlanCertificate(tx *store.Tx, d *store.Domain) error
	// DropCertificate forgets the certificate of a domain.
	DropCertificate(tx *store.Tx, domainID string) error
}

// Mail is what domains have waiting to be sent.
type Mail interface {
	// CancelMailOf takes back what a domain has waiting.
	CancelMailOf(ctx context.Context, d *store.Domain) error
}

// Reports are those about domains.
type Reports interface {
	EraseReports(ctx context.Context, domainID string) error
}

// A Service holds what domains need.
type Service struct {
	*core.Core
	zones      *zones.Service
	events     *events.Service
	mailboxes  *mailboxes.Service
	mail       Mail
	reputation *reputation.Service
	reports    Reports
	certs      Certificates

	reverse reverse
}

// New puts the room together.
func New(c *core.Core, z *zones.Service, e *events.Service, m *mailboxes.Service, mail Mail, r *reputation.Service, reports Reports, certs Certificates) *Service {
	return &Service{Core: c, zones: z, events: e, mailboxes: m, mail: mail, reputation: r, reports: reports, certs: certs}
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{
		s.provisionKind(),
		s.setupKind(),
		s.routingKind("redirect_update", dnsprov.PurposeA),
		s.routingKind("forward_update", dnsprov.PurposeMX),
		s.domainDeleteKind(),
		s.claimKind(),
		s.claimsKind(),
		s.checkKind(),
	}
}

// Start plans the checks of open claims.
func (s *Service) Start() error {
	if err := s.wakeClaims(); err != nil {
		return fmt.Errorf("plan looks at the claims of domains: %w", err)
	}
	return nil
}
