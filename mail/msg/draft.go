package msg

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
)

// Draft is a message to be composed. Blind copies have no field here: they are the
// envelope's business and are never written.
type Draft struct {
	From            Address
	To, Cc, ReplyTo []Address
	Subject         string
	Text, HTML      string // either or both; without any the text is empty
	InReplyTo       string // with brackets or without
	References      []string
	Headers         []Header // further fields; those that Draft itself writes are refused
	Attachments     []DraftAttachment
	MessageID       string // required, see NewMessageID
	Date            time.Time
}

// DraftAttachment is a file to be attached. With a ContentID and HTML to refer to it, it
// goes beside the HTML as an inline part.
type DraftAttachment struct {
	Filename    string
	ContentType string // "application/octet-stream" if empty
	ContentID   string // without brackets
	Content     []byte
}

// WriteTo writes the message with CRLF line ends, folded to 78 columns, in ASCII unless
// an address needs SMTPUTF8. Errors about the draft wrap ErrHeader or ErrAddress and
// come before anything is written; others are those of w.
func (d *Draft) WriteTo(w io.Writer) (int64, error) {
	head, err := d.header()
	if err != nil {
		return 0, err
	}
	root, err := d.tree()
	if err != nil {
		return 0, err
	}
	return writeMessage(w, root, head)
}

func writeMessage(w io.Writer, root *entity, head []byte) (int64, error) {
	if err := root.check(); err != nil {
		return 0, err
	}
	buffered := bufio.NewWriterSize(w, 16<<10)
	s := &sink{w: buffered}
	err := root.write(s, head)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return s.n, fmt.Errorf("write message: %w", err)
	}
	return s.n, nil
}

// check builds every header once, so that a bad one is found before the first byte.
func (e *entity) check() error {
	if _, err := e.header(nil); err != nil {
		return err
	}
	for _, c := range e.children {
		if err := c.check(); err != nil {
			return err
		}
	}
	return nil
}

// reserved are fields that the draft writes, or that others add on the way.
var reserved = map[string]bool{
	"from": true, "to": true, "cc": true, "bcc": true, "reply-to": true, "subject": true, "date": true, "message-id": true,
	"in-reply-to": true, "references": true, "mime-version": true, "received": true, "return-path": true,
	"dkim-signature": true, "authentication-results": true, "resent-bcc": true,
}

func (d *Draft) header() ([]byte, error) {
	if d.Date.IsZero() || d.MessageID == "" {
		return nil, fmt.Errorf("%w: Date and Message-ID are required", ErrHeader)
	}
	list := []Header{{"Date", d.Date.Format("Mon, 02 Jan 2006 15:04:05 -0700")}}
	for _, f := range []struct {
		name string
		list []Address
	}{{"From", []Address{d.From}}, {"To", d.To}, {"Cc", d.Cc}, {"Reply-To", d.ReplyTo}} {
		for _, a := range f.list {
			if err := checkAddress(f.name, a); err != nil {
				return nil, err
			}
		}
		if len(f.list) > 0 {
			list = append(list, Header{f.name, encodeAddresses(f.list)})
		}
	}
	if len(d.To)+len(d.Cc) == 0 {
		list = append(list, Header{"To", "undisclosed-recipients:;"})
	}
	if err := checkHeader("Subject", d.Subject); err != nil {
		return nil, err
	}
	list = append(list, Header{"Subject", encodeText(d.Subject)})
	ids, err := d.ids()
	if err != nil {
		return nil, err
	}
	return d.appendHeaders(append(list, ids...))
}

func (d *Draft) appendHeaders(list []Header) ([]byte, error) {
	for _, h := range d.Headers {
		name := strings.ToLower(h.Name)
		if reserved[name] || strings.HasPrefix(name, "content-") {
			return nil, fmt.Errorf("%w: %s is not for callers to set", ErrHeader, h.Name)
		}
		if err := checkHeader(h.Name, h.Value); err != nil {
			return nil, err
		}
		list = append(list, Header{h.Name, encodeField(h.Value)})
	}
	var b []byte
	var err error
	for _, h := range append(list, Header{"MIME-Version", "1.0"}) {
		if b, err = appendField(b, h.Name, h.Value); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// checkAddress wants an address that is whole; its name may be anything in one line.
func checkAddress(field string, a Address) error {
	if err := checkHeader(field, a.Name); err != nil {
		return err
	}
	if a.Host == MissingHost {
		return fmt.Errorf("%w in %s: %q has no domain", ErrAddress, field, a.Mailbox)
	}
	if _, err := NormalizeEmail(a.Email()); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

func (d *Draft) ids() ([]Header, error) {
	var out []Header
	for _, f := range []struct {
		name string
		ids  []string
	}{{"Message-ID", []string{d.MessageID}}, {"In-Reply-To", []string{d.InReplyTo}}, {"References", d.References}} {
		var ids []string
		for _, id := range f.ids {
			if id = strings.Trim(id, "<> "); id == "" {
				continue
			}
			if strings.ContainsAny(id, "<> \t") || !isASCII(id) {
				return nil, fmt.Errorf("%w: %s has a bad id", ErrHeader, f.name)
			}
			ids = append(ids, "<"+id+">")
		}
		if over := len(ids) - MaxReferences; over > 0 {
			ids = append(ids[:1], ids[1+over:]...)
		}
		if len(ids) > 0 {
			out = append(out, Header{f.name, strings.Join(ids, " ")})
		}
	}
	return out, nil
}

// tree arranges mixed(alternative(text, related(html, images)), files), leaving out what
// has one member only.
func (d *Draft) tree() (*entity, error) {
	var inline, files []*entity
	for _, a := range d.Attachments {
		e, err := a.entity(d.HTML != "")
		if err != nil {
			return nil, err
		}
		if a.ContentID != "" && d.HTML != "" {
			inline = append(inline, e)
		} else {
			files = append(files, e)
		}
	}
	if len(d.Attachments) == 0 && (d.Text == "" || d.HTML == "") {
		return d.single(), nil
	}
	root := textEntity("plain", d.Text)
	if d.HTML != "" {
		html := textEntity("html", d.HTML)
		if len(inline) > 0 {
			html = multipart(`multipart/related; type="text/html"`, append([]*entity{html}, inline...)...)
		}
		if d.Text == "" {
			root = html
		} else {
			root = multipart("multipart/alternative", root, html)
		}
	}
	if len(files) > 0 {
		root = multipart("multipart/mixed", append([]*entity{root}, files...)...)
	}
	return root, nil
}

// single is the message of one part, whose last line must have an end.
func (d *Draft) single() *entity {
	subtype, text := "plain", d.Text
	if d.HTML != "" {
		subtype, text = "html", d.HTML
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return textEntity(subtype, text)
}

func (a *DraftAttachment) entity(hasHTML bool) (*entity, error) {
	ctype := a.ContentType
	if ctype == "" {
		ctype = "application/octet-stream"
	}
	if err := checkMediaType(ctype); err != nil {
		return nil, err
	}
	e := &entity{ctype: ctype, encoding: "base64", content: a.Content}
	// A message may not be encoded (RFC 2046 §5.2.1), so it goes as a file.
	if strings.HasPrefix(strings.ToLower(ctype), "message/") {
		e.ctype = "application/octet-stream"
	}
	disposition := "attachment"
	if a.ContentID != "" {
		id := strings.Trim(a.ContentID, "<> ")
		if id == "" || strings.ContainsAny(id, "<> \t") || !isASCII(id) {
			return nil, fmt.Errorf("%w: Content-ID %q", ErrHeader, cut(a.ContentID, 80))
		}
		e.fields = append(e.fields, Header{"Content-ID", "<" + id + ">"})
		if hasHTML {
			disposition = "inline"
		}
	}
	if a.Filename != "" {
		if err := checkHeader("Content-Disposition", a.Filename); err != nil {
			return nil, err
		}
		disposition += encodeParam("filename", a.Filename)
	}
	e.fields = append(e.fields, Header{"Content-Disposition", disposition})
	return e, nil
}
