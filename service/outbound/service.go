// Package outbound sends the mail in the queue. It writes the rows and jobs of a message, chooses
// its route, makes and paces attempts, signs, retries, gives up, and reports to the sender. It does
// not know who may send what, or how mail reaches a mailbox here ([Mailboxes] does).
//
// Where things are:
//   - start.go: the constructor and the kinds of jobs. attempt.go: the input and the result of an
//     attempt.
//   - enqueue.go: the rows and jobs of a submission ([Service.Enqueue]), and its tags.
//   - automatic.go: automatic mail, and its limits ([Service.SendAutomatic]).
//   - delivery.go: one attempt to deliver, when it is retried ([RetryWait]) and given up
//     ([GiveUpAfter]).
//   - routes.go: the route of a message ([Service.RouteOf]), and the relays. dial.go: the fields on
//     top of a message, such as List-Unsubscribe, and the dialogue with a host. tls.go: TLS
//     policies. signing.go: DKIM and ARC. pacing.go, operators.go: how fast mail goes to a
//     destination.
//   - waiting.go: why a message waits, how it is cancelled, and mail whose relay is not configured.
//     hold.go: messages that are held until somebody releases them.
//   - bounces.go: delivery reports that we write, and which failures suppress an address.
//     failures.go: the consequences of a bounce or a spam complaint. host_mail.go: mail from this
//     host to a person.
//   - simulator.go: the recipients that this server simulates.
//   - sending_log.go: the log of sent messages. schedule.go: messages that are sent later.
//   - external_copies.go: copies of sent mail for the Sent folder on another server.
//   - direct_events.go: the events of a delivery.
package outbound

import (
	"context"
	"sync/atomic"

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

// Servers connects to the servers of external mailboxes.
type Servers interface {
	// Connect opens a session with the mailbox's server.
	Connect(ctx context.Context, mb *store.Mailbox) (*pull.Session, error)
	// PlainGuard decides which servers of tenants may be used without TLS.
	PlainGuard() *netguard.Guard
}

// A Service sends the mail in the queue.
type Service struct {
	*core.Core
	events     *events.Service
	agents     *agents.Service
	inbox      *inbox.Service
	servers    Servers
	recipients *recipients.Service
	reputation *reputation.Service

	plan      atomic.Pointer[plan]
	signer    *signer
	relayed   *deliver.Client // to the operator's relays
	guarded   *deliver.Client // to those that were set by API
	plain     *deliver.Client // to tenants' servers without TLS
	forwards  *forwardCounter
	paces     *paces
	operators *operatorCache
	policies  *policyCache
}

// A plan has what is made of the settings in advance. A change of the settings replaces it.
type plan struct {
	relays       []*Relay
	destinations destinations
	sending      core.Sending
	direct       *deliver.Client // to the MX hosts of recipients
}
