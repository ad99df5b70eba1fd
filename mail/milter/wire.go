package milter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// writePacket writes a packet: its length, a letter for its kind, and its body.
func (c *conversation) writePacket(kind byte, body []byte) error {
	var head [5]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(body)+1))
	head[4] = kind
	if _, err := c.w.Write(head[:]); err != nil {
		return err
	}
	_, err := c.w.Write(body)
	return err
}

// readPacket returns the next packet. It skips progress packets.
func (c *conversation) readPacket() (kind byte, body []byte, err error) {
	if err := c.w.Flush(); err != nil {
		return 0, nil, err
	}
	for {
		var head [4]byte
		if _, err := io.ReadFull(c.r, head[:]); err != nil {
			return 0, nil, err
		}
		size := binary.BigEndian.Uint32(head[:])
		if size == 0 || size > maxPacket {
			return 0, nil, fmt.Errorf("%w: invalid packet length of %d bytes", ErrProtocol, size)
		}
		packet, err := io.ReadAll(io.LimitReader(c.r, int64(size))) // memory is allocated for received bytes, not for the announced size
		if err != nil {
			return 0, nil, err
		}
		if len(packet) < int(size) {
			return 0, nil, io.ErrUnexpectedEOF
		}
		if packet[0] != 'p' {
			return packet[0], packet[1:], nil
		}
	}
}

// sendMacros sends values of macros for the next step. pairs are names, each followed by its value.
func (c *conversation) sendMacros(step byte, pairs ...string) error {
	body := []byte{step}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			body = appendCString(appendCString(body, pairs[i]), pairs[i+1])
		}
	}
	if len(body) == 1 {
		return nil
	}
	return c.writePacket('D', body)
}

// appendCString appends a text and a terminating zero byte.
func appendCString(b []byte, text string) []byte {
	return append(append(b, strings.ReplaceAll(text, "\x00", "")...), 0)
}

// readHead returns the header with the end of its last line, but at most m.MaxHeader bytes of it.
// body is the offset of the body.
func readHead(m *Message) (head []byte, body int64, err error) {
	most := m.Size
	if m.MaxHeader > 0 {
		most = min(most, m.MaxHeader)
	}
	for size := min(most, 16<<10); ; size = min(most, size*4) {
		head = make([]byte, size)
		n, err := m.Body.ReadAt(head, 0)
		if err != nil && err != io.EOF {
			return nil, 0, fmt.Errorf("read message: %w", err)
		}
		head = head[:n]
		if bytes.HasPrefix(head, []byte("\r\n")) {
			return nil, 2, nil
		}
		if i := bytes.Index(head, []byte("\r\n\r\n")); i >= 0 {
			return head[:i+2], int64(i + 4), nil
		}
		if int64(n) >= most || n < int(size) {
			return head, int64(n), nil
		}
	}
}

// bodyOffset returns the offset of the body in the message.
func bodyOffset(m *Message) (int64, error) {
	_, at, err := readHead(m)
	return at, err
}

// readFields splits the header into fields. It skips lines that are not part of a field.
func readFields(m *Message) ([]Field, error) {
	head, _, err := readHead(m)
	if err != nil {
		return nil, err
	}
	var out []Field
	taken := false
	for line := range strings.SplitSeq(strings.TrimSuffix(string(head), "\r\n"), "\r\n") {
		if line != "" && (line[0] == ' ' || line[0] == '\t') {
			if taken {
				out[len(out)-1].Value += "\n" + line
			}
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		taken = ok && strings.TrimRight(name, " \t") != ""
		if taken {
			out = append(out, Field{strings.TrimRight(name, " \t"), value})
		}
	}
	return out, nil
}

// isName reports whether s is a valid field name (RFC 5322 section 2.2).
func isName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == ':' {
			return false
		}
	}
	return s != "" && len(s) <= 100
}

// foldedValue makes a value safe for one header field: each line after the first begins with white
// space, and no line is empty.
func foldedValue(value string) string {
	var lines []string
	for line := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.Map(func(r rune) rune {
			if r < ' ' && r != '\t' || r == 0x7f {
				return -1
			}
			return r
		}, strings.ToValidUTF8(line, ""))
		if strings.Trim(line, " \t") == "" {
			continue
		}
		if len(lines) > 0 && line[0] != ' ' && line[0] != '\t' {
			line = "\t" + line
		}
		lines = append(lines, line)
	}
	return strings.TrimLeft(strings.Join(lines, "\r\n"), " \t")
}

// oneLine makes a text safe for an SMTP reply: one line of printable ASCII with at most maxText
// bytes.
func oneLine(text []byte) string {
	text, _, _ = bytes.Cut(text, []byte{0})
	s := strings.Map(func(r rune) rune {
		switch {
		case r == '\r' || r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r > '~':
			return -1
		}
		return r
	}, string(text))
	return strings.TrimSpace(s[:min(len(s), maxText)])
}
