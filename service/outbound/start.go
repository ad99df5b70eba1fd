package outbound

import (
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/service/reputation"
)

// New puts the room together.
func New(c *core.Core, e *events.Service, g *agents.Service, i *inbox.Service, servers Servers, r *recipients.Service, p *reputation.Service) *Service {
	s := &Service{
		Core: c, events: e, agents: g, inbox: i, servers: servers, recipients: r, reputation: p,
		relays: newRelays(c.Config.Relays, c.Log), signer: newSigner(c.Keys), forwards: newForwards(), paces: newPaces(c.Store.Now),
		operators: newOperators(c.Config.Destinations),
	}
	s.policies = newPolicies(s)
	s.newClients()
	return s
}

// Kinds lists the kinds of jobs of this room. Mail for mailboxes here goes to local.
func (s *Service) Kinds(local Mailboxes) []jobs.Kind {
	return append(s.holdKinds(),
		s.WhileActive(s.copyKind()),
		s.recipientsKind(),
		s.rerouteKind(),
		s.policyKind(),
		s.letterKind(), s.alertKind(),
		s.WhileActive(s.deliverKind(local, KindDeliver, localLanes, 0, 0)),
		s.WhileActive(s.deliverKind(local, KindDirect, directLanes, directMost, directEach)),
		s.WhileActive(s.deliverKind(local, KindRelay, relayLanes, relayMost, 0)),
	)
}

// Start looks for mail whose relay is gone.
func (s *Service) Start() error { return s.planReroute() }

// Close ends the connections that are kept for later.
func (s *Service) Close() {
	_ = s.direct.Close() // ends idle connections; there is nothing to lose
	_ = s.relayed.Close()
	_ = s.plain.Close()
}
