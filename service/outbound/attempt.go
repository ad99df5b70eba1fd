package outbound

import (
	"context"
	"io"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

// deliverArgs is the job of handing a message on to one recipient.
type deliverArgs struct {
	OutgoingID string `json:"outgoing_id"`
}

// A delivery is a message on its way to one recipient, with all that an attempt needs to know.
type delivery struct {
	row        *store.Outgoing
	sub        *store.Submission
	domain     *store.Domain // nil: gone
	local      Mailboxes     // of this host
	blob       msg.Source    // open while the attempt lasts; nothing of a damaged message
	damaged    bool
	encoded    bool // its header, for a next hop without SMTPUTF8
	route      Route
	operator   string                  // of the hosts that a direct route leads to
	limits     destinationLimits       // of that operator
	to         *recipients.Destination // of ViaLocal; nil if it takes none
	refusal    *core.SMTPError         // why not
	suppressed bool                    // the recipient has been suppressed since
	paused     error                   // why its sender may not send now
	held       bool                    // it is to wait for somebody to release it
	orphaned   bool                    // its mailbox was deleted
	stranger   bool                    // it is forwarded from somebody elsewhere, whom the simulator does not know
	now        time.Time
	stored     []*inbox.StoredMessage // made for the Writes of the attempt, and released when it is over
	recorded   *store.Outgoing        // the row with what came of the attempt, once that is committed
	answer     deliver.Result         // which that was
}

// An attemptResult is what came of an attempt.
type attemptResult struct {
	status   string // that the row gets
	provided string // the Message-ID that a relay minted
	result   deliver.Result
	arrived  *Arrived // at a mailbox here

	answer *simulatedAnswer // that the simulator gives; nil: none
}

// LocalMail is a message of the queue for a mailbox here.
type LocalMail struct {
	Submission *store.Submission
	Row        *store.Outgoing
	To         *recipients.Destination
	Head       []byte // header fields for this recipient, such as DKIM-Signature
	Content    *io.SectionReader
	Now        time.Time
}

// SimulatedMail is a message that the simulator writes to a sender here.
type SimulatedMail struct {
	From, To  string // of the envelope
	AccountID string // of the sender whom it answers
	RowID     string // of what it answers, in the sending log
	Origin    string // see store.Facts
	Body      *store.Spool
	Now       time.Time
}

// Arrived is a message that has come to a mailbox here, and is to be filed.
type Arrived struct {
	Message *inbox.StoredMessage     // which is released when the attempt is over; nil: there is none yet
	Refusal *core.SMTPError          // why it is refused; nil: it is not
	File    func(tx *store.Tx) error // files it
}

// Mailboxes has mail arrive at mailboxes of this host, as mail from outside does. It is the one way
// from here back to where mail is received.
type Mailboxes interface {
	Deliver(ctx context.Context, m LocalMail) (*Arrived, error)
	Answer(ctx context.Context, m SimulatedMail) (*Arrived, error)
}

// A simulatedAnswer is what the simulator answers once a message is accepted.
type simulatedAnswer struct {
	arrived   *Arrived             // at an address here
	report    *inbox.StoredMessage // for a mailbox that lives elsewhere, which gets it as it gets our reports
	complaint bool                 // there is no address here that a complaint could come to
}
