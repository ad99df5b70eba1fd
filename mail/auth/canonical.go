package auth

import (
	"io"
	"strings"
)

// relaxedForm returns the field in the relaxed canonical form for headers (RFC 6376 section 3.4.2),
// with its CRLF.
func (f field) relaxedForm() string {
	name, value, _ := strings.Cut(f.raw, ":")
	return strings.ToLower(strings.TrimSpace(name)) + ":" + oneLine(value) + "\r\n"
}

// withoutSignature returns a signature field with an empty b= tag. The signature is computed over
// this form (RFC 6376 section 3.5).
func (f field) withoutSignature() field {
	name, value, _ := strings.Cut(f.raw, ":")
	parts := strings.Split(value, ";")
	for i, part := range parts {
		if tag, _, ok := strings.Cut(part, "="); ok && strings.TrimSpace(tag) == "b" {
			parts[i] = tag + "="
		}
	}
	return newField(name+":"+strings.Join(parts, ";"), f.lines)
}

// A canonicalBody is a writer that writes a message body to another writer in canonical form (RFC
// 6376 sections 3.4.3 and 3.4.4). It counts line ends and writes them when text follows, so that
// empty lines at the end of the body need no memory.
type canonicalBody struct {
	to        io.Writer
	relaxed   bool
	ends      int  // line ends that are not yet written
	space     bool // white space that is not yet written; in relaxed form only
	cr        bool // the last byte was CR
	hasOutput bool
	buf       []byte
}

const canonicalChunk = 4 << 10

func (c *canonicalBody) Write(p []byte) (int, error) {
	for _, b := range p {
		if err := c.add(b); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (c *canonicalBody) add(b byte) error {
	if c.cr && b != '\n' {
		if err := c.writeText('\r'); err != nil { // a bare CR counts as text
			return err
		}
	}
	c.cr = b == '\r'
	switch {
	case b == '\r':
	case b == '\n':
		c.space = false
		c.ends++
	case c.relaxed && (b == ' ' || b == '\t'):
		c.space = true
	default:
		return c.writeText(b)
	}
	return nil
}

func (c *canonicalBody) writeText(b byte) error {
	for ; c.ends > 0; c.ends-- {
		if err := c.put('\r', '\n'); err != nil {
			return err
		}
	}
	if c.space {
		c.space = false
		c.buf = append(c.buf, ' ')
	}
	return c.put(b)
}

func (c *canonicalBody) put(bytes ...byte) error {
	c.hasOutput = true
	c.buf = append(c.buf, bytes...)
	if len(c.buf) < canonicalChunk {
		return nil
	}
	return c.flush()
}

func (c *canonicalBody) flush() error {
	_, err := c.to.Write(c.buf)
	c.buf = c.buf[:0]
	return err
}

// Close ends the body with one line end. In relaxed form, an empty body stays empty.
func (c *canonicalBody) Close() error {
	if c.cr {
		if err := c.writeText('\r'); err != nil {
			return err
		}
	}
	if c.hasOutput || !c.relaxed {
		c.buf = append(c.buf, "\r\n"...)
	}
	return c.flush()
}
