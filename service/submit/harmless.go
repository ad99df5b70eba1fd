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

// maxNested is how many messages may be inside each other in mail of a tainted sender.
const maxNested = 4

// harmless writes the message of a sender who is tainted, or the draft of one, again, so that it
// tells nobody anything but those who get it: nothing in it refers to what is elsewhere, no program
// answers to a third one, and no reader finds another message in it than this one has read. It
// gives nil for others. The caller closes the spool.
func (s *Service) harmless(by sentBy, body msg.Source) (*store.Spool, error) {
	var taint *store.Taint
	err := s.Store.View(func(tx *store.Tx) (err error) {
		taint, err = by.holder.Taint(tx)
		return err
	})
	if taint == nil && !by.anew || err != nil {
		return nil, err
	}
	m, err := rewriting{now: s.Now()}.message(body, 1)
	if err != nil {
		return nil, err
	}
	return s.writeAnew(m, unclear())
}

// writeAnew gives a message that was made again, which the caller closes. The error is bad where
// its header cannot be written.
func (s *Service) writeAnew(m *msg.Composer, bad error) (*store.Spool, error) {
	spool := s.Store.NewSpool(core.MaxMessage)
	if _, err := m.WriteTo(spool); err != nil {
		switch {
		case errors.Is(err, store.ErrTooLarge):
			err = core.MessageTooLarge(err)
		case errors.Is(err, msg.ErrHeader), errors.Is(err, msg.ErrAddress):
			err = bad
		}
		return nil, errors.Join(err, spool.Close())
	}
	return spool, nil
}

// unclear refuses a message that cannot be written again. It repeats nothing of it.
func unclear() error {
	return core.OverSMTP(550, "5.6.0", core.Invalid("headers", "invalid", "a sender who has read a stranger's words must send a message whose header and parts are plain"))
}

// composedFields are those of a message that its parts make.
var composedFields = []string{
	"from", "to", "cc", "bcc", "subject", "date", "message-id", "in-reply-to", "references", "mime-version",
	"received", "return-path", "dkim-signature", "authentication-results",
}

// A rewriting says how a message is made again of what it says.
type rewriting struct {
	now        time.Time
	toApprove  bool        // nothing is in it that a person is not shown
	byItself   bool        // a mailbox sends it, and nobody hears of an error
	forwarding msg.Address // who passes it on, and is its author then; else nobody
}

// unclear refuses a message as the rewriting is for.
func (w rewriting) unclear() error {
	if w.toApprove {
		return unshowable()
	}
	return unclear()
}

// message reads what a message says and makes it again of that; nested is how many messages it is
// in, itself included.
func (w rewriting) message(body msg.Source, nested int) (*msg.Composer, error) {
	root, err := msg.Scan(msg.Whole(body))
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	headers, err := msg.Headers(body, root)
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	e := root.Envelope
	if e == nil || nested > maxNested {
		return nil, w.unclear()
	}
	if w.toApprove && !w.byItself && nested == 1 && bound(root) {
		return nil, unshowable()
	}
	m := &msg.Composer{Subject: e.Subject, Date: e.Date, MessageID: e.MessageID, References: e.References}
	if len(e.InReplyTo) > 0 {
		m.InReplyTo = e.InReplyTo[0]
	}
	var from []msg.Address
	lists := map[string]*[]msg.Address{"from": &from, "to": &m.To, "cc": &m.Cc}
	for _, h := range headers {
		name := strings.ToLower(h.Name)
		if list := lists[name]; list != nil && !namesNobody(h.Value) {
			read, err := msg.ParseAddressList(h.Value)
			if err != nil {
				return nil, w.unclear()
			}
			*list = append(*list, slices.DeleteFunc(read, msg.Address.IsGroupMarker)...)
		}
		if w.keeps(name) {
			m.Headers = append(m.Headers, h)
		}
	}
	if len(from) != 1 {
		return nil, w.unclear()
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
		return nil, fmt.Errorf("read message: %w", err)
	}
	if w.toApprove {
		if err := w.show(m, text, headers, nested); err != nil {
			return nil, err
		}
	} else {
		m.Text, m.HTML = text.Text, visible.LocalHTML(text.HTML)
	}
	left := int64(core.MaxMessage)
	for _, a := range msg.Attachments(root) {
		file, err := w.file(body, a, left, nested)
		if err != nil {
			return nil, err
		}
		left -= int64(len(file.Content))
		m.Attachments = append(m.Attachments, file)
	}
	return m, nil
}

// keeps reports whether a field that nothing is made of stays as it came.
func (w rewriting) keeps(name string) bool {
	return !w.toApprove && !slices.Contains(composedFields, name) && !strings.HasPrefix(name, "content-") && !agents.DroppedWhileTainted(name)
}

// file is a file of a message of at most so many bytes.
func (w rewriting) file(body io.ReaderAt, a msg.Attachment, left int64, nested int) (file msg.AttachedFile, err error) {
	file = msg.AttachedFile{Filename: a.Filename, ContentType: a.ContentType, ContentID: a.ContentID}
	if w.toApprove { // no image that is in the text is left
		file.ContentID = ""
	}
	file.Content, err = io.ReadAll(io.LimitReader(msg.Open(body, a.Part), left+1))
	if err != nil {
		return file, fmt.Errorf("read message: %w", err)
	}
	if int64(len(file.Content)) > left {
		return file, core.MessageTooLarge(nil)
	}
	kind, _, _ := strings.Cut(a.ContentType, "/")
	switch {
	case isMessage(a):
		inner, err := w.message(bytes.NewReader(file.Content), nested+1)
		if err != nil {
			return file, err
		}
		var out bytes.Buffer
		if _, err := inner.WriteTo(&out); err != nil {
			return file, w.unclear()
		}
		file.Content, file.ContentType = out.Bytes(), "message/rfc822"
	case kind == "multipart", kind == "message": // which nobody has gone into
		return file, w.unclear()
	case isHTML(a) && !w.toApprove:
		alone := *a.Part // as the only part of a message, and HTML
		alone.Type, alone.Subtype, alone.Disposition, alone.Children = "text", "html", "", nil
		page, err := msg.ReadRawBody(body, &alone, left)
		if err != nil {
			return file, fmt.Errorf("read message: %w", err)
		}
		file.ContentType, file.Content = "text/html; charset=utf-8", []byte(visible.LocalHTML(page.HTML))
	}
	return file, nil
}

// isMessage reports whether programs show a file as a message.
func isMessage(a msg.Attachment) bool {
	return a.ContentType == "message/rfc822" || a.ContentType == "message/global" || strings.EqualFold(path.Ext(a.Filename), ".eml")
}

// isHTML reports whether programs show a file as HTML.
func isHTML(a msg.Attachment) bool {
	return slices.Contains([]string{"text/html", "application/xhtml+xml", "text/x-amp-html"}, a.ContentType) ||
		slices.Contains([]string{".html", ".htm", ".xhtml", ".xht", ".shtml"}, strings.ToLower(path.Ext(a.Filename)))
}
