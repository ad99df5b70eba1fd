package msg

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/charset"
	"github.com/mailstead/mailstead/mail/transfer"
	"github.com/mailstead/mailstead/mail/visible"
)

// Body holds the displayed text of a message, in UTF-8 with LF line ends.
type Body struct {
	Text string
	HTML string // not sanitized, so not safe to display: see SanitizeHTML

	HasText, HasHTML bool // the message has plain text, or HTML, even if it is empty
	Truncated        bool // the message has more text than the limit
}

// ReadRawBody returns the text and the HTML of a message, each of at most max bytes. Among
// alternatives, the text comes from the first that has plain text, and the HTML from the last that
// has HTML. Consecutive texts, such as a message and a mailing list's footer, are joined.
func ReadRawBody(r io.ReaderAt, root *Part, max int64) (Body, error) {
	b := bodyReader{r: r, textLeft: max, htmlLeft: max}
	pieces := bodyPieces(root)
	for _, p := range pieces {
		b.HasText = b.HasText || slices.ContainsFunc(p.text, isPlain)
		b.HasHTML = b.HasHTML || slices.ContainsFunc(p.html, isHTML)
	}
	for _, p := range pieces {
		if err := b.add(p); err != nil {
			return Body{}, err
		}
	}
	b.Text = b.text.String()
	b.HTML = b.html.String()
	return b.Body, nil
}

// bodyPiece is one section of the displayed message, as plain text, as HTML, or as both. text has
// the parts to show in the plain text form of the section, in order, and html those to show in its
// HTML form. A list may have parts of the other type, for content that exists in that type only.
type bodyPiece struct {
	text, html []*Part
}

func isPlain(p *Part) bool { return p.Subtype != "html" }
func isHTML(p *Part) bool  { return p.Subtype == "html" }

// plainPart returns the first part with plain text, nil if there is none.
func (p bodyPiece) plainPart() *Part {
	if i := slices.IndexFunc(p.text, isPlain); i >= 0 {
		return p.text[i]
	}
	return nil
}

// bodyPieces returns the displayed sections of a message (RFC 8621 section 4.1.4).
func bodyPieces(root *Part) []bodyPiece {
	var out []bodyPiece
	collectPieces([]*Part{root}, nil, nil, &out)
	return out
}

// collectPieces appends the sections of one part to out. The part is the only element of self, so
// that a bodyPiece can keep that slice without a copy.
func collectPieces(self []*Part, parent *Part, in *branch, out *[]bodyPiece) {
	p := self[0]
	if p.IsMultipart() && (parent == nil || parent.Subtype == "alternative") {
		in = &branch{top: p}
	}
	switch {
	case p.IsMultipart() && p.Subtype == "alternative":
		branches := make([][]bodyPiece, len(p.Children))
		for i := range p.Children {
			collectPieces(p.Children[i:i+1:i+1], p, in, &branches[i])
		}
		*out = append(*out, chooseBranches(branches)...)
	case p.IsMultipart():
		for i := range p.Children {
			collectPieces(p.Children[i:i+1:i+1], p, in, out)
		}
	case !isReadable(p.kind()):
	case !isBodyText(kindsOf(p, parent)) && in.bodyWithFilename() != p:
	case isHTML(p):
		*out = append(*out, bodyPiece{html: self})
	default:
		*out = append(*out, bodyPiece{text: self})
	}
}

// chooseBranches combines the first alternative that has plain text with the last that has HTML.
func chooseBranches(branches [][]bodyPiece) []bodyPiece {
	text, html := -1, -1
	for i, branch := range branches {
		if text < 0 && slices.ContainsFunc(branch, func(p bodyPiece) bool { return p.plainPart() != nil }) {
			text = i
		}
		if slices.ContainsFunc(branch, func(p bodyPiece) bool { return slices.ContainsFunc(p.html, isHTML) }) {
			html = i
		}
	}
	switch {
	case text == html && text < 0:
		return nil
	case text < 0 || text == html:
		return branches[html]
	case html < 0:
		return branches[text]
	}
	var whole bodyPiece
	for _, p := range branches[text] {
		if len(p.text) == 0 {
			p.text = p.html
		}
		whole.text = append(whole.text, p.text...)
	}
	for _, p := range branches[html] {
		if len(p.html) == 0 {
			p.html = p.text
		}
		whole.html = append(whole.html, p.html...)
	}
	return []bodyPiece{whole}
}

// bodyReader reads the displayed parts of a message. textLeft and htmlLeft are the bytes left until
// the limit.
type bodyReader struct {
	Body
	r                  io.ReaderAt
	text, html         strings.Builder
	textLeft, htmlLeft int64
}

// add appends a section to the text, to the HTML or to both, whichever the message has. A section
// in only one of the two forms is converted to the other.
func (b *bodyReader) add(p bodyPiece) error {
	text, html := p.text, p.html
	if len(text) == 0 {
		text = html
	}
	if len(html) == 0 {
		html = text
	}
	if len(p.text) == 0 || len(p.html) == 0 { // only one rendering: read each part once
		for _, part := range text {
			if err := b.addPart(part, b.HasText, b.HasHTML); err != nil {
				return err
			}
		}
		return nil
	}
	for _, part := range text {
		if err := b.addPart(part, true, false); err != nil {
			return err
		}
	}
	for _, part := range html {
		if err := b.addPart(part, false, true); err != nil {
			return err
		}
	}
	return nil
}

func (b *bodyReader) addPart(p *Part, toText, toHTML bool) error {
	content, err := b.read(p, max(b.textLeft, b.htmlLeft))
	if err != nil {
		return err
	}
	if toText {
		text := content
		if isHTML(p) {
			text = visible.HTMLText(content)
		}
		b.appendLimited(&b.text, text, &b.textLeft)
	}
	if toHTML {
		markup := content
		if isPlain(p) {
			markup = "<pre>" + html.EscapeString(content) + "</pre>"
		}
		b.appendLimited(&b.html, markup, &b.htmlLeft)
	}
	return nil
}

// appendLimited appends s to one of the texts, on a new line, and shortens it to the limit.
func (b *bodyReader) appendLimited(to *strings.Builder, s string, left *int64) {
	if to.Len() > 0 && s != "" {
		s = "\n" + s
	}
	if int64(len(s)) > *left {
		s = cut(s, int(*left))
		b.Truncated = true
	}
	*left -= int64(len(s))
	to.WriteString(s)
}

func (b *bodyReader) read(p *Part, limit int64) (string, error) {
	if limit <= 0 {
		b.Truncated = b.Truncated || p.Size() > 0
		return "", nil
	}
	text, more, err := readText(b.r, p, limit)
	b.Truncated = b.Truncated || more
	return text, err
}

// maxFirstBuffer limits the buffer that is allocated for a part before the part is read, in bytes.
// The buffer grows while a larger part is read.
const maxFirstBuffer = 256 << 10

// readText decodes a text part to UTF-8 with LF line ends, and stops after limit bytes. more
// reports whether the part has more bytes.
func readText(r io.ReaderAt, p *Part, limit int64) (text string, more bool, err error) {
	var buf bytes.Buffer
	buf.Grow(int(min(p.DecodedSize, limit, maxFirstBuffer)) + bytes.MinRead)
	if _, err := buf.ReadFrom(io.LimitReader(Open(r, p), limit+1)); err != nil {
		return "", false, fmt.Errorf("read message part at offset %d: %w", p.BodyOffset, err)
	}
	raw := buf.Bytes()
	more = int64(len(raw)) > limit
	if more {
		raw = trimPartialRune(raw[:limit])
	}
	text = charset.Body(raw, p.Params["charset"], p.Subtype == "html")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	return strings.ReplaceAll(text, "\x00", ""), more, nil
}

// trimPartialRune drops an incomplete UTF-8 sequence at the end of b.
func trimPartialRune(b []byte) []byte {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i]
			}
			break
		}
	}
	return b
}

// Text returns the displayed text of one text part, in UTF-8 with LF line ends. It reads at most
// limit bytes and removes HTML markup. It returns "" if the part is not a text.
func Text(r io.ReaderAt, p *Part, limit int64) (string, error) {
	if p.Type != "text" {
		return "", nil
	}
	text, _, err := readText(r, p, limit)
	if err == nil && p.Subtype == "html" {
		text = visible.HTMLText(text)
	}
	return text, err
}

// Open returns a reader of a part's content. It decodes the transfer encoding (base64,
// quoted-printable, uuencode), even if the encoded data is damaged. It does not convert the
// charset. A multipart or a message is returned as it is.
func Open(r io.ReaderAt, p *Part) io.Reader {
	body := io.NewSectionReader(r, p.BodyOffset, p.Size())
	if len(p.Children) > 0 {
		return body
	}
	return transfer.NewReader(p.Encoding, body)
}
