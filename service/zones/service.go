// Package zones has the DNS zones of domains: how their records are read and changed, and which of
// them this server serves. It does not know how a domain is connected or set up, and nothing about
// mail.
//
// Where things are:
//   - source.go: what a zone is made from: its nameservers, records and key (Service.Spec).
//   - zones.go: which zones are in memory to be served (Service.servedDomain), and how changes
//     reach them.
//   - dnssec.go: which zones are signed, keys, the DS records at the parent. How a signature is
//     made is in dnsprov/builtin/sign.go.
//   - secondaries.go: servers that copy zones: NOTIFY, the catalog, serials.
//   - questions.go: how many questions for a zone this server has answered.
//   - records.go: record sets as the owner reads and sets them, and as a master file.
//   - custom_records.go: single records that the owner adds. dmarc.go: the DMARC policy. spf.go:
//     what the owner adds to the SPF record.
//   - edits.go: how every change of these records is written. edit_checks.go: which changes are
//     possible. history.go: the changes, and how one is undone.
//   - import.go: records from a master file.
//   - apex.go: where the domain itself leads: to this host, or to the owner's website.
//     apex_edits.go: how that is changed.
//   - alias.go: domains that have the addresses of another host. alias_lookups.go: how these are
//     looked up.
package zones

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
)

const (
	maxLookups    = 64               // live DNS checks that run at the same time, both for requests and scheduled
	lookupsEach   = 16               // live DNS checks of one account that run at the same time
	LookupTimeout = 20 * time.Second // time limit for one live DNS check, including the wait for a slot
)

// A Service has the operations on the zones of domains.
type Service struct {
	*core.Core
	edge *edge.Service

	memory      *zoneMemory
	lookupSlots *limit.Semaphore[string] // by account ID; one for each live DNS check that is running
	zoneLocks   limit.KeyedMutex[string] // by account ID; held while custom records of one of its domains are changed
	aliases     aliases                  // the domains that have the addresses of another host
}

// New returns a Service. Run must be called to keep secondaries up to date.
func New(c *core.Core, e *edge.Service) *Service {
	s := &Service{Core: c, edge: e, memory: newZoneMemory(c), lookupSlots: limit.NewSemaphore[string](maxLookups, lookupsEach)}
	s.memory.secondaries = s.newSecondaries()
	c.OnSettings(s.applySettings)
	s.aliases.wake = make(chan struct{}, 1)
	return s
}

// WithLookupSlot calls fn when one of the maxLookups slots is free, of which an account can have
// lookupsEach: nameservers that do not answer hold up the account alone whose domain they serve.
// It returns the error of ctx if ctx ends before that. name is the domain that fn looks up: while
// fn runs, no questions for its zone are counted, since resolvers elsewhere may ask for us; "" if
// it is not served here.
func (s *Service) WithLookupSlot(ctx context.Context, accountID, name string, fn func() error) error {
	release, err := s.lookupSlots.Acquire(ctx, accountID)
	if err != nil {
		return err
	}
	defer release()
	defer s.PauseQuestions(name)()
	return fn()
}

// PauseQuestions stops the counting of questions for the zone of a name, and for the zones above
// it, until resume is called. It is for lookups of our own. "" stops nothing.
func (s *Service) PauseQuestions(name string) (resume func()) {
	if name != "" && s.memory.stale.Load() {
		s.makeZonesFor(name) // else the first question would build the zone, and be counted
	}
	return s.memory.served.PauseCounting(name)
}
