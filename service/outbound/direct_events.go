package outbound

import (
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// delayedEventInterval is the interval at which email.delayed is repeated for one message.
const delayedEventInterval = 24 * time.Hour

// DeliveredData is the data of email.delivered.
type DeliveredData struct {
	MessageID string  `json:"message_id" words:"theirs"`                                // The Message-ID header, with brackets.
	ID        string  `json:"id" words:"ours" example:"msg_01k9a2b3c4d5e6f7g8h9j0k1m2"` // Its row in the sending log.
	Recipient string  `json:"recipient" words:"theirs"`
	Host      *string `json:"host" words:"theirs" example:"mx.example.net"`                   // The host that answered; null if none did.
	Response  string  `json:"response" words:"theirs" example:"250 2.0.0 OK: queued as 4f1c"` // The newest answer.
	TLS       *string `json:"tls" words:"ours"`
	Tags      TagMap  `json:"tags" words:"theirs"`
}

// DelayedData is the data of email.delayed.
type DelayedData struct {
	DeliveredData
	Attempts      int       `json:"attempts"`
	NextAttemptAt core.Time `json:"next_attempt_at"`
}

func deliveredData(row *store.Outgoing, r deliver.Result) DeliveredData {
	host := r.AnsweredBy()
	out := DeliveredData{
		MessageID: row.MessageID, ID: row.ID, Recipient: row.Recipient, Host: core.OrNull(host), Response: r.Reply, Tags: tagsOut(row.Tags),
	}
	if name := strings.Fields(r.TLS); host != "" && len(name) > 1 { // such as TLS 1.3, followed by the cipher
		out.TLS = core.OrNull(name[0] + " " + name[1])
	}
	return out
}

// emitDelivered emits email.delivered for a message that an outside host or the simulator accepted.
// It emits nothing for mail without a sender, which the server itself writes.
func (s *Service) emitDelivered(tx *store.Tx, row *store.Outgoing, r deliver.Result) error {
	if row.Sender == "" {
		return nil
	}
	_, err := s.events.Emit(tx, row.AccountID, events.EventEmailDelivered, events.About{MailboxID: row.MailboxID, Domain: row.Domain}, deliveredData(row, r))
	return err
}

// emitDelayed emits email.delayed for a message that will be retried: at the first deferral, then
// once a day. The caller writes the row.
func (s *Service) emitDelayed(tx *store.Tx, row *store.Outgoing, r deliver.Result) error {
	emits := row.Transport == store.OutgoingTransportDirect || row.Transport == store.OutgoingTransportSimulator
	if row.Sender == "" || !emits || !row.DelayedAt.IsZero() && tx.Now().Sub(row.DelayedAt) < delayedEventInterval {
		return nil
	}
	row.DelayedAt = tx.Now()
	_, err := s.events.Emit(tx, row.AccountID, events.EventEmailDelayed, events.About{MailboxID: row.MailboxID, Domain: row.Domain}, DelayedData{deliveredData(row, r), row.Attempts, core.Time{Time: row.NextAt}})
	return err
}
