package inbound

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/feedback"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

// Deliver prepares a queued message for a mailbox here. The transaction that ends the attempt files
// it, exactly once.
func (s *Service) Deliver(ctx context.Context, m outbound.LocalMail) (*outbound.Arrived, error) {
	sub, recipient, content := m.Submission, m.Row.Recipient, m.Content
	if s.Settings().Spam.Milter != nil && !sub.Forward {
		clean, err := s.WithoutFields(content, filterFields)
		if err != nil {
			return nil, err
		}
		if clean != nil {
			defer clean.Close()
			content = msg.Whole(clean)
		}
	}

	// Remove Authentication-Results fields that claim to be ours. Those in a forward are ours:
	// false ones were removed when it arrived here.
	spool := s.Store.NewSpool(content.Size())
	defer spool.Close()
	var err error
	if sub.Forward {
		_, err = buffers.Copy(spool, content)
	} else {
		err = auth.StripResults(spool, content, s.Hostname())
	}
	if err != nil {
		return nil, fmt.Errorf("copy message: %w", err)
	}
	passed, err := readHead(spool)
	if err != nil {
		return nil, err
	}
	if passed.checkLoop(m.To, recipient) != nil {
		return &outbound.Arrived{Refusal: core.SMTPErrorf(554, "5.4.6", "Mail loop")}, nil
	}

	// Store it with the fields that a final delivery adds.
	spool.Prepend(m.Head)
	spool.Prepend(fmt.Appendf(finalDeliveryFields(sub.Sender, recipient), "Received: by %s (Mailstead) id %s\r\n\tfor <%s>;\r\n\t%s\r\n",
		s.Hostname(), m.Row.ID, recipient, m.Now.Format(time.RFC1123Z)))
	stored, err := s.rooms.Inbox.Prepare(spool, inbox.Envelope{From: sub.Sender, To: []string{recipient}, Received: m.Now})
	if err != nil {
		return nil, err
	}
	out := &outbound.Arrived{Message: stored}
	killpoint.At("delivery.local")
	if err := s.rooms.Feedback.ReadReport(stored, spool, sub.Sender, []string{recipient}); err != nil {
		return out, err
	}
	if err := s.Store.View(func(tx *store.Tx) error { return feedback.CheckRowAddress(tx, m.To, stored) }); err != nil {
		if errors.As(err, &out.Refusal) {
			return out, nil
		}
		return out, err
	}
	stored.Genuine, stored.Authentic = !sub.Forward || sub.ReportTo != "", !sub.Forward
	if !sub.Forward { // the sender was authenticated here
		stored.SPF, stored.DKIM, stored.DMARC = "pass", "none", string(localDMARC(sub, passed))
		if len(m.Head) > 0 {
			stored.DKIM = "pass"
		}
	}
	if stored.DMARC == string(auth.Pass) {
		stored.Proven, err = s.ownAuthorDomain(sub, passed)
		if err != nil {
			return out, err
		}
	}

	// Run the classifier and the rules of the destination.
	decided, automatic, err := s.evaluateForRecipient(ctx, mailboxQuery{
		stored: stored, body: spool, sender: sub.Sender, to: m.To, address: recipient,
		ours: func(accountID string) bool { return !sub.Forward && (sub.AccountID == accountID || sub.Sender == "") },
	})
	if err != nil {
		return out, err
	}
	if len(automatic) > 0 {
		alone, err := s.isOnlyRecipient(sub, m.Row)
		if err != nil {
			return out, err
		}
		out.Refusal = decided.refusal(alone, automatic)
	}

	// When the message is filed, use the destination that the recipient has then.
	out.File = func(tx *store.Tx) error {
		to, err := s.rooms.Recipients.Receiver(tx, recipient)
		if err != nil {
			return err
		}
		stored.Origin = agents.OriginOf(to.Domain.AccountID, sub)
		if to.Group != nil {
			return s.fileLater(tx, &store.Arrival{
				Facts: stored.Facts, Blob: stored.Blob, Sender: sub.Sender, From: m.Row.Domain, SentBy: sendingMailbox(sub), To: []string{recipient}, ReceivedAt: tx.Now(),
				RequireTLS: sub.RequireTLS, Decisions: decided.encode(),
			})
		}
		return s.deliver(tx, arrival{
			stored: stored, to: to, address: recipient, sender: sub.Sender, read: true, from: m.Row.Domain, sentBy: sendingMailbox(sub), requireTLS: sub.RequireTLS, decisions: decided,
		})
	}
	return out, nil
}

// Answer prepares a message of the simulator for a mailbox here. The returned File queues a job
// that files it, and retries if the mailbox cannot take it now.
func (s *Service) Answer(ctx context.Context, m outbound.SimulatedMail) (*outbound.Arrived, error) {
	m.Body.Prepend(fmt.Appendf(finalDeliveryFields(m.From, m.To), "Received: by %s (Mailstead simulator) id %s;\r\n\t%s\r\n", s.Hostname(), m.RowID, m.Now.Format(time.RFC1123Z)))
	stored, err := s.rooms.Inbox.Prepare(m.Body, inbox.Envelope{From: m.From, To: []string{m.To}, Received: m.Now})
	if err != nil {
		return nil, err
	}
	out := &outbound.Arrived{Message: stored}
	stored.Facts = store.Facts{SPF: "pass", DKIM: "pass", DMARC: "pass", Genuine: true, Authentic: true, Proven: s.SimulatorDomain(), Origin: m.Origin} // we know who wrote it
	if err := s.rooms.Feedback.ReadReport(stored, m.Body, m.From, []string{m.To}); err != nil {
		return out, err
	}
	var to *recipients.Destination // nil if the recipient cannot take it now
	err = s.Store.View(func(tx *store.Tx) (err error) {
		to, err = s.rooms.Recipients.Resolve(tx, m.From, m.To, int64(stored.Blob.Length))
		return err
	})
	if refused := new(core.SMTPError); err != nil && !errors.As(err, &refused) {
		return out, err
	}
	var decided decisions
	if to != nil {
		var automatic []automation
		decided, automatic, err = s.evaluateForRecipient(ctx, mailboxQuery{
			stored: stored, body: m.Body, sender: m.From, to: to, address: m.To, ours: func(accountID string) bool { return accountID == m.AccountID },
		})
		if err != nil {
			return out, err
		}
		out.Refusal = decided.refusal(true, automatic)
	}
	out.File = func(tx *store.Tx) error {
		return s.fileLater(tx, &store.Arrival{
			Facts: stored.Facts, Blob: stored.Blob, Sender: m.From, From: s.SimulatorDomain(), To: []string{m.To}, ReceivedAt: tx.Now(), Decisions: decided.encode(),
		})
	}
	return out, nil
}

// ownAuthorDomain returns the domain of the author of a message that was submitted here, if it
// belongs to the sender's account; "" otherwise, and for mail without a sender, such as automatic
// replies.
func (s *Service) ownAuthorDomain(sub *store.Submission, h *head) (domain string, err error) {
	if sub.Sender == "" || len(h.authors) == 0 {
		return "", nil
	}
	domain = core.DomainOfAddress(h.authors[0])
	for _, email := range h.authors {
		if core.DomainOfAddress(email) != domain {
			return "", nil
		}
	}
	domain, err = msg.NormalizeDomain(domain)
	if err != nil {
		return "", nil // no domain that is hosted here
	}
	err = s.Store.View(func(tx *store.Tx) error {
		d, err := store.DomainByName.Read(tx, domain)
		if core.IsGone(err) || err == nil && d.AccountID != sub.AccountID {
			domain = ""
			return nil
		}
		return err
	})
	return domain, err
}

// localDMARC returns the DMARC result of a message that was sent here: pass if its authors are
// addresses of its sender. Submission checks that too, but older releases queued messages without
// the check. Mail without a sender was written by this server and passes.
func localDMARC(sub *store.Submission, h *head) auth.Result {
	if sub.Sender == "" {
		return auth.Pass
	}
	if h.authors == nil {
		return auth.PermError
	}
	local, domain, _ := msg.SplitEmail(sub.Sender)
	mailbox, _, _ := strings.Cut(local, "+")
	as := core.Senders{Addresses: []string{mailbox + "@" + domain}}
	for _, email := range h.authors {
		if _, err := as.OwnAddress(email); err != nil && !sub.Checked {
			return auth.Fail
		}
	}
	return auth.Pass
}

// sendingMailbox returns the ID of the mailbox here that wrote the message; "" for a forward or for
// mail without a sender.
func sendingMailbox(sub *store.Submission) string {
	if sub.Forward || sub.Sender == "" {
		return ""
	}
	return sub.MailboxID
}
