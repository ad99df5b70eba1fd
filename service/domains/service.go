// Package domains connects, buys, proves, sets up, checks and deletes domains. It does not know
// what is in their zones, and nothing about mail. It creates and deletes mailboxes only together
// with their domain.
//
// Where things are:
//   - domains.go: a domain as the API shows it; reading and deleting domains.
//   - list.go: the list. update.go: changes by the account.
//   - connect.go: adding domains that the account owns already.
//   - claims.go: who owns a name: what proves a claim (Service.findClaimProof), and what a proof
//     changes (Service.prove).
//   - login_proof.go: proof by a login to a mailbox of that domain on its present server.
//   - dkim.go: the DKIM keys of new domains.
//   - kinds.go: the kinds of jobs, and what a start queues.
//   - setup.go: the request to set up a domain.
//   - move.go: how a domain moves to another DNS provider.
//   - setup_job.go: the steps of the setup job, as one table (setup.steps).
//   - looks.go: looks at domains that wait for their owner, until their DNS is right.
//   - health.go: checks the DNS of a domain, decides whether it is healthy (dnsCheck.healthy), and
//     says what to fix.
//     issues.go: what is wrong with a domain, as the API shows it.
//   - dns.go: DNS status, nameservers.
//   - redirects.go: redirects and forwards.
//   - search.go: finds names for sale.
//   - purchase.go: buys a name, never twice. offers.go: texts of prices, and what tells them.
package domains

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
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
	edge       *edge.Service
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
func New(c *core.Core, z *zones.Service, ed *edge.Service, sc *scans.Service, e *events.Service, m *mailboxes.Service, mail Mail, r *reputation.Service, reports Reports, certs Certificates) *Service {
	return &Service{Core: c, zones: z, edge: ed, scans: sc, events: e, mailboxes: m, mail: mail, reputation: r, reports: reports, certs: certs}
}

// A reverseCache caches the issues with the reverse DNS of this host's IP addresses. They are the
// same for all domains.
type reverseCache struct {
	checking sync.Mutex // held during the lookups; other checks use the cached issues
	mu       sync.Mutex
	next     time.Time // when the next lookups are due
	issues   []DNSIssue
}
