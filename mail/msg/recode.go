package msg

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
)

// A Recoder writes a message in a form that SMTP can carry without 8BITMIME (RFC 5321 section 2.4,
// RFC 6152 section 3). It encodes each leaf that has bytes beyond ASCII or lines of over 998 bytes.
// A text becomes quoted-printable or base64, whichever is smaller. Any other leaf becomes base64,
// since quoted-printable may change line ends. The decoded content stays the same.
//
// With EncodeHeaders it also converts the header fields of the message and of its parts to ASCII
// (see EncodeHeader), except those of attached messages.
//
// These stay byte for byte: parts below multipart/signed (RFC 1847 section 2.1), other header
// fields, text between parts, leaves with an unknown encoding, and leaves of type message/*, which
// must not be encoded (RFC 2045 section 6.4). Attached messages are recoded part by part. A Recoder
// keeps one header block and some buffers in memory, whatever the size of the message.
type Recoder struct {
	r         io.ReaderAt
	root      *Part
	encodings map[*Part]string // the new encoding of each part that changes
	growth    int64
	clean     bool

	encodeHeaders  bool            // see RecodeOptions
	encodedHeaders map[*Part]bool  // parts with header fields to encode
	headerErrors   map[*Part]error // why the header fields of a part cannot be encoded
	messageDepth   int             // how many attached messages contain the part that is planned
}

// NewRecoder examines a message with CRLF line ends and decides what to change. root is its tree
// from Scan. It reads the message once, and the leaves that change a second time.
func NewRecoder(r io.ReaderAt, root *Part, o RecodeOptions) (*Recoder, error) {
	c := &Recoder{r: r, root: root, encodings: map[*Part]string{}, encodeHeaders: o.EncodeHeaders, encodedHeaders: map[*Part]bool{}, headerErrors: map[*Part]error{}}
	var err error
	c.clean, err = c.planPart(root)
	return c, err
}

// RecodeOptions select what a Recoder changes beside leaves.
type RecodeOptions struct {
	EncodeHeaders bool
}

// HasChanges reports whether WriteTo changes the message.
func (c *Recoder) HasChanges() bool { return len(c.encodings)+len(c.encodedHeaders) > 0 }

// HeaderFault returns the reason why the header of the message cannot be converted to ASCII. It
// returns nil if there is none, or without EncodeHeaders.
func (c *Recoder) HeaderFault() error { return c.headerErrors[c.root] }

// IsClean reports whether WriteTo writes ASCII only, in lines of at most 998 bytes.
func (c *Recoder) IsClean() bool { return c.clean }

// Growth returns an estimate of how many bytes WriteTo adds to the message.
func (c *Recoder) Growth() int64 { return c.growth }

// WriteTo writes the recoded message.
func (c *Recoder) WriteTo(w io.Writer) (int64, error) {
	s := &countingWriter{w: w}
	err := c.writePart(s, c.root)
	if err == nil { // c.writePart ignores the errors of some writes, but s keeps the first
		err = s.err
	}
	return s.n, err
}

// A smtpCheck is a writer that records whether the text written to it has anything that SMTP
// without 8BITMIME cannot carry.
type smtpCheck struct {
	nonASCII bool // a byte beyond ASCII, or a NUL, was written
	long     bool // a line of over 998 bytes was written
	line     int
}

func (l *smtpCheck) Write(p []byte) (int, error) {
	for _, b := range p {
		if b >= 0x80 || b == 0 {
			l.nonASCII = true
		}
		if b == '\n' {
			l.line = 0
			continue
		}
		if l.line++; l.line > maxLine+1 { // maxLine does not count the CR
			l.long = true
		}
	}
	return len(p), nil
}

func (l *smtpCheck) clean() bool { return !l.nonASCII && !l.long }

func (c *Recoder) section(from, to int64) *io.SectionReader {
	return io.NewSectionReader(c.r, from, max(to-from, 0))
}

// isClean reports whether the bytes from one offset to another can be sent unchanged.
func (c *Recoder) isClean(from, to int64) (bool, error) {
	var l smtpCheck
	if _, err := io.Copy(&l, c.section(from, to)); err != nil {
		return false, fmt.Errorf("read message: %w", err)
	}
	return l.clean(), nil
}

// planPart decides how to recode a part. clean reports whether SMTP without 8BITMIME can carry the
// output for that part.
func (c *Recoder) planPart(p *Part) (clean bool, err error) {
	head, err := c.planHeader(p)
	if err != nil {
		return false, err
	}
	if len(p.Children) == 0 || p.IsMultipart() && p.Subtype == "signed" {
		body, err := c.isClean(p.BodyOffset, p.End)
		if body || err != nil || len(p.Children) > 0 {
			return head && body, err
		}
		body, err = c.planLeaf(p)
		if body && err == nil { // headerWithoutEncoding also drops lines that are no fields, so check its result
			var fields []byte
			var l smtpCheck
			fields, _, err = c.headerWithoutEncoding(p)
			_, _ = l.Write(fields)
			head = l.clean()
		}
		return head && body, err
	}
	before := len(c.encodings)
	clean, at := head, p.BodyOffset
	if p.IsMessage() {
		c.messageDepth++
		defer func() { c.messageDepth-- }()
	}
	for _, child := range p.Children {
		for _, step := range []func() (bool, error){
			func() (bool, error) { return c.isClean(at, child.HeaderOffset) },
			func() (bool, error) { return c.planPart(child) },
		} {
			ok, err := step()
			if err != nil {
				return false, err
			}
			clean = clean && ok
		}
		at = child.End
	}
	rest, err := c.isClean(at, p.End)
	clean = clean && rest
	if clean && len(c.encodings) > before && (p.Encoding == "8bit" || p.Encoding == "binary") {
		if _, ok, err := c.headerWithoutEncoding(p); ok && err == nil {
			c.encodings[p] = "7bit"
		}
	}
	return clean, err
}

// planHeader decides whether to encode the header of a part. clean reports whether SMTP without
// 8BITMIME can carry the output for that header.
func (c *Recoder) planHeader(p *Part) (clean bool, err error) {
	clean, err = c.isClean(p.HeaderOffset, p.BodyOffset)
	if clean || err != nil || !c.encodeHeaders || c.messageDepth > 0 || p.BodyOffset-p.HeaderOffset >= MaxHeader {
		return clean, err
	}
	block, err := RawHeader(c.r, p)
	if err != nil {
		return false, err
	}
	encoded, err := EncodeHeader(block)
	if err != nil {
		c.headerErrors[p] = err
		return false, nil
	}
	var l smtpCheck
	_, _ = l.Write(encoded)
	if !bytes.Equal(encoded, block) {
		c.encodedHeaders[p] = true
		c.growth += int64(len(encoded) - len(block))
	}
	return l.clean(), nil
}

// finalHeader returns the header of a part as it will be written.
func (c *Recoder) finalHeader(p *Part) ([]byte, error) {
	block, err := RawHeader(c.r, p)
	if err != nil || !c.encodedHeaders[p] {
		return block, err
	}
	return EncodeHeader(block)
}

// planLeaf chooses an encoding for a leaf that cannot be sent unchanged. It returns false if the
// leaf must stay as it is.
func (c *Recoder) planLeaf(p *Part) (changes bool, err error) {
	switch p.Encoding {
	case "7bit", "8bit", "binary", "base64", "quoted-printable":
	default:
		return false, nil
	}
	if _, ok, err := c.headerWithoutEncoding(p); !ok || err != nil {
		return false, err
	}
	n, err := io.Copy(io.Discard, Open(c.r, p))
	if err != nil {
		return false, fmt.Errorf("read message: %w", err)
	}
	size := (n + 2) / 3 * 4
	size += 2 * (size / 76)
	c.encodings[p] = "base64"
	if p.Type == "text" {
		count := &countingWriter{w: io.Discard}
		if err := writeQuotedPrintable(count, Open(c.r, p)); err != nil {
			return false, fmt.Errorf("read message: %w", err)
		}
		if count.n <= size {
			c.encodings[p], size = "quoted-printable", count.n
		}
	}
	c.growth += size - p.Size() + 100 // about 100 bytes for Content-Transfer-Encoding
	return true, nil
}

// headerWithoutEncoding returns the header fields of a part without Content-Transfer-Encoding. It
// returns false if the encoding of the part must not change: the header is too long to rewrite, or
// the part is a multipart or message that Scan left as a leaf.
func (c *Recoder) headerWithoutEncoding(p *Part) (_ []byte, ok bool, err error) {
	if p.BodyOffset-p.HeaderOffset >= MaxHeader {
		return nil, false, nil
	}
	block, err := c.finalHeader(p)
	if err != nil {
		return nil, false, err
	}
	var out []byte
	typed, versioned := false, p.Envelope == nil || p.IsMessage() && p != c.root
	for f := range fields(block) {
		switch strings.ToLower(string(f.name)) {
		case "content-transfer-encoding":
			continue
		case "mime-version":
			versioned = true
		case "content-type":
			kind := strings.ToLower(string(unfold(f.value)))
			if len(p.Children) == 0 && (strings.HasPrefix(kind, "multipart") || strings.HasPrefix(kind, "message")) {
				return nil, false, nil
			}
			typed = true
		}
		out = append(out, f.whole...)
		if !bytes.HasSuffix(f.whole, []byte("\n")) {
			out = append(out, '\r', '\n')
		}
	}
	if len(p.Children) == 0 && !typed && p.Type != "text" {
		return nil, false, nil // a message in a multipart/digest
	}
	if !versioned { // without MIME-Version, Content-Transfer-Encoding has no meaning (RFC 2045 section 4)
		out = append(out, "MIME-Version: 1.0\r\n"...)
	}
	return out, true, nil
}

// endsInEmptyLine reports whether the header of a part ends in an empty line, and does not run into
// the body.
func (c *Recoder) endsInEmptyLine(p *Part) bool {
	var end [4]byte
	n := min(p.BodyOffset-p.HeaderOffset, int64(len(end)))
	if _, err := c.r.ReadAt(end[:n], p.BodyOffset-n); err != nil {
		return false
	}
	return string(end[:n]) == "\r\n\r\n" || string(end[:n]) == "\r\n"
}

func (c *Recoder) writePart(s *countingWriter, p *Part) error {
	encoding := c.encodings[p]
	if encoding == "" {
		if c.encodedHeaders[p] {
			head, err := c.finalHeader(p)
			if err != nil {
				return err
			}
			s.Write(head)
		} else if err := c.copyRange(s, p.HeaderOffset, p.BodyOffset); err != nil {
			return err
		}
		if p.IsMessage() && len(p.Children) == 1 && c.encodings[p.Children[0]] != "" && !c.endsInEmptyLine(p) {
			s.Write([]byte("\r\n")) // otherwise the header of the message inside would continue this part's header
		}
	} else {
		head, _, err := c.headerWithoutEncoding(p)
		if err != nil {
			return err
		}
		s.Write(append(head, "Content-Transfer-Encoding: "+encoding+"\r\n\r\n"...))
	}
	if len(p.Children) == 0 {
		switch encoding {
		case "base64":
			return writeWrappedBase64(s, Open(c.r, p), p.End == c.root.End)
		case "quoted-printable":
			return writeQuotedPrintable(s, Open(c.r, p))
		}
		return c.copyRange(s, p.BodyOffset, p.End)
	}
	at := p.BodyOffset
	for _, child := range p.Children {
		if err := c.copyRange(s, at, child.HeaderOffset); err != nil {
			return err
		}
		if err := c.writePart(s, child); err != nil {
			return err
		}
		at = child.End
	}
	return c.copyRange(s, at, p.End)
}

func (c *Recoder) copyRange(s *countingWriter, from, to int64) error {
	_, err := io.Copy(s, c.section(from, to))
	return err
}

// writeWrappedBase64 writes content as base64 in lines of 76 characters. If ended is set, the last
// line ends in CRLF too.
func writeWrappedBase64(s *countingWriter, content io.Reader, ended bool) error {
	const perLine = 57
	r := bufio.NewReaderSize(content, 128*perLine)
	raw, line, first := make([]byte, perLine), make([]byte, 0, 80), true
	for {
		n, err := io.ReadFull(r, raw)
		if n > 0 {
			line = line[:0]
			if !first {
				line = append(line, "\r\n"...)
			}
			first = false
			s.Write(base64.StdEncoding.AppendEncode(line, raw[:n]))
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return err
		}
		if s.err != nil {
			return s.err
		}
	}
	if ended && !first {
		s.Write([]byte("\r\n"))
	}
	return s.err
}

// writeQuotedPrintable writes text as quoted-printable (RFC 2045 section 6.7). It escapes a dash at
// the start of a line, so that no line looks like a boundary.
func writeQuotedPrintable(s *countingWriter, content io.Reader) error {
	r, q := bufio.NewReaderSize(content, 8<<10), &quotedPrintableLine{w: bufio.NewWriterSize(s, 8<<10)}
	for {
		b, err := r.ReadByte()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		q.add(b)
		if s.err != nil {
			return s.err
		}
	}
	q.end()
	if err := q.w.Flush(); err != nil {
		return err
	}
	return s.err
}

const maxQuoted = 76 // characters of a line, including the = of a soft line break

// quotedPrintableLine encodes text as quoted-printable. Its fields describe the line that is being
// written.
type quotedPrintableLine struct {
	w     *bufio.Writer
	col   int
	blank byte // a pending space or tab, which is escaped only at the end of a line
	cr    bool // a pending CR, which is a line end if LF follows
}

func (q *quotedPrintableLine) add(b byte) {
	if q.cr {
		q.cr = false
		if b == '\n' {
			q.flushBlank(true)
			_, _ = q.w.WriteString("\r\n")
			q.col = 0
			return
		}
		q.flushBlank(false)
		q.put('\r', true)
	}
	switch {
	case b == '\r':
		q.cr = true
		return
	case b == ' ' || b == '\t':
		q.flushBlank(false)
		q.blank = b
		return
	}
	q.flushBlank(false)
	q.put(b, b <= ' ' || b >= 0x7f || b == '=')
}

func (q *quotedPrintableLine) end() {
	if q.cr {
		q.flushBlank(false)
		q.put('\r', true)
	}
	q.flushBlank(true)
}

// flushBlank writes the pending space or tab.
func (q *quotedPrintableLine) flushBlank(escaped bool) {
	if b := q.blank; b != 0 {
		q.blank = 0
		q.put(b, escaped)
	}
}

// put writes one byte. If the line is full, it writes a soft line break first.
func (q *quotedPrintableLine) put(b byte, escaped bool) {
	size := 1
	if escaped {
		size = 3
	}
	if q.col+size > maxQuoted-1 {
		_, _ = q.w.WriteString("=\r\n")
		q.col = 0
	}
	if q.col == 0 && b == '-' {
		escaped, size = true, 3
	}
	if escaped {
		_, _ = q.w.Write([]byte{'=', hexDigits[b>>4], hexDigits[b&15]})
	} else {
		_ = q.w.WriteByte(b)
	}
	q.col += size
}
