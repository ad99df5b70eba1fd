package inbox

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/spam"
)

// New makes the Service.
func New(c *core.Core, e *events.Service, g *agents.Service, sp *spam.Service, servers Servers) *Service {
	s := &Service{
		Core: c, events: e, agents: g, spam: sp, servers: servers, firstCopy: c.Store.NewID("cpy"), textDamaged: make(chan struct{}, 1), textTurn: make(chan struct{}, 1),
		folderChanges: limit.NewSlidingCounter[string](time.Minute, core.AttemptKeys),
	}
	s.images = s.newImages()
	return s
}

// Kinds lists the kinds of jobs of this package.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.warmupKind()}
}

// Run undoes copies that a crash interrupted, then indexes mail until ctx ends.
func (s *Service) Run(ctx context.Context) {
	if err := s.undoCopies(); err != nil {
		s.Log.Error("undo copies that a crash interrupted", "error", err)
	}
	s.indexTexts(ctx)
}

// Close closes idle connections of the image fetcher.
func (s *Service) Close() { s.images.HTTP.CloseIdleConnections() }
