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

// Bounds of a header: far above real mail (a few hundred fields, under 200 KiB), low enough that
// nothing below costs more than some tens of milliseconds.
const (
	maxHeader = 1 << 20
	maxFields = 4096
)

// errHeader says that a header is beyond maxHeader or maxFields.
var errHeader = errors.New("header too large")

// field is one header field.
type field struct {
	name  string // without white space around it
	raw   string // all of it, with every CRLF
	lines int
}

// value is what stands after the colon.
func (f field) value() string {
	_, value, _ := strings.Cut(f.raw, ":")
	return value
}

func oneLine(s string) string { return strings.Join(strings.FieldsFunc(s, isFold), " ") }

func isFold(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' }

// message is a message whose header has been read.
type message struct {
	header   []byte // without the empty line
	fields   []field
	tooLarge bool // fields is incomplete
	cut      bool // header is, too, and body does not begin at the body
	body     *bufio.Reader

	shown    []string // lower-case names of the fields that readers are given
	repeated string   // the first of them that stands twice; empty without one
	clear    bool     // all readers agree which fields there are; without it no signature tells what they show
}

// openMessage reads the header of r and leaves its body to be read. Whoever opens it frees it.
func openMessage(r io.Reader) (*message, error) {
	br := buffers.Reader(r)
	header, err := rawHeader(br)
	if err != nil && !errors.Is(err, errHeader) {
		buffers.FreeReader(br)
		return nil, fmt.Errorf("read message: %w", err)
	}
	m := &message{header: header, body: br, cut: err != nil, tooLarge: err != nil}
	if m.cut {
		return m, nil
	}
	m.fields, err = splitFields(string(header))
	if err != nil {
		m.fields, m.tooLarge = nil, true
		return m, nil
	}
	m.readShown()
	return m, nil
}

// free ends the use of the message's body.
func (m *message) free() { buffers.FreeReader(m.body) }

// is compares names without case.
func (f field) is(name string) bool { return strings.EqualFold(f.name, name) }

// named returns the fields of that name, from the top.
func named(fields []field, name string) []field {
	var out []field
	for _, f := range fields {
		if f.is(name) {
			out = append(out, f)
		}
	}
	return out
}

// shown counts the fields that readers take for ones of that name: also those behind a byte order
// mark, which package msg reads and no signature covers.
func shown(fields []field, name string) (n int) {
	for _, f := range fields {
		if strings.EqualFold(strings.TrimSpace(strings.TrimPrefix(f.name, "\ufeff")), name) {
			n++
		}
	}
	return n
}

// readHeader reads the fields up to and with the empty line, or to the end of a message that has
// none.
func readHeader(br *bufio.Reader) ([]field, error) {
	text, err := rawHeader(br)
	if err != nil {
		return nil, err
	}
	return splitFields(string(text))
}

// rawHeader is what readHeader reads, without the empty line. With errHeader it gives the beginning
// of a longer one.
func rawHeader(br *bufio.Reader) ([]byte, error) {
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

// splitFields cuts header text into fields; a line that begins with white space belongs to the
// field before it.
func splitFields(text string) ([]field, error) {
	var out []field
	start, lines := 0, 0
	for pos := 0; pos < len(text); {
		end := lineEnd(text, pos)
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

func lineEnd(text string, pos int) int {
	if i := strings.IndexByte(text[pos:], '\n'); i >= 0 {
		return pos + i + 1
	}
	return len(text)
}

func newField(raw string, lines int) field {
	if !strings.HasSuffix(raw, "\n") {
		raw = strings.TrimSuffix(raw, "\r") + "\r\n"
	}
	name, _, _ := strings.Cut(raw, ":")
	return field{name: strings.TrimSpace(name), raw: raw, lines: lines}
}

// parseTags reads a tag-list as receivers do: of a repeated tag the first counts, what is no tag is
// passed over.
func parseTags(list string) map[string]string {
	tags, _ := taglist.Parse(list)
	return tags
}

// compact drops all white space, which may stand anywhere in a folded tag value.
func compact(s string) string { return strings.Join(strings.Fields(s), "") }
