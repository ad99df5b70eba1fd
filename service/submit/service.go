// Package submit accepts messages from their senders: from people and programs by SMTP and by the
// API, and automatic messages of mailboxes. It decides who may send what and as whom, holds
// messages that need a person's approval, and passes the others to outbound. It does not know how
// mail leaves.
//
// Where things are:
//   - submit.go: a submission; who may send as whom: envelope and header; limits.
//   - send.go: send_email. drafts.go, batch.go, invitation.go: other ways to make a message.
//   - sending_policy.go: how policies are applied. auto_messages.go: automatic messages of
//     mailboxes.
//   - approvals.go: messages that wait for a person's approval, and their expiry. approve.go: how
//     they are read and decided. shown.go: what a person is shown. harmless.go: how a tainted
//     sender's message is rewritten.
//   - cancel.go: how pending messages are cancelled. unsubscribe.go: how a mailbox leaves a list.
package submit

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/ical"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// Inbox files messages in the folders of mailboxes.
type Inbox interface {
	Prepare(body store.Body, env inbox.Envelope) (*inbox.StoredMessage, error)
	Release(d *inbox.StoredMessage)
	ReadStored(who core.Actor, in inbox.MessageIn) (*msg.Part, *store.Blob, *inbox.SpamVerdict, error)
	// FindAnswered finds the messages that a reply answers. PeopleAnswered finds the people of
	// these messages.
	FindAnswered(mb *store.Mailbox, id string) ([]inbox.AnsweredMessage, error)
	PeopleAnswered(mb *store.Mailbox, inReplyTo string, references []string) (people []string, found bool, err error)

	OpenDraft(who core.Actor, userID, uid string) (root *msg.Part, blob *store.Blob, origin string, err error)
	FileDraft(tx *store.Tx, who core.Actor, mb *store.Mailbox, d *inbox.StoredMessage, old string) (*inbox.InboxMessage, error)
	DeleteDraft(tx *store.Tx, who core.Actor, userID, uid string) error

	ReadInvitation(who core.Actor, in inbox.MessageIn) (*ical.Invitation, string, error)
	MarkInvitation(tx *store.Tx, who core.Actor, in inbox.MessageIn, answer string) error
}

// Policies decide what programs may send, and record what they have read.
type Policies interface {
	HasPolicy(tx *store.Tx, mb *store.Mailbox, h agents.Holder) (bool, error)
	Admit(tx *store.Tx, h agents.Holder, m *agents.Message) (held string, tainted bool, err error)
	Reach(tx *store.Tx, m *agents.Message) error
	Read(accountID string, h agents.Holder, p *store.Policy, words ...agents.Source) error
}

// Limits limit the number of recipients in a day.
type Limits interface {
	MayAdd(tx *store.Tx, mb *store.Mailbox, from *store.Domain, e *reputation.Envelope, recipient string) error
	Admit(tx *store.Tx, mb *store.Mailbox, from *store.Domain, recipients []string) error
	NotifyLimit(u core.MailboxUser, refused error) error
}

// Recipients finds the destinations of addresses here.
type Recipients interface {
	Receiver(tx *store.Tx, address string) (*recipients.Destination, error)
}

// Queue writes and changes the queue of outgoing messages.
type Queue interface {
	Enqueue(tx *store.Tx, sub *store.Submission, d *store.Domain, to []outbound.Rcpt) ([]*store.Outgoing, error)
	RouteOf(tx *store.Tx, d *store.Domain, row *store.Outgoing) (outbound.Route, error)
	PutRowWithJob(tx *store.Tx, row *store.Outgoing) error
	CloseRow(tx *store.Tx, row *store.Outgoing, status string) error
	ShowRow(who core.Actor, id string) (*outbound.SentMessage, error)
	CancelRow(who core.Actor, id string) (*outbound.SentMessage, error)
	CancelWaiting(ctx context.Context, accountID, why string, matches func(*store.Outgoing) bool) error
	ControlFields() []string
	FileSentCopy(tx *store.Tx, mb *store.Mailbox, stored *inbox.StoredMessage, answered []inbox.AnsweredMessage, by string) error
}

// Outbound has the queue, sends automatic mail, and writes delivery reports.
type Outbound interface {
	Queue
	SendAutomatic(tx *store.Tx, m outbound.AutomaticMail) error
	PlanForward(tx *store.Tx, like *store.Submission, args outbound.ForwardArgs, due time.Time) error
	WriteReport(m outbound.ReportedMessage, about ...msg.DSNRecipient) (*inbox.StoredMessage, error)
	SendReport(tx *store.Tx, sub *store.Submission, report *inbox.StoredMessage) error
	QueueReport(tx *store.Tx, accountID, domainID, to string, report *inbox.StoredMessage) error
}

// Events emits events for webhooks and the dashboard.
type Events interface {
	Emit(tx *store.Tx, accountID, kind string, about events.About, data any) (*store.Event, error)
}

// Rooms are the services that submission uses.
type Rooms struct {
	Events     Events
	Inbox      Inbox
	Policies   Policies
	Limits     Limits
	Recipients Recipients
	Outbound   Outbound
}

// A Service accepts messages to send.
type Service struct {
	*core.Core
	rooms Rooms
}

// New returns a Service, which uses the given rooms.
func New(c *core.Core, r Rooms) *Service { return &Service{Core: c, rooms: r} }

// Kinds lists the kinds of jobs of this package.
func (s *Service) Kinds() []jobs.Kind {
	return append(slices.Concat(s.approvalKinds(), []jobs.Kind{s.autoHoldKind(), s.forwardKind()}), s.WhileActive(s.batchKind()))
}
