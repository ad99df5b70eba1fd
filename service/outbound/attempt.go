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

// deliverArgs are the arguments of a job that delivers a message to one recipient.
type deliverArgs struct {
	OutgoingID string `json:"outgoing_id"`
}

// A delivery is a message for one recipient, with everything that an attempt needs.
type delivery struct {
	row        *store.Outgoing
	sub        *store.Submission
	domain     *store.Domain // nil if the domain was deleted
	local      Mailboxes     // delivers to mailboxes of this host
	blob       msg.Source    // open during the attempt; empty if the message is damaged
	damaged    bool          // the stored message cannot be read completely
	encoded    bool          // the header is encoded for a next hop without SMTPUTF8
	route      Route
	operator   string                  // operator of the recipient's hosts on a direct route
	limits     destinationLimits       // of the operator
	to         *recipients.Destination // set on the route ViaLocal; nil if the recipient takes no mail
	refusal    *core.SMTPError         // why the recipient takes no mail
	suppressed bool                    // the recipient has been suppressed since the message was queued
	paused     error                   // why the sender may not send now, or nil
	held       bool                    // the message must wait until somebody releases it
	orphaned   bool                    // the sending mailbox was deleted
	stranger   bool                    // an outside sender wrote the message and it is forwarded; the simulator does not answer such senders
	now        time.Time
	stored     []*inbox.StoredMessage // messages that the attempt files in mailboxes when its writes are committed; released when the attempt ends
	recorded   *store.Outgoing        // the row with the result of the attempt; nil until that is committed
	answer     deliver.Result         // the result of the attempt, as it is in the row `recorded`
}

// An attemptResult is the result of an attempt.
type attemptResult struct {
	status            string // the row's new status
	assignedMessageID string // the Message-ID that a relay assigned
	result            deliver.Result
	arrived           *Arrived // set if the message arrived at a mailbox here

	answer *simulatedAnswer // the simulator's answer, or nil
}

// LocalMail is a queued message for a mailbox here.
type LocalMail struct {
	Submission *store.Submission
	Row        *store.Outgoing
	To         *recipients.Destination
	Head       []byte // header fields for this recipient, such as DKIM-Signature
	Content    *io.SectionReader
	Now        time.Time
}

// SimulatedMail is a message that the simulator sends to a sender here.
type SimulatedMail struct {
	From, To  string // envelope sender and recipient
	AccountID string // account that sent the message that is answered
	RowID     string // ID of the answered message's row in the sending log
	Origin    string // see store.Facts
	Body      *store.Spool
	Now       time.Time
}

// Arrived is a message that has arrived at a mailbox here and is to be filed.
type Arrived struct {
	Message *inbox.StoredMessage     // released after the attempt; may be nil
	Refusal *core.SMTPError          // why the mailbox refuses the message; nil if it accepts it
	File    func(tx *store.Tx) error // files the message
}

// Mailboxes delivers mail to mailboxes of this host, as if it came from outside. Package inbound
// implements it, which this package must not import.
type Mailboxes interface {
	Deliver(ctx context.Context, m LocalMail) (*Arrived, error)
	Answer(ctx context.Context, m SimulatedMail) (*Arrived, error)
}

// A simulatedAnswer is the simulator's answer to an accepted message.
type simulatedAnswer struct {
	arrived   *Arrived             // the answer, delivered to an address here
	report    *inbox.StoredMessage // the answer, for an external mailbox, which gets it like a delivery report
	complaint bool                 // the answer is a complaint, recorded directly since no address here can receive it
}
