package outbound

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

// A Failure is why a message was given up.
type Failure struct {
	Kind       string // hard soft undetermined; "": as the status says
	Subtype    string // "": as the status says
	Status     string // RFC 3463
	Diagnostic string
	Host       string // that refused it
	tried      string // that was asked in our own attempt; "": the failure is told by a report
	Address    bool   // the address is at fault: nothing more is to go there
	Reported   bool   // by a report or a relay's notice
}

func failureOf(r deliver.Result) Failure {
	return Failure{Status: r.Enhanced, Diagnostic: r.Reply, Host: r.AnsweredBy(), tried: r.Host, Address: r.RecipientFault}
}

// SenderFault reports whether a status is about the sender's address, whatever words go with it
// (RFC 3463 section 3.2).
func SenderFault(status string) bool { return status == "5.1.7" || status == "5.1.8" }

// handedOver reports whether a message has been handed to others, so that something may be heard of
// it.
func handedOver(row *store.Outgoing) bool {
	switch row.Status {
	case store.OutgoingSent, store.OutgoingRelayed, store.OutgoingBounced, store.OutgoingComplained:
		return true
	}
	return false
}

// RecordBounce notes that a message which others had taken was given up by them; once.
func (s *Service) RecordBounce(tx *store.Tx, row *store.Outgoing, f Failure) error {
	if !handedOver(row) || row.Status == store.OutgoingBounced || !row.BouncedAt.IsZero() {
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

// A Complaint is what a recipient's mail system said when the recipient called a message spam.
type Complaint struct {
	Kind, Agent string
	Arrived     time.Time // when the message came there; zero: unknown
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

// RecordComplaint notes that a message's recipient called it spam, and keeps further mail from
// there; once.
func (s *Service) RecordComplaint(tx *store.Tx, row *store.Outgoing, g Complaint) error {
	if !handedOver(row) || row.Status == store.OutgoingComplained {
		return nil
	}
	row.Status, row.ComplainedAt, row.UpdatedAt = store.OutgoingComplained, tx.Now(), tx.Now()
	if err := store.Outgoings.Put(tx, row); err != nil {
		return err
	}
	if row.Transport != store.OutgoingTransportSimulator { // which counts for nothing
		if !ownMail(row) {
			if err := core.Suppress(tx, row.AccountID, row.Recipient, "complaint", row.MessageID); err != nil {
				return err
			}
		}
		if err := s.Count(tx, row.AccountID, func(st *store.DayStat) { st.Complained++ }); err != nil {
			return err
		}
		if err := s.reputation.Complained(tx, row); err != nil {
			return err
		}
	}
	_, err := s.events.Emit(tx, row.AccountID, events.EventEmailComplained, ComplainedData{
		Recipient: row.Recipient, Sender: row.Sender, SendingDomain: row.Domain, FeedbackType: cmp.Or(g.Kind, "abuse"), UserAgent: core.OrNull(g.Agent),
		Provider: core.OrNull(row.Provider), OriginalMessageID: row.MessageID, ProviderMessageID: core.OrNull(row.ProviderMessageID),
		ArrivalDate: core.Time{Time: g.Arrived}, ComplainedAt: core.Time{Time: row.ComplainedAt},
		Tags: tagsOut(row.Tags),
	})
	return err
}

// unsubscribeFields offer a recipient a way out (RFC 2369, RFC 8058), where the sending domain asks
// for that: in what it sends to others, but for answers in a conversation, what machines wrote, and
// messages that have a way out of their own. The link is offered only where this host is reached
// over HTTPS, as RFC 8058 demands; the address always.
func (s *Service) unsubscribeFields(m *delivery) []byte {
	d := m.domain
	if d == nil || !d.ListUnsub || !m.sub.Starts || m.sub.Sender == "" || core.DomainOfAddress(m.row.Recipient) == d.Name {
		return nil
	}
	way := ""
	if address := s.recipients.RowAddress(recipients.UnsubscribeAddress, m.row); address != "" {
		way = "<mailto:" + address + "?subject=unsubscribe>"
	}
	if !strings.HasPrefix(s.Config.BaseURL, "https://") {
		if way == "" {
			return nil
		}
		return fmt.Appendf(nil, "List-Unsubscribe: %s\r\n", way)
	}
	link := "<" + s.Config.BaseURL + recipients.UnsubscribePath + s.recipients.UnsubscribeToken(d, m.row.Recipient) + ">"
	if way != "" {
		link += ",\r\n " + way
	}
	return fmt.Appendf(nil, "List-Unsubscribe: %s\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n", link)
}
