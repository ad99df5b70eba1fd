// Package domains connects, buys, proves, sets up, checks and deletes domains. It does not know
// what is in their zones, and nothing about mail. It creates and deletes mailboxes only together
// with their domain.
//
// Where things are:
//   - domains.go: reading, changing and deleting domains.
//   - connect.go: adding domains that the account owns already.
//   - claims.go: who owns a name: what proves a claim (Service.findClaimProof), and what a proof
//     changes (Service.prove).
//   - login_proof.go: proof by a login to a mailbox of that domain on its present server.
//   - setup.go: the request to set up a domain.
//   - move.go: how a domain moves to another DNS provider.
//   - setup_job.go: the steps of the setup job, as one table (setup.steps).
//   - looks.go: looks at domains that wait for their owner, until their DNS is right.
//   - health.go: checks the DNS of a domain, decides whether it is healthy (dnsCheck.healthy), and
//     says what to fix.
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
	"github.com/mailstead/mailstead/service/scans"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// Certificates manages the TLS certificates of domains.
type Certificates interface {
	// PlanCertificate queues the job that obtains or renews a domain's certificate, if that is
	// needed.
	PlanCertificate(tx *store.Tx, d *store.Domain) error
	// DropCertificate deletes the certificate of a domain.
	DropCertificate(tx *store.Tx, domainID string) error
}

// Mail is the part of the mail queue that domains need.
type Mail interface {
	// CancelMailOf cancels the queued mail of a domain.
	CancelMailOf(ctx context.Context, d *store.Domain) error
}

// Reports is the storage of DMARC and TLS reports about domains.
type Reports interface {
	// EraseReports deletes the reports about a domain.
	EraseReports(ctx context.Context, domainID string) error
}

// A Service has the operations on domains. It embeds the core and uses the rooms in its fields.
type Service struct {
	*core.Core
	zones      *zones.Service
	scans      *scans.Service
	events     *events.Service
	mailboxes  *mailboxes.Service
	mail       Mail
	reputation *reputation.Service
	reports    Reports
	certs      Certificates

	reverse reverseCache
}

// New returns a Service that uses the given rooms. Start must be called before it is used.
func New(c *core.Core, z *zones.Service, sc *scans.Service, e *events.Service, m *mailboxes.Service, mail Mail, r *reputation.Service, reports Reports, certs Certificates) *Service {
	return &Service{Core: c, zones: z, scans: sc, events: e, mailboxes: m, mail: mail, reputation: r, reports: reports, certs: certs}
}

// Kinds returns the kinds of jobs that this room works on.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{
		s.provisionKind(),
		s.setupKind(),
		s.moveKind(),
		s.routingKind("redirect_update", dnsprov.PurposeA),
		s.routingKind("forward_update", dnsprov.PurposeMX),
		s.domainDeleteKind(),
		s.claimCheckKind(),
		s.claimsChangedKind(),
		s.checkKind(),
		s.lookKind(),
	}
}

// Start makes sure that every open claim has a job that checks it, and every waiting domain a job
// that looks at it.
func (s *Service) Start() error {
	if err := s.planOpenClaims(); err != nil {
		return fmt.Errorf("queue the checks of open domain claims: %w", err)
	}
	if err := s.planMissingLooks(); err != nil {
		return fmt.Errorf("queue the looks at waiting domains: %w", err)
	}
	return nil
}
