package msg

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"mime/quotedprintable"
	"strings"
	"unicode/utf8"
)

// entity is a part to be written: its own header fields, and content or children.
type entity struct {
	fields   []Header // Content-* without Content-Type and Content-Transfer-Encoding
	ctype    string   // value of Content-Type, without boundary
	encoding string
	content  []byte
	boundary string
	children []*entity
}

func multipart(ctype string, children ...*entity) *entity {
	return &entity{ctype: ctype, boundary: "=_" + rand.Text(), children: children}
}

// textEntity takes text with any line ends.
func textEntity(subtype, text string) *entity {
	e := &entity{ctype: "text/" + subtype + "; charset=utf-8", content: normalized([]byte(text))}
	e.encoding = textEncoding(e.content)
	return e
}

func normalized(text []byte) []byte {
	var b bytes.Buffer // takes everything, so there is no error to see
	n := NormalizeLines(&b)
	n.Write(text)
	n.Close()
	return b.Bytes()
}

// textEncoding picks the most readable encoding that survives every way: 7bit, else
// quoted-printable, or base64 where most of the text would be escapes.
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

// sink counts what goes to w and keeps the first error.
type sink struct {
	w   io.Writer
	n   int64
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(b)
	s.n += int64(n)
	s.err = err
	return n, err
}

// header returns the entity's header block without the empty line.
func (e *entity) header(b []byte) ([]byte, error) {
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
		if b, err = appendField(b, h.Name, h.Value); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// write writes the header fields given, the entity's own, and its body.
func (e *entity) write(s *sink, head []byte) error {
	head, err := e.header(head)
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
	return e.body(s)
}

func (e *entity) body(s *sink) error {
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

func writeBase64(s *sink, content []byte) error {
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

// checkMediaType takes "type/subtype" with parameters or without, and refuses what would
// break the structure of the message.
func checkMediaType(ctype string) error {
	head, _, _ := strings.Cut(ctype, ";")
	typ, subtype, _ := strings.Cut(strings.TrimSpace(head), "/")
	if !isToken(typ) || !isToken(subtype) || strings.EqualFold(typ, "multipart") || !isASCII(ctype) {
		return fmt.Errorf("%w: Content-Type %q", ErrHeader, cut(ctype, 80))
	}
	return nil
}
