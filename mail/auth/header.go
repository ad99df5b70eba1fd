package auth

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/mail/taglist"
)

// Limits on a header, in bytes and in fields. They are far above real mail (a few hundred fields,
// under 200 KiB). A header within them is processed in some tens of milliseconds at most.
const (
	maxHeader = 1 << 20
	maxFields = 4096
)

// errHeader is returned for a header beyond maxHeader or maxFields.
var errHeader = errors.New("header too large")

// field is one header field.
type field struct {
	name  string // without white space around it
	raw   string // the whole field with its line ends
	lines int
}

// value returns the text after the colon.
func (f field) value() string {
	_, value, _ := strings.Cut(f.raw, ":")
	return value
}

func oneLine(s string) string { return strings.Join(strings.FieldsFunc(s, isFoldingSpace), " ") }

func isFoldingSpace(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' }

// message is a message with its header parsed and its body not yet read.
type message struct {
	header    []byte // without the empty line after it
	fields    []field
	tooLarge  bool // the header is beyond a limit, so fields is incomplete
	truncated bool // header and fields are incomplete, and body continues within the header
	body      *bufio.Reader

	shownNames  []string // names of the fields that readers are shown, in lower case
	repeated    string   // the first of shownNames that occurs twice, "" if none does
	unambiguous bool     // all programs see the same fields; otherwise no signature proves what programs show
}

// openMessage reads the header of r and leaves the body unread. The caller must call free on the
// result.
func openMessage(r io.Reader) (*message, error) {
	br := buffers.Reader(r)
	header, err := readRawHeader(br)
	if err != nil && !errors.Is(err, errHeader) {
		buffers.FreeReader(br)
		return nil, fmt.Errorf("read message: %w", err)
	}
	m := &message{header: header, body: br, truncated: err != nil, tooLarge: err != nil}
	if m.truncated {
		return m, nil
	}
	m.fields, err = splitFields(string(header))
	if err != nil {
		m.fields, m.tooLarge = nil, true
		return m, nil
	}
	m.findShownFields()
	return m, nil
}

// free returns the buffer of m.body to its pool; m.body must not be used after that.
func (m *message) free() { buffers.FreeReader(m.body) }

// is reports whether the field has the name, in any letter case.
func (f field) is(name string) bool { return strings.EqualFold(f.name, name) }

// fieldsNamed returns the fields with the name, in order.
func fieldsNamed(fields []field, name string) []field {
	var out []field
	for _, f := range fields {
		if f.is(name) {
			out = append(out, f)
		}
	}
	return out
}

// countFieldsShownAs counts the fields that programs take for fields with the name. That includes a
// field after a byte order mark: package msg accepts it, but no signature covers it.
func countFieldsShownAs(fields []field, name string) (n int) {
	for _, f := range fields {
		if strings.EqualFold(strings.TrimSpace(strings.TrimPrefix(f.name, "\ufeff")), name) {
			n++
		}
	}
	return n
}

// readHeader reads and splits the header, up to and including the empty line, or to the end if
// there is none.
func readHeader(br *bufio.Reader) ([]field, error) {
	text, err := readRawHeader(br)
	if err != nil {
		return nil, err
	}
	return splitFields(string(text))
}

// readRawHeader reads the header like readHeader and returns it unsplit, without the empty line. If
// it is longer than maxHeader, readRawHeader returns its beginning and errHeader.
func readRawHeader(br *bufio.Reader) ([]byte, error) {
	var buf []byte
	for lineStart := 0; ; {
		piece, err := br.ReadSlice('\n')
		if len(buf)+len(piece) > maxHeader {
			return buf, errHeader
		}
		buf = append(buf, piece...)
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return nil, err
		}
		if err == nil && len(bytes.TrimRight(buf[lineStart:], "\r\n")) == 0 {
			return buf[:lineStart], nil
		}
		if err == io.EOF {
			return buf, nil
		}
		if err == nil {
			lineStart = len(buf)
		}
	}
}

// splitFields splits a header into fields. A line that begins with white space belongs to the field
// before it. It returns errHeader if there are more than maxFields.
func splitFields(text string) ([]field, error) {
	var out []field
	start, lines := 0, 0
	for pos := 0; pos < len(text); {
		end := nextLineStart(text, pos)
		lines++
		if end == len(text) || text[end] != ' ' && text[end] != '\t' {
			if len(out) == maxFields {
				return nil, errHeader
			}
			out = append(out, newField(text[start:end], lines))
			start, lines = end, 0
		}
		pos = end
	}
	return out, nil
}

// nextLineStart returns the index after the line that begins at pos.
func nextLineStart(text string, pos int) int {
	if i := strings.IndexByte(text[pos:], '\n'); i >= 0 {
		return pos + i + 1
	}
	return len(text)
}

// newField makes a field of its text, to which it adds a missing CRLF.
func newField(raw string, lines int) field {
	if !strings.HasSuffix(raw, "\n") {
		raw = strings.TrimSuffix(raw, "\r") + "\r\n"
	}
	name, _, _ := strings.Cut(raw, ":")
	return field{name: strings.TrimSpace(name), raw: raw, lines: lines}
}

// parseTags parses a tag list and ignores errors: it skips invalid tags, and the first of repeated
// tags counts.
func parseTags(list string) map[string]string {
	tags, _ := taglist.Parse(list)
	return tags
}

// removeSpace removes all white space. A tag value may have it anywhere, since the field is folded.
func removeSpace(s string) string { return strings.Join(strings.Fields(s), "") }
