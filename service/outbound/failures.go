package outbound

import (
	"cmp"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// A Failure describes why a message was given up for one recipient.
type Failure struct {
	Kind       string // hard, soft or undetermined; "": derived from Status
	Subtype    string // "": derived from Status and Diagnostic
	Status     string // RFC 3463
	Diagnostic string
	Host       string // the host that refused the message
	tried      string // the host that our own attempt reached; "" if a report announced the failure
	Address    bool   // the recipient's address is at fault and is to be suppressed
	Reported   bool   // a delivery report or a relay's notice announced the failure
}

func failureOf(r deliver.Result) Failure {
	return Failure{Status: r.Enhanced, Diagnostic: r.Reply, Host: r.AnsweredBy(), tried: r.Host, Address: r.RecipientFault}
}

// asExpired turns a temporary failure that has lasted too long into a permanent one.
func asExpired(r deliver.Result) deliver.Result {
	last := r.Reply
	if host := r.AnsweredBy(); host != "" {
		last = host + " answered " + last
	}
	r.Status, r.Code, r.Enhanced, r.RecipientFault = deliver.Permanent, 0, "4.4.7", false
	r.Reply = "not delivered within five days; the last answer was: " + last
	return r
}

// SenderFault reports whether a status blames the sender's address, whatever the reply says (RFC
// 3463 section 3.2).
func SenderFault(status string) bool { return status == "5.1.7" || status == "5.1.8" }

// wasHandedOver reports whether another host has accepted the message, so that reports about it may
// arrive.
func wasHandedOver(row *store.Outgoing) bool {
	switch row.Status {
	case store.OutgoingSent, store.OutgoingRelayed, store.OutgoingBounced, store.OutgoingComplained:
		return true
	}
	return false
}

// RecordBounce records that a message bounced after another host had accepted it. It does nothing
// if a bounce of the message is already recorded.
func (s *Service) RecordBounce(tx *store.Tx, row *store.Outgoing, f Failure) error {
	if !wasHandedOver(row) || row.Status == store.OutgoingBounced || !row.BouncedAt.IsZero() {
		return nil
	}
	row.LastResponse, row.UpdatedAt = cmp.Or(f.Diagnostic, row.LastResponse), tx.Now()
	if row.Status != store.OutgoingComplained {
		row.Status = store.OutgoingBounced
	}
	if err := s.emitBounce(tx, row, f); err != nil {
		return err
	}
	return store.Outgoings.Put(tx, row)
}

// A Complaint is a mail system's report that a recipient marked a message as spam.
type Complaint struct {
	Kind, Agent string
	Arrived     time.Time // when the message arrived at the recipient's mail system; zero: unknown
}

// ComplainedData is the data of email.complained.
type ComplainedData struct {
	Recipient         string    `json:"recipient" words:"theirs"`
	Sender            string    `json:"sender" words:"theirs"`
	SendingDomain     string    `json:"sending_domain" words:"ours"`
	FeedbackType      string    `json:"feedback_type" words:"theirs" example:"abuse"`
	UserAgent         *string   `json:"user_agent" words:"theirs" example:"ExampleFBL/1.0"`
	Provider          *string   `json:"provider" words:"ours"`              // The relay.
	OriginalMessageID string    `json:"original_message_id" words:"theirs"` // The Message-ID that the sender gave.
	ProviderMessageID *string   `json:"provider_message_id" words:"theirs"` // The Message-ID that the relay gave.
	ArrivalDate       core.Time `json:"arrival_date"`
	ComplainedAt      core.Time `json:"complained_at"`
	Tags              TagMap    `json:"tags" words:"theirs"`
}

// RecordComplaint records that the recipient marked a message as spam, and suppresses the
// recipient's address. It does nothing if a complaint about the message is already recorded.
func (s *Service) RecordComplaint(tx *store.Tx, row *store.Outgoing, g Complaint) error {
	if !wasHandedOver(row) || row.Status == store.OutgoingComplained {
		return nil
	}
	row.Status, row.ComplainedAt, row.UpdatedAt = store.OutgoingComplained, tx.Now(), tx.Now()
	if err := store.Outgoings.Put(tx, row); err != nil {
		return err
	}
	if row.Transport != store.OutgoingTransportSimulator { // simulated mail does not affect suppression, counts and reputation
		if !isSystemMail(row) {
			if err := core.Suppress(tx, row.AccountID, row.Recipient, "complaint", row.MessageID); err != nil {
				return err
			}
		}
		if err := s.Count(tx, row.AccountID, func(st *store.DayStat) { st.Complained++ }); err != nil {
			return err
		}
		if err := s.reputation.CountComplaint(tx, row); err != nil {
			return err
		}
	}
	_, err := s.events.Emit(tx, row.AccountID, events.EventEmailComplained, events.About{MailboxID: row.MailboxID, Domain: row.Domain}, ComplainedData{
		Recipient: row.Recipient, Sender: row.Sender, SendingDomain: row.Domain, FeedbackType: cmp.Or(g.Kind, "abuse"), UserAgent: core.OrNull(g.Agent),
		Provider: core.OrNull(row.Provider), OriginalMessageID: row.MessageID, ProviderMessageID: core.OrNull(row.ProviderMessageID),
		ArrivalDate: core.Time{Time: g.Arrived}, ComplainedAt: core.Time{Time: row.ComplainedAt},
		Tags: tagsOut(row.Tags),
	})
	return err
}
