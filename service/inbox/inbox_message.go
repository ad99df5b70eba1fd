package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/reply"
	"github.com/mailstead/mailstead/mail/view"
	"github.com/mailstead/mailstead/mail/visible"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// maxBodyInAnswer limits a message's text in an answer, in bytes, and also its HTML.
const maxBodyInAnswer = 1 << 20

// MessageIn names a message by the ID of its mailbox, its folder and its UID.
type MessageIn struct {
	UserID    string `path:"user_id"`
	MessageID string `path:"message_id" example:"17"`           // The IMAP UID of the message.
	Folder    string `query:"folder" max:"255" example:"inbox"` // A role (`inbox sent drafts junk trash archive`) or an IMAP name; the inbox unless given.
}

// InboxMessageIn names a message by the address of its mailbox, its folder and its UID.
type InboxMessageIn struct {
	MessageID string `path:"message_id" example:"17"`           // The IMAP UID of the message.
	Mailbox   string `query:"mailbox"`                          // The mailbox's address.
	Folder    string `query:"folder" max:"255" example:"inbox"` // A role (`inbox sent drafts junk trash archive`) or an IMAP name; the inbox unless given.
}

// A MessageDetail is a message with its text. Its HTML is sanitized, so that it is safe to show.
type MessageDetail struct {
	InboxMessage
	Text *string `json:"text" words:"theirs"`
	HTML *string `json:"html" words:"theirs"` // Sanitised for received messages; still do not trust it.
	// What the author wrote, without quoted messages, the lines that introduce them, and the
	// signature; from the HTML if there is no text. Null if the author wrote nothing. It is as
	// little to be trusted as `text`.
	ReplyText *string         `json:"reply_text" words:"theirs"`
	Headers   []MessageHeader `json:"headers"`
	Truncated bool            `json:"truncated"`

	Invitation *Invitation `json:"invitation"`
}

// A MessageHeader is one decoded header field.
type MessageHeader struct {
	Name  string `json:"name" words:"theirs" example:"Subject"`
	Value string `json:"value" words:"theirs" example:"Your order"`
}

// A mailboxPicker finds the mailbox that a request names. The result is a shared record and must
// not be changed.
type mailboxPicker func(tx *store.Tx) (*store.Mailbox, error)

// byUserID finds a mailbox by its ID.
func byUserID(who core.Actor, id string) mailboxPicker {
	return func(tx *store.Tx) (*store.Mailbox, error) { return core.ReadMailbox(tx, who, id) }
}

// byMailboxAddress finds a mailbox by its address.
func byMailboxAddress(who core.Actor, email string) mailboxPicker {
	return func(tx *store.Tx) (*store.Mailbox, error) {
		if email == "" {
			return nil, core.Errorf("mailbox_required", "Name the mailbox that the message is in: ?mailbox=name@domain.").
				With("mailbox", "required", "is required")
		}
		mb, err := core.MailboxByEmail(tx, who, email)
		if errors.Is(err, store.ErrNotFound) {
			return nil, core.NotFound("email user")
		}
		return mb, err
	}
}

// A messagePicker finds the message that a request names.
type messagePicker struct {
	box    mailboxPicker
	folder string // a role or an IMAP name
	uid    string
}

func (in MessageIn) by(who core.Actor) messagePicker {
	return messagePicker{byUserID(who, in.UserID), in.Folder, in.MessageID}
}

func (in InboxMessageIn) by(who core.Actor) messagePicker {
	return messagePicker{byMailboxAddress(who, in.Mailbox), in.Folder, in.MessageID}
}

// find returns the message with its mailbox and folder. The error is not_found if one of them does
// not exist.
func (p messagePicker) find(tx *store.Tx) (*store.Mailbox, *Folder, *store.Message, error) {
	mb, err := p.box(tx)
	if err != nil {
		return nil, nil, nil, err
	}
	f, err := findFolder(tx, mb, p.folder)
	if err != nil {
		return nil, nil, nil, err
	}
	n, err := strconv.ParseUint(p.uid, 10, 32)
	if err != nil {
		return nil, nil, nil, core.NotFound("message")
	}
	m, err := tx.Message(mb.Num, f.ID, uint32(n))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, nil, core.NotFound("message")
	}
	return mb, f, m, err
}

// An openedMessage is a message whose bytes are open for reading, with its data from one snapshot
// of the store.
type openedMessage struct {
	shown  InboxMessage
	root   *msg.Part
	blob   *store.Blob
	source agents.Source

	keywords []string
}

// openMessage reads the rows of a message and opens its bytes. The caller must close the blob.
func (s *Service) openMessage(p messagePicker) (*openedMessage, error) {
	o := &openedMessage{}
	var ref store.BlobRef
	err := s.Store.View(func(tx *store.Tx) error {
		_, f, m, err := p.find(tx)
		if err != nil {
			return err
		}
		w := s.newMessageView(tx)
		defer s.freeMessageView(w)
		b, err := w.folder(f.Num)
		if err != nil {
			return err
		}
		ref, o.keywords = m.Blob, m.Keywords
		o.shown, err = w.show(b, m)
		if err != nil {
			return err
		}
		o.source = w.source(b, m, o.shown.ThreadID)
		o.root, err = msg.DecodePart(w.meta.Structure)
		return err
	})
	if err != nil {
		return nil, err
	}
	o.blob, err = s.Store.OpenBlob(ref)
	return o, err
}

// ReadStored opens a message, and also returns the spam classifier's result for it. It does not
// taint the caller. The caller must close the blob.
func (s *Service) ReadStored(who core.Actor, in MessageIn) (*msg.Part, *store.Blob, *SpamVerdict, error) {
	o, err := s.openMessage(in.by(who))
	if err != nil {
		return nil, nil, nil, err
	}
	return o.root, o.blob, o.shown.Spam, nil
}

// OpenToRead opens a message for a reader who gets content of it, and records the reading, which
// may taint the reader. The caller must close the blob.
func (s *Service) OpenToRead(who core.Actor, in MessageIn) (InboxMessage, *msg.Part, *store.Blob, error) {
	o, err := s.openToRead(who, in.by(who))
	if err != nil {
		return InboxMessage{}, nil, nil, err
	}
	return o.shown, o.root, o.blob, nil
}

// GetMessage returns one message of a mailbox. It does not mark the message as read.
func (s *Service) GetMessage(_ context.Context, who core.Actor, in MessageIn) (*MessageDetail, error) {
	return s.messageDetail(who, in.by(who))
}

// GetInboxMessage is like GetMessage, but the request names the mailbox by its address.
func (s *Service) GetInboxMessage(_ context.Context, who core.Actor, in InboxMessageIn) (*MessageDetail, error) {
	return s.messageDetail(who, in.by(who))
}

func (s *Service) messageDetail(who core.Actor, p messagePicker) (*MessageDetail, error) {
	o, err := s.openToRead(who, p)
	if err != nil {
		return nil, err
	}
	defer o.blob.Close()
	body, err := msg.ReadRawBody(o.blob, o.root, maxBodyInAnswer)
	if err != nil {
		return nil, fmt.Errorf("read message %s of %s: %w", p.uid, o.shown.Mailbox, err)
	}
	headers, err := msg.Headers(o.blob, o.root)
	if err != nil {
		return nil, fmt.Errorf("read message %s of %s: %w", p.uid, o.shown.Mailbox, err)
	}
	proven, err := s.readsAsProven(who, &o.source)
	if err != nil {
		return nil, err
	}
	out := &MessageDetail{InboxMessage: o.shown, Truncated: body.Truncated, Headers: make([]MessageHeader, 0, len(headers))}
	if body.HasText {
		out.Text = &body.Text
	}
	if text := reply.Of(body); text != "" {
		out.ReplyText = &text
	}
	if body.HasHTML {
		html := visible.SanitizeHTML(body.HTML)
		out.HTML = &html
	}
	for _, h := range headers {
		if !proven || auth.IsShown(h.Name) {
			out.Headers = append(out.Headers, MessageHeader(h))
		}
	}
	out.Invitation, err = invitationOf(o)
	if err != nil {
		return nil, fmt.Errorf("read message %s of %s: %w", p.uid, o.shown.Mailbox, err)
	}
	return out, nil
}

// GetMessageRaw returns the bytes of a message as it arrived.
func (s *Service) GetMessageRaw(_ context.Context, who core.Actor, in MessageIn) (*core.File, error) {
	o, err := s.openToRead(who, in.by(who))
	if err != nil {
		return nil, err
	}
	return &core.File{
		Name: "message-" + o.shown.UID + ".eml", ContentType: "message/rfc822", Size: o.blob.Size(),
		Body: blobReader{io.NewSectionReader(o.blob, 0, o.blob.Size()), o.blob},
	}, nil
}

// A blobReader reads from a blob and closes it.
type blobReader struct {
	io.Reader
	blob *store.Blob
}

func (r blobReader) Close() error { return r.blob.Close() }

// ViewIn names a message to show in a browser, and how to show it.
type ViewIn struct {
	UserID string `path:"user_id"`
	UID    string `path:"uid"`
	Folder string `query:"folder"`
	Images string `query:"images" enum:"0|1"` // 1: show remote images too
	Theme  string `query:"theme" enum:"light|dark"`
}

// ViewMessage renders a message as an HTML document. It does not mark the message as read.
func (s *Service) ViewMessage(_ context.Context, who core.Actor, in ViewIn) (*view.Document, error) {
	o, err := s.openToRead(who, messagePicker{byUserID(who, in.UserID), in.Folder, in.UID})
	if err != nil {
		return nil, err
	}
	defer o.blob.Close()
	body, err := msg.ReadRawBody(o.blob, o.root, maxBodyInAnswer)
	if err != nil {
		return nil, fmt.Errorf("read message %s of %s: %w", in.UID, o.shown.Mailbox, err)
	}
	shown := view.Options{Title: o.shown.Subject, Dark: in.Theme == "dark", More: body.Truncated, Image: s.imageLinks(who, o, in.Images == "1")}
	if body.HasHTML {
		return view.HTML(body.HTML, shown), nil
	}
	return view.Text(body.Text, shown), nil
}

// imageLinks returns a function that maps the source of an image in the message to a link of our
// own. It maps attached images and, if remote is true, remote images. For all others it returns "".
func (s *Service) imageLinks(who core.Actor, o *openedMessage, remote bool) func(src string) string {
	inner := map[string]int{}
	for _, a := range msg.Attachments(o.root) {
		if a.ContentID != "" && strings.HasPrefix(a.ContentType, "image/") && !strings.Contains(a.ContentType, "svg") {
			inner[a.ContentID] = a.Index
		}
	}
	expires := s.imageExpiry()
	return func(src string) string {
		scheme, rest, _ := strings.Cut(src, ":")
		ref := imageRef{Account: who.AccountID, Mailbox: o.shown.UserID, Folder: o.shown.Folder, UID: o.shown.UID, Expires: expires}
		if strings.EqualFold(scheme, "cid") {
			id, err := url.PathUnescape(rest)
			index, ok := inner[id]
			if err != nil || !ok {
				return ""
			}
			ref.Source = embeddedImage + strconv.Itoa(index)
		} else {
			ref.Source = s.remoteImage(src)
			if ref.Source == "" || !remote {
				return ""
			}
		}
		return imagePath + s.imageToken(ref)
	}
}

// remoteImage returns the URL from which a remote image is fetched, or "" if netguard refuses it.
func (s *Service) remoteImage(src string) string {
	u, err := url.Parse(src)
	if err != nil {
		return ""
	}
	u.Fragment, u.RawFragment = "", ""
	if text := u.String(); s.Guard.CheckURL(text) == nil {
		return text
	}
	return ""
}
