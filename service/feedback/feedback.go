package feedback

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

// Feedback is what others report about mail that was sent here: bounces and complaints, as mail or
// as a relay's notice. Since it can suppress addresses, it counts only with a proof of the message
// that it is about. A proof is a return path of ours, our DKIM signature over the returned header,
// or the relay's own signature. Feedback without proof is ordinary mail.

// ReadReport reads the bounce or complaint in a parsed message, and the proof of which message that
// was sent here it is about. It stores both in d.Report. A message from the null sender to a return
// path of ours counts as a report in any format.
func (s *Service) ReadReport(d *inbox.StoredMessage, body io.ReaderAt, sender string, to []string) error {
	if sender == "" {
		about, err := s.recipientOfReturnPath(to)
		if err != nil {
			return err
		}
		if about != "" {
			if report, ok := msg.ParseReturned(body, d.Root, about); ok {
				d.SetDSN(report)
			}
		}
	}
	return s.readProof(d.Report)
}

// recipientOfReturnPath returns the recipient of the message whose return path is among the
// addresses; "" if there is none.
func (s *Service) recipientOfReturnPath(addresses []string) (recipient string, err error) {
	for _, address := range addresses {
		id := s.recipients.BouncedRowID(address)
		if id == "" {
			continue
		}
		err := s.Store.View(func(tx *store.Tx) error {
			row, err := store.Outgoings.Get(tx, id)
			if err == nil {
				recipient = row.Recipient
			}
			return err
		})
		if err == nil || !core.IsGone(err) {
			return recipient, err
		}
	}
	return "", nil
}

// readProof finds the message that a report or complaint is about, if the report proves that this
// message was sent here. It stores the result in t.
func (s *Service) readProof(t *inbox.DeliveryReport) error {
	if t == nil {
		return nil
	}
	var returned []byte
	var paths []string
	if t.DSN != nil {
		returned = t.DSN.Returned
	} else {
		returned, paths = t.Complaint.Returned, []string{t.Complaint.MailFrom}
	}
	for _, path := range append(paths, msg.FieldValues(returned, "Return-Path")...) {
		t.RowID = s.recipients.BouncedRowID(path)
		if t.RowID != "" {
			return nil
		}
	}
	return s.readOwnSignature(t, returned)
}

// readOwnSignature looks for a valid DKIM signature of ours that covers the Message-ID in the
// returned header. It stores the domain and the Message-ID in t. A signature of a deleted domain,
// or by a key that has been replaced, proves nothing.
func (s *Service) readOwnSignature(t *inbox.DeliveryReport, returned []byte) error {
	ids := msg.FieldValues(returned, "Message-ID")
	if len(ids) != 1 {
		return nil
	}
	var failed error
	signatures := auth.VerifyHeader(returned, func(domain, selector string) (string, bool) {
		record, err := s.ownDKIMRecord(domain, selector)
		failed = cmp.Or(failed, err)
		return record, record != ""
	})
	for _, sig := range signatures {
		if slices.Contains(sig.Names, "message-id") {
			t.Domain, t.MessageID = sig.Domain, core.Bracketed(ids[0])
		}
	}
	return failed
}

// ownDKIMRecord returns the DKIM record of a domain hosted here; "" if it has no such key.
func (s *Service) ownDKIMRecord(domain, selector string) (record string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		d, err := store.DomainByName.Get(tx, domain)
		if core.IsGone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, k := range d.DKIM {
			if k.Selector == selector {
				record = k.Record
			}
		}
		return nil
	})
	return record, err
}

// provenRow returns the row that a report is proven to be about, whatever address the report was
// sent to; nil if nothing is proven.
func provenRow(tx *store.Tx, t *inbox.DeliveryReport) (*store.Outgoing, error) {
	if t.RowID != "" {
		row, err := store.Outgoings.Get(tx, t.RowID)
		if core.IsGone(err) || err == nil && tx.Now().Sub(row.Began()) > recipients.BouncesAcceptedFor {
			return nil, nil
		}
		return row, err
	}
	if t.MessageID == "" {
		return nil, nil
	}
	d, err := store.DomainByName.Get(tx, t.Domain)
	if core.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The signature proves the message but not the recipient: any recipient could report for the
	// others.
	var found []*store.Outgoing
	for _, row := range store.OutgoingsByMessageID.Asc(tx, d.AccountID+t.MessageID+"\x00", "") {
		found = append(found, row)
		if len(found) > 1 {
			return nil, nil
		}
	}
	if len(found) == 0 || found[0].Domain != d.Name {
		return nil, nil
	}
	return found[0], nil
}

// applyReport records in a row the bounce or complaint that a report contains.
func (s *Service) applyReport(tx *store.Tx, row *store.Outgoing, report *inbox.DeliveryReport) error {
	if c := report.Complaint; c != nil {
		if c.FeedbackType == "not-spam" || c.FeedbackType == "auth-failure" { // these are not complaints (RFC 6430, RFC 6591)
			return nil
		}
		return s.outbound.RecordComplaint(tx, row, outbound.Complaint{Kind: c.FeedbackType, Agent: c.UserAgent, Arrived: c.ArrivalDate})
	}
	if f := reportedFailure(report.DSN, row.Recipient); f != nil {
		return s.outbound.RecordBounce(tx, row, *f)
	}
	return nil
}

// reportedFailure returns the failure that a report announces for the recipient of a row; nil if it
// announces none. The address in the report may differ, since it may have been rewritten on the
// way.
func reportedFailure(report *msg.Report, recipient string) *outbound.Failure {
	r := report.ForRecipient(recipient)
	if r.Action != msg.ActionFailed {
		return nil
	}
	return &outbound.Failure{Status: r.Status, Diagnostic: r.Diagnostic, Host: r.RemoteMTA, Address: isAddressFault(r.Status) || isExchangeUnknownUser(r), Reported: true}
}

// sameAddress compares an address as others write it with a normalized one.
func sameAddress(theirs, ours string) bool {
	email, err := msg.NormalizeEmail(strings.Trim(theirs, "<> "))
	return err == nil && email == ours
}

// isAddressFault reports whether a status says that an address does not exist or is disabled (RFC
// 3463).
func isAddressFault(status string) bool {
	return status == "5.2.1" || strings.HasPrefix(status, "5.1.") && !outbound.SenderFault(status)
}

// isExchangeUnknownUser reports whether a report has Exchange Online's text for an unknown user.
func isExchangeUnknownUser(r *msg.ReportRecipient) bool {
	const denied = "5.4.1"
	return r.Status == denied && strings.Contains(strings.ToLower(r.Diagnostic), "recipient address rejected: access denied")
}

// errStillDelivering returns the error that asks the sender of a report to send it again later: the
// message is still being delivered, or the result is not recorded yet.
func errStillDelivering() *core.SMTPError {
	return core.SMTPErrorf(451, "4.2.1", "The message is still being delivered. Try again later.")
}

// Apply records the bounce or complaint in an arriving message, if it proves which sent message it
// is about. If done is false, the message must also be delivered. A message to the address of a row
// of the sending log, such as its return path, is delivered in two cases: it is a report that the
// row's sender asked for, or a person wrote it.
func (s *Service) Apply(tx *store.Tx, to *recipients.Destination, stored *inbox.StoredMessage, sender string) (done bool, err error) {
	report, row := stored.Report, to.Row
	if row == nil { // an ordinary address: the message must prove which sent message it is about
		if report == nil {
			return false, nil
		}
		row, err := provenRow(tx, report)
		if row == nil || err != nil {
			return false, err
		}
		return false, s.applyReport(tx, row, report)
	}
	if err := CheckRowAddress(tx, to, stored); err != nil {
		return false, err
	}
	switch {
	case to.RowKind == recipients.UnsubscribeAddress:
		if sender == "" {
			return true, nil // an automatic reply
		}
		return true, core.Suppress(tx, row.AccountID, row.Recipient, "manual", row.MessageID)
	case report == nil:
		return false, nil
	case report.Complaint != nil:
		return true, s.applyReport(tx, row, report)
	}
	err = s.applyReport(tx, row, report)
	return !outbound.WantsReport(row.Notify, "FAILURE") || !fitsMailbox(tx, to, stored), err
}

// CheckRowAddress returns an SMTPError if a message to the address of a row of the sending log must
// be refused: it reports on a message that is still being delivered, or a person wrote it and no
// mailbox can take it.
func CheckRowAddress(tx *store.Tx, d *recipients.Destination, m *inbox.StoredMessage) error {
	switch {
	case d.Row == nil || d.RowKind == recipients.UnsubscribeAddress:
		return nil
	case m.Report != nil && d.Row.Waits():
		return errStillDelivering()
	case m.Report != nil:
		return nil
	case d.Mailbox == nil:
		return core.SMTPErrorf(550, "5.1.1", "User unknown")
	}
	if err := recipients.CheckAccepting(d.Mailbox); err != nil {
		return err
	}
	if !fitsMailbox(tx, d, m) {
		return core.SMTPErrorf(452, "4.2.2", "Mailbox full")
	}
	return nil
}

// fitsMailbox reports whether the destination is a mailbox whose quota allows the message.
func fitsMailbox(tx *store.Tx, d *recipients.Destination, m *inbox.StoredMessage) bool {
	if d.Mailbox == nil {
		return false
	}
	left, err := core.QuotaLeft(tx, d.Mailbox)
	return err == nil && (left < 0 || left >= int64(m.Blob.Length))
}
