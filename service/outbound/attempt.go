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
	damaged    bool
	encoded    bool // the header is encoded for a next hop without SMTPUTF8
	route      Route
	operator   string                  // operator of the recipient's hosts on a direct route
	limits     destinationLimits       // of the operator
	to         *recipients.Destination // set on the route ViaLocal; nil if the recipient takes no mail
	refusal    *core.SMTPError         // why the recipient takes no mail
	suppressed bool                    // the recipient has been suppressed since the message was queued
	paused     error                   // why the sender may not send now, or nil
	held       bool                    // it must wait until somebody releases it
	orphaned   bool                    // its mailbox was deleted
	stranger   bool                    // a sender elsewhere wrote it and we forward it; the simulator does not answer such senders
	now        time.Time
	stored     []*inbox.StoredMessage // prepared for the Writes of the attempt, and released after it
	recorded   *store.Outgoing        // the row with the result, once that is committed
	answer     deliver.Result         // the result in recorded
}

// An attemptResult is the result of an attempt.
type attemptResult struct {
	status   string // the row's new status
	provided string // the Message-ID that a relay assigned
	result   deliver.Result
	arrived  *Arrived // set if the message arrived at a mailbox here

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
	From, To  string // identifies From and To in the envelope
	AccountID string // account of the sender that it answers
	RowID     string // ID of the row that it answers in the sending log
	Origin    string // see store.Facts
	Body      *store.Spool
	Now       time.Time
}

// Arrived is a message that has arrived at a mailbox here and is to be filed.
type Arrived struct {
	Message *inbox.StoredMessage     // released after the attempt; may be nil
	Refusal *core.SMTPError          // why the mailbox refuses the message, or nil
	File    func(tx *store.Tx) error // files the message
}

// Mailboxes delivers mail to mailboxes of this host, as if it came from outside. It is the only way
// from this package back to receiving.
type Mailboxes interface {
	Deliver(ctx context.Context, m LocalMail) (*Arrived, error)
	Answer(ctx context.Context, m SimulatedMail) (*Arrived, error)
}

// A simulatedAnswer is the simulator's answer to an accepted message.
type simulatedAnswer struct {
	arrived   *Arrived             // at an address here
	report    *inbox.StoredMessage // for an external mailbox, which gets it like a delivery report
	complaint bool                 // a complaint, recorded directly since no address here can receive it
}
