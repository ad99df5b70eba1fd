package mta

import (
	"cmp"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// Feedback is what others say about mail that left here: bounces and complaints, as mail or as a
// relay's notice. It counts only if it proves which message it is about, since it keeps mail from
// an address: by a return path of ours, by our DKIM signature over what is returned, or by the
// relay's own signature. What proves nothing is mail like any other.

// readReport finds out what a message that was read says about one of ours, and what proves that.
// What comes from the null sender to a return path of ours is a report in whatever form.
func (s *Service) readReport(d *inbox.StoredMessage, body io.ReaderAt, sender string, to []string) error {
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
		id := s.bouncedRow(address)
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
		t.RowID = s.bouncedRow(path)
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
		if core.IsGone(err) || err == nil && tx.Now().Sub(row.Began()) > bouncesFor {
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
		return s.recordComplaint(tx, row, complaint{kind: c.FeedbackType, agent: c.UserAgent, arrived: c.ArrivalDate})
	}
	if f := failureIn(report.DSN, row.Recipient); f != nil {
		return s.recordBounce(tx, row, *f)
	}
	return nil
}

// failureIn is the failure that a report tells of; nil: none. It is about the recipient of its row,
// whatever that was turned into on the way.
func failureIn(report *msg.Report, recipient string) *failure {
	r := report.About(recipient)
	if r.Action != msg.ActionFailed {
		return nil
	}
	return &failure{Status: r.Status, diagnostic: r.Diagnostic, host: r.RemoteMTA, Address: addressFault(r.Status) || deniedAddress(r), reported: true}
}

// A failure is why a message was given up.
type failure struct {
	kind       string // hard soft undetermined; "": as the status says
	subtype    string // "": as the status says
	Status     string // RFC 3463
	diagnostic string
	host       string // that refused it
	tried      string // that was asked in our own attempt; "": the failure is told by a report
	Address    bool   // the address is at fault: nothing more is to go there
	reported   bool   // by a report or a relay's notice
}

func failureOf(r deliver.Result) failure {
	return failure{Status: r.Enhanced, diagnostic: r.Reply, host: r.AnsweredBy(), tried: r.Host, Address: r.RecipientFault}
}

// sameAddress compares an address as others write it with one in its one form.
func sameAddress(theirs, ours string) bool {
	email, err := msg.NormalizeEmail(strings.Trim(theirs, "<> "))
	return err == nil && email == ours
}

// addressFault tells whether a status says that an address is not there, or is not used any more
// (RFC 3463).
func addressFault(status string) bool {
	return status == "5.2.1" || strings.HasPrefix(status, "5.1.") && !senderFault(status)
}

// senderFault tells whether a status is about the sender's address, whatever words go with it
// (RFC 3463 section 3.2).
func senderFault(status string) bool { return status == "5.1.7" || status == "5.1.8" }

// deniedAddress tells whether a report has Exchange Online's way to say that there is no such user.
func deniedAddress(r *msg.ReportRecipient) bool {
	const denied = "5.4.1"
	return r.Status == denied && strings.Contains(strings.ToLower(r.Diagnostic), "recipient address rejected: access denied")
}

// handedOver tells whether a message has been handed to others, so that something may be heard of
// it.
func handedOver(row *store.Outgoing) bool {
	switch row.Status {
	case store.OutgoingSent, store.OutgoingRelayed, store.OutgoingBounced, store.OutgoingComplained:
		return true
	}
	return false
}

// recordBounce notes that a message which others had taken was given up by them; once.
func (s *Service) recordBounce(tx *store.Tx, row *store.Outgoing, f failure) error {
	if !handedOver(row) || row.Status == store.OutgoingBounced || !row.BouncedAt.IsZero() {
		return nil
	}
	row.LastResponse, row.UpdatedAt = cmp.Or(f.diagnostic, row.LastResponse), tx.Now()
	if row.Status != store.OutgoingComplained {
		row.Status = store.OutgoingBounced
	}
	if err := s.emitBounce(tx, row, f); err != nil {
		return err
	}
	return store.Outgoings.Put(tx, row)
}

// A complaint is what a recipient's mail system said when the recipient called a message spam.
type complaint struct {
	kind, agent string
	arrived     time.Time // when the message came there; zero: unknown
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

// recordComplaint notes that a message's recipient called it spam, and keeps further mail from
// there; once.
func (s *Service) recordComplaint(tx *store.Tx, row *store.Outgoing, g complaint) error {
	if !handedOver(row) || row.Status == store.OutgoingComplained {
		return nil
	}
	row.Status, row.ComplainedAt, row.UpdatedAt = store.OutgoingComplained, tx.Now(), tx.Now()
	if err := store.Outgoings.Put(tx, row); err != nil {
		return err
	}
	if row.Transport != store.OutgoingTransportSimulator { // which counts for nothing
		if !ownMail(row) {
			if err := suppress(tx, row.AccountID, row.Recipient, "complaint", row.MessageID); err != nil {
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
		Recipient: row.Recipient, Sender: row.Sender, SendingDomain: row.Domain, FeedbackType: cmp.Or(g.kind, "abuse"), UserAgent: core.OrNull(g.agent),
		Provider: core.OrNull(row.Provider), OriginalMessageID: row.MessageID, ProviderMessageID: core.OrNull(row.ProviderMessageID),
		ArrivalDate: core.Time{Time: g.arrived}, ComplainedAt: core.Time{Time: row.ComplainedAt},
		Tags: tagsOut(row.Tags),
	})
	return err
}

// errStillDelivering says that something is heard of a message whose own delivery is not noted yet,
// or is still tried: whoever tells is to come again.
func errStillDelivering() *core.SMTPError {
	return core.SMTPErrorf(451, "4.2.1", "The message is still being delivered. Try again later.")
}

// routeReport does what follows from what a message says about one of ours. For a message to an
// address of a row it tells whether that is all, or the message is to be delivered too: reports
// are, and whatever a person wrote.
func (s *Service) routeReport(tx *store.Tx, a arrival) (done bool, err error) {
	report, row := a.stored.Report, a.to.row
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
	if err := a.to.takesReport(tx, a.stored); err != nil {
		return false, err
	}
	switch {
	case a.to.rowKind == unsubscribeAddress:
		if a.sender == "" {
			return true, nil // a machine's answer
		}
		return true, suppress(tx, row.AccountID, row.Recipient, "manual", row.MessageID)
	case report == nil:
		return false, nil
	case report.Complaint != nil:
		return true, s.applyReport(tx, row, report)
	}
	err = s.applyReport(tx, row, report)
	return !wantsReport(row.Notify, "FAILURE") || !a.to.hasRoom(tx, a.stored), err
}

// takesReport says why what came to an address of a row is not taken, as an SMTPError: a report on
// what is still tried, or a person's message where there is no mailbox for it.
func (d *destination) takesReport(tx *store.Tx, m *inbox.StoredMessage) error {
	switch {
	case d.row == nil || d.rowKind == unsubscribeAddress:
		return nil
	case m.Report != nil && d.row.Waits():
		return errStillDelivering()
	case m.Report != nil:
		return nil
	case d.Mailbox == nil:
		return core.SMTPErrorf(550, "5.1.1", "User unknown")
	}
	if err := accepting(d.Mailbox); err != nil {
		return err
	}
	if !d.hasRoom(tx, m) {
		return core.SMTPErrorf(452, "4.2.2", "Mailbox full")
	}
	return nil
}

// hasRoom tells whether there is a mailbox that a message fits in.
func (d *destination) hasRoom(tx *store.Tx, m *inbox.StoredMessage) bool {
	if d.Mailbox == nil {
		return false
	}
	left, err := inbox.QuotaLeft(tx, d.Mailbox)
	return err == nil && (left < 0 || left >= int64(m.Blob.Length))
}

// suppress keeps the account from sending to an address. One that is suppressed already stays as it
// is.
func suppress(tx *store.Tx, accountID, email, reason, messageID string) error {
	if known, err := core.IsSuppressed(tx, accountID, email); known || err != nil {
		return err
	}
	return store.Suppressions.Put(tx, &store.Suppression{AccountID: accountID, Email: email, Reason: reason, MessageID: messageID, CreatedAt: tx.Now()})
}

// A Suppression is an address that the account does not send to.
type Suppression struct {
	Email     string    `json:"email" words:"theirs"`
	Reason    string    `json:"reason" enum:"bounce|complaint|manual"`
	MessageID *string   `json:"message_id" words:"theirs"` // The Message-ID header of the message that led to it, with brackets; null if none did.
	CreatedAt core.Time `json:"created_at"`
}

func suppressionOut(r *store.Suppression) Suppression {
	return Suppression{r.Email, r.Reason, core.OrNull(r.MessageID), core.Time{Time: r.CreatedAt}}
}

// ListSuppressionsIn is the query of list_suppressions.
type ListSuppressionsIn struct {
	core.PageIn
	Reason string `query:"reason" enum:"bounce|complaint|manual|"`
}

// ListSuppressions lists the account's suppressed addresses, newest first.
func (s *Service) ListSuppressions(_ context.Context, who core.Actor, in ListSuppressionsIn) (*core.Page[Suppression], error) {
	l := core.Listing[store.Suppression, Suppression]{
		Operation: "suppressions", Index: store.SuppressionsByAccount, Prefix: who.AccountID, Filters: []string{in.Reason},
		Prefilter: core.HasTexts(in.Reason),
		Keep:      func(r *store.Suppression) bool { return in.Reason == "" || r.Reason == in.Reason },
		Out:       func(_ *store.Tx, r *store.Suppression) (Suppression, error) { return suppressionOut(r), nil },
	}
	return l.Page(s.Core, who, in.PageIn)
}

func suppressionTarget(email string) store.AuditTarget {
	return store.AuditTarget{Type: "suppression", ID: email, Name: email}
}

// CreateSuppressionIn is the body of create_suppression.
type CreateSuppressionIn struct {
	Email string `json:"email" required:"true" max:"254"`
}

// CreateSuppression keeps the account from sending to an address. For one that is suppressed
// already it answers that.
func (s *Service) CreateSuppression(_ context.Context, who core.Actor, in CreateSuppressionIn) (*Suppression, error) {
	email, err := core.NormalizeEmail("email", in.Email)
	if err != nil {
		return nil, err
	}
	var out Suppression
	err = s.Store.Update(func(tx *store.Tx) error {
		known, err := core.IsSuppressed(tx, who.AccountID, email)
		if err == nil && !known {
			err = errors.Join(suppress(tx, who.AccountID, email, "manual", ""), core.Audit(tx, who, suppressionTarget(email)))
		}
		if err != nil {
			return err
		}
		r, err := store.Suppressions.Get(tx, who.AccountID+email)
		if err != nil {
			return err
		}
		out = suppressionOut(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// DeleteSuppressionIn names one address.
type DeleteSuppressionIn struct {
	Email string `path:"email"`
}

// SuppressionDeleted says that an address may get mail again.
type SuppressionDeleted struct {
	Email   string `json:"email" words:"ours"`
	Deleted bool   `json:"deleted"`
	Message string `json:"message" words:"ours" example:"The address gets mail again."` // For people; the text may change.
}

// DeleteSuppression lets the account send to an address again.
func (s *Service) DeleteSuppression(_ context.Context, who core.Actor, in DeleteSuppressionIn) (*SuppressionDeleted, error) {
	email, err := core.NormalizeEmail("email", in.Email)
	if err != nil {
		return nil, core.NotFound("suppressed address")
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		_, err := store.Suppressions.Get(tx, who.AccountID+email)
		if errors.Is(err, store.ErrNotFound) {
			return core.NotFound("suppressed address")
		}
		if err != nil {
			return err
		}
		return errors.Join(store.Suppressions.Delete(tx, who.AccountID+email), core.Audit(tx, who, suppressionTarget(email)))
	})
	if err != nil {
		return nil, err
	}
	return &SuppressionDeleted{email, true, email + " can get mail from this account again."}, nil
}

// unsubscribePath is where the links lead.
const unsubscribePath = "/unsubscribe/"

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
	if address := s.rowAddress(unsubscribeAddress, m.row); address != "" {
		way = "<mailto:" + address + "?subject=unsubscribe>"
	}
	if !strings.HasPrefix(s.Config.BaseURL, "https://") {
		if way == "" {
			return nil
		}
		return fmt.Appendf(nil, "List-Unsubscribe: %s\r\n", way)
	}
	link := "<" + s.Config.BaseURL + unsubscribePath + s.unsubscribeToken(d, m.row.Recipient) + ">"
	if way != "" {
		link += ",\r\n " + way
	}
	return fmt.Appendf(nil, "List-Unsubscribe: %s\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n", link)
}

// unsubscribeToken names a recipient and a domain that writes to it. It holds for as long as the
// domain is the account's, since people leave when they will.
func (s *Service) unsubscribeToken(d *store.Domain, recipient string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(d.Name + "\n" + recipient))
	return text + "." + base64.RawURLEncoding.EncodeToString(s.Keys.Mac("unsubscribe", d.AccountID, d.Name, recipient)[:unsubscribeMAC])
}

const unsubscribeMAC = 16 // bytes of the HMAC in a link

// An Unsubscription is what a link says: who wants no more mail from whom.
type Unsubscription struct {
	Email  string
	Domain string
}

// CheckUnsubscribe reads the token of a link. A wrong one is a 404.
func (s *Service) CheckUnsubscribe(_ context.Context, token string) (*Unsubscription, error) {
	var out *Unsubscription
	err := s.Store.View(func(tx *store.Tx) error {
		_, u, err := s.readUnsubscribe(tx, token)
		out = u
		return err
	})
	return out, err
}

func (s *Service) readUnsubscribe(tx *store.Tx, token string) (*store.Domain, *Unsubscription, error) {
	wrong := core.Errorf("not_found", "This link is not valid, or its sender no longer exists. There is nothing to do.")
	text, mac, _ := strings.Cut(token, ".")
	names, err := base64.RawURLEncoding.DecodeString(text)
	domain, recipient, ok := strings.Cut(string(names), "\n")
	if err != nil || !ok || len(token) > 1024 {
		return nil, nil, wrong
	}
	d, err := store.DomainByName.Get(tx, domain)
	if core.IsGone(err) {
		return nil, nil, wrong
	}
	if err != nil {
		return nil, nil, err
	}
	got, err := base64.RawURLEncoding.DecodeString(mac)
	same := func(mac []byte) bool { return hmac.Equal(got, mac[:unsubscribeMAC]) }
	if err != nil || !s.Keys.MadeMac(same, "unsubscribe", d.AccountID, d.Name, recipient) {
		return nil, nil, wrong
	}
	if _, err := msg.NormalizeEmail(recipient); err != nil {
		return nil, nil, wrong
	}
	return d, &Unsubscription{recipient, domain}, nil
}

// Unsubscribe keeps the account of a link's domain from writing to its recipient again. Again it
// changes nothing.
func (s *Service) Unsubscribe(_ context.Context, token string) (*Unsubscription, error) {
	var out *Unsubscription
	err := s.Store.Update(func(tx *store.Tx) error {
		d, u, err := s.readUnsubscribe(tx, token)
		if err != nil {
			return err
		}
		out = u
		return suppress(tx, d.AccountID, u.Email, "manual", "")
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
