// Package zones has the DNS zones of domains: what is in them, which of them this server serves,
// and the records that are kept at an edge provider. It does not know how a domain is connected or
// set up, nor mail.
//
// Where things stand:
//   - source.go: what a zone is made from (Service.Spec), and which records that gives.
//   - zones.go: the zones in memory that are served (Service.serving), and how changes reach them.
//   - dnssec.go: keys, signatures, the DS records at the parent.
//   - secondaries.go: servers that copy zones: NOTIFY, the catalog, serials.
//   - edge.go: records at Cloudflare.
//   - custom_records.go: records that the owner adds. dmarc.go: the DMARC policy.
package zones

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
)

const (
	looksAtOnce = 32               // live looks, of requests and of checks by the clock
	LookFor     = 20 * time.Second // one live look, with the wait for its turn
)

// A Service holds what zones need.
type Service struct {
	*core.Core

	memory    *memory
	looks     chan struct{}            // one place for each live look at a domain's DNS
	edgeTurns limit.KeyedMutex[string] // of the domains at the edge provider
}

// New puts the room together.
func New(c *core.Core) *Service {
	s := &Service{Core: c, memory: newMemory(c.Config), looks: make(chan struct{}, looksAtOnce)}
	s.memory.others = s.newSecondaries()
	return s
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.edgeSyncKind(), s.resignKind()}
}

// Run notifies secondaries, and renews what they copied, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var notifying sync.WaitGroup
	defer notifying.Wait()
	notifying.Go(func() { s.notifySecondaries(ctx) })
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

// Looking does fn when one of the places for live looks is free.
func (s *Service) Looking(ctx context.Context, fn func() error) error {
	select {
	case s.looks <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.looks }()
	return fn()
}
