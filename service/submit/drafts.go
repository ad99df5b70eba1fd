package submit

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/templates"
	"github.com/mailstead/mailstead/store"
)

// draftField is the header field in which a draft keeps the options of send_email that are not part
// of the message. Mail clients drop the field when they change a draft.
const draftField = "X-Mailstead-Draft"

// maxDraftOptions limits the bytes of draftField: a longer header is not read completely.
const maxDraftOptions = 64 << 10

// draftOptions are the fields of a request to send that are not part of the message.
type draftOptions struct {
	MessageID  string              `json:"message_id,omitempty"`
	SendAt     *core.Time          `json:"send_at,omitempty"`
	Tags       outbound.TagMap     `json:"tags,omitempty"`
	RequireTLS bool                `json:"require_tls,omitempty"`
	TemplateID string              `json:"template_id,omitempty"`
	Variables  templates.Variables `json:"variables,omitempty"`
	Headers    map[string]string   `json:"headers,omitempty"`
}

// CreateDraftIn is the request of create_draft: the fields of send_email, none of them required.
type CreateDraftIn struct {
	SendEmailIn `required:"no"`
}

// UpdateDraftIn is the request of update_draft.
type UpdateDraftIn struct {
	DraftUID    string `path:"message_id" example:"17"` // The IMAP UID of the message.
	SendEmailIn `required:"no"`
}

// DraftIn names a draft by its UID.
type DraftIn struct {
	UserID string `path:"user_id"`
	UID    string `path:"message_id" example:"17"` // The IMAP UID of the message.
}

// CreateDraft saves a draft in the Drafts folder of the mailbox.
func (s *Service) CreateDraft(ctx context.Context, who core.Actor, in CreateDraftIn) (*inbox.InboxMessage, error) {
	return s.saveDraft(ctx, who, in.SendEmailIn, "")
}

// UpdateDraft replaces a draft. The new one has a new UID.
func (s *Service) UpdateDraft(ctx context.Context, who core.Actor, in UpdateDraftIn) (*inbox.InboxMessage, error) {
	return s.saveDraft(ctx, who, in.SendEmailIn, in.DraftUID)
}

// SendDraft sends a draft like send_email, and deletes it in the transaction that accepts the
// message. A draft that cannot be sent stays.
func (s *Service) SendDraft(ctx context.Context, who core.Actor, in DraftIn) (*EmailQueued, error) {
	root, blob, origin, err := s.rooms.Inbox.OpenDraft(who, in.UserID, in.UID)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	ctx, leave, err := s.HoldLarge(ctx, blob.Size())
	if err != nil {
		return nil, err
	}
	defer leave()
	_, read, err := s.WorkOnLarge(ctx, blob.Size())
	if err != nil {
		return nil, err
	}
	message, err := readDraft(who, in, root, blob, origin)
	read()
	if err != nil {
		return nil, err
	}
	return s.sendEmail(ctx, who, message, func(tx *store.Tx, out *EmailQueued) error {
		return errors.Join(s.rooms.Inbox.DeleteDraft(tx, who, in.UserID, in.UID), once.KeepAnswer(ctx, s.Core, tx, out))
	})
}

// saveDraft writes a draft. oldUID is the UID of the draft that it replaces; "" for a new draft.
func (s *Service) saveDraft(ctx context.Context, who core.Actor, in SendEmailIn, oldUID string) (*inbox.InboxMessage, error) {
	var mb *store.Mailbox
	var as core.Senders
	err := s.Store.View(func(tx *store.Tx) (err error) {
		mb, err = core.ReadMailbox(tx, who, in.UserID)
		if err == nil {
			as, err = core.SendersOf(tx, mb)
		}
		if err != nil || in.TemplateID == "" {
			return err
		}
		in.form, err = formOf(tx, who.AccountID, &in)
		if _, ours := core.AsError(err); ours {
			in.form, err = nil, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	_, leave, err := s.beginRequest(ctx, &in)
	if e, ours := core.AsError(err); ours && (e.Code == "missing_variable" || e.Code == "validation_error") {
		in.form = nil // a template that cannot be filled yet is saved unfilled; sending reports the error
		_, leave, err = s.beginRequest(ctx, &in)
	}
	if err != nil {
		return nil, err
	}
	defer leave()
	if in.form != nil { // the draft shows what will be sent, even if the template changes
		in.TemplateID, in.Variables = "", nil
	}

	// Write the message without the footer, which is added when it is sent.
	in.To = slices.DeleteFunc(in.To, func(text string) bool { return strings.TrimSpace(text) == "" })
	m, bcc, err := s.startEmail(as, mb, in)
	if err != nil {
		return nil, err
	}
	m.Draft, m.Bcc = true, bcc
	if err := setContent(m, in, ""); err != nil {
		return nil, err
	}
	if err := setHeader(m, in, core.DomainOfAddress(m.From.Email()), s.rooms.Outbound.ControlFields()); err != nil {
		return nil, err
	}
	options, err := json.Marshal(draftOptions{in.MessageID, in.SendAt, in.Tags, in.RequireTLS, in.TemplateID, in.Variables, in.Headers})
	if err != nil {
		return nil, fmt.Errorf("encode options of draft: %w", err)
	}
	if len(options) > maxDraftOptions {
		return nil, core.Errorf("payload_too_large", "The variables and headers of a draft can have at most %d KiB together.", maxDraftOptions>>10)
	}
	if len(options) > len("{}") {
		m.Headers = append(m.Headers, msg.Header{Name: draftField, Value: addFoldingSpaces(base64.StdEncoding.EncodeToString(options))})
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if err := writeEmail(m, spool); err != nil {
		return nil, err
	}
	stored, err := s.rooms.Inbox.Prepare(spool, inbox.Envelope{Received: s.Now(), Mailbox: mb.Num})
	if err != nil {
		return nil, err
	}
	defer s.rooms.Inbox.Release(stored) // no effect if it was filed

	var out *inbox.InboxMessage
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err == nil {
			out, err = s.rooms.Inbox.FileDraft(tx, who, mb, stored, oldUID)
		}
		return err
	})
	return out, err
}

// addFoldingSpaces inserts spaces at which a long header field can be folded.
func addFoldingSpaces(text string) string {
	const width = 70
	var b strings.Builder
	for len(text) > width {
		b.WriteString(text[:width] + " ")
		text = text[width:]
	}
	return b.String() + text
}

// readDraft returns the request that sends a draft. The addresses, texts and files come from the
// message, which a mail client may have changed, and the options from draftField.
func readDraft(who core.Actor, in DraftIn, root *msg.Part, blob *store.Blob, origin string) (out SendEmailIn, err error) {
	// Read the options in draftField.
	headers, err := msg.Headers(blob, root)
	if err != nil {
		return out, fmt.Errorf("read draft %s of %s: %w", in.UID, in.UserID, err)
	}
	var o draftOptions
	for _, h := range headers {
		if !strings.EqualFold(h.Name, draftField) {
			continue
		}
		options, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(h.Value, " ", ""))
		if err == nil {
			err = json.Unmarshal(options, &o)
		}
		if err != nil {
			return out, core.Invalid("message_id", "invalid", "the header field %s of the draft cannot be read; save the draft again", draftField)
		}
	}
	out = SendEmailIn{
		UserID: in.UserID, MessageID: o.MessageID, SendAt: o.SendAt, Tags: o.Tags, RequireTLS: o.RequireTLS, TemplateID: o.TemplateID,
		Variables: o.Variables, Headers: o.Headers, unfilled: o.TemplateID != "",
	}
	out.rewrite = origin == agents.OriginTainted // a person sees only the text of a tainted draft
	if !who.IsPerson() {                         // for a person, who has seen the draft, these stay false
		out.foreign = origin != agents.OriginOwn && origin != agents.OriginProgram
		out.program = origin != agents.OriginOwn
	}
	if e := root.Envelope; e != nil {
		out.To, out.Cc, out.Bcc, out.ReplyTo = addressTexts(e.To), addressTexts(e.Cc), addressTexts(e.Bcc), addressTexts(e.ReplyTo)
		out.Subject, out.References = e.Subject, e.References
		if from := addressTexts(e.From); len(from) > 0 {
			out.From = strings.Join(from, ", ")
		}
		if len(e.InReplyTo) > 0 {
			out.InReplyTo = e.InReplyTo[0]
		}
	}

	// Read the texts and files, up to the maximum size of a message.
	body, err := msg.ReadRawBody(blob, root, core.MaxContent)
	if err != nil {
		return out, fmt.Errorf("read draft %s of %s: %w", in.UID, in.UserID, err)
	}
	if body.Truncated {
		return out, core.ContentTooLarge()
	}
	out.Text, out.HTML.Text = body.Text, body.HTML
	if out.unfilled && strings.TrimSpace(out.Text) == "" { // the text of an empty draft is one line
		out.Text = ""
	}
	size := 0
	for _, a := range msg.Attachments(root) {
		var coded strings.Builder // the decoded content is streamed, and never in memory as a whole
		coded.Grow(base64.StdEncoding.EncodedLen(int(min(a.Size, core.MaxContent))))
		to := base64.NewEncoder(base64.StdEncoding, &coded)
		n, err := io.Copy(to, io.LimitReader(msg.Open(blob, a.Part), int64(core.MaxContent-size)+1))
		if err = errors.Join(err, to.Close()); err != nil {
			return out, fmt.Errorf("read draft %s of %s: %w", in.UID, in.UserID, err)
		}
		size += int(n)
		if size > core.MaxContent {
			return out, core.ContentTooLarge()
		}
		text := coded.String()
		name := a.Filename
		if name == "" {
			name = "attachment"
		}
		out.Attachments = append(out.Attachments, SendAttachment{Filename: name, Content: &text, ContentType: a.ContentType, ContentID: a.ContentID})
	}
	return out, nil
}
