// Package domains connects, buys, proves, sets up, watches and deletes domains: their zones,
// DNSSEC, records at Cloudflare, and registrars. It does not know mail; mailboxes it makes and
// deletes only together with their domain.
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
//   - zones.go: the zones that this server serves, DNSSEC, secondaries.
//   - dns.go: DNS status, nameservers, DMARC policy.
//   - custom_records.go: records that the owner adds.
//   - edge.go: records at Cloudflare.
//   - redirects.go: redirects and forwards.
//   - search.go: finds names for sale.
//   - purchase.go: buys a name, never twice.
package domains

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// Hooks are what other rooms do for this one.
type Hooks struct {
	// PlanCertificate queues the work on a domain's certificate if there is something to do.
	PlanCertificate func(tx *store.Tx, d *store.Domain) error
	// DropCertificate forgets the certificate of a domain.
	DropCertificate func(tx *store.Tx, domainID string) error
	// MailKeys are the digests of this host's keys that the zone of a domain publishes.
	MailKeys func(tx *store.Tx, d *store.Domain) []string
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
	events     *events.Service
	mailboxes  *mailboxes.Service
	mail       Mail
	reputation *reputation.Service
	reports    Reports
	Hooks      Hooks

	zones     *zones
	looks     chan struct{} // one place for each live check at a domain's DNS
	reverse   reverse
	edgeTurns limit.KeyedMutex[string] // of the domains at the edge provider
}

// New puts the room together. The caller sets its hooks.
func New(c *core.Core, e *events.Service, m *mailboxes.Service, mail Mail, r *reputation.Service, reports Reports) *Service {
	s := &Service{
		Core: c, events: e, mailboxes: m, mail: mail, reputation: r, reports: reports,
		zones: newZones(c.Config), looks: make(chan struct{}, looksAtOnce),
	}
	s.zones.others = s.newSecondaries()
	return s
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
		s.edgeSyncKind(),
		s.resignKind(),
	}
}

// Run does what the room does by the clock, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	if err := s.wakeClaims(); err != nil {
		s.Log.Error("plan looks at the claims of domains", "error", err)
	}
	var telling sync.WaitGroup
	defer telling.Wait()
	telling.Go(func() { s.notifySecondaries(ctx) })
	hourly, stop := s.Store.Clock().Every(time.Hour)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hourly:
			if err := s.renewZones(); err != nil {
				s.Log.Error("renew the zones of secondaries", "error", err)
			}
		}
	}
}
