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

// Bounds of one submission.
const (
	maxRecipients    = 1000
	maxAPIRecipients = 50
)

// A Submission is a message that a mailbox sends, with its envelope.
type Submission struct {
	From       string // reverse path
	To         []outbound.Rcpt
	Body       *store.Spool // as the client sent it; the caller closes it
	Trace      []byte       // whole header fields that go on top, such as Received
	EnvelopeID string       // ENVID, decoded
	Ret        string       // FULL, HDRS or ""
	SMTPUTF8   bool         // its header may go out in UTF-8; else it is encoded
	RequireTLS bool         // RFC 8689
	SendAt     time.Time    // zero: at once
	Tags       []store.Tag
}

// MaySendTo says whether a mailbox may name a recipient, and adds it to the envelope if so. If not,
// the error is an SMTPError: 550 5.1.1 for an address here that nobody has, 550
// 5.7.1 for one that takes reports alone, 452 4.5.3 for one that goes past the limits of a day.
// What else may keep a message from its recipient its sender is told later.
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
				err = to.Admits(u.Email)
			}
			if err != nil && !later {
				return err
			}
		}
		if r.Transport == core.ViaSimulator {
			return outbound.KnowsSimulated(email)
		}
		suppressed, err := core.IsSuppressed(tx, u.AccountID, email)
		if err != nil || suppressed {
			return err
		}
		return s.rooms.Limits.MayAdd(tx, mb, d, e, email)
	})
	if err != nil {
		err = s.tellLimit(u, err)
	}
	return core.OverStore(err)
}

// tellLimit gives back an error, and notifies the owner of it if it is about a limit of the day.
func (s *Service) tellLimit(u core.MailboxUser, refused error) error {
	if err := s.rooms.Limits.TellLimit(u, refused); err != nil {
		s.Log.Error("tell of a limit", "sender", u.Email, "error", err)
	}
	return refused
}

// MaySend says whether a mailbox may send now. If not, the error is an SMTPError: 452 4.7.1 where
// sending is paused, 550 5.7.1 where a sending policy lets nothing be sent.
func (s *Service) MaySend(_ context.Context, u core.MailboxUser) error {
	return core.OverStore(s.Store.View(func(tx *store.Tx) error {
		mb, d, err := senderOf(tx, u)
		if err != nil {
			return err
		}
		if err := refusesAll(mb, u); err != nil {
			return err
		}
		return reputation.PausedError(mb, d)
	}))
}

// senderOf gives the mailbox and the domain of whoever is logged in to send; who sends for a domain
// has no mailbox, which is nil then. Others share both.
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

// Submitted says what became of a submission.
type Submitted struct {
	ID         string
	MessageID  string // with brackets
	ApprovalID string // it is held for; "": it need not be approved
	QueuedAt   time.Time
	Recipients []SubmittedRcpt

	origin string // of its copy, see store.Facts
}

// A SubmittedRcpt is one recipient of a submission that was taken.
type SubmittedRcpt struct {
	ID        string // of its row in the sending log
	Email     string
	Status    string // queued, scheduled, suppressed, held
	Transport string // direct, relay, local, capture, simulator
}

// Submit takes a message from the user of a mailbox and puts it into the queue, one job for each
// recipient. When it returns, message and jobs are on disk. Errors are SMTPErrors, with the API's
// Error behind them: 550 5.7.1 for a sender that is not the mailbox, 550 5.6.0 for one that
// programs read differently, 452 4.5.3 past 1 000 recipients and past the limits of a day, 552
// 5.3.4 for the size.
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
	l, err := s.ready(as, sentByLogin(u), in)
	if err != nil {
		return nil, err
	}
	defer l.body.Close()
	envelope, err := json.Marshal(inbox.Envelope{From: l.Sender, To: l.addresses(), Received: s.Now(), Outgoing: true})
	if err != nil {
		return nil, fmt.Errorf("write envelope: %w", err)
	}
	killpoint.At("submit.append")
	l.Blob, err = s.Store.Append(envelope, l.body)
	if err != nil {
		return nil, err
	}
	var out *Submitted
	err = s.withRuling(ctx, u, l, func(tx *store.Tx, r ruling) error {
		out, err = s.place(tx, u, l, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.logAccepted(ctx, l, u.MailboxID, out)
	return out, nil
}

// sendersOf gives the addresses that whoever is logged in may send as.
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

// A checkedSubmission is a submission that is ready to be sent: checked, complete and with CRLF
// line ends. Who sends it is known when it is taken.
type checkedSubmission struct {
	store.Submission
	authors  []string // in From
	to       []outbound.Rcpt
	body     *store.Spool
	by       sentBy
	foreign  bool   // it may repeat the words of somebody else
	harmless bool   // it has lost what a tainted sender's mail loses
	blind    string // who gets a blind copy, which its copy shows if that comes later
}

func (l *checkedSubmission) addresses() []string {
	out := make([]string, 0, len(l.to))
	for _, r := range l.to {
		out = append(out, r.Address)
	}
	return out
}

// ready checks who sends to whom and writes the message as it will go out.
func (s *Service) ready(as core.Senders, by sentBy, in Submission) (*checkedSubmission, error) {
	harmless, err := s.harmless(by, in.Body)
	if err != nil {
		return nil, err
	}
	l := &checkedSubmission{by: by, Submission: store.Submission{
		EnvelopeID: in.EnvelopeID, Ret: in.Ret, SMTPUTF8: in.SMTPUTF8, RequireTLS: in.RequireTLS, SendAt: in.SendAt, Tags: in.Tags,
	}}
	if harmless != nil {
		defer harmless.Close()
		in.Body, l.harmless = harmless, true
	}
	l.Sender, err = as.Own(in.From)
	if err != nil {
		return nil, err
	}

	// Each recipient once, with what its first mention says.
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
	l.MessageID, l.Subject, l.Starts, l.TLSOptional = header.messageID, root.Envelope.Subject, header.starts, header.tlsOptional
	l.authors = header.authors
	if err := s.write(l, header.text, io.NewSectionReader(in.Body, root.BodyOffset, in.Body.Size()-root.BodyOffset)); err != nil {
		return nil, err
	}
	if err := checkEncoded(as, l, header); err != nil {
		_ = l.body.Close()
		return nil, err
	}
	return l, nil
}

// checkEncoded makes sure that a header which was encoded names the authors that it named before.
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
		return fmt.Errorf("read message: %w", err)
	}
	authors, err := ownAuthors(as, text)
	if err == nil && !slices.Equal(authors, before.authors) {
		err = core.OverSMTP(550, "5.6.0", core.Invalid("from", "invalid", "the From field cannot be encoded without SMTPUTF8"))
	}
	return err
}

// privateFields are never passed on: blind copies, and what only a final delivery writes.
var privateFields = []string{"Bcc", "Resent-Bcc", "Return-Path"}

// A header is the one that a message goes out with.
type header struct {
	text      []byte
	messageID string
	authors   []string // in From, in their one form
	starts    bool     // a conversation: it answers nothing, no machine wrote it, and it brings no List-Unsubscribe of its own

	tlsOptional bool // TLS-Required: No (RFC 8689 section 5)
}

// completeHeader checks the author and gives the header with what RFC 5322 and RFC 6409 section 8
// want of it.
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
	h.starts = count["in-reply-to"]+count["references"]+count["auto-submitted"]+count["list-unsubscribe"] == 0
	if h.messageID == "" {
		h.messageID = msg.NewMessageID(core.DomainOfAddress(in.From))
		h.text = append(h.text, "Message-ID: "+h.messageID+"\r\n"...)
	}
	if count["date"] == 0 {
		h.text = append(h.text, "Date: "+s.Now().Format(time.RFC1123Z)+"\r\n"...)
	}
	drop := privateFields
	if root.Envelope.MessageID == "" {
		drop = append([]string{"Message-ID"}, drop...) // one that is there and holds no id
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

// ownAuthors gives the authors of a header. It refuses one that names anybody as author or sender
// but those whom the sender may send as, or that some program could read so: each address of From,
// Sender, Resent-From and Resent-Sender must be one of them. It looks at the lines as they go out.
func ownAuthors(as core.Senders, text []byte) (emails []string, err error) {
	var lines bytes.Buffer // takes everything, so there is no error to see
	w := msg.NormalizeLines(&lines)
	_, _ = w.Write(text)
	_ = w.Close()
	authors, err := msg.ReadAuthors(lines.Bytes())
	if err != nil {
		return nil, core.OverSMTP(550, "5.6.0", core.Invalid("from", "invalid", "%s", err))
	}
	for i, a := range slices.Concat(authors.From, authors.Sender, authors.Resent) {
		email, err := as.Own(a.Email())
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

// write puts header and body into a spool of the submission's own, with CRLF at the end of every
// line.
func (s *Service) write(l *checkedSubmission, head []byte, body io.Reader) error {
	l.body = s.Store.NewSpool(core.MaxMessage + msg.MaxHeader)
	watch := &wireLook{w: l.body}
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
	if err := s.recode(l); err != nil {
		_ = l.body.Close()
		return err
	}
	return nil
}

// recode has the submission hold ASCII in lines that every host takes, as far as its parts may be
// encoded, before it is signed: no host on the way has to do it then, which would break the
// signature (RFC 6152 section 3). Without SMTPUTF8 its header becomes ASCII too, or it is refused.
func (s *Service) recode(l *checkedSubmission) error {
	root, err := msg.Scan(l.body.Reader())
	if err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	c, err := msg.NewRecoder(l.body, root, msg.RecodeOptions{EncodeHeaders: !l.SMTPUTF8})
	if err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	if err := c.HeaderFault(); err != nil {
		text := strings.TrimPrefix(err.Error(), msg.ErrHeader.Error()+": ")
		return core.OverSMTP(550, "5.6.7", core.Invalid("headers", "invalid", "without SMTPUTF8 this message cannot be sent: %s", text))
	}
	if !c.Changes() || l.body.Size()+c.Growth() > core.MaxMessage {
		return nil
	}
	body := s.Store.NewSpool(core.MaxMessage + msg.MaxHeader)
	watch := &wireLook{w: body}
	if _, err := c.WriteTo(watch); err != nil {
		return errors.Join(fmt.Errorf("write message: %w", err), body.Close())
	}
	_ = l.body.Close()
	l.body, l.EightBit = body, watch.high
	return nil
}

// wireLook notes what passes that a host without 8BITMIME cannot take: bytes beyond ASCII, and
// lines that are too long for SMTP (RFC 5321 section 4.5.3.1.6).
type wireLook struct {
	w          io.Writer
	high, long bool
	line       int
}

func (l *wireLook) Write(p []byte) (int, error) {
	for _, b := range p {
		if l.line++; b == '\n' {
			l.line = 0
		}
		l.high, l.long = l.high || b >= 0x80, l.long || l.line > maxWireLine
	}
	return l.w.Write(p)
}

const maxWireLine = 999 // with the CR

// A ruling is what is decided about a submission in the transaction that takes it.
type ruling struct {
	mailbox *store.Mailbox // that sends it; nil: a domain's program does
	from    *store.Domain  // of the mailbox or the program
	tainted bool           // whoever sends it has read a stranger's words
	held    string         // why a person must approve it; "": nobody need
	content *heldContent   // that the person is shown
}

// withRuling has take write all about a submission whose bytes are appended, in one transaction. It
// looks first whether this sender may send this now. What the policies want to know for that, and
// what a person is to be shown, is made outside of a transaction, which then begins again. If that
// fails the bytes are given up.
func (s *Service) withRuling(ctx context.Context, u core.MailboxUser, l *checkedSubmission, take func(*store.Tx, ruling) error) error {
	defer s.Store.Release(l.Blob) // does nothing where it is referred to
	var facts *agents.Message     // nil: no policy has asked for them
	var content *heldContent      // nil: no policy has wanted it
	defer func() {
		if content != nil {
			s.Store.Release(content.blob)
		}
	}()
	for {
		err := s.Store.Update(func(tx *store.Tx) error {
			tx.For(ctx)
			mb, from, err := s.sendable(tx, u)
			if err != nil {
				return err
			}
			held, tainted, err := s.admit(tx, mb, l, facts)
			if err == nil && held != "" && content == nil {
				err = errHeld
			}
			if err != nil {
				return err
			}
			return take(tx, ruling{mailbox: mb, from: from, tainted: tainted, held: held, content: content})
		})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errFacts) && facts == nil:
			var mb *store.Mailbox
			err = s.Store.View(func(tx *store.Tx) (err error) {
				mb, _, err = senderOf(tx, u)
				return err
			})
			if err == nil {
				facts, err = s.factsOf(mb, l)
			}
		case errors.Is(err, errHeld) && content == nil:
			content, err = s.makeHeld(ctx, inbox.Envelope{From: l.Sender}, l.to, l.body, rewriting{})
		}
		if err != nil {
			return s.tellLimit(u, err)
		}
	}
}

// place writes the rows of a submission, which are queued, or held until a person has approved
// them.
func (s *Service) place(tx *store.Tx, u core.MailboxUser, l *checkedSubmission, r ruling) (*Submitted, error) {
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
		return s.hold(tx, &sub, d, l, r)
	}
	rows, err := s.rooms.Outbound.Enqueue(tx, &sub, d, l.to)
	if err != nil {
		return nil, err
	}

	// The recipients that mail goes to count against the limits of who sends, and in the account's
	// traffic.
	out := submitted(&sub, rows)
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

// hold holds a submission until a person has approved it. It is counted when that is done.
func (s *Service) hold(tx *store.Tx, sub *store.Submission, d *store.Domain, l *checkedSubmission, r ruling) (*Submitted, error) {
	if err := mayHold(tx, sub.AccountID); err != nil {
		return nil, err
	}
	var e reputation.Envelope
	for _, to := range l.to {
		if err := s.rooms.Limits.MayAdd(tx, r.mailbox, r.from, &e, to.Address); err != nil {
			return nil, err
		}
	}
	sub.Bcc = l.blind
	rows, a, err := s.holdForApproval(tx, sub, d, l.to, WhyHeld{
		Reason: r.held, Via: l.by.via, TokenID: l.by.holder.TokenID + l.by.holder.CredentialID, TokenName: l.by.tokenName, Content: r.content,
	})
	if err != nil {
		return nil, err
	}
	out := submitted(sub, rows)
	out.ApprovalID = a.ID
	return out, nil
}

// submitted says what became of a submission.
func submitted(sub *store.Submission, rows []*store.Outgoing) *Submitted {
	out := &Submitted{ID: sub.ID, MessageID: sub.MessageID, QueuedAt: sub.CreatedAt}
	for _, row := range rows {
		out.Recipients = append(out.Recipients, SubmittedRcpt{row.ID, row.Recipient, row.Status, row.Transport})
	}
	return out
}

// logAccepted tells the log and the trace of a submission that was taken.
func (s *Service) logAccepted(ctx context.Context, l *checkedSubmission, mailboxID string, out *Submitted) {
	otlp.SpanOf(ctx).Set("message_id", out.ID)
	s.LogMessage(ctx, "message accepted", out.ID, slog.String("mailbox_id", mailboxID), slog.Int("recipients", len(l.to)), slog.Int64("size", l.body.Size()))
}

// authorDomain gives the domain that a message of a mailbox on the domain d is sent for: that of
// its author, since receivers want its signature (RFC 9989 section 4.4).
func authorDomain(tx *store.Tx, d *store.Domain, l *checkedSubmission) (*store.Domain, error) {
	name := core.DomainOfAddress(l.authors[0])
	if name == d.Name {
		return d, nil
	}
	of, err := store.DomainOfAccount.Read(tx, store.OwnKey(d.AccountID, name))
	if err == nil && !of.MaySend() {
		err = domainNotReady(of)
	}
	return of, err
}

func domainNotReady(d *store.Domain) error {
	return core.OverSMTP(451, "4.7.1", core.Errorf("domain_not_ready",
		"The domain %s is not set up yet, so its mailboxes cannot send. See its dns-status for what is missing.", d.Name))
}

// sendable gives a mailbox that may send, nil for a domain's credential, with its domain. Others
// share both: they are not to be changed.
func (s *Service) sendable(tx *store.Tx, u core.MailboxUser) (*store.Mailbox, *store.Domain, error) {
	mb, d, err := senderOf(tx, u)
	if err != nil {
		return nil, nil, err
	}
	if mb == nil {
		if !d.MaySend() {
			return nil, nil, domainNotReady(d)
		}
		return nil, d, reputation.PausedError(nil, d)
	}
	a, err := store.Accounts.Read(tx, u.AccountID)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !d.MaySend() || mb.Status == store.MailboxPending:
		return nil, nil, domainNotReady(d)
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
