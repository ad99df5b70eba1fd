// Package inbound receives mail: from other servers, and from mailboxes here. It decides which
// recipients it accepts, authenticates and screens a message, accepts it, and files it into
// mailboxes as their rules say. It does not know how mail is sent, or how folders are stored.
//
// Where things are:
//   - receive.go: a message from outside ([Service.Receive]); the function that delivers mail from
//     outside and from here (Service.deliver); loop detection (head.checkLoop).
//   - accept.go: from the acknowledgement of a message to its rows.
//   - screening.go: whether mail is refused, or goes to Junk because of its sender or a filter:
//     authentication, blocklists, greylisting (Service.screen, [ScreeningResult]). Which mail is
//     junk because of its content is decided in service/spam; receive.go joins the two.
//   - proof.go: the origin of a message, that is who wrote it, and to whom that is proven. The
//     verified domain of its author is decided in mail/auth (auth.Verdict.Proof).
//   - automation.go: calls the spam classifiers (Service.classify); rules and automatic replies of
//     mailboxes (Service.decide, Service.fileWithRules).
//   - local.go: mail of mailboxes here, and of the simulator ([Service.Deliver], [Service.Answer]).
package inbound

import (
	"io"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/store"
)

// Recipients finds the destinations of addresses here.
type Recipients interface {
	// Receiver returns the destination of an address; Resolve also checks that it takes a message
	// now.
	Receiver(tx *store.Tx, address string) (*recipients.Destination, error)
	Resolve(tx *store.Tx, sender, address string, size int64) (*recipients.Destination, error)
	// ResolveArrivalEntry is Resolve for an entry of Arrival.To, which may be a member of a group.
	ResolveArrivalEntry(tx *store.Tx, sender, entry string, size int64) (*recipients.Destination, error)
	// Find returns the destination of an address, whoever the sender is.
	Find(tx *store.Tx, address string) (*recipients.Destination, error)
}

// Inbox files messages in the folders of mailboxes.
type Inbox interface {
	Prepare(body store.Body, env inbox.Envelope) (*inbox.StoredMessage, error)
	File(tx *store.Tx, mb *store.Mailbox, d *inbox.StoredMessage, f inbox.Filing) (*store.Message, error)
	// FileWarmup files an arriving message as warm-up mail, and reports whether it did.
	// IsFiledAsWarmup reports whether it would.
	FileWarmup(tx *store.Tx, mb *store.Mailbox, d *inbox.StoredMessage, f inbox.Filing) (filed bool, err error)
	IsFiledAsWarmup(tx *store.Tx, mb *store.Mailbox, d *inbox.StoredMessage, size int64) (bool, error)
	Release(d *inbox.StoredMessage)
	EmitRuleMatched(tx *store.Tx, mb *store.Mailbox, d *inbox.StoredMessage, m *store.Message, recipient string, rule inbox.RuleMatchedData) error
	// RepliesToSent reports whether a message replies to a message of the account.
	RepliesToSent(tx *store.Tx, accountID string, sum *msg.Summary) (bool, error)
	PeopleAnswered(mb *store.Mailbox, inReplyTo string, references []string) (people []string, found bool, err error)
}

// Classifier classifies the mail of an account as spam or not, if it is on.
type Classifier interface {
	On() bool
	Classify(accountID string, r io.ReaderAt, root *msg.Part, facts *store.Facts, answers bool) (*spam.Verdict, error)
}

// Correspondents records who has written to an account.
type Correspondents interface {
	RecordAuthor(tx *store.Tx, accountID, email string) error
}

// Feedback reads bounces and complaints about messages that were sent here.
type Feedback interface {
	ReadReport(d *inbox.StoredMessage, body io.ReaderAt, sender string, to []string) error
	Apply(tx *store.Tx, to *recipients.Destination, stored *inbox.StoredMessage, sender string) (done bool, err error)
}

// Outbound sends reports and forwards.
type Outbound interface {
	WriteReport(m outbound.ReportedMessage, about ...msg.DSNRecipient) (*inbox.StoredMessage, error)
	QueueReport(tx *store.Tx, accountID, domainID, to string, report *inbox.StoredMessage) error
	PlanForward(tx *store.Tx, like *store.Submission, args outbound.ForwardArgs, due time.Time) error
}

// Sender sends the automatic mail of mailboxes, as their policies allow.
type Sender interface {
	CollectFacts(tx *store.Tx, mb *store.Mailbox, to string, isReply bool, people []string) (*agents.Message, error)
	SendAutoMessage(tx *store.Tx, mb *store.Mailbox, m outbound.AutoMessage) error
}

// Reports counts messages for DMARC reports, and collects the reports of others.
type Reports interface {
	// KeepForReading keeps a message to be searched for reports about domains of the account. from
	// is the author's domain; authentic says that the message is authenticated.
	KeepForReading(tx *store.Tx, accountID string, d *inbox.StoredMessage, from string, authentic bool) error
	// DMARCCount returns the count to which a message belongs: messages of a day with the same
	// DMARC result count together. It is nil if the message is not counted.
	DMARCCount(in Incoming, f *ScreeningResult) (*store.DMARCCount, error)
	// CountDMARC adds a message to the count c.
	CountDMARC(tx *store.Tx, c *store.DMARCCount) error
}

// Rooms are the services that receiving uses.
type Rooms struct {
	Inbox          Inbox
	Classifier     Classifier
	Correspondents Correspondents
	Recipients     Recipients
	Feedback       Feedback
	Outbound       Outbound
	Sender         Sender
	Reports        Reports
}

// A Service receives mail.
type Service struct {
	*core.Core
	rooms Rooms

	screener  *screener
	filer     *filer
	ruleSlots *limit.Semaphore[string] // limits rule evaluation, by account
}

// New returns a Service, which uses the given rooms.
func New(c *core.Core, r Rooms) *Service {
	return &Service{Core: c, rooms: r, screener: newScreener(), filer: newFiler(), ruleSlots: newRuleSlots()}
}

// Kinds lists the kinds of jobs of this package.
func (s *Service) Kinds() []jobs.Kind { return []jobs.Kind{s.arrivalKind(), s.autoReplyKind()} }

// Start counts the greylisting tuples and known senders.
func (s *Service) Start() error {
	if err := countRows(s.Store, &s.screener.Grey, store.GreyTuplesByTime); err != nil {
		return err
	}
	return countRows(s.Store, &s.screener.knownSenders, store.KnownSendersByTime)
}

// Close waits until accepted messages are filed.
func (s *Service) Close() { s.filer.close() }
