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

// Feedback is what others say about mail that left here: bounces and complaints, as mail or as a
// relay's notice. It counts only if it proves which message it is about, since it keeps mail from
// an address: by a return path of ours, by our DKIM signature over what is returned, or by the
// relay's own signature. What proves nothing is mail like any other.

// ReadReport finds out what a message that was read says about one of ours, and what proves that.
// What comes from the null sender to a return path of ours is a report in whatever form.
func (s *Service) ReadReport(d *inbox.StoredMessage, body io.ReaderAt, sender string, to []string) error {
	if sender == "" {
		about, err := s.returnedFrom(to)
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

// returnedFrom is whom the message was for whose return path is among the addresses; "" if none is.
func (s *Service) returnedFrom(addresses []string) (recipient string, err error) {
	for _, address := range addresses {
		id := s.recipients.BouncedRow(address)
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

// readProof finds out which message of ours a report or complaint proves to be about.
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
		t.RowID = s.recipients.BouncedRow(path)
		if t.RowID != "" {
			return nil
		}
	}
	return s.readSigned(t, returned)
}

// readSigned looks for a signature of ours over a header that names the message. One of a domain
// that is gone, or whose key has changed since, proves nothing.
func (s *Service) readSigned(t *inbox.DeliveryReport, returned []byte) error {
	ids := msg.FieldValues(returned, "Message-ID")
	if len(ids) != 1 {
		return nil
	}
	var failed error
	signatures := auth.VerifyHeader(returned, func(domain, selector string) (string, bool) {
		record, err := s.ownKey(domain, selector)
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

// ownKey is the DKIM record of a domain of ours; "" if it has no such key.
func (s *Service) ownKey(domain, selector string) (record string, err error) {
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

// provenRow is the row that a message proves to speak of, whatever address it came to; nil if it
// proves none.
func provenRow(tx *store.Tx, t *inbox.DeliveryReport) (*store.Outgoing, error) {
	if t.RowID != "" {
		row, err := store.Outgoings.Get(tx, t.RowID)
		if core.IsGone(err) || err == nil && tx.Now().Sub(row.Began()) > recipients.BouncesFor {
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
	// The signature says which message, and not which of its recipients: any of them could speak
	// for the others.
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

// applyReport notes in a row what a report or complaint says of its message.
func (s *Service) applyReport(tx *store.Tx, row *store.Outgoing, report *inbox.DeliveryReport) error {
	if c := report.Complaint; c != nil {
		if c.FeedbackType == "not-spam" || c.FeedbackType == "auth-failure" { // these say nothing against it (RFC 6430, RFC 6591)
			return nil
		}
		return s.outbound.RecordComplaint(tx, row, outbound.Complaint{Kind: c.FeedbackType, Agent: c.UserAgent, Arrived: c.ArrivalDate})
	}
	if f := failureIn(report.DSN, row.Recipient); f != nil {
		return s.outbound.RecordBounce(tx, row, *f)
	}
	return nil
}

// failureIn is the failure that a report tells of; nil: none. It is about the recipient of its row,
// whatever that was turned into on the way.
func failureIn(report *msg.Report, recipient string) *outbound.Failure {
	r := report.About(recipient)
	if r.Action != msg.ActionFailed {
		return nil
	}
	return &outbound.Failure{Status: r.Status, Diagnostic: r.Diagnostic, Host: r.RemoteMTA, Address: addressFault(r.Status) || deniedAddress(r), Reported: true}
}

// sameAddress compares an address as others write it with one in its one form.
func sameAddress(theirs, ours string) bool {
	email, err := msg.NormalizeEmail(strings.Trim(theirs, "<> "))
	return err == nil && email == ours
}

// addressFault reports whether a status says that an address is not there, or is not used any more
// (RFC 3463).
func addressFault(status string) bool {
	return status == "5.2.1" || strings.HasPrefix(status, "5.1.") && !outbound.SenderFault(status)
}

// deniedAddress reports whether a report has Exchange Online's way to say that there is no such
// user.
func deniedAddress(r *msg.ReportRecipient) bool {
	const denied = "5.4.1"
	return r.Status == denied && strings.Contains(strings.ToLower(r.Diagnostic), "recipient address rejected: access denied")
}

// errStillDelivering says that something is heard of a message whose own delivery is not noted yet,
// or is still tried: whoever tells is to come again.
func errStillDelivering() *core.SMTPError {
	return core.SMTPErrorf(451, "4.2.1", "The message is still being delivered. Try again later.")
}

// Apply does what follows from what a message says about one of ours. For a message to an
// address of a row it reports whether that is all, or the message is to be delivered too: reports
// are, and whatever a person wrote.
func (s *Service) Apply(tx *store.Tx, to *recipients.Destination, stored *inbox.StoredMessage, sender string) (done bool, err error) {
	report, row := stored.Report, to.Row
	if row == nil { // an ordinary address: the message must prove what it is about
		if report == nil {
			return false, nil
		}
		row, err := provenRow(tx, report)
		if row == nil || err != nil {
			return false, err
		}
		return false, s.applyReport(tx, row, report)
	}
	if err := Takes(tx, to, stored); err != nil {
		return false, err
	}
	switch {
	case to.RowKind == recipients.UnsubscribeAddress:
		if sender == "" {
			return true, nil // a machine's answer
		}
		return true, core.Suppress(tx, row.AccountID, row.Recipient, "manual", row.MessageID)
	case report == nil:
		return false, nil
	case report.Complaint != nil:
		return true, s.applyReport(tx, row, report)
	}
	err = s.applyReport(tx, row, report)
	return !outbound.WantsReport(row.Notify, "FAILURE") || !hasRoom(tx, to, stored), err
}

// Takes says why what came to an address of a row is not taken, as an SMTPError: a report on
// what is still tried, or a person's message where there is no mailbox for it.
func Takes(tx *store.Tx, d *recipients.Destination, m *inbox.StoredMessage) error {
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
	if err := recipients.Accepting(d.Mailbox); err != nil {
		return err
	}
	if !hasRoom(tx, d, m) {
		return core.SMTPErrorf(452, "4.2.2", "Mailbox full")
	}
	return nil
}

// hasRoom reports whether there is a mailbox that a message fits in.
func hasRoom(tx *store.Tx, d *recipients.Destination, m *inbox.StoredMessage) bool {
	if d.Mailbox == nil {
		return false
	}
	left, err := core.QuotaLeft(tx, d.Mailbox)
	return err == nil && (left < 0 || left >= int64(m.Blob.Length))
}
