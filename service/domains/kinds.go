package domains

import (
	"fmt"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
)

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
