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

// New returns a Service, which uses the given rooms. The caller calls Start.
func New(c *core.Core, e *events.Service, g *agents.Service, i *inbox.Service, servers Servers, r *recipients.Service, p *reputation.Service) *Service {
	s := &Service{
		Core: c, events: e, agents: g, inbox: i, servers: servers, recipients: r, reputation: p,
		signer: newSigner(c.Keys), forwards: newForwards(), paces: newPaces(c.Store.Now), operators: newOperators(),
	}
	s.policies = newPolicies(s)
	s.newClients()
	s.makePlan()
	c.OnSettings(s.applySettings)
	return s
}

// makePlan makes the plan for the settings that hold now.
func (s *Service) makePlan() {
	now, before := s.Settings(), s.plan.Load()
	p := &plan{relays: newRelays(now.Relays, s.Log), destinations: newDestinations(now.Destinations), sending: now.Sending}
	if before != nil && before.sending == now.Sending {
		p.direct = before.direct
	} else {
		p.direct = s.directClient(now.Sending)
	}
	s.plan.Store(p)
	if before != nil && before.direct != p.direct {
		_ = before.direct.Close() // closing idle connections loses nothing
	}
}

// applySettings makes mail take its way by the new settings. Attempts that are running end on the
// way on which they began.
func (s *Service) applySettings() {
	s.makePlan()
	if err := s.planReroute(); err != nil {
		s.Log.Error("could not give new routes to mail whose relay is no longer configured", "error", err)
	}
}

// Kinds lists the kinds of jobs of this package. local delivers mail to mailboxes here.
func (s *Service) Kinds(local Mailboxes) []jobs.Kind {
	return append(s.holdKinds(),
		s.WhileActive(s.copyKind()),
		s.recipientsKind(),
		s.rerouteKind(),
		s.policyKind(),
		s.hostMailKind(), s.alertKind(),
		s.WhileActive(s.deliverKind(local, KindDeliver, localPerLane, 0, 0)),
		s.WhileActive(s.deliverKind(local, KindDirect, directPerLane, maxDirectJobs, maxDirectJobsOfAccount)),
		s.WhileActive(s.deliverKind(local, KindRelay, relayPerLane, maxRelayJobs, 0)),
	)
}

// Start queues a job that gives a new route to mail whose relay is no longer configured.
func (s *Service) Start() error { return s.planReroute() }

// Close closes the idle connections of the clients.
func (s *Service) Close() {
	_ = s.plan.Load().direct.Close() // closing idle connections loses nothing
	_ = s.relayed.Close()
	_ = s.guarded.Close()
	_ = s.plain.Close()
}
