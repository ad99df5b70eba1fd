// Package mta is mail on its way. It receives and screens mail from outside and takes messages from
// users. It routes and delivers each message, reports failures, and reads bounces and complaints.
// It does not know what mailboxes hold beyond what it files into them, nor how domains are set up.
//
// Where things stand:
//   - receive.go: a message from outside ([Service.Receive]); mail from outside and from here goes
//     into mailboxes by one function (Service.deliver); when a message is a loop (head.checkLoop).
//   - accept.go: what happens between the acknowledgement of a message and its rows.
//   - destinations.go: who receives an address, and who takes no more (destination.takes).
//   - screening.go: what decides that mail is spam: authentication, blocklists and greylisting
//     (Service.screen), and filters ([ScreeningResult]).
//   - send.go: send_email.
//   - submit.go: who may send as whom: envelope (ownAddress) and header (ownAuthors); limits.
//   - enqueue.go: the rows and jobs of a submission ([Service.Enqueue]).
//   - approvals.go: messages that wait until a person approves them (Service.holdForApproval), and
//     what becomes of those that nobody does. approve.go: who reads and decides them.
//   - delivery.go: one attempt to deliver, when it is retried (retryWait) and given up
//     (giveUpAfter). local.go: one to a mailbox here.
//   - automation.go: what classifiers say of mail (Service.judge), and what mailboxes do with it by
//     themselves (Service.decide, Service.fileBy).
//   - routes.go: the way of a message (Service.routeOf), and the relays.
//   - simulator.go: the recipients that this server plays (Service.simulate).
//   - tls.go: TLS policies.
//   - waiting.go: why a message waits, and what becomes of those whose domain or relay is gone.
//   - signing.go: DKIM (signer.sign).
//   - pacing.go: how fast mail goes to a destination.
//   - return_path.go: envelope addresses, SRS.
//   - bounces.go: delivery reports that we write. letters.go: what this host writes to a person.
//   - feedback.go: reports of bounces and complaints from outside, and unsubscribing. Each of them
//     and a refused delivery may suppress the address (suppress).
//   - feedback_notices.go: notifications of relays.
//   - sending_log.go: the log of sent messages.
//   - external_copies.go: copies of sent mail for the Sent folder on another server.
package mta

import (
	"slices"
	"sync"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/store"
)

// Hooks are what other rooms do for this one.
type Hooks struct {
	// KeepForReading has a message from a domain looked through for reports about domains of the
	// account; authentic says that the domain vouches for it.
	KeepForReading func(tx *store.Tx, accountID string, d *inbox.StoredMessage, from string, authentic bool) error
	// DMARCCount says with which messages of the day, that DMARC judged alike, one is counted; nil:
	// it is not.
	DMARCCount func(in Incoming, f *ScreeningResult) (*store.DMARCCount, error)
	// CountDMARC counts a message with those.
	CountDMARC func(tx *store.Tx, c *store.DMARCCount) error
}

// A Service holds what mail on its way needs.
type Service struct {
	*core.Core
	events *events.Service
	agents *agents.Service
	inbox  *inbox.Service
	spam   *spam.Service
	Hooks  Hooks

	reputation *reputation.Service

	screener  *screener
	relays    relays
	signer    *signer
	direct    *deliver.Client // to hosts that strangers name
	relayed   *deliver.Client // to the operator's relays
	plain     *deliver.Client // to servers without TLS that tenants name
	forwards  *forwards
	paces     *paces
	operators *operators
	policies  *policies
	filer     *filer
	deciders  *limit.Semaphore[string] // by account, of who asks rules about a message
	topics    sync.Map                 // by the name of a relay, the feedback.Reader of the topic that was made for it
}

// New puts the room together. The caller sets its hooks.
func New(c *core.Core, e *events.Service, g *agents.Service, i *inbox.Service, r *reputation.Service, sp *spam.Service) *Service {
	s := &Service{
		Core: c, events: e, agents: g, inbox: i, reputation: r, spam: sp, screener: newScreener(c.Resolver),
		relays: newRelays(c.Config.Relays, c.Log), signer: newSigner(c.Keys), forwards: newForwards(), filer: newFiler(), deciders: newDeciders(), paces: newPaces(c.Store.Now),
		operators: newOperators(c.Config.Destinations),
	}
	s.policies = newPolicies(s)
	s.newClients()
	s.newReaders()
	return s
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return append(slices.Concat(s.holdKinds(), s.approvalKinds(), []jobs.Kind{s.holdByItselfKind()}),
		s.WhileActive(s.copyKind()),
		s.arrivalKind(),
		s.autoReplyKind(), s.forwardKind(),
		s.recipientsKind(),
		s.rerouteKind(),
		s.WhileActive(s.batchKind()),
		s.policyKind(),
		s.topicKind(),
		s.letterKind(), s.alertKind(),
		s.WhileActive(s.deliverKind(KindDeliver, localLanes, 0, 0)),
		s.WhileActive(s.deliverKind(KindDirect, directLanes, directMost, directEach)),
		s.WhileActive(s.deliverKind(KindRelay, relayLanes, relayMost, 0)),
	)
}

// Start reads what the room keeps in memory, and looks for mail whose relay is gone.
func (s *Service) Start() error {
	if err := s.planReroute(); err != nil {
		return err
	}
	if err := s.planTopics(); err != nil {
		return err
	}
	if err := countRows(s.Store, &s.screener.Grey, store.GreyTuplesByTime); err != nil {
		return err
	}
	return countRows(s.Store, &s.screener.known, store.KnownSendersByTime)
}

// Close waits until what was accepted is filed, and ends the connections that are kept for later.
func (s *Service) Close() {
	s.filer.close()
	_ = s.direct.Close() // ends idle connections; there is nothing to lose
	_ = s.relayed.Close()
	_ = s.plain.Close()
}
