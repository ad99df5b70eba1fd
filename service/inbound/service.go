// Package inbound receives mail: from other servers, and from mailboxes here. It says which
// recipients it takes, authenticates and screens a message, accepts it, and files it into
// mailboxes, as their rules say. It does not know how mail is sent on, nor how folders are kept.
//
// Where things stand:
//   - receive.go: a message from outside ([Service.Receive]); mail from outside and from here goes
//     into mailboxes by one function (Service.deliver); when a message is a loop (head.checkLoop).
//   - accept.go: what happens between the acknowledgement of a message and its rows.
//   - screening.go: what decides that mail is spam: authentication, blocklists and greylisting
//     (Service.screen), and filters ([ScreeningResult]).
//   - proof.go: who wrote a message, and for whom that is proven.
//   - automation.go: what classifiers say of mail (Service.judge), and what mailboxes do with it by
//     themselves (Service.decide, Service.fileBy).
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

// Recipients knows who receives mail here.
type Recipients interface {
	// Receiver says where mail to an address goes, For whether that takes a message now.
	Receiver(tx *store.Tx, address string) (*recipients.Destination, error)
	For(tx *store.Tx, sender, address string, size int64) (*recipients.Destination, error)
	// ForEntry is For for the entry of a list, which may be a member of a group.
	ForEntry(tx *store.Tx, sender, entry string, size int64) (*recipients.Destination, error)
	// Find says where an address leads, whoever writes to it.
	Find(tx *store.Tx, address string) (*recipients.Destination, error)
}

// Inbox keeps messages in the folders of mailboxes.
type Inbox interface {
	Prepare(body store.Body, env inbox.Envelope) (*inbox.StoredMessage, error)
	File(tx *store.Tx, mb *store.Mailbox, d *inbox.StoredMessage, f inbox.Filing) (*store.Message, error)
	Release(d *inbox.StoredMessage)
	EmitRuleMatched(tx *store.Tx, mb *store.Mailbox, d *inbox.StoredMessage, m *store.Message, recipient string, rule inbox.RuleMatchedData) error
	// Answers reports whether a message answers one of the account.
	Answers(tx *store.Tx, accountID string, sum *msg.Summary) (bool, error)
	PeopleAnswered(mb *store.Mailbox, inReplyTo string, references []string) (people []string, found bool, err error)
}

// Classifier says what of the mail of an account is spam, where it is on.
type Classifier interface {
	On() bool
	Judge(accountID string, r io.ReaderAt, root *msg.Part, facts *store.Facts, answers bool) (*spam.Verdict, error)
}

// Correspondents remembers who has written to an account.
type Correspondents interface {
	Wrote(tx *store.Tx, accountID, email string) error
}

// Feedback reads what a message says about one that left here.
type Feedback interface {
	ReadReport(d *inbox.StoredMessage, body io.ReaderAt, sender string, to []string) error
	Apply(tx *store.Tx, to *recipients.Destination, stored *inbox.StoredMessage, sender string) (done bool, err error)
}

// Outbound sends reports, and what goes on to another address.
type Outbound interface {
	WriteReport(m outbound.Reported, about ...msg.DSNRecipient) (*inbox.StoredMessage, error)
	QueueReport(tx *store.Tx, accountID, domainID, to string, report *inbox.StoredMessage) error
	PlanForward(tx *store.Tx, like *store.Submission, args outbound.ForwardArgs, due time.Time) error
}

// Sender sends what mailboxes send by themselves, as their policies let them.
type Sender interface {
	AskAbout(tx *store.Tx, mb *store.Mailbox, to string, answers bool, people []string) (*agents.Message, error)
	SendByItself(tx *store.Tx, mb *store.Mailbox, m outbound.ByItself) error
}

// Reports counts messages for DMARC reports, and reads the reports of others.
type Reports interface {
	// KeepForReading has a message from a domain looked through for reports about domains of the
	// account; authentic says that the domain vouches for it.
	KeepForReading(tx *store.Tx, accountID string, d *inbox.StoredMessage, from string, authentic bool) error
	// DMARCCount says with which messages of the day, that DMARC judged alike, one is counted; nil:
	// it is not.
	DMARCCount(in Incoming, f *ScreeningResult) (*store.DMARCCount, error)
	// CountDMARC counts a message with those.
	CountDMARC(tx *store.Tx, c *store.DMARCCount) error
}

// Rooms are those that receiving needs.
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

// A Service holds what receiving needs.
type Service struct {
	*core.Core
	rooms Rooms

	screener *screener
	filer    *filer
	deciders *limit.Semaphore[string] // by account, of who asks rules about a message
}

// New puts the room together.
func New(c *core.Core, r Rooms) *Service {
	return &Service{Core: c, rooms: r, screener: newScreener(), filer: newFiler(), deciders: newDeciders()}
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind { return []jobs.Kind{s.arrivalKind(), s.autoReplyKind()} }

// Start counts whom the room knows.
func (s *Service) Start() error {
	if err := countRows(s.Store, &s.screener.Grey, store.GreyTuplesByTime); err != nil {
		return err
	}
	return countRows(s.Store, &s.screener.known, store.KnownSendersByTime)
}

// Close waits until what was accepted is filed.
func (s *Service) Close() { s.filer.close() }
