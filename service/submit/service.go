// Package submit takes messages from those who send them: people and programs by SMTP and by the
// API, and mailboxes that send by themselves. It says who may send what as whom, has what must be
// approved wait for a person, and gives the rest to outbound. It does not know how mail leaves.
//
// Where things stand:
//   - submit.go: a submission; who may send as whom: envelope and header; limits.
//   - send.go: send_email. drafts.go, batch.go, invitation.go: other ways to make a message.
//   - sending_policy.go: what policies are asked. byitself.go: what mailboxes send by themselves.
//   - approvals.go: messages that wait until a person approves them, and what becomes of those that
//     nobody does. approve.go: who reads and decides them. shown.go: what a person is shown.
//     harmless.go: how a message is written again for one who is tainted.
//   - cancel.go: what is taken back. unsubscribe.go: how a mailbox leaves a list.
package submit

import (
	"slices"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/service/reputation"
)

// A Service holds what submission needs.
type Service struct {
	*core.Core
	events     *events.Service
	agents     *agents.Service
	inbox      *inbox.Service
	reputation *reputation.Service
	recipients *recipients.Service
	outbound   *outbound.Service
}

// New puts the room together.
func New(c *core.Core, e *events.Service, g *agents.Service, i *inbox.Service, p *reputation.Service, r *recipients.Service, o *outbound.Service) *Service {
	return &Service{Core: c, events: e, agents: g, inbox: i, reputation: p, recipients: r, outbound: o}
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return append(slices.Concat(s.approvalKinds(), []jobs.Kind{s.holdByItselfKind(), s.forwardKind()}), s.WhileActive(s.batchKind()))
}
