package outbound

import (
	"context"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/store"
)

// Internals that external tests use.

const (
	DirectLanes  = directPerLane
	ForwardMost  = maxForwards
	KeptAttempts = maxLoggedAttempts
	LongGap      = maxGap
	PolicyAsked  = policyRecheck
	PolicyFresh  = policyRefresh
)

type Pace = pace

var (
	CountTLS = countTLS
)

func (s *Service) DeliveryFailed(tx *store.Tx, j *store.Job, cause error) error {
	return s.deliveryFailed(tx, j, cause)
}

func (s *Service) Direct() *deliver.Client { return s.plan.Load().direct }

func (s *Service) Forwards() *forwardCounter { return s.forwards }

func (s *Service) AttemptDelivery(ctx context.Context, j *store.Job, local Mailboxes) (jobs.Writes, error) {
	return s.runDeliveryJob(ctx, j, local)
}

func (s *Service) Paces() *paces { return s.paces }

func (s *Service) Policies() *policyCache { return s.policies }

func (s *Service) RefreshPolicies(ctx context.Context, p1 *store.Job) (jobs.Writes, error) {
	return s.refreshPolicies(ctx, p1)
}

func (s *Service) Relayed() *deliver.Client { return s.relayed }

func (s *Service) EmitBounce(tx *store.Tx, row *store.Outgoing, f Failure) error {
	return s.emitBounce(tx, row, f)
}
