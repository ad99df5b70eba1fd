package zones

import (
	"context"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package use.

const (
	MaxCustomRecords = maxCustomRecords
	RenewCopies      = renewInterval
	ZonesAtATime     = zonesPerView
)

func (s *Service) Copied(origin string) (builtin.CopiedZone, bool) { return s.zoneToCopy(origin) }

func (s *Service) Note(name string) { s.memory.markChanged(name) }

func (s *Service) RenewZones() error { return s.renewZones() }

func (s *Service) Resign(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	return s.renewSignatures(ctx, j)
}
