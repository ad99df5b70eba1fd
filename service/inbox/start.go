package inbox

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/images"
	"github.com/mailstead/mailstead/service/inbox/indexer"
	"github.com/mailstead/mailstead/service/spam"
)

// New returns a Service. Run must be called to start its indexer.
func New(c *core.Core, e *events.Service, g *agents.Service, sp *spam.Service, servers Servers) *Service {
	s := &Service{
		Core: c, events: e, agents: g, spam: sp, servers: servers, firstCopy: c.Store.NewID("cpy"), index: indexer.New(c, recordSubject),
		folderChanges: limit.NewSlidingCounter[string](time.Minute, core.MaxAttemptKeys),
	}
	s.images = images.New(c)
	return s
}

// Kinds returns the kinds of jobs that this package works on.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.warmupKind()}
}

// Run deletes the messages of incomplete copies that an earlier process left, and then indexes mail
// until ctx ends.
func (s *Service) Run(ctx context.Context) {
	if err := s.undoCopies(); err != nil {
		s.Log.Error("undo copies that a crash interrupted", "error", err)
	}
	s.index.Run(ctx)
}

// DropAccountIndex deletes the text index, threads and counts of an account.
func (s *Service) DropAccountIndex(ctx context.Context, account uint32) error {
	return s.index.DropAccount(ctx, account)
}

// Close closes idle connections to the hosts of remote images.
func (s *Service) Close() { s.images.HTTP.CloseIdleConnections() }
