// Package outbound sends what is in the queue. It makes the rows and jobs of a message, chooses its
// way, makes attempts, signs and paces them, tries again, gives up, and reports that to the sender.
// It does not know who may send what, nor how mail comes to a mailbox here ([Mailboxes] does).
//
// Where things stand:
//   - start.go: how the room is made, its jobs. attempt.go: what one attempt is given and finds.
//   - enqueue.go: the rows and jobs of a submission ([Service.Enqueue]), and its tags.
//   - gate.go: mail that programs of ours start, and its limits ([Service.SendAutomatic]).
//   - delivery.go: one attempt to deliver, when it is retried ([RetryWait]) and given up
//     ([GiveUpAfter]).
//   - routes.go: the way of a message ([Service.RouteOf]), and the relays. dial.go: the dialogue
//     with a host. tls.go: TLS policies. signing.go: DKIM and ARC. pacing.go, operators.go: how
//     fast mail goes to a destination.
//   - waiting.go: why a message waits, and what becomes of those whose domain or relay is gone.
//     hold.go: what waits until somebody releases it.
//   - bounces.go: delivery reports that we write, and which failures suppress an address.
//     failures.go: what follows from a message that was given up or called spam. letters.go: what
//     this host writes to a person.
//   - simulator.go: the recipients that this server plays.
//   - sending_log.go: the log of sent messages. schedule.go: messages that leave later.
//   - external_copies.go: copies of sent mail for the Sent folder on another server.
//   - direct_events.go: the events of a delivery.
package outbound

import (
	"context"

	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// Servers are those of external mailboxes.
type Servers interface {
	// Connect opens a session with the mailbox's server.
	Connect(ctx context.Context, mb *store.Mailbox) (*pull.Session, error)
	// PlainGuard decides which servers of tenants may be logged in to without TLS.
	PlainGuard() *netguard.Guard
}

// A Service holds what sending needs.
type Service struct {
	*core.Core
	events     *events.Service
	agents     *agents.Service
	inbox      *inbox.Service
	servers    Servers
	recipients *recipients.Service
	reputation *reputation.Service

	relays    []*Relay
	signer    *signer
	direct    *deliver.Client // to hosts that strangers name
	relayed   *deliver.Client // to the operator's relays
	plain     *deliver.Client // to servers without TLS that tenants name
	forwards  *forwards
	paces     *paces
	operators *operators
	policies  *policies
}
