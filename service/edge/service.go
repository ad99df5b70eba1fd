// Package edge keeps the records of domains at the DNS providers of others: it reads what is there,
// and changes what is ours to what a domain needs. Records that we did not make stay as they are,
// unless the owner wants those for mail replaced. It does not know how a domain is set up, nor what
// our own servers answer.
//
// Where things are:
//   - access.go: how a provider is reached, and whether it can be.
//   - credentials.go: the credentials of an account for providers. guesses.go: which of them, and
//     which provider, a domain may be for.
//   - sync.go: how the records of a domain become the wanted ones (zoneSync). own_records.go: which
//     of them we have made. erase.go: how these are deleted.
//   - plan.go: what would change. replaced.go: records of others that were replaced. others.go:
//     those for mail that stay.
//   - move.go: how a domain moves to another provider.
//   - failures.go: what errors of providers mean.
package edge

import (
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
)

// A Service has the operations on records at DNS providers.
type Service struct {
	*core.Core

	locks limit.KeyedMutex[string] // by domain ID; held while a domain's records at its DNS provider are read or changed
	plans planCache
}

// New returns a Service.
func New(c *core.Core) *Service { return &Service{Core: c} }

// Kinds returns the kinds of jobs that this room works on.
func (s *Service) Kinds() []jobs.Kind { return []jobs.Kind{s.syncKind()} }
