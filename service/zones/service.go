// Package zones has the DNS zones of domains: what is in them, which of them this server serves,
// and the records that are kept at Cloudflare. It does not know how a domain is connected or set
// up, nor mail.
//
// Where things are:
//   - source.go: what a zone is made from: its name servers, records and key (Service.Spec).
//   - zones.go: which zones are in memory to be served (Service.serving), and how changes reach
//     them.
//   - dnssec.go: which zones are signed, keys, the DS records at the parent. How a signature is
//     made is in dnsprov/builtin/sign.go.
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
	maxLookups    = 32               // live checks at a time, of requests and scheduled ones
	LookupTimeout = 20 * time.Second // for one live check, with the wait for its turn
)

// A Service is the room of zones.
type Service struct {
	*core.Core

	memory          *memory
	lookupSlots     chan struct{}            // a slot for each live check of a domain's DNS
	cloudflareLocks limit.KeyedMutex[string] // held during work on a domain's records at Cloudflare
}

// New returns the room.
func New(c *core.Core) *Service {
	s := &Service{Core: c, memory: newMemory(c.Config), lookupSlots: make(chan struct{}, maxLookups)}
	s.memory.secondaries = s.newSecondaries()
	return s
}

// Kinds lists the job kinds of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.syncKind(), s.resignKind()}
}

// Run notifies secondaries and renews their copies, until ctx ends.
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
				s.Log.Error("could not renew the zones of secondaries", "error", err)
			}
		}
	}
}

// WithLookupSlot calls fn when one of the slots for live checks is free. It returns ctx's error if
// none becomes free in time.
func (s *Service) WithLookupSlot(ctx context.Context, fn func() error) error {
	select {
	case s.lookupSlots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.lookupSlots }()
	return fn()
}
