// Package feedback reads what others say about mail that left here: bounces and complaints, as mail
// or as a relay's notice, and people who unsubscribe. It counts only if it proves which message it
// is about, since it keeps mail from an address. What follows for the message is outbound's matter.
//
// Where things stand:
//   - feedback.go: reports in mail ([Service.ReadReport], [Service.Apply]).
//   - feedback_notices.go: notices of relays ([Service.TakeNotices]). ses_topics.go: the topics
//     that Amazon SES sends them to.
//   - suppressions.go, import_suppressions.go: addresses that an account does not send to.
//   - unsubscribe.go: links by which a recipient unsubscribes.
package feedback

import (
	"sync"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

// Outbound knows the messages that left here.
type Outbound interface {
	Relays() []*outbound.Relay
	RecordBounce(tx *store.Tx, row *store.Outgoing, f outbound.Failure) error
	RecordComplaint(tx *store.Tx, row *store.Outgoing, c outbound.Complaint) error
}

// A Service holds what feedback needs.
type Service struct {
	*core.Core
	recipients *recipients.Service
	outbound   Outbound

	readers sync.Map // by the name of a relay, the feedback.Reader of its notices
}

// New puts the room together.
func New(c *core.Core, r *recipients.Service, o Outbound) *Service {
	s := &Service{Core: c, recipients: r, outbound: o}
	s.newReaders()
	return s
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind { return []jobs.Kind{s.topicKind()} }

// Start has the topics of relays made.
func (s *Service) Start() error { return s.planTopics() }
