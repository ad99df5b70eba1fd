package service

import (
	"context"
	"time"
)

// Run does what the service does by the clock, until ctx ends. The queue has a Run of its own.
func (s *Service) Run(ctx context.Context) error {
	s.makeZones() // so that the first query need not wait for it
	if err := s.planHostCertificate(); err != nil {
		s.Log.Error("plan the certificate of this host", "error", err)
	}
	t := time.NewTicker(30 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.flushUses()
		case <-t.C:
			if err := s.flushUses(); err != nil {
				s.Log.Error("note the last use of tokens", "error", err)
			}
		}
	}
}
