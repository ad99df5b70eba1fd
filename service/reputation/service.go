// Package reputation counts how much each sender sends and what became of the mail, and decides
// whether a sender may send more. It does not know how mail is delivered, nor its contents.
//
// The files:
//   - automatic.go: limits on mail that the server sends by itself.
//   - limits.go: how many recipients a mailbox, a domain and an account may write to in a day.
//   - counts.go: the results of mail, by the hour.
//   - pause.go: which senders are paused because of them, and how owners are notified.
//   - blocks.go: the answers of receivers that block a host.
//   - report.go: the results for people to read.
package reputation

import (
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// A Service counts mail, and limits or pauses its senders.
type Service struct {
	*core.Core
	events *events.Service
}

// New returns a Service.
func New(c *core.Core, e *events.Service) *Service { return &Service{Core: c, events: e} }

// KindResume is the kind of the job that runs when sending is resumed. It retries the mail that was
// queued while sending was paused.
const KindResume = "resume_sending"

// planResume plans a KindResume job.
func (s *Service) planResume(tx *store.Tx, accountID string) error {
	_, err := s.Queue.Add(tx, jobs.New{AccountID: accountID, Kind: KindResume, Key: "resume " + accountID, Lane: "resume " + accountID})
	return err
}
