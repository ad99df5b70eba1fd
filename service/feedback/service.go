// Package feedback reads what others report about mail that was sent here: bounces and complaints,
// as mail or as a relay's notice, and unsubscriptions. Feedback counts only with a proof of which
// message it is about, since it suppresses addresses. Package outbound records the results.
//
// Where things are:
//   - feedback.go: reports in mail ([Service.ReadReport], [Service.Apply]).
//   - feedback_notices.go: notices of relays ([Service.TakeNotices]). ses_topics.go: the topics
//     that Amazon SES sends them to.
//   - suppressions.go, import_suppressions.go: the suppression list of an account.
//   - unsubscribe.go: links by which a recipient unsubscribes.
package feedback

import (
	"reflect"
	"sync"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

// Outbound records bounces and complaints of sent messages.
type Outbound interface {
	Relays() []*outbound.Relay
	RecordBounce(tx *store.Tx, row *store.Outgoing, f outbound.Failure) error
	RecordComplaint(tx *store.Tx, row *store.Outgoing, c outbound.Complaint) error
}

// A Service reads feedback.
type Service struct {
	*core.Core
	recipients *recipients.Service
	outbound   Outbound

	readers sync.Map     // feedback.Reader of a relay's notices, by the relay's name
	relays  []core.Relay // those that readers were made for
}

// New returns a Service, which uses the given rooms.
func New(c *core.Core, r *recipients.Service, o Outbound) *Service {
	s := &Service{Core: c, recipients: r, outbound: o, relays: c.Settings().Relays}
	s.newReaders()
	c.OnSettings(s.applySettings)
	return s
}

// applySettings makes readers of notices for the new relays.
func (s *Service) applySettings() {
	relays := s.Settings().Relays
	if reflect.DeepEqual(s.relays, relays) {
		return
	}
	s.relays = relays
	s.readers.Clear()
	s.newReaders()
	if err := s.planTopics(); err != nil {
		s.Log.Error("could not plan to make the topics of relays", "error", err)
	}
}

// Kinds lists the kinds of jobs of this package.
func (s *Service) Kinds() []jobs.Kind { return []jobs.Kind{s.topicKind()} }

// Start queues the jobs that create the topics of relays.
func (s *Service) Start() error { return s.planTopics() }
