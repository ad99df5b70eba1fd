package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// BouncedData is the data of email.bounced.
type BouncedData struct {
	Recipient         string    `json:"recipient" words:"theirs"`
	Sender            string    `json:"sender" words:"theirs"`
	SendingDomain     string    `json:"sending_domain" words:"ours"`
	UserID            *string   `json:"user_id" words:"ours"`
	BounceType        string    `json:"bounce_type" enum:"hard|soft|undetermined"`
	BounceSubtype     string    `json:"bounce_subtype" words:"theirs"`
	Status            string    `json:"status" words:"theirs" example:"5.1.1"` // The enhanced status code (RFC 3463).
	Diagnostic        string    `json:"diagnostic" words:"theirs"`
	RemoteMTA         *string   `json:"remote_mta" words:"theirs" example:"mx.example.net"`
	Provider          *string   `json:"provider" words:"ours"`              // The relay.
	OriginalMessageID string    `json:"original_message_id" words:"theirs"` // The Message-ID that the sender gave.
	ProviderMessageID *string   `json:"provider_message_id" words:"theirs"` // The Message-ID that the relay gave.
	Suppressed        bool      `json:"suppressed"`                         // Whether the address is suppressed.
	BouncedAt         core.Time `json:"bounced_at"`
	Tags              TagMap    `json:"tags" words:"theirs"`
}

// BounceType returns "hard" for a permanent failure (status 5.x), "soft" for a temporary one that
// lasted too long.
func BounceType(status string) string {
	switch {
	case strings.HasPrefix(status, "5."):
		return "hard"
	case strings.HasPrefix(status, "4."):
		return "soft"
	}
	return "undetermined"
}

// SetAddressFault sets f.Address: whether the recipient's address is at fault and is to be
// suppressed. It is at fault if the host permanently refused the mail because the address does not
// exist. It is not if the failure is about the sender, whatever the status code.
func (f *Failure) SetAddressFault() {
	if f.Host == "" && !f.Reported { // a text of this server, not a host's reply
		return
	}
	switch msg.RefusalSubjectOf(f.Diagnostic) {
	case msg.AboutAddress:
		f.Address = (f.Address || cmp.Or(f.Kind, BounceType(f.Status)) == "hard") && !SenderFault(f.Status)
	case msg.AboutUnknown:
		f.Address = f.Address && !reputation.IsBlocking(f.Diagnostic)
	default:
		f.Address = false
	}
}

// bounceSubtype names the cause of a failure, by its status (RFC 3463) and its reply.
func bounceSubtype(status, diagnostic string) string {
	_, detail, _ := strings.Cut(status, ".")
	about := msg.RefusalSubjectOf(diagnostic)
	switch {
	case detail == "1.10" && about == msg.AboutAddress: // Exchange's status for an unknown mailbox
		return "no_such_mailbox"
	case detail == "0.0" && about == msg.AboutRoom:
		return "mailbox_full"
	}
	exact := map[string]string{
		"1.1": "no_such_mailbox", "1.2": "no_such_domain", "1.10": "no_mail_domain", "2.1": "mailbox_disabled", "2.2": "mailbox_full",
		"2.3": "message_too_large", "3.4": "message_too_large", "4.6": "loop", "4.7": "expired",
	}
	if word := exact[detail]; word != "" {
		return word
	}
	subject, _, _ := strings.Cut(detail, ".")
	subjects := map[string]string{
		"1": "address", "2": "mailbox", "3": "mail_system", "4": "network", "5": "protocol", "6": "content", "7": "policy",
	}
	if word := subjects[subject]; word != "" {
		return word
	}
	return "general"
}

// bounce gives up delivery to one recipient: it emits email.bounced, reports to the sender and, if
// the address is at fault, suppresses it for the account.
func (s *Service) bounce(m *delivery, r deliver.Result) (jobs.Writes, error) {
	report, err := s.failureReport(m, r)
	if err != nil {
		return nil, err
	}
	return func(tx *store.Tx, _ *store.Job) error {
		row, err := pendingRow(tx, m.row.ID)
		if row == nil {
			return err
		}
		if err := s.recordAttempt(tx, row, m, r); err != nil {
			return err
		}
		if err := s.SendReport(tx, m.sub, report); err != nil {
			return err
		}
		if err := s.emitBounce(tx, row, failureOf(r)); err != nil {
			return err
		}
		return s.CloseRow(tx, row, store.OutgoingBounced)
	}, nil
}

// emitBounce emits email.bounced for a row that was given up, and sets its BouncedAt. The caller
// writes the row.
func (s *Service) emitBounce(tx *store.Tx, row *store.Outgoing, f Failure) error {
	row.BouncedAt = tx.Now()
	f.SetAddressFault()
	if ours, err := core.IsHosted(tx, row.Recipient); ours || err != nil {
		if err != nil {
			return err
		}
		f.Address = false // an address of a domain hosted here may be created at any time
	}
	simulated := row.Transport == store.OutgoingTransportSimulator // simulated mail does not affect suppression, counts and reputation
	if simulated || isSystemMail(row) {
		f.Address = false // simulated mail and system mail never suppress an address
	}
	if f.Address {
		if err := core.Suppress(tx, row.AccountID, row.Recipient, "bounce", row.MessageID); err != nil {
			return err
		}
	}
	if !simulated {
		if err := s.Count(tx, row.AccountID, func(st *store.DayStat) { st.Bounced++ }); err != nil {
			return err
		}
	}
	if cmp.Or(f.Kind, BounceType(f.Status)) == "hard" && f.Status != requireTLSFailedStatus {
		if err := s.reputation.CountBounce(tx, row, f.tried, f.Diagnostic); err != nil {
			return err
		}
	}
	_, err := s.events.Emit(tx, row.AccountID, events.EventEmailBounced, events.About{MailboxID: row.MailboxID, Domain: row.Domain}, BouncedData{
		Recipient: row.Recipient, Sender: row.Sender, SendingDomain: row.Domain, UserID: core.OrNull(row.MailboxID),
		BounceType: cmp.Or(f.Kind, BounceType(f.Status)), BounceSubtype: cmp.Or(f.Subtype, bounceSubtype(f.Status, f.Diagnostic)), Status: f.Status,
		Diagnostic: f.Diagnostic, RemoteMTA: core.OrNull(f.Host), Provider: core.OrNull(row.Provider), OriginalMessageID: row.MessageID,
		ProviderMessageID: core.OrNull(row.ProviderMessageID), Suppressed: f.Address, BouncedAt: core.Time{Time: row.BouncedAt},
		Tags: tagsOut(row.Tags),
	})
	return err
}

// isSystemMail reports whether the server itself sent the message, such as a report, an alert or
// other host mail. No account chose to write to its recipient, so the address is not suppressed for
// any account.
func isSystemMail(row *store.Outgoing) bool {
	return row.Sender == "" && row.MailboxID == "" && !row.Program
}

// requireTLSFailedStatus is the status of a message that requires TLS, if the next hop does not
// offer it (RFC 8689). The recipient's address is not at fault.
const requireTLSFailedStatus = "5.7.30"

// maxReturnedBytes is the size up to which RET=FULL returns the whole message, in bytes.
const maxReturnedBytes = 1 << 20

// WantsReport reports whether notify, the NOTIFY parameter of a recipient, asks for reports of the
// given kind: SUCCESS, FAILURE or DELAY (RFC 3461 section 4.1). An empty notify asks for all.
func WantsReport(notify, kind string) bool {
	return notify == "" || strings.Contains(","+notify+",", ","+kind+",")
}

// failureReport returns the report to the sender that a message was given up; nil if the sender
// wants none.
func (s *Service) failureReport(m *delivery, r deliver.Result) (*inbox.StoredMessage, error) {
	if !WantsReport(m.row.Notify, "FAILURE") {
		return nil, nil
	}
	return s.writeReport(m, msg.DSNRecipient{
		Final: m.row.Recipient, Original: m.row.ORCPT, Action: msg.ActionFailed, Status: r.Enhanced, Diagnostic: r.Reply, Own: r.Code == 0, RemoteMTA: r.AnsweredBy(),
	})
}

// successReport returns the report to the sender that a message arrived, or that it was relayed to
// a host that sends no reports (RFC 3461 section 5.2.2, 6.2.7). It returns nil if the sender did
// not ask for a report, or if the report cannot be written: an error would send the message again.
func (s *Service) successReport(m *delivery, o *attemptResult) *inbox.StoredMessage {
	action := msg.ActionRelayed
	switch {
	case m.row.Notify == "" || !WantsReport(m.row.Notify, "SUCCESS"):
		return nil
	case o.status == store.OutgoingSuppressed, o.status == store.OutgoingCancelled: // the message was not sent, as the account wanted
		return nil
	case m.route.Transport == core.ViaLocal:
		action = msg.ActionDelivered
	case m.route.Transport == core.ViaCapture || o.result.DSN:
		return nil
	}
	report, err := s.writeReport(m, msg.DSNRecipient{
		Final: m.row.Recipient, Original: m.row.ORCPT, Action: action, Status: o.result.Enhanced, Diagnostic: o.result.Reply, Own: o.result.Code == 0, RemoteMTA: o.result.AnsweredBy(),
	})
	if err != nil {
		s.Log.Error("the success report cannot be written", "message_id", m.row.ID, "error", err)
	}
	return report
}

// delayNotice returns when the delivery job must run again, at next at the latest: that is when the
// next attempt is due. report is the notice to the sender that the message is delayed. It is nil if
// the sender wants none, or if the message was queued less than delayNoticeAfter ago. answer is the
// newest answer to the message; answerIsOurs means that this server wrote it.
func (s *Service) delayNotice(m *delivery, next time.Time, status, answer string, answerIsOurs bool) (due time.Time, report *inbox.StoredMessage, err error) {
	at := m.row.Began().Add(delayNoticeAfter)
	switch {
	case m.row.DelayTold || !WantsReport(m.row.Notify, "DELAY") || !s.someoneGetsReports(m.sub):
		return next, nil, nil
	case m.now.Before(at):
		if at.Before(next) {
			return at, nil, nil
		}
		return next, nil, nil
	}
	r := msg.DSNRecipient{
		Final: m.row.Recipient, Original: m.row.ORCPT, Action: msg.ActionDelayed, Status: status, Diagnostic: answer, Own: answerIsOurs,
		WillRetryUntil: m.row.Began().Add(GiveUpAfter),
	}
	report, err = s.writeReport(m, r)
	return next, report, err
}

// isNewestReply reports whether text is the reply that a host gave to the newest attempt.
func isNewestReply(row *store.Outgoing, text string) bool {
	n := len(row.Log)
	return n > 0 && row.Log[n-1].Code != 0 && row.Log[n-1].Reply == text
}

// someoneGetsReports reports whether anybody may be notified about a submission. Nobody is notified
// about a report (RFC 5321 section 6.1), or about a forward whose sender may be forged.
func (s *Service) someoneGetsReports(sub *store.Submission) bool {
	return sub.Sender != "" && (!sub.Forward || sub.ReportTo != "")
}

// A ReportedMessage is the message that a delivery report is about.
type ReportedMessage struct {
	ID         string // ID of the message, for the log
	To         string // the recipient of the report
	EnvelopeID string // ENVID, decoded
	QueuedAt   time.Time
	Original   msg.Source
	Full       bool // the report may return the whole message (RFC 3461 section 4.3)
	Simulated  bool // the simulator sends the report
}

// writeReport writes a report about a delivery, which is released after the attempt. It returns nil
// if nobody may be notified about the message.
func (s *Service) writeReport(m *delivery, about ...msg.DSNRecipient) (*inbox.StoredMessage, error) {
	if !s.someoneGetsReports(m.sub) {
		return nil, nil
	}
	report, err := s.WriteReport(ReportedMessage{
		ID: m.row.ID, To: m.sub.Sender, EnvelopeID: m.sub.EnvelopeID, QueuedAt: m.row.QueuedAt, Original: m.blob,
		Full: m.sub.Ret == "FULL" && !m.sub.RequireTLS, Simulated: m.route.Transport == core.ViaSimulator && !m.stranger,
	}, about...)
	if report != nil {
		m.stored = append(m.stored, report)
	}
	return report, err
}

// WriteReport writes a report about some recipients of a message (RFC 3464), ready to be filed or
// sent. The caller releases it. If the message's headers or addresses make a report impossible, it
// logs that and returns nil.
func (s *Service) WriteReport(m ReportedMessage, about ...msg.DSNRecipient) (*inbox.StoredMessage, error) {
	now := s.Now()
	from := s.Config.Hostname
	if m.Simulated {
		from = s.SimulatorDomain()
	}
	dsn := msg.DSN{
		ReportingMTA: s.Config.Hostname, From: msg.Address{Name: "Mail Delivery System", Mailbox: "mailer-daemon", Host: from},
		To: m.To, OriginalEnvelopeID: m.EnvelopeID, Recipients: about, Original: msg.Whole(m.Original),
		MessageID: msg.NewMessageID(s.Config.Hostname), Date: now, ArrivalDate: m.QueuedAt,
		Full: m.Full && about[0].Action == msg.ActionFailed && m.Original.Size() <= maxReturnedBytes,
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	_, err := dsn.WriteTo(spool)
	if errors.Is(err, msg.ErrHeader) || errors.Is(err, msg.ErrAddress) {
		s.Log.Error("the delivery report cannot be written", "message_id", m.ID, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("write delivery report about message: %w", err)
	}
	report, err := s.inbox.Prepare(spool, inbox.Envelope{To: []string{m.To}, Received: now})
	if err != nil {
		return nil, err
	}
	if m.Simulated {
		report.SPF, report.DKIM, report.DMARC, report.Proven = "pass", "pass", "pass", s.SimulatorDomain()
	}
	return report, nil
}

// SendReport delivers a report to the sender of sub. It files the report in the sending mailbox;
// for a forward, it mails it to ReportTo.
func (s *Service) SendReport(tx *store.Tx, sub *store.Submission, report *inbox.StoredMessage) error {
	if report == nil {
		return nil
	}
	if sub.Forward {
		return s.QueueReport(tx, sub.AccountID, sub.DomainID, sub.ReportTo, report)
	}
	mb, err := core.LiveMailbox(tx, sub.MailboxID)
	if mb == nil {
		return err
	}
	if mb.External != nil { // its server assigns the UIDs
		return s.queueCopy(tx, mb, store.RemoteCopy{MessageID: report.Summary.MessageID, Blob: report.Blob}, 0)
	}
	_, err = s.inbox.File(tx, mb, report, inbox.Filing{Folder: store.InboxID, Arrived: true})
	return err
}

// QueueReport queues a report to an outside address, from a domain of an account.
func (s *Service) QueueReport(tx *store.Tx, accountID, domainID, to string, report *inbox.StoredMessage) error {
	d, err := store.Domains.Get(tx, domainID)
	if core.IsGone(err) || err == nil && d.Gone() {
		return nil
	}
	if err != nil {
		return err
	}
	if a, err := store.Accounts.Read(tx, accountID); err != nil || a.Gone() {
		return err
	}
	return s.SendSystemMail(tx, SystemMail{StoredMessage: report, AccountID: accountID, From: d, To: []Rcpt{{Address: to}}, Kind: reputation.AutomaticNotice})
}
