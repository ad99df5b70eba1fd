// Package reputation knows how much is sent here and by whom, what became of it, and whether more
// may be sent. It does not know how mail goes out, nor what is in it.
//
// Where things stand:
//   - limits.go: how many recipients a mailbox, a domain and an account may write to in a day.
//   - counts.go: what became of mail, by the hour.
//   - pause.go: who may not send any more because of it, and what owners are told.
//   - blocks.go: how receivers say that they block a host.
//   - report.go: all of it for people.
package reputation

import (
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A Service counts.
type Service struct {
	*core.Core
	Hooks Hooks
}

// Hooks are what other rooms do for this one, each in the caller's transaction.
type Hooks struct {
	// Emit tells of an event.
	Emit func(tx *store.Tx, accountID, kind string, data any) error
	// Alert writes to a person of an account.
	Alert func(tx *store.Tx, accountID, to, subject, text string) error
	// Wake has what waits since sending was paused tried again, as far as it may be.
	Wake func(tx *store.Tx, accountID string) error
}

// New puts the room together. The caller sets its hooks.
func New(c *core.Core) *Service { return &Service{Core: c} }
