package submit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/visible"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/store"
)

// A heldContent is a message that needs approval, composed again from what a person is shown. This
// message is sent after approval. It is composed before the transaction that holds it.
type heldContent struct {
	to, cc, bcc []string // each recipient of the envelope is in one of the lists
	preview     string
	size        int64
	hash        string

	blob               store.BlobRef
	messageID, subject string
	eightBit           bool // an address needs SMTPUTF8
	startsThread       bool // the message starts a thread
}

// composeHeld composes the message that is to be held, and appends it to a segment. The caller
// releases its blob.
func (s *Service) composeHeld(ctx context.Context, e inbox.Envelope, to []outbound.Rcpt, stored msg.Source, w rewriter) (*heldContent, error) {
	_, leave, err := s.WorkOnLarge(ctx, stored.Size())
	if err != nil {
		return nil, err
	}
	defer leave()
	w.toApprove, w.now = true, s.Now()
	for _, r := range to {
		if visible.Line(r.Address) != r.Address {
			return nil, errNotShowable()
		}
	}
	sent, err := msg.AsSent(stored)
	if err != nil {
		return nil, err
	}
	m, err := w.compose(sent, 1)
	if err != nil {
		return nil, err
	}
	spool, err := s.writeRewritten(m, errNotShowable())
	if err != nil {
		return nil, err
	}
	defer spool.Close()
	h, err := readHeld(e.From, to, msg.Whole(spool))
	if err != nil {
		return nil, err
	}
	h.messageID, h.subject = m.MessageID, m.Subject
	h.startsThread = m.InReplyTo == "" && len(m.References) == 0 && len(m.Headers) == 0
	h.eightBit, err = msg.HasHighBytes(spool.Reader())
	if err != nil {
		return nil, err
	}
	e.To, e.Received, e.Outgoing = nil, w.now, true
	for _, r := range to {
		e.To = append(e.To, r.Address)
	}
	envelope, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode envelope: %w", err)
	}
	h.blob, err = s.Store.Append(envelope, spool)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// errNotShowable returns the error for a message that a person cannot be shown completely. It
// quotes nothing of the message.
func errNotShowable() error {
	return core.OverSMTP(550, "5.7.1", core.Errorf("sending_not_allowed",
		"A message that waits for approval is made anew of what a person is shown, and this one cannot be: it is signed, encrypted, a report or an answer to an invitation, "+
			"or has several authors, a group of addresses, an address with invisible characters, or a damaged message in it. Send text, HTML and files, or have a person send it."))
}

// hasUnshowablePart reports whether a message has a part that would be lost or invalid if it were
// composed again: a signature, encrypted content, a machine-readable report, a calendar entry.
func hasUnshowablePart(root *msg.Part) bool {
	files := msg.Attachments(root)
	var look func(p *msg.Part) bool
	look = func(p *msg.Part) bool {
		switch p.MediaType() {
		case "multipart/signed", "multipart/encrypted", "multipart/report", "application/pkcs7-mime", "application/x-pkcs7-mime":
			return true
		case "text/calendar":
			return !slices.ContainsFunc(files, func(a msg.Attachment) bool { return a.Part == p })
		}
		return !p.IsMessage() && slices.ContainsFunc(p.Children, look)
	}
	return look(root)
}

// fillShown fills m with the text and the header fields that a person is shown.
func (w rewriter) fillShown(m *msg.Composer, text msg.Body, headers []msg.Header, nested int) error {
	if nested == 1 {
		m.Date = w.now
		if w.forwarding.Mailbox != "" { // the author's address moves into the display name, since this server signs the message
			w.forwarding.Name = strings.TrimSpace(m.From.Name + " " + strings.ReplaceAll(m.From.Email(), "@", " at "))
			m.From = w.forwarding
		}
		m.Headers = autoSubmittedField(headers)
	}
	m.MessageID = msg.NewMessageID(core.DomainOfAddress(m.From.Email()))
	m.Subject = visible.Line(m.Subject)
	for _, list := range [][]msg.Address{{m.From}, m.To, m.Cc} {
		for i := range list {
			if email := list[i].Email(); visible.Line(email) != email {
				return errNotShowable()
			}
			list[i].Name = visible.Line(list[i].Name)
		}
	}
	m.From.Name = visible.Line(m.From.Name)
	m.HTML = visible.HTML(text.HTML)
	m.Text = visible.Text(visible.HTMLText(m.HTML))
	if m.Text == "" {
		m.HTML, m.Text = "", visible.Text(text.Text)
	}
	return nil
}

// autoSubmittedField returns the field that marks a message as automatic, which keeps other
// programs from answering it (RFC 3834 section 5); nil if it has none.
func autoSubmittedField(headers []msg.Header) []msg.Header {
	for _, h := range headers {
		value := strings.ToLower(strings.TrimSpace(h.Value))
		if strings.EqualFold(h.Name, "Auto-Submitted") && (value == "auto-generated" || value == "auto-replied") {
			return []msg.Header{{Name: "Auto-Submitted", Value: value}}
		}
	}
	return nil
}

// A heldFile is a file of a held message, or of a message inside it.
type heldFile struct {
	ApprovalAttachment
	body io.ReaderAt
	part *msg.Part
	of   *msg.Part // the parsed message, if the file is a message; else nil
}

// filesOf lists the files of a held message. The names of files in an inner message begin with that
// message's name.
func filesOf(body msg.Source, root *msg.Part, namePrefix string, nested int) (out []heldFile, err error) {
	for _, a := range msg.Attachments(root) {
		f := heldFile{ApprovalAttachment: ApprovalAttachment{namePrefix + a.Filename, a.ContentType, a.Size}, body: body, part: a.Part}
		if !isMessage(a) || nested > maxNested {
			out = append(out, f)
			continue
		}
		text, err := io.ReadAll(msg.Open(body, a.Part))
		if err != nil {
			return nil, fmt.Errorf("read message in attachment: %w", err)
		}
		inner := bytes.NewReader(text)
		f.of, err = msg.Scan(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("read message in attachment: %w", err)
		}
		f.body, f.Size = inner, int64(len(text))
		within, err := filesOf(inner, f.of, f.Filename+"/", nested+1)
		if err != nil {
			return nil, err
		}
		out = append(append(out, f), within...)
	}
	return out, nil
}

// text returns the text of a file; nil if it is not a text.
func (f *heldFile) text(content []byte) ([]byte, error) {
	switch {
	case f.of != nil:
		return f.messageText()
	case bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content) && f.part.Type != "text":
		return nil, nil
	}
	return content, nil
}

// messageText returns the header and the text of an inner message. Its files are listed separately.
func (f *heldFile) messageText() ([]byte, error) {
	headers, err := msg.Headers(f.body, f.of)
	if err != nil {
		return nil, err
	}
	body, err := msg.ReadRawBody(f.body, f.of, core.MaxMessage)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, h := range headers {
		fmt.Fprintf(&out, "%s: %s\n", h.Name, h.Value)
	}
	text := body.Text
	if !body.HasText {
		text = visible.HTMLText(body.HTML)
	}
	out.WriteString("\n" + text)
	return out.Bytes(), nil
}
