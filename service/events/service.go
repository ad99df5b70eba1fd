// Package events records what happened, in the transaction in which it did, and tells the webhook
// endpoints of an account. It does not know what the events are about: rooms say that.
package events

import (
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/webhooks"
)

// Hooks are what other rooms do for this one.
type Hooks struct {
	// SwitchInbox begins or ends the background sync of an account's external mailboxes.
	SwitchInbox func(tx *store.Tx, who core.Actor, a *store.Account, on bool) error
}

// A Service holds what events need.
type Service struct {
	*core.Core
	Hooks Hooks

	poster *webhooks.Poster
}

// New puts the room together. The caller sets its hooks.
func New(c *core.Core) *Service {
	return &Service{Core: c, poster: &webhooks.Poster{Guard: c.Guard, Resolver: c.Resolver, RootCAs: c.Config.RootCAs, Now: c.Store.Now}}
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.WhileActive(s.deliveryKind()), s.fanOutKind()}
}

// Close ends the connections that are kept for later.
func (s *Service) Close() { s.poster.Close() }
