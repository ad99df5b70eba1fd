package msg

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"mime/quotedprintable"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/mail/charset"
)

// Composer holds the content of a message to write. WriteTo adds a Bcc field only to a draft. In a
// message that is sent, Bcc addresses are recipients in the SMTP envelope alone.
type Composer struct {
	From            Address
	To, Cc, ReplyTo []Address
	Subject         string
	Text, HTML      string // if both are empty, the message has an empty plain text
	InReplyTo       string // with or without angle brackets
	References      []string
	Headers         []Header // further fields; those that Composer writes itself are refused
	Attachments     []AttachedFile
	MessageID       string // required, see NewMessageID
	Date            time.Time
	Calendar        []byte // an iCalendar reply to an invitation, sent as an alternative to the text (RFC 6047 section 2.4)

	// Draft says that the message is stored and not sent. It may lack recipients, and it keeps its
	// Bcc field.
	Draft bool
	Bcc   []Address
}

// AttachedFile is a file to attach. If it has a ContentID and the message has HTML, it becomes an
// inline part beside the HTML.
type AttachedFile struct {
	Filename    string
	ContentType string // "application/octet-stream" if empty
	ContentID   string // without brackets
	Content     []byte
}

// WriteTo writes the message with CRLF line ends, in lines of at most 78 columns where possible,
// and in ASCII unless an address needs SMTPUTF8. Invalid content is an error that wraps ErrHeader
// or ErrAddress, returned before anything is written. Other errors are those of w.
func (c *Composer) WriteTo(w io.Writer) (int64, error) {
	head, err := c.header()
	if err != nil {
		return 0, err
	}
	root, err := c.partTree()
	if err != nil {
		return 0, err
	}
	return writeMessage(w, root, head)
}

// writeMessage writes a message with root as its tree. head has the header fields that are not
// about the content.
func writeMessage(w io.Writer, root *entity, head []byte) (int64, error) {
	if err := root.checkHeaders(); err != nil {
		return 0, err
	}
	buffered := buffers.Writer(w)
	defer buffers.FreeWriter(buffered)
	s := &countingWriter{w: buffered}
	err := root.write(s, head)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return s.n, fmt.Errorf("write message: %w", err)
	}
	return s.n, nil
}

// checkHeaders builds the headers of all parts once, so that an invalid header is found before
// anything is written.
func (e *entity) checkHeaders() error {
	if _, err := e.appendHeader(nil); err != nil {
		return err
	}
	for _, c := range e.children {
		if err := c.checkHeaders(); err != nil {
			return err
		}
	}
	return nil
}

// reservedFields are the header fields that Composer writes itself, or that servers add in transit.
var reservedFields = map[string]bool{
	"from": true, "to": true, "cc": true, "bcc": true, "reply-to": true, "subject": true, "date": true, "message-id": true,
	"in-reply-to": true, "references": true, "mime-version": true, "received": true, "return-path": true,
	"dkim-signature": true, "authentication-results": true, "resent-bcc": true,
}

func (c *Composer) header() ([]byte, error) {
	if c.Date.IsZero() || c.MessageID == "" {
		return nil, fmt.Errorf("%w: Date and Message-ID are required", ErrHeader)
	}
	list := []Header{{"Date", c.Date.Format(time.RFC1123Z)}}
	bcc := c.Bcc
	if !c.Draft {
		bcc = nil
	}
	for _, f := range []struct {
		name string
		list []Address
	}{{"From", []Address{c.From}}, {"To", c.To}, {"Cc", c.Cc}, {"Bcc", bcc}, {"Reply-To", c.ReplyTo}} {
		for _, a := range f.list {
			if err := checkAddress(f.name, a); err != nil {
				return nil, err
			}
		}
		if len(f.list) > 0 {
			list = append(list, Header{f.name, encodeAddresses(f.list)})
		}
	}
	if len(c.To)+len(c.Cc) == 0 && !c.Draft {
		list = append(list, Header{"To", "undisclosed-recipients:;"})
	}
	if err := checkHeader("Subject", c.Subject); err != nil {
		return nil, err
	}
	list = append(list, Header{"Subject", encodeText(c.Subject)})
	ids, err := c.ids()
	if err != nil {
		return nil, err
	}
	return c.appendHeaders(append(list, ids...))
}

func (c *Composer) appendHeaders(list []Header) ([]byte, error) {
	for _, h := range c.Headers {
		name := strings.ToLower(h.Name)
		if reservedFields[name] || strings.HasPrefix(name, "content-") {
			return nil, fmt.Errorf("%w: %s cannot be set, since it is written automatically", ErrHeader, h.Name)
		}
		if err := checkHeader(h.Name, h.Value); err != nil {
			return nil, err
		}
		list = append(list, Header{h.Name, encodeField(h.Value)})
	}
	var b []byte
	var err error
	for _, h := range append(list, Header{"MIME-Version", "1.0"}) {
		b, err = appendField(b, h.Name, h.Value)
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// checkAddress returns an error if the address is incomplete or invalid, or if its display name has
// line breaks or control characters.
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

func (c *Composer) ids() ([]Header, error) {
	var out []Header
	for _, f := range []struct {
		name string
		ids  []string
	}{{"Message-ID", []string{c.MessageID}}, {"In-Reply-To", []string{c.InReplyTo}}, {"References", c.References}} {
		var ids []string
		for _, id := range f.ids {
			id = strings.Trim(id, "<> ")
			if id == "" {
				continue
			}
			if strings.ContainsAny(id, "<> \t") || !charset.IsASCII(id) {
				return nil, fmt.Errorf("%w: %s has an invalid message id", ErrHeader, f.name)
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

// partTree arranges the parts as mixed(alternative(text, related(html, images)), files). It leaves
// out a multipart with only one member.
func (c *Composer) partTree() (*entity, error) {
	var inline, files []*entity
	for _, a := range c.Attachments {
		e, err := a.entity(c.HTML != "")
		if err != nil {
			return nil, err
		}
		if a.ContentID != "" && c.HTML != "" {
			inline = append(inline, e)
		} else {
			files = append(files, e)
		}
	}
	if len(c.Attachments) == 0 && len(c.Calendar) == 0 && (c.Text == "" || c.HTML == "") {
		return c.singleText(), nil
	}
	root := textEntity("plain", c.Text)
	if c.HTML != "" {
		html := textEntity("html", c.HTML)
		if len(inline) > 0 {
			html = newMultipart(`multipart/related; type="text/html"`, append([]*entity{html}, inline...)...)
		}
		if c.Text == "" {
			root = html
		} else {
			root = newMultipart("multipart/alternative", root, html)
		}
	}
	if len(c.Calendar) > 0 {
		reply := textEntity("calendar", string(c.Calendar))
		reply.ctype += "; method=REPLY"
		root = newMultipart("multipart/alternative", root, reply)
	}
	if len(files) > 0 {
		root = newMultipart("multipart/mixed", append([]*entity{root}, files...)...)
	}
	return root, nil
}

// singleText returns the only part of a message without attachments: its text or its HTML. It ends
// the last line with a line break if that is missing.
func (c *Composer) singleText() *entity {
	subtype, text := "plain", c.Text
	if c.HTML != "" {
		subtype, text = "html", c.HTML
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return textEntity(subtype, text)
}

func (a *AttachedFile) entity(hasHTML bool) (*entity, error) {
	ctype := a.ContentType
	if ctype == "" {
		ctype = "application/octet-stream"
	}
	if err := checkMediaType(ctype); err != nil {
		return nil, err
	}
	e := &entity{ctype: ctype, encoding: "base64", content: a.Content}
	// A message/* part must not be base64 (RFC 2046 §5.2.1), so its type becomes
	// application/octet-stream.
	if strings.HasPrefix(strings.ToLower(ctype), "message/") {
		e.ctype = "application/octet-stream"
	}
	disposition := "attachment"
	if a.ContentID != "" {
		id := strings.Trim(a.ContentID, "<> ")
		if id == "" || strings.ContainsAny(id, "<> \t") || !charset.IsASCII(id) {
			return nil, fmt.Errorf("%w: invalid Content-ID %q", ErrHeader, cut(a.ContentID, 80))
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

// entity is a MIME part to write: its header fields, and either content or children.
type entity struct {
	fields   []Header // other Content-* fields than those of ctype and encoding
	ctype    string   // value of Content-Type, without the boundary parameter
	encoding string
	content  []byte
	boundary string
	children []*entity
}

// newMultipart returns a multipart with a random boundary.
func newMultipart(ctype string, children ...*entity) *entity {
	return &entity{ctype: ctype, boundary: "=_" + rand.Text(), children: children}
}

// textEntity returns a text part in UTF-8. The text may have any line ends.
func textEntity(subtype, text string) *entity {
	e := &entity{ctype: "text/" + subtype + "; charset=utf-8", content: withCRLF(text)}
	e.encoding = textEncoding(e.content)
	return e
}

// withCRLF returns the text with CRLF line ends. It allocates the buffer at once, since growing it
// would need memory for the old and the new one.
func withCRLF[T string | []byte](text T) []byte {
	ends := 0
	for i := range len(text) {
		if text[i] == '\n' || text[i] == '\r' {
			ends++
		}
	}
	var b bytes.Buffer // writes to it never fail
	b.Grow(len(text) + ends)
	n := NormalizeLines(&b)
	for at := 0; at < len(text); at += buffers.Size {
		n.Write([]byte(text[at:min(at+buffers.Size, len(text))]))
	}
	n.Close()
	return b.Bytes()
}

// textEncoding returns the most readable transfer encoding that survives any transport: 7bit,
// otherwise quoted-printable, or base64 if quoted-printable would escape over a quarter of the
// text.
func textEncoding(text []byte) string {
	special := 0
	for _, c := range text {
		if c >= utf8.RuneSelf || c < ' ' && c != '\r' && c != '\n' && c != '\t' {
			special++
		}
	}
	switch {
	case special == 0 && longestLine(text) <= foldAt && !bytes.HasPrefix(text, []byte("From ")) && !bytes.Contains(text, []byte("\nFrom ")):
		return "7bit"
	case special*4 > len(text):
		return "base64"
	}
	return "quoted-printable"
}

func longestLine(text []byte) int {
	most := 0
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		most = max(most, len(line))
	}
	return most
}

// countingWriter counts the bytes written to w and keeps the first error.
type countingWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (s *countingWriter) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(b)
	s.n += int64(n)
	s.err = err
	return n, err
}

// appendHeader appends the header block of the part to b, without the empty line.
func (e *entity) appendHeader(b []byte) ([]byte, error) {
	ctype := e.ctype
	if e.boundary != "" {
		ctype += encodeParam("boundary", e.boundary)
	}
	all := append([]Header{{"Content-Type", ctype}}, e.fields...)
	if e.encoding != "" {
		all = append(all, Header{"Content-Transfer-Encoding", e.encoding})
	}
	var err error
	for _, h := range all {
		b, err = appendField(b, h.Name, h.Value)
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// write writes the header fields in head, the part's own header fields, and its body.
func (e *entity) write(s *countingWriter, head []byte) error {
	head, err := e.appendHeader(head)
	if err != nil {
		return err
	}
	s.Write(append(head, "\r\n"...))
	for _, c := range e.children {
		fmt.Fprintf(s, "--%s\r\n", e.boundary)
		if err := c.write(s, nil); err != nil {
			return err
		}
		io.WriteString(s, "\r\n")
	}
	if e.children != nil {
		fmt.Fprintf(s, "--%s--\r\n", e.boundary)
		return s.err
	}
	return e.writeBody(s)
}

func (e *entity) writeBody(s *countingWriter) error {
	switch e.encoding {
	case "base64":
		return writeBase64(s, e.content)
	case "quoted-printable":
		q := quotedprintable.NewWriter(s)
		if _, err := q.Write(e.content); err != nil {
			return err
		}
		return q.Close()
	}
	_, err := s.Write(e.content)
	return err
}

func writeBase64(s *countingWriter, content []byte) error {
	const perLine = 57 // bytes that make 76 characters
	line := make([]byte, 0, 78)
	for len(content) > 0 && s.err == nil {
		n := min(perLine, len(content))
		line = append(base64.StdEncoding.AppendEncode(line[:0], content[:n]), "\r\n"...)
		s.Write(line)
		content = content[n:]
	}
	return s.err
}

// checkMediaType checks that ctype is "type/subtype" with or without parameters. It refuses
// multipart types, which would break the structure of the message.
func checkMediaType(ctype string) error {
	head, _, _ := strings.Cut(ctype, ";")
	typ, subtype, _ := strings.Cut(strings.TrimSpace(head), "/")
	if !isToken(typ) || !isToken(subtype) || strings.EqualFold(typ, "multipart") || !charset.IsASCII(ctype) {
		return fmt.Errorf("%w: invalid Content-Type %q", ErrHeader, cut(ctype, 80))
	}
	return nil
}
