// Package reputation knows how much is sent here and by whom, what became of it, and whether more
// may be sent. It does not know how mail goes out, nor what is in it.
//
// Where things stand:
//   - limits.go: how many recipients a mailbox, a domain and an account may write to in a day.
//   - counts.go: what became of mail, by the hour.
//   - pause.go: who may not send any more because of it, and how owners are notified.
//   - blocks.go: how receivers say that they block a host.
//   - report.go: all of it for people.
package reputation

import (
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// A Service counts.
type Service struct {
	*core.Core
	events *events.Service
}

// New puts the room together.
func New(c *core.Core, e *events.Service) *Service { return &Service{Core: c, events: e} }

// KindResume is the kind of the job that tries again what waits since the sending of an account was
// paused, as far as it may be sent.
const KindResume = "resume_sending"

// wake plans that job.
func (s *Service) wake(tx *store.Tx, accountID string) error {
	_, err := s.Queue.Add(tx, jobs.New{AccountID: accountID, Kind: KindResume, Key: "resume " + accountID, Lane: "resume " + accountID})
	return err
}
