package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

// Run does what the service does by the clock, until ctx ends. The queue has a Run of its own.
func (s *Service) Run(ctx context.Context) error {
	s.makeZones() // so that the first query need not wait for it
	s.externals.idle.open(ctx)
	defer s.externals.idle.close()
	err := errors.Join(countRows(s.Store, &s.screener.grey, store.GreyTuplesByTime), countRows(s.Store, &s.screener.known, store.KnownSendersByTime))
	if err != nil {
		s.Log.Error("count who is known", "error", err)
	}
	if err := s.undoCopies(); err != nil {
		s.Log.Error("take back copies that a crash has cut", "error", err)
	}
	if err := s.wakePolls(); err != nil {
		s.Log.Error("plan looks at external mailboxes", "error", err)
	}
	if err := s.wakeClaims(); err != nil {
		s.Log.Error("plan looks at the claims of domains", "error", err)
	}
	var telling sync.WaitGroup
	defer telling.Wait()
	telling.Go(func() { s.tellSecondaries(ctx) })
	telling.Go(func() { s.indexTexts(ctx) })
	if err := s.planHostCertificate(); err != nil {
		s.Log.Error("plan the certificate of this host", "error", err)
	}
	t := time.NewTicker(30 * time.Second)
	defer t.Stop()
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.flushUses()
		case <-t.C:
			if err := s.flushUses(); err != nil {
				s.Log.Error("note the last use of tokens", "error", err)
			}
		case <-hourly.C:
			if err := s.renewZones(); err != nil {
				s.Log.Error("renew the zones of secondaries", "error", err)
			}
		}
	}
}
