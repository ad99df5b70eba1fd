// Package accounts has accounts, the people of their teams, and how these sign in: tokens,
// sessions, second factors and passkeys. It does not know what an account has beyond its own
// settings; mail that it sends goes to mta like any other.
package accounts

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/mta"
)

// A Service holds what accounts need.
type Service struct {
	*core.Core
	inbox     *inbox.Service
	mailboxes *mailboxes.Service
	mta       *mta.Service

	codes     *core.Throttle // wrong codes of the second factor, by user
	spent     *core.Throttle // challenges that passkeys have answered
	forgotten *core.Throttle // questions for a new password, by address and network
	uses      uses
}

// New puts the room together.
func New(c *core.Core, i *inbox.Service, m *mailboxes.Service, t *mta.Service) *Service {
	return &Service{
		Core: c, inbox: i, mailboxes: m, mta: t,
		codes: core.NewThrottle(codeWindow, core.GuessKeys), spent: core.NewThrottle(2*challengeFor, core.GuessKeys),
		forgotten: core.NewThrottle(forgotWindow, core.GuessKeys),
	}
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind { return []jobs.Kind{s.wakeKind(), s.forgotKind()} }

// Run does what the room does by the clock, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
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
