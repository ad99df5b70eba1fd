package submit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/visible"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// maxNested is the maximum depth of messages inside each other in mail of a tainted sender.
const maxNested = 4

// rewriteIfTainted rewrites the message of a tainted sender, or of a tainted draft, so that it
// reaches only its recipients: nothing in it loads remote content, no program replies to a third
// address, and every reader sees the same message. It returns nil for other senders. The caller
// closes the spool.
func (s *Service) rewriteIfTainted(by senderInfo, body msg.Source) (*store.Spool, error) {
	var taint *store.Taint
	err := s.Store.View(func(tx *store.Tx) (err error) {
		taint, err = by.holder.Taint(tx)
		return err
	})
	if taint == nil && !by.rewrite || err != nil {
		return nil, err
	}
	m, err := rewriter{now: s.Now()}.compose(body, 1)
	if err != nil {
		return nil, err
	}
	return s.writeRewritten(m, errNotRewritable())
}

// writeRewritten writes a rewritten message to a spool, which the caller closes. It returns
// headerErr if the header cannot be written.
func (s *Service) writeRewritten(m *msg.Composer, headerErr error) (*store.Spool, error) {
	spool := s.Store.NewSpool(core.MaxMessage)
	if _, err := m.WriteTo(spool); err != nil {
		switch {
		case errors.Is(err, store.ErrTooLarge):
			err = core.MessageTooLarge(err)
		case errors.Is(err, msg.ErrHeader), errors.Is(err, msg.ErrAddress):
			err = headerErr
		}
		return nil, errors.Join(err, spool.Close())
	}
	return spool, nil
}

// errNotRewritable returns the error for a message that cannot be rewritten. It quotes nothing of
// the message.
func errNotRewritable() error {
	return core.OverSMTP(550, "5.6.0", core.Invalid("headers", "invalid", "a sender who has read a stranger's words must send a message whose header and parts are plain"))
}

// composedFields are the fields that the Composer writes.
var composedFields = []string{
	"from", "to", "cc", "bcc", "subject", "date", "message-id", "in-reply-to", "references", "mime-version",
	"received", "return-path", "dkim-signature", "authentication-results",
}

// A rewriter composes a message again from its content.
type rewriter struct {
	now        time.Time
	toApprove  bool        // the message needs approval: it must contain nothing that the approving person is not shown
	automatic  bool        // a mailbox sends the message automatically, and nobody would get an error
	forwarding msg.Address // the mailbox that forwards the message and becomes its author; zero if it is not a forward
}

// errNotRewritable returns the error for a message that cannot be rewritten for this purpose.
func (w rewriter) errNotRewritable() error {
	if w.toApprove {
		return errNotShowable()
	}
	return errNotRewritable()
}

// compose parses a message and composes it again. nested is the depth of the message, 1 for the
// outer one.
func (w rewriter) compose(body msg.Source, nested int) (*msg.Composer, error) {
	root, err := msg.Scan(msg.Whole(body))
	if err != nil {
		return nil, fmt.Errorf("rewrite message: %w", err)
	}
	headers, err := msg.Headers(body, root)
	if err != nil {
		return nil, fmt.Errorf("rewrite message: %w", err)
	}
	e := root.Envelope
	if e == nil || nested > maxNested {
		return nil, w.errNotRewritable()
	}
	if w.toApprove && !w.automatic && nested == 1 && hasUnshowablePart(root) {
		return nil, errNotShowable()
	}
	m := &msg.Composer{Subject: e.Subject, Date: e.Date, MessageID: e.MessageID, References: e.References}
	if len(e.InReplyTo) > 0 {
		m.InReplyTo = e.InReplyTo[0]
	}
	var from []msg.Address
	lists := map[string]*[]msg.Address{"from": &from, "to": &m.To, "cc": &m.Cc}
	for _, h := range headers {
		name := strings.ToLower(h.Name)
		if list := lists[name]; list != nil && !hasNoAddress(h.Value) {
			read, err := msg.ParseAddressList(h.Value)
			if err != nil {
				return nil, w.errNotRewritable()
			}
			*list = append(*list, slices.DeleteFunc(read, msg.Address.IsGroupMarker)...)
		}
		if w.keepsField(name) {
			m.Headers = append(m.Headers, h)
		}
	}
	if len(from) != 1 {
		return nil, w.errNotRewritable()
	}
	m.From = from[0]
	if m.Date.IsZero() {
		m.Date = w.now
	}
	if m.MessageID == "" {
		m.MessageID = msg.NewMessageID(core.DomainOfAddress(m.From.Email()))
	}
	text, err := msg.ReadRawBody(body, root, core.MaxMessage)
	if err != nil {
		return nil, fmt.Errorf("rewrite message: %w", err)
	}
	if w.toApprove {
		if err := w.fillShown(m, text, headers, nested); err != nil {
			return nil, err
		}
	} else {
		m.Text, m.HTML = text.Text, visible.LocalHTML(text.HTML)
	}
	left := int64(core.MaxMessage)
	for _, a := range msg.Attachments(root) {
		file, err := w.rewriteFile(body, a, left, nested)
		if err != nil {
			return nil, err
		}
		left -= int64(len(file.Content))
		m.Attachments = append(m.Attachments, file)
	}
	return m, nil
}

// keepsField reports whether a header field that the Composer does not write is copied unchanged.
func (w rewriter) keepsField(name string) bool {
	return !w.toApprove && !slices.Contains(composedFields, name) && !strings.HasPrefix(name, "content-") && !agents.IsDroppedWhileTainted(name)
}

// rewriteFile rewrites one file of a message, to at most maxSize bytes.
func (w rewriter) rewriteFile(body io.ReaderAt, a msg.Attachment, maxSize int64, nested int) (file msg.AttachedFile, err error) {
	file = msg.AttachedFile{Filename: a.Filename, ContentType: a.ContentType, ContentID: a.ContentID}
	if w.toApprove { // the text refers to no embedded images any more
		file.ContentID = ""
	}
	file.Content, err = io.ReadAll(io.LimitReader(msg.Open(body, a.Part), maxSize+1))
	if err != nil {
		return file, fmt.Errorf("rewrite message: %w", err)
	}
	if int64(len(file.Content)) > maxSize {
		return file, core.MessageTooLarge(nil)
	}
	kind, _, _ := strings.Cut(a.ContentType, "/")
	switch {
	case isMessage(a):
		inner, err := w.compose(bytes.NewReader(file.Content), nested+1)
		if err != nil {
			return file, err
		}
		var out bytes.Buffer
		if _, err := inner.WriteTo(&out); err != nil {
			return file, w.errNotRewritable()
		}
		file.Content, file.ContentType = out.Bytes(), "message/rfc822"
	case kind == "multipart", kind == "message": // a part that the rewriter did not enter
		return file, w.errNotRewritable()
	case isHTML(a) && !w.toApprove:
		alone := *a.Part // parse it like the only part of an HTML message
		alone.Type, alone.Subtype, alone.Disposition, alone.Children = "text", "html", "", nil
		page, err := msg.ReadRawBody(body, &alone, maxSize)
		if err != nil {
			return file, fmt.Errorf("rewrite message: %w", err)
		}
		file.ContentType, file.Content = "text/html; charset=utf-8", []byte(visible.LocalHTML(page.HTML))
	}
	return file, nil
}

// isMessage reports whether mail programs show a file as a message.
func isMessage(a msg.Attachment) bool {
	return a.ContentType == "message/rfc822" || a.ContentType == "message/global" || strings.EqualFold(path.Ext(a.Filename), ".eml")
}

// isHTML reports whether programs show a file as HTML.
func isHTML(a msg.Attachment) bool {
	return slices.Contains([]string{"text/html", "application/xhtml+xml", "text/x-amp-html"}, a.ContentType) ||
		slices.Contains([]string{".html", ".htm", ".xhtml", ".xht", ".shtml"}, strings.ToLower(path.Ext(a.Filename)))
}
