package msg

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// Body is what people read of a message, in UTF-8 with LF line ends.
type Body struct {
	Text string
	HTML string // as it came, which is not safe to show: see SanitizeHTML

	HasText, HasHTML bool // the message has such a part, even if it is empty
	Truncated        bool // more stood there than was asked for
}

// ReadRawBody returns the text and the HTML of a message, each of at most max bytes. Of
// alternatives it takes the plain text and the richest HTML; texts that follow one another, such as
// a mailing list's footer, are joined.
func ReadRawBody(r io.ReaderAt, root *Part, max int64) (Body, error) {
	b := bodyReader{r: r, textLeft: max, htmlLeft: max}
	pieces := bodyPieces(root)
	for _, p := range pieces {
		b.HasText = b.HasText || p.text != nil
		b.HasHTML = b.HasHTML || p.html != nil
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

// bodyPiece is one stretch of the message that people read, in the forms it comes in.
type bodyPiece struct {
	text, html *Part
}

func bodyPieces(root *Part) []bodyPiece {
	var out []bodyPiece
	collectPieces(root, nil, &out)
	return out
}

func collectPieces(p, parent *Part, out *[]bodyPiece) {
	switch {
	case p.IsMultipart() && p.Subtype == "alternative":
		var inner []bodyPiece
		for _, c := range p.Children {
			collectPieces(c, p, &inner)
		}
		var best bodyPiece
		for _, piece := range inner {
			if best.text == nil {
				best.text = piece.text
			}
			if piece.html != nil {
				best.html = piece.html
			}
		}
		if best != (bodyPiece{}) {
			*out = append(*out, best)
		}
	case p.IsMultipart():
		for _, c := range p.Children {
			collectPieces(c, p, out)
		}
	case !isBodyText(kinds(p, parent)):
	case p.Subtype == "html":
		*out = append(*out, bodyPiece{html: p})
	default:
		*out = append(*out, bodyPiece{text: p})
	}
}

type bodyReader struct {
	Body
	r                  io.ReaderAt
	text, html         strings.Builder
	textLeft, htmlLeft int64
}

// add writes a piece to both forms that the message has, turning one into the other
// where the piece comes in one only.
func (b *bodyReader) add(p bodyPiece) error {
	var text, html string
	var err error
	if p.text != nil {
		if text, err = b.read(p.text, max(b.textLeft, b.htmlLeft)); err != nil {
			return err
		}
	}
	if p.html != nil {
		if html, err = b.read(p.html, max(b.textLeft, b.htmlLeft)); err != nil {
			return err
		}
	}
	if b.HasText {
		if p.text == nil {
			text = HTMLText(html)
		}
		b.join(&b.text, text, &b.textLeft)
	}
	if b.HasHTML {
		if p.html == nil {
			html = "<pre>" + escapeHTML(text) + "</pre>"
		}
		b.join(&b.html, html, &b.htmlLeft)
	}
	return nil
}

func (b *bodyReader) join(to *strings.Builder, s string, left *int64) {
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

// maxGrow is how much memory a part has at once, before it was read. A larger one gets more as it
// comes.
const maxGrow = 256 << 10

// readText decodes at most limit bytes of a text part to UTF-8 with LF line ends; more
// says that the part goes on.
func readText(r io.ReaderAt, p *Part, limit int64) (text string, more bool, err error) {
	var buf bytes.Buffer
	buf.Grow(int(min(p.DecodedSize, limit, maxGrow)) + bytes.MinRead)
	if _, err := buf.ReadFrom(io.LimitReader(Open(r, p), limit+1)); err != nil {
		return "", false, fmt.Errorf("read part at %d: %w", p.BodyOffset, err)
	}
	raw := buf.Bytes()
	if more = int64(len(raw)) > limit; more {
		raw = trimPartialRune(raw[:limit])
	}
	name := p.Params["charset"]
	if p.Subtype == "html" && name == "" && !utf8.Valid(raw) {
		_, name, _ = charset.DetermineEncoding(raw, "text/html")
	}
	text = toUTF8(raw, name)
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	return strings.ReplaceAll(text, "\x00", ""), more, nil
}

// trimPartialRune drops a UTF-8 character that was cut at the end.
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

// Text returns what people read of one text part, at most limit bytes before markup is taken out,
// as UTF-8 with LF line ends. Of a part that is no text it is "".
func Text(r io.ReaderAt, p *Part, limit int64) (string, error) {
	if p.Type != "text" {
		return "", nil
	}
	text, _, err := readText(r, p, limit)
	if err == nil && p.Subtype == "html" {
		text = HTMLText(text)
	}
	return text, err
}
