package submit

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/visible"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/templates"
	"github.com/mailstead/mailstead/store"
)

// Texts is a body field that may be one string or a list of strings.
type Texts []string

// UnmarshalJSON accepts a string or a list of strings.
func (t *Texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = Texts{one}
		return nil
	}
	var many []string
	if json.Unmarshal(data, &many) != nil {
		return errors.New("it must be a text or a list of texts")
	}
	*t = many
	return nil
}

// Forms returns an example of each JSON form.
func (Texts) Forms() []any { return []any{"", []string{}} }

// HTMLText is a body field that is HTML, or true if the field `body` is HTML.
type HTMLText struct {
	Text   string
	OfBody bool
}

// UnmarshalJSON accepts a string, true or false.
func (h *HTMLText) UnmarshalJSON(data []byte) error {
	into := any(&h.OfBody)
	if len(data) > 0 && data[0] == '"' {
		into = &h.Text
	}
	if json.Unmarshal(data, into) != nil {
		return errors.New("must be HTML, or true if `body` is HTML")
	}
	return nil
}

// MarshalJSON writes a string, or true if OfBody is set.
func (h HTMLText) MarshalJSON() ([]byte, error) {
	if h.OfBody {
		return []byte("true"), nil
	}
	return json.Marshal(h.Text)
}

// Forms returns an example of each JSON form.
func (HTMLText) Forms() []any { return []any{"", true} }

// A SendAttachment is a file to be sent.
type SendAttachment struct {
	Filename    string  `json:"filename"`
	Content     *string `json:"content"` // Base64.
	ContentType string  `json:"content_type"`
	ContentID   string  `json:"content_id"`
}

// SendEmailIn is the request of send_email.
type SendEmailIn struct {
	UserID  string   `path:"user_id"`
	From    string   `json:"from"` // A name and an address that the mailbox may send as; its own unless given.
	To      Texts    `json:"to" required:"true" min:"1"`
	Cc      Texts    `json:"cc"`
	Bcc     Texts    `json:"bcc"`
	ReplyTo Texts    `json:"reply_to"`
	Subject string   `json:"subject"`
	Text    string   `json:"text"`
	HTML    HTMLText `json:"html"` // HTML, or `true`, which says that `body` is HTML.
	Body    string   `json:"body" example:"Hello, your order is on its way."`
	// The Message-ID that this replies to. Messages of the mailbox's INBOX with this Message-ID
	// become `is_answered`.
	InReplyTo   string            `json:"in_reply_to"`
	References  Texts             `json:"references"`
	Headers     map[string]string `json:"headers"`
	Attachments []SendAttachment  `json:"attachments" max:"500"`
	MessageID   string            `json:"message_id" log:"true"` // The Message-ID header, with brackets.
	SendAt      *core.Time        `json:"send_at" log:"true"`    // When it is sent; at once unless given.
	Tags        outbound.TagMap   `json:"tags"`
	RequireTLS  bool              `json:"require_tls" log:"true"` // It may go only to hosts that authenticate over TLS and promise to require TLS for the next hop (RFC 8689).
	// The message template that the subject and the text are made of.
	TemplateID string              `json:"template_id" example:"mtl_01k9a2b3c4d5e6f7g8h9j0k1m2" log:"true"`
	Variables  templates.Variables `json:"variables"` // Values by the names of the variables: texts, numbers or booleans.

	batch    *parentBatch    // nil if the message is not part of a batch
	form     *templates.Form // the template that Variables fill; nil if the request has the texts
	calendar []byte          // the reply to an invitation
	foreign  bool            // somebody other than the sender may have written it
	program  bool            // a program that does not speak for the account wrote it, or its author is unknown
	rewrite  bool            // it is the draft of a tainted sender
	unfilled bool            // it is a draft whose template is not filled in
}

// EmailQueued is the answer to an accepted message.
type EmailQueued struct {
	Success    bool            `json:"success"`
	MessageID  string          `json:"message_id" words:"ours"` // The Message-ID header, with brackets.
	Status     string          `json:"status" enum:"queued|scheduled|held"`
	ApprovalID *string         `json:"approval_id" words:"ours" rare:"true"` // The approval that it waits for, or waited for.
	UserID     string          `json:"user_id" words:"ours"`
	From       string          `json:"from" words:"ours"`
	Recipients []SentRecipient `json:"recipients"`
	// How it goes to the recipient: direct, relay, local, capture or simulator.
	Transport string    `json:"transport" enum:"direct|relay|local|capture|simulator|mixed"`
	QueuedAt  core.Time `json:"queued_at"`
	SendAt    core.Time `json:"send_at" rare:"true"` // When it is to be sent; null for at once.
}

// A SentRecipient is one recipient of an accepted message.
type SentRecipient struct {
	ID        string `json:"id" words:"ours" example:"msg_01k9a2b3c4d5e6f7g8h9j0k1m2"` // Its row in the sending log.
	Email     string `json:"email" words:"ours"`
	Status    string `json:"status" enum:"queued|scheduled|suppressed|held"`
	Transport string `json:"transport" words:"ours"` // How it goes to the recipient: direct, relay, local, capture or simulator.
}

// SendEmail sends a message from the mailbox, files a copy in its Sent folder, and marks the
// message that it answers.
func (s *Service) SendEmail(ctx context.Context, who core.Actor, in SendEmailIn) (*EmailQueued, error) {
	if in.TemplateID == "" && who.Request != nil && who.Request.Fields != nil && !slices.Contains(who.Request.Fields, "subject") {
		return nil, core.Invalid("subject", "required", "is required, unless template_id is given")
	}
	return s.sendEmail(ctx, who, in, func(tx *store.Tx, out *EmailQueued) error { return once.KeepAnswer(ctx, s.Core, tx, out) })
}

// sendEmail sends a message. alsoWrite runs in the transaction that accepts the message.
func (s *Service) sendEmail(ctx context.Context, who core.Actor, in SendEmailIn, alsoWrite func(*store.Tx, *EmailQueued) error) (*EmailQueued, error) {
	var mb *store.Mailbox
	var as core.Senders
	err := s.Store.View(func(tx *store.Tx) (err error) {
		mb, err = core.ReadMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		as, err = core.SendersOf(tx, mb)
		if err != nil {
			return err
		}
		if _, _, err = s.activeSender(tx, core.MailboxUser{AccountID: who.AccountID, MailboxID: in.UserID}); err != nil || in.TemplateID == "" {
			return err
		}
		in.form, err = formOf(tx, who.AccountID, &in)
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, leave, err := s.beginRequest(ctx, &in)
	if err != nil {
		return nil, err
	}
	defer leave()
	if in.unfilled && in.form != nil {
		return nil, core.Invalid("template_id", "changed", "fits now, which it did not when the draft was saved; save the draft again, so that it shows what is sent")
	}

	// A message of a batch whose scheduled time has passed meanwhile is sent at once.
	taken := s.Now()
	if in.batch != nil {
		taken = in.batch.acceptedAt
	}
	at, err := core.ParseSendAt(taken, in.SendAt)
	if err != nil {
		return nil, err
	}
	if !at.After(s.Now()) {
		at = time.Time{}
	}
	tags, err := in.Tags.Sorted()
	if err != nil {
		return nil, err
	}

	// Compose the message and check it like a message submitted by a mail client.
	message, to, bcc, err := s.composeEmail(as, mb, in)
	if err != nil {
		return nil, err
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if err := writeEmail(message, spool); err != nil {
		return nil, err
	}
	by := sentByActor(who)
	if in.batch != nil {
		by.person, by.ownWords, by.requestID = in.batch.byPerson, in.batch.ownWords, in.batch.requestID
	}
	by.ownWords, by.rewrite = by.ownWords && !in.program, in.rewrite
	l, err := s.checkSubmission(as, by, Submission{From: message.From.Email(), To: to, Body: spool, SMTPUTF8: true, SendAt: at, Tags: tags, RequireTLS: in.RequireTLS})
	if err != nil {
		return nil, err
	}
	defer l.body.Close()
	l.foreign = in.foreign || in.calendar != nil // a reply to an invitation quotes it
	l.SMTPUTF8 = l.EightBit                      // a Composer writes ASCII, except for addresses that need SMTPUTF8
	stored, err := s.rooms.Inbox.Prepare(l.body, inbox.Envelope{From: l.Sender, To: l.addresses(), Received: s.Now(), Mailbox: mb.Num, Outgoing: true})
	if err != nil {
		return nil, err
	}
	defer s.rooms.Inbox.Release(stored) // no effect if the message was accepted
	l.Blob, stored.Meta.Bcc, l.blind = stored.Blob, bcc, bcc
	answered, err := s.rooms.Inbox.FindAnswered(mb, in.InReplyTo)
	if err != nil {
		return nil, err
	}
	if in.InReplyTo != "" {
		l.AnsweredBy = inbox.NewAnswerer(who, s.Now()).Text()
	}
	l.FileSent, l.Answers = !at.IsZero(), in.InReplyTo
	if l.FileSent {
		l.Bcc = bcc
	}

	// In one transaction, queue the message, file the copy unless that happens when it is sent, and
	// keep the answer for the Idempotency-Key.
	var out *EmailQueued
	var sent *Submitted
	u := core.MailboxUser{AccountID: mb.AccountID, MailboxID: mb.ID, Email: mb.Email}
	err = s.withDecision(ctx, u, l, func(tx *store.Tx, r decision) error {
		left, err := tx.StorageLeft(mb.AccountID) // for the copy in Sent, which may come later
		if err != nil {
			return err
		}
		if left < int64(stored.Blob.Length) {
			return core.Errorf(core.CodeQuota, core.StorageFull)
		}
		sent, err = s.queueOrHold(tx, u, l, r)
		if err != nil {
			return err
		}
		out = &EmailQueued{
			Success: true, MessageID: sent.MessageID, Status: store.OutgoingQueued, ApprovalID: core.OrNull(sent.ApprovalID), UserID: mb.ID, From: l.Sender, QueuedAt: core.Time{Time: sent.QueuedAt},
			SendAt: core.Time{Time: at},
		}
		stored.Origin = sent.origin
		for _, r := range sent.Recipients {
			out.Recipients = append(out.Recipients, SentRecipient(r))
			if r.Status == store.OutgoingScheduled || r.Status == store.OutgoingHeld { // the same for all recipients
				out.Status = r.Status
			}
			if out.Transport != "" && out.Transport != r.Transport {
				out.Transport = "mixed"
			} else {
				out.Transport = r.Transport
			}
		}
		if !l.FileSent && sent.ApprovalID == "" {
			if err := s.rooms.Outbound.FileSentCopy(tx, r.mailbox, stored, answered, l.AnsweredBy); err != nil {
				return err
			}
		}
		return alsoWrite(tx, out)
	})
	if err != nil {
		return nil, err
	}
	s.logAccepted(ctx, l, mb.ID, sent)
	return out, nil
}

// beginRequest waits until there is memory for a request, and fills in its template. The caller
// continues with the context within, and must call leave afterwards.
func (s *Service) beginRequest(ctx context.Context, in *SendEmailIn) (within context.Context, leave func(), err error) {
	within, leave, err = s.WorkOnLarge(ctx, in.requestSize())
	if err != nil {
		return nil, nil, err
	}
	texts, files, err := in.estimateSizes()
	if err == nil && texts > core.MaxContent {
		err = core.ContentTooLarge()
	}
	if made := texts + files; err == nil && made > in.requestSize() { // a template may repeat short values many times
		leave()
		within, leave, err = s.WorkOnLarge(ctx, made)
		if err != nil {
			return nil, nil, err
		}
	}
	if err == nil && in.form != nil {
		var c templates.Content
		c, err = in.form.Fill(in.Variables)
		in.Subject, in.Text, in.HTML = c.Subject, c.Text, HTMLText{Text: c.HTML}
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return within, leave, nil
}

// formOf returns the template that a request uses.
func formOf(tx *store.Tx, accountID string, in *SendEmailIn) (*templates.Form, error) {
	if in.Subject != "" || in.Text != "" || in.HTML.Text != "" || in.HTML.OfBody || in.Body != "" {
		return nil, core.Invalid("template_id", "conflict", "cannot be combined with subject, text and html")
	}
	if in.batch != nil {
		f := in.batch.forms[in.TemplateID]
		if f == nil {
			return nil, errNoTemplate()
		}
		return f, nil
	}
	c, err := findTemplate(tx, accountID, in.TemplateID)
	if err != nil {
		return nil, err
	}
	return c.Form()
}

// requestSize returns the size of a request: bytes of text, of values, and of files in base64.
func (in *SendEmailIn) requestSize() (size int64) {
	for _, a := range in.Attachments {
		if a.Content != nil {
			size += int64(len(*a.Content))
		}
	}
	return size + int64(len(in.Text)+len(in.HTML.Text)+len(in.Body)) + in.Variables.Bytes()
}

// estimateSizes estimates the bytes of text and of files in the message of a request, before the
// message is composed.
func (in *SendEmailIn) estimateSizes() (texts, files int64, err error) {
	for _, a := range in.Attachments {
		if a.Content != nil {
			files += int64(base64.StdEncoding.DecodedLen(len(*a.Content)))
		}
	}
	texts = int64(len(in.Text) + len(in.HTML.Text) + len(in.Body))
	if in.form != nil {
		var filled int64
		filled, err = in.form.Size(in.Variables)
		texts += filled
	}
	return texts, files, err
}

func findTemplate(tx *store.Tx, accountID, id string) (templates.Content, error) {
	t, err := templates.Find(tx, accountID, id)
	if err != nil {
		return templates.Content{}, err
	}
	if t == nil {
		return templates.Content{}, errNoTemplate()
	}
	return templates.Content{Subject: t.Subject, Text: t.Text, HTML: t.HTML}, nil
}

func errNoTemplate() error {
	return core.Invalid("template_id", "not_found", "is not a message template of this account")
}

func writeEmail(m *msg.Composer, to io.Writer) error {
	_, err := m.WriteTo(to)
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return core.ContentTooLarge()
	case errors.Is(err, msg.ErrHeader), errors.Is(err, msg.ErrAddress):
		return core.Invalid("headers", "invalid", "the message cannot be written: %s", err)
	}
	return err
}

// startEmail starts a message with the addresses and the subject of a request, and returns the
// blind copy recipients.
func (s *Service) startEmail(as core.Senders, mb *store.Mailbox, in SendEmailIn) (m *msg.Composer, bcc []msg.Address, err error) {
	from, err := as.Author(mb, in.From)
	if err != nil {
		return nil, nil, err
	}
	m = &msg.Composer{From: from, Subject: in.Subject, Date: s.Now()}
	if strings.ContainsFunc(in.Subject, unicode.IsControl) || !utf8.ValidString(in.Subject) {
		return nil, nil, core.Invalid("subject", "invalid", "must be one line of text, without control characters")
	}
	for _, f := range []struct {
		name string
		from Texts
		to   *[]msg.Address
	}{{"to", in.To, &m.To}, {"cc", in.Cc, &m.Cc}, {"bcc", in.Bcc, &bcc}, {"reply_to", in.ReplyTo, &m.ReplyTo}} {
		list, err := addressList(f.name, f.from)
		if err != nil {
			return nil, nil, err
		}
		*f.to = list
	}
	return m, bcc, nil
}

// composeEmail composes the message of a request. It returns the envelope recipients in to, and the
// blind copy recipients, one per line, in blind.
func (s *Service) composeEmail(as core.Senders, mb *store.Mailbox, in SendEmailIn) (m *msg.Composer, to []outbound.Rcpt, blind string, err error) {
	m, bcc, err := s.startEmail(as, mb, in)
	if err != nil {
		return nil, nil, "", err
	}
	seen := map[string]bool{}
	for _, a := range slices.Concat(m.To, m.Cc, bcc) {
		if email := strings.ToLower(a.Email()); !seen[email] { // each recipient once
			seen[email] = true
			to = append(to, outbound.Rcpt{Address: a.Email()})
		}
	}
	if len(to) == 0 {
		return nil, nil, "", core.Invalid("to", "required", "must name at least one recipient")
	}
	if len(to) > maxAPIRecipients {
		return nil, nil, "", core.Invalid("to", "too_many_items", "to, cc and bcc can have at most %d recipients together, not %d", maxAPIRecipients, len(to))
	}
	if err = setContent(m, in, mb.Footer); err != nil {
		return nil, nil, "", err
	}
	return m, to, strings.Join(addressTexts(bcc), "\n"), setHeader(m, in, core.DomainOfAddress(m.From.Email()), s.rooms.Outbound.ControlFields())
}

// addressList parses the addresses of a field. Each text may have several.
func addressList(field string, texts Texts) ([]msg.Address, error) {
	var out []msg.Address
	for _, text := range texts {
		if strings.TrimSpace(text) == "" && len(texts) == 1 && field != "to" {
			return nil, nil // an empty text has no address
		}
		list, err := msg.ParseAddressList(text)
		if err != nil {
			return nil, core.Invalid(field, "invalid", "%s", err)
		}
		out = append(out, list...)
		if len(out) > msg.MaxAddresses {
			return nil, core.Invalid(field, "too_many_items", "names more than %d addresses", msg.MaxAddresses)
		}
	}
	return out, nil
}

func addressTexts(list []msg.Address) (out Texts) {
	for _, a := range list {
		if !a.IsGroupMarker() {
			out = append(out, a.String())
		}
	}
	return out
}

// setContent fills in text, HTML and files, and appends the mailbox's footer to both texts.
func setContent(m *msg.Composer, in SendEmailIn, footer string) error {
	m.Text, m.HTML = in.Text, in.HTML.Text
	switch {
	case in.Body == "":
	case in.HTML.OfBody && m.HTML == "":
		m.HTML = in.Body
	case m.Text == "" && m.HTML == "":
		m.Text = in.Body
	default:
		return core.Invalid("body", "conflict", "cannot be combined with text and html")
	}
	size := len(m.Text) + len(m.HTML)
	// The content is base64 in the standard or the URL alphabet, with or without padding and white
	// space. The decoder skips line ends, so that most files need no copy.
	standard := strings.NewReplacer("-", "+", "_", "/", " ", "", "\t", "")
	for i, a := range in.Attachments {
		field := fmt.Sprintf("attachments.%d", i)
		if a.Filename == "" || a.Content == nil {
			return core.Invalid(field, "required", "must have a filename and its content in base64")
		}
		content, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(standard.Replace(*a.Content), "=\r\n"))
		if err != nil {
			return core.Invalid(field+".content", "invalid", "must be base64: %s", err)
		}
		size += len(content)
		if size > core.MaxContent {
			return core.ContentTooLarge()
		}
		m.Attachments = append(m.Attachments, msg.AttachedFile{Filename: a.Filename, ContentType: a.ContentType, ContentID: a.ContentID, Content: content})
	}
	if size > core.MaxContent {
		return core.ContentTooLarge()
	}
	addFooter(m, footer)
	m.Calendar = in.calendar
	return nil
}

// addFooter appends a footer, which may be text or HTML, to the message.
func addFooter(d *msg.Composer, footer string) {
	if footer == "" {
		return
	}
	isHTML := strings.Contains(footer, "</") || strings.Contains(footer, "<br")
	plain, rich := footer, strings.ReplaceAll(html.EscapeString(footer), "\n", "<br>\n")
	if isHTML {
		plain, rich = visible.HTMLText(footer), footer
	}
	if d.Text != "" || d.HTML == "" {
		d.Text = strings.TrimRight(d.Text, "\r\n") + "\r\n\r\n" + plain + "\r\n"
	}
	if d.HTML == "" {
		return
	}
	at := len(d.HTML)
	lower := strings.ToLower(d.HTML)
	if i := strings.LastIndex(lower, "</body"); i >= 0 && len(lower) == len(d.HTML) {
		at = i
	}
	d.HTML = d.HTML[:at] + "<br>\n<div>" + rich + "</div>\n" + d.HTML[at:]
}

// serverFields and serverPrefixes are header fields, and prefixes of header fields, that say how a
// message is sent, signed or built. A request must not set them.
var (
	serverFields = []string{
		"from", "sender", "to", "cc", "bcc", "reply-to", "subject", "date", "message-id", "in-reply-to", "references",
		"mime-version", "return-path", "delivered-to",
	}
	serverPrefixes = []string{"content-", "resent-", "arc-", "dkim-", "authentication-", "received"}
)

// setHeader sets Message-IDs and the request's own header fields. It refuses a field whose name
// begins with one of controls, which relays take as commands.
func setHeader(m *msg.Composer, in SendEmailIn, domain string, controls []string) error {
	m.MessageID = msg.NewMessageID(domain)
	if in.MessageID != "" {
		if !core.IsValidMessageID(in.MessageID) {
			return core.Invalid("message_id", "invalid", "must be of the form <left@right>, in ASCII, without spaces and of at most 250 characters")
		}
		m.MessageID = core.Bracketed(in.MessageID)
	}
	if in.InReplyTo != "" {
		if !core.IsValidMessageID(in.InReplyTo) {
			return core.Invalid("in_reply_to", "invalid", "must be one Message-ID")
		}
		m.InReplyTo = core.Bracketed(in.InReplyTo)
	}
	for _, text := range in.References {
		for _, id := range strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == ',' }) {
			if !core.IsValidMessageID(id) {
				return core.Invalid("references", "invalid", "must be Message-IDs, not %.80q", id)
			}
			m.References = append(m.References, core.Bracketed(id))
		}
	}
	if len(m.References) == 0 && m.InReplyTo != "" {
		m.References = []string{m.InReplyTo}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Headers)) {
		if msg.HasFieldPrefix(strings.TrimSpace(name), controls) {
			return core.Invalid("headers", "not_allowed", "%.80q cannot be set here: mail providers read such a field as a command", name)
		}
		lower := strings.ToLower(name)
		isPrefix := func(prefix string) bool { return strings.HasPrefix(lower, prefix) }
		if slices.Contains(serverFields, lower) || slices.ContainsFunc(serverPrefixes, isPrefix) {
			return core.Invalid("headers", "not_allowed", "%.80q cannot be set here: it has its own parameter, or the server writes it", name)
		}
		m.Headers = append(m.Headers, msg.Header{Name: name, Value: in.Headers[name]})
	}
	return nil
}
