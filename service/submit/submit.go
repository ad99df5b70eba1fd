package submit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// Limits of one submission.
const (
	maxRecipients    = 1000
	maxAPIRecipients = 50
)

// A Submission is a message to send, with its envelope.
type Submission struct {
	From       string // envelope sender
	To         []outbound.Rcpt
	Body       *store.Spool // as the client sent it; the caller closes it
	Trace      []byte       // complete header fields that go on top, such as Received
	EnvelopeID string       // ENVID, decoded
	Ret        string       // FULL, HDRS or ""
	SMTPUTF8   bool         // the header may be sent in UTF-8; otherwise it is encoded
	RequireTLS bool         // RFC 8689
	SendAt     time.Time    // zero: at once
	Tags       []store.Tag
}

// MaySendTo adds a recipient to the envelope if the mailbox may send to it. If not, the error is an
// SMTPError: 550 5.1.1 for an unknown address here, 550 5.7.1 for an address that accepts only
// reports, 452 4.5.3 above a daily limit. Other reasons are reported to the sender later.
func (s *Service) MaySendTo(_ context.Context, u core.MailboxUser, e *reputation.Envelope, address string) error {
	email, err := msg.NormalizeEmail(address)
	if err != nil {
		return core.SMTPErrorf(553, "5.1.3", "Invalid recipient address")
	}
	err = s.Store.View(func(tx *store.Tx) error {
		mb, d, err := senderOf(tx, u)
		if err != nil {
			return err
		}
		r, err := s.rooms.Outbound.RouteOf(tx, d, &store.Outgoing{MailboxID: u.MailboxID, Recipient: email})
		if err != nil {
			return err
		}
		if r.Transport == core.ViaLocal {
			to, err := s.rooms.Recipients.Receiver(tx, email)
			refused := new(core.SMTPError)
			later := errors.As(err, &refused) && refused.Enhanced != "5.1.1"
			if err == nil {
				err = to.CheckSender(u.Email)
			}
			if err != nil && !later {
				return err
			}
		}
		if r.Transport == core.ViaSimulator {
			return outbound.CheckSimulated(email)
		}
		suppressed, err := core.IsSuppressed(tx, u.AccountID, email)
		if err != nil || suppressed {
			return err
		}
		return s.rooms.Limits.MayAdd(tx, mb, d, e, email)
	})
	if err != nil {
		err = s.notifyLimit(u, err)
	}
	return core.StoreErrorOverSMTP(err)
}

// notifyLimit notifies the owner of the account if refused says that a daily limit is reached. It
// returns refused.
func (s *Service) notifyLimit(u core.MailboxUser, refused error) error {
	if err := s.rooms.Limits.NotifyLimit(u, refused); err != nil {
		s.Log.Error("notify about a sending limit", "sender", u.Email, "error", err)
	}
	return refused
}

// MaySend checks whether a mailbox may send now. If not, the error is an SMTPError: 452 4.7.1 if
// sending is paused, 550 5.7.1 if a sending policy denies all sending.
func (s *Service) MaySend(_ context.Context, u core.MailboxUser) error {
	return core.StoreErrorOverSMTP(s.Store.View(func(tx *store.Tx) error {
		mb, d, err := senderOf(tx, u)
		if err != nil {
			return err
		}
		if err := checkSendDenied(mb, u); err != nil {
			return err
		}
		return reputation.PausedError(mb, d)
	}))
}

// senderOf returns the mailbox and the domain of a login; a login for a domain has no mailbox,
// which is then nil. Both are shared and must not be changed.
func senderOf(tx *store.Tx, u core.MailboxUser) (*store.Mailbox, *store.Domain, error) {
	if u.MailboxID == "" {
		d, err := core.OpenDomain(tx, u)
		return nil, d, err
	}
	mb, err := core.ReadMailbox(tx, core.Actor{AccountID: u.AccountID}, u.MailboxID)
	if err != nil {
		return nil, nil, err
	}
	d, err := store.Domains.Read(tx, mb.DomainID)
	return mb, d, err
}

// Submitted is the result of an accepted submission.
type Submitted struct {
	ID         string
	MessageID  string // with brackets
	ApprovalID string // the approval that it waits for; "" if it needs none
	QueuedAt   time.Time
	Recipients []SubmittedRcpt

	origin string // origin of the Sent copy, see store.Facts
}

// A SubmittedRcpt is one recipient of an accepted submission.
type SubmittedRcpt struct {
	ID        string // ID of the recipient's row in the sending log
	Email     string
	Status    string // queued, scheduled, suppressed, held
	Transport string // direct, relay, local, capture, simulator
}

// Submit accepts a message from a login and queues it, with one job for each recipient. When it
// returns nil, message and jobs are on disk. Errors are SMTPErrors that wrap the API's Error: 550
// 5.7.1 if the author or sender is not one of the login's addresses, 550 5.6.0 if programs would
// read the author differently, 452 4.5.3 above 1 000 recipients and above a daily limit, 552 5.3.4
// if the message is too large.
func (s *Service) Submit(ctx context.Context, u core.MailboxUser, in Submission) (*Submitted, error) {
	if len(in.To) > maxRecipients {
		return nil, core.SMTPErrorf(452, "4.5.3", "A message can have at most %d recipients.", maxRecipients)
	}
	if in.Body.Size() > core.MaxMessage {
		return nil, core.MessageTooLarge(nil)
	}
	as, err := s.sendersOf(u)
	if err != nil {
		return nil, err
	}
	l, err := s.checkSubmission(as, sentByLogin(u), in)
	if err != nil {
		return nil, err
	}
	defer l.body.Close()
	envelope, err := json.Marshal(inbox.Envelope{From: l.Sender, To: l.addresses(), Received: s.Now(), Outgoing: true})
	if err != nil {
		return nil, fmt.Errorf("encode envelope: %w", err)
	}
	killpoint.At("submit.append")
	l.Blob, err = s.Store.Append(envelope, l.body)
	if err != nil {
		return nil, err
	}
	var out *Submitted
	err = s.withDecision(ctx, u, l, func(tx *store.Tx, r decision) error {
		out, err = s.queueOrHold(tx, u, l, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.logAccepted(ctx, l, u.MailboxID, out)
	return out, nil
}

// sendersOf returns the addresses that a login may send as.
func (s *Service) sendersOf(u core.MailboxUser) (as core.Senders, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		mb, d, err := senderOf(tx, u)
		if err == nil && mb == nil {
			as.Domain = d.Name
		} else if err == nil {
			as, err = core.SendersOf(tx, mb)
		}
		return err
	})
	return as, err
}

// A checkedSubmission is a message that is ready to be sent: validated, complete and with CRLF line
// ends. Its account, mailbox and domain are set when it is accepted.
type checkedSubmission struct {
	store.Submission
	authors   []string // addresses in From
	to        []outbound.Rcpt
	body      *store.Spool
	by        senderInfo
	foreign   bool   // it may contain the words of somebody else
	rewritten bool   // rewriteIfTainted has rewritten it
	blind     string // blind copy recipients, kept for a Sent copy that is filed later
}

func (l *checkedSubmission) addresses() []string {
	out := make([]string, 0, len(l.to))
	for _, r := range l.to {
		out = append(out, r.Address)
	}
	return out
}

// checkSubmission validates sender and recipients, and writes the message as it will be sent.
func (s *Service) checkSubmission(as core.Senders, by senderInfo, in Submission) (*checkedSubmission, error) {
	rewritten, err := s.rewriteIfTainted(by, in.Body)
	if err != nil {
		return nil, err
	}
	l := &checkedSubmission{by: by, Submission: store.Submission{
		EnvelopeID: in.EnvelopeID, Ret: in.Ret, SMTPUTF8: in.SMTPUTF8, RequireTLS: in.RequireTLS, SendAt: in.SendAt, Tags: in.Tags, RequestID: by.requestID,
	}}
	if rewritten != nil {
		defer rewritten.Close()
		in.Body, l.rewritten = rewritten, true
	}
	l.Sender, err = as.OwnAddress(in.From)
	if err != nil {
		return nil, err
	}

	// Keep each recipient once, with the options of its first occurrence.
	seen := make(map[string]bool, len(in.To))
	for _, r := range in.To {
		email, err := msg.NormalizeEmail(r.Address)
		if err != nil {
			return nil, core.OverSMTP(553, "5.1.3", core.Invalid("to", "invalid", "%s", err))
		}
		if !seen[email] {
			seen[email] = true
			l.to = append(l.to, outbound.Rcpt{Address: email, Notify: strings.ToUpper(r.Notify), ORCPT: r.ORCPT})
		}
	}
	if len(l.to) == 0 {
		return nil, core.OverSMTP(554, "5.5.1", core.Invalid("to", "required", "must name at least one recipient"))
	}

	root, err := msg.ScanHeader(in.Body)
	if err != nil {
		return nil, err
	}
	if root.BodyOffset >= msg.MaxHeader {
		return nil, core.SMTPErrorf(554, "5.6.0", "The message's header is longer than %d bytes.", msg.MaxHeader)
	}
	header, err := s.completeHeader(in, root, as)
	if err != nil {
		return nil, err
	}
	l.MessageID, l.Subject, l.Starts, l.TLSOptional = header.messageID, root.Envelope.Subject, header.startsThread, header.tlsOptional
	l.authors = header.authors
	if err := s.writeMessage(l, header.text, io.NewSectionReader(in.Body, root.BodyOffset, in.Body.Size()-root.BodyOffset)); err != nil {
		return nil, err
	}
	if err := checkEncoded(as, l, header); err != nil {
		_ = l.body.Close()
		return nil, err
	}
	return l, nil
}

// checkEncoded returns an error unless a header still has the same authors after it was encoded.
func checkEncoded(as core.Senders, l *checkedSubmission, before header) error {
	if l.SMTPUTF8 || !slices.ContainsFunc(before.text, func(b byte) bool { return b >= 0x80 }) {
		return nil
	}
	root, err := msg.ScanHeader(l.body)
	if err != nil {
		return err
	}
	text, err := msg.HeaderFields(l.body, root, nil, true)
	if err != nil {
		return fmt.Errorf("parse message: %w", err)
	}
	authors, err := ownAuthors(as, text)
	if err == nil && !slices.Equal(authors, before.authors) {
		err = core.OverSMTP(550, "5.6.0", core.Invalid("from", "invalid", "the From field cannot be encoded without SMTPUTF8"))
	}
	return err
}

// privateFields are removed from every message: blind copies, and Return-Path, which only a final
// delivery writes.
var privateFields = []string{"Bcc", "Resent-Bcc", "Return-Path"}

// A header is the header of a message as it will be sent, with what submission needs to know from
// it.
type header struct {
	text         []byte
	messageID    string
	authors      []string // in From, normalized
	startsThread bool     // it starts a thread: it is not a reply, not automatic, and has no List-Unsubscribe of its own

	tlsOptional bool // TLS-Required: No (RFC 8689 section 5)
}

// completeHeader checks the author and returns the header with the fields that RFC 5322 and RFC
// 6409 section 8 require.
func (s *Service) completeHeader(in Submission, root *msg.Part, as core.Senders) (header, error) {
	fields, err := msg.Headers(in.Body, root)
	if err != nil {
		return header{}, err
	}
	count := map[string]int{}
	h := header{text: bytes.Clone(in.Trace), messageID: root.Envelope.MessageID}
	for _, f := range fields {
		name := strings.ToLower(f.Name)
		count[name]++
		h.tlsOptional = h.tlsOptional || name == "tls-required" && strings.EqualFold(strings.TrimSpace(f.Value), "no")
	}
	h.startsThread = count["in-reply-to"]+count["references"]+count["auto-submitted"]+count["list-unsubscribe"] == 0
	if h.messageID == "" {
		h.messageID = msg.NewMessageID(core.DomainOfAddress(in.From))
		h.text = append(h.text, "Message-ID: "+h.messageID+"\r\n"...)
	}
	if count["date"] == 0 {
		h.text = append(h.text, "Date: "+s.Now().Format(time.RFC1123Z)+"\r\n"...)
	}
	drop := privateFields
	if root.Envelope.MessageID == "" {
		drop = append([]string{"Message-ID"}, drop...) // the field is there but has no ID
	}
	kept, err := msg.HeaderFields(in.Body, root, drop, true)
	if err != nil {
		return header{}, err
	}
	text := bytes.NewBuffer(h.text)
	if _, err = msg.StripFields(text, bytes.NewReader(kept), s.rooms.Outbound.ControlFields()); err != nil {
		return header{}, err
	}
	h.text = text.Bytes()
	h.authors, err = ownAuthors(as, h.text)
	return h, err
}

// ownAuthors returns the authors that mail programs will see in a header once it is sent. It
// returns an error if From, Sender, Resent-From or Resent-Sender has an address that the sender may
// not use, even if only some programs read the field so.
func ownAuthors(as core.Senders, text []byte) (emails []string, err error) {
	var lines bytes.Buffer // writes to it cannot fail
	w := msg.NormalizeLines(&lines)
	_, _ = w.Write(text)
	_ = w.Close()
	authors, err := msg.ReadAuthors(lines.Bytes())
	if err != nil {
		return nil, core.OverSMTP(550, "5.6.0", core.Invalid("from", "invalid", "%s", err))
	}
	for i, a := range slices.Concat(authors.From, authors.Sender, authors.Resent) {
		email, err := as.OwnAddress(a.Email())
		if err != nil {
			return nil, err
		}
		if i < len(authors.From) {
			emails = append(emails, email)
		}
	}
	if len(emails) == 0 {
		return nil, core.OverSMTP(550, "5.6.0", core.Invalid("from", "invalid", "the From field names nobody"))
	}
	if len(authors.From) > 1 && len(authors.Sender) == 0 { // RFC 5322 section 3.6.2
		return nil, core.OverSMTP(550, "5.6.0", core.Invalid("from", "invalid", "a message with several addresses in From must have a Sender"))
	}
	return emails, nil
}

// writeMessage writes header and body into l.body, with CRLF at the end of every line.
func (s *Service) writeMessage(l *checkedSubmission, head []byte, body io.Reader) error {
	l.body = s.Store.NewSpool(core.MaxMessage + msg.MaxHeader)
	watch := &wireCheck{w: l.body}
	lines := msg.NormalizeLines(watch)
	_, err := lines.Write(head)
	if err == nil {
		_, err = buffers.Copy(lines, body)
	}
	if err = errors.Join(err, lines.Close()); err != nil {
		_ = l.body.Close()
		if errors.Is(err, store.ErrTooLarge) {
			return core.MessageTooLarge(err)
		}
		return fmt.Errorf("write message: %w", err)
	}
	l.EightBit = watch.high
	if !watch.high && !watch.long {
		return nil
	}
	if err := s.encodeParts(l); err != nil {
		_ = l.body.Close()
		return err
	}
	return nil
}

// encodeParts encodes the parts of the submission as ASCII with short lines where possible, before
// the submission is signed. Otherwise a host on the way might have to do it, and would break the
// signature (RFC 6152 section 3). Without SMTPUTF8 it also encodes the header, and returns an error
// if that is impossible.
func (s *Service) encodeParts(l *checkedSubmission) error {
	root, err := msg.Scan(l.body.Reader())
	if err != nil {
		return fmt.Errorf("parse message: %w", err)
	}
	c, err := msg.NewRecoder(l.body, root, msg.RecodeOptions{EncodeHeaders: !l.SMTPUTF8})
	if err != nil {
		return fmt.Errorf("parse message: %w", err)
	}
	if err := c.HeaderFault(); err != nil {
		text := strings.TrimPrefix(err.Error(), msg.ErrHeader.Error()+": ")
		return core.OverSMTP(550, "5.6.7", core.Invalid("headers", "invalid", "without SMTPUTF8 this message cannot be sent: %s", text))
	}
	if !c.HasChanges() || l.body.Size()+c.Growth() > core.MaxMessage {
		return nil
	}
	body := s.Store.NewSpool(core.MaxMessage + msg.MaxHeader)
	watch := &wireCheck{w: body}
	if _, err := c.WriteTo(watch); err != nil {
		return errors.Join(fmt.Errorf("write message: %w", err), body.Close())
	}
	_ = l.body.Close()
	l.body, l.EightBit = body, watch.high
	return nil
}

// A wireCheck passes bytes on to w. It records whether any of them is beyond ASCII (high), and
// whether any line is too long for SMTP (long, RFC 5321 section 4.5.3.1.6).
type wireCheck struct {
	w          io.Writer
	high, long bool
	line       int // bytes of the current line so far
}

func (l *wireCheck) Write(p []byte) (int, error) {
	for _, b := range p {
		if l.line++; b == '\n' {
			l.line = 0
		}
		l.high, l.long = l.high || b >= 0x80, l.long || l.line > maxWireLine
	}
	return l.w.Write(p)
}

const maxWireLine = 999 // bytes, including the CR

// A decision is what was decided about a submission, in the transaction that accepts it.
type decision struct {
	mailbox *store.Mailbox // the sending mailbox; nil for a domain's program
	from    *store.Domain  // domain of the mailbox or the program
	tainted bool           // the sender has read a stranger's words
	held    string         // reason why a person must approve it; "" if it needs no approval
	content *heldContent   // the content that the person is shown, if the message needs approval
}

// withDecision checks that the sender may send a submission now, and calls take to write it, both
// in one transaction. If the policies need facts about the message, or an approval needs its
// content, the transaction ends with an error. withDecision then collects them outside of a
// transaction, and starts again. The bytes of the submission must already be appended; withDecision
// releases them if it fails.
func (s *Service) withDecision(ctx context.Context, u core.MailboxUser, l *checkedSubmission, take func(*store.Tx, decision) error) error {
	defer s.Store.Release(l.Blob) // no effect if the blob is referenced
	var facts *agents.Message     // nil until a policy needs them
	var content *heldContent      // nil until a policy requires approval
	defer func() {
		if content != nil {
			s.Store.Release(content.blob)
		}
	}()
	for {
		err := s.Store.Update(func(tx *store.Tx) error {
			tx.For(ctx)
			mb, from, err := s.activeSender(tx, u)
			if err != nil {
				return err
			}
			held, tainted, err := s.applyPolicies(tx, mb, l, facts)
			if err == nil && held != "" && content == nil {
				err = errNeedContent
			}
			if err != nil {
				return err
			}
			return take(tx, decision{mailbox: mb, from: from, tainted: tainted, held: held, content: content})
		})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errNeedFacts) && facts == nil:
			var mb *store.Mailbox
			err = s.Store.View(func(tx *store.Tx) (err error) {
				mb, _, err = senderOf(tx, u)
				return err
			})
			if err == nil {
				facts, err = s.factsOf(mb, l)
			}
		case errors.Is(err, errNeedContent) && content == nil:
			content, err = s.composeHeld(ctx, inbox.Envelope{From: l.Sender}, l.to, l.body, rewriter{})
		}
		if err != nil {
			return s.notifyLimit(u, err)
		}
	}
}

// queueOrHold writes the rows of a submission: queued, or held until a person approves it.
func (s *Service) queueOrHold(tx *store.Tx, u core.MailboxUser, l *checkedSubmission, r decision) (*Submitted, error) {
	d, err := authorDomain(tx, r.from, l)
	if err != nil {
		return nil, err
	}
	sub := l.Submission
	sub.AccountID, sub.MailboxID, sub.DomainID = u.AccountID, u.MailboxID, d.ID
	sub.Checked, sub.Program, sub.Tainted, sub.OwnWords = true, r.mailbox == nil, r.tainted || l.foreign, l.by.ownWords
	if r.mailbox == nil {
		sub.ReportTo = l.Sender
	}
	if r.held != "" {
		return s.holdSubmission(tx, &sub, d, l, r)
	}
	rows, err := s.rooms.Outbound.Enqueue(tx, &sub, d, l.to)
	if err != nil {
		return nil, err
	}

	// Recipients that are not suppressed or simulated count against the sender's limits, and in the
	// account's traffic.
	out := submissionResult(&sub, rows)
	out.origin = agents.OriginOf(sub.AccountID, &sub)
	var sent []string
	for _, row := range rows {
		if row.Status != store.OutgoingSuppressed && row.Transport != core.ViaSimulator {
			sent = append(sent, row.Recipient)
		}
	}
	if len(sent) == 0 {
		return out, nil
	}
	if err := s.rooms.Limits.Admit(tx, r.mailbox, r.from, sent); err != nil {
		return nil, err
	}
	return out, s.Count(tx, u.AccountID, func(st *store.DayStat) { st.Sent += int64(len(sent)) })
}

// holdSubmission holds a submission until a person approves it. Only then does it count towards the
// sending limits.
func (s *Service) holdSubmission(tx *store.Tx, sub *store.Submission, d *store.Domain, l *checkedSubmission, r decision) (*Submitted, error) {
	if err := checkHeldLimit(tx, sub.AccountID); err != nil {
		return nil, err
	}
	var e reputation.Envelope
	for _, to := range l.to {
		if err := s.rooms.Limits.MayAdd(tx, r.mailbox, r.from, &e, to.Address); err != nil {
			return nil, err
		}
	}
	sub.Bcc = l.blind
	rows, a, err := s.holdForApproval(tx, sub, d, l.to, HoldDetails{
		Reason: r.held, Via: l.by.via, TokenID: l.by.holder.TokenID + l.by.holder.CredentialID, TokenName: l.by.tokenName, Content: r.content,
	})
	if err != nil {
		return nil, err
	}
	out := submissionResult(sub, rows)
	out.ApprovalID = a.ID
	return out, nil
}

// submissionResult returns the result of a submission.
func submissionResult(sub *store.Submission, rows []*store.Outgoing) *Submitted {
	out := &Submitted{ID: sub.ID, MessageID: sub.MessageID, QueuedAt: sub.CreatedAt}
	for _, row := range rows {
		out.Recipients = append(out.Recipients, SubmittedRcpt{row.ID, row.Recipient, row.Status, row.Transport})
	}
	return out
}

// logAccepted logs an accepted submission, and adds it to the trace.
func (s *Service) logAccepted(ctx context.Context, l *checkedSubmission, mailboxID string, out *Submitted) {
	otlp.SpanOf(ctx).Set("message_id", out.ID)
	s.LogMessage(ctx, "message accepted", out.ID, slog.String("mailbox_id", mailboxID), slog.Int("recipients", len(l.to)), slog.Int64("size", l.body.Size()))
}

// authorDomain returns the domain from which a message is sent, for a mailbox on the domain d: the
// author's domain, since receivers expect its signature (RFC 9989 section 4.4).
func authorDomain(tx *store.Tx, d *store.Domain, l *checkedSubmission) (*store.Domain, error) {
	name := core.DomainOfAddress(l.authors[0])
	if name == d.Name {
		return d, nil
	}
	of, err := store.DomainOfAccount.Read(tx, store.AccountDomainKey(d.AccountID, name))
	if err == nil && !of.MaySend() {
		err = errDomainNotReady(of)
	}
	return of, err
}

func errDomainNotReady(d *store.Domain) error {
	return core.OverSMTP(451, "4.7.1", core.Errorf("domain_not_ready",
		"The domain %s is not set up yet, so its mailboxes cannot send. See its dns-status for what is missing.", d.Name))
}

// activeSender returns the mailbox and the domain of a login, or an error if it may not send now.
// The mailbox is nil for a domain's credential. Both are shared and must not be changed.
func (s *Service) activeSender(tx *store.Tx, u core.MailboxUser) (*store.Mailbox, *store.Domain, error) {
	mb, d, err := senderOf(tx, u)
	if err != nil {
		return nil, nil, err
	}
	if mb == nil {
		if !d.MaySend() {
			return nil, nil, errDomainNotReady(d)
		}
		return nil, d, reputation.PausedError(nil, d)
	}
	a, err := store.Accounts.Read(tx, u.AccountID)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !d.MaySend() || mb.Status == store.MailboxPending:
		return nil, nil, errDomainNotReady(d)
	case mb.Type == store.MailboxTypeExternal && (mb.External == nil || mb.External.SMTP == nil):
		return nil, nil, core.OverSMTP(550, "5.7.1", core.Invalid("user_id", "no_smtp",
			"mail of %s is hosted elsewhere, and the mailbox was created without smtp, the server that sends for it", mb.Email))
	case !a.MayAct():
		return nil, nil, core.OverSMTP(550, "5.7.1", core.ErrSuspended())
	case mb.Status != store.MailboxActive:
		return nil, nil, core.OverSMTP(550, "5.7.1", core.Invalid("user_id", "suspended", "the mailbox %s is %s and cannot send", mb.Email, mb.Status))
	}
	if err := reputation.PausedError(mb, d); err != nil {
		return nil, nil, err
	}
	return mb, d, nil
}
