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

// New puts the room together.
func New(c *core.Core, e *events.Service, g *agents.Service, sp *spam.Service, servers Servers) *Service {
	s := &Service{
		Core: c, events: e, agents: g, spam: sp, servers: servers, firstCopy: c.Store.NewID("cpy"), textDamaged: make(chan struct{}, 1), textTurn: make(chan struct{}, 1),
		folderChanges: limit.NewSlidingCounter[string](time.Minute, core.AttemptKeys),
	}
	s.images = s.newImages()
	return s
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.warmupKind()}
}

// Run does what the room does by the clock, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	if err := s.undoCopies(); err != nil {
		s.Log.Error("take back copies that a crash has cut", "error", err)
	}
	s.indexTexts(ctx)
}

// Close ends the connections that are kept for later.
func (s *Service) Close() { s.images.HTTP.CloseIdleConnections() }
