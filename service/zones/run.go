package zones

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
)

// Kinds returns the kinds of jobs that this room works on.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.renewSignaturesKind()}
}

// Run removes what interrupted changes of custom records have left. Then it notifies secondaries of
// changes, renews their copies, and looks up the addresses of aliases, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	if err := s.sweepZones(ctx); err != nil && ctx.Err() == nil {
		s.Log.Error("could not remove what an interrupted change of a zone has left", "error", err)
	}
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { s.notifySecondaries(ctx) })
	others.Go(func() { s.followAliases(ctx) })
	hourly, stop := s.Store.Clock().Every(time.Hour)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hourly:
			if err := s.renewZones(); err != nil {
				s.Log.Error("could not renew the zones of secondaries", "error", err)
			}
		}
	}
}
