package msg

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
)

// A Recoder writes a message so that SMTP can carry it without 8BITMIME (RFC 5321 section 2.4, RFC
// 6152 section 3): leaves with bytes beyond ASCII, or with lines over 998 bytes, become
// quoted-printable or base64, whichever is smaller for text, and base64 for all else, since line
// ends may change in quoted-printable. Their decoded content stays the same.
//
// With EncodeHeaders the header fields of the message and of its parts become ASCII too, as
// EncodeHeader has it, but for those of messages inside it.
//
// Parts below multipart/signed stay byte for byte (RFC 1847 section 2.1), as do other header
// fields, what stands between parts, leaves of type message/* (RFC 2045 section 6.4: they may not
// be encoded; whole messages are gone into instead), and leaves whose encoding nobody knows. It
// holds one header block and some buffers in memory, whatever the message's size.
type Recoder struct {
	r      io.ReaderAt
	root   *Part
	plan   map[*Part]string // the new encoding of a part
	growth int64
	clean  bool

	encodes bool            // header fields too
	heads   map[*Part]bool  // whose fields are encoded
	left    map[*Part]error // why those of a part are not
	inside  int             // how many messages it is inside of
}

// NewRecoder looks at a message with CRLF line ends, whose tree is that of Scan. It reads the
// message once, and leaves that change twice.
func NewRecoder(r io.ReaderAt, root *Part, o RecodeOptions) (*Recoder, error) {
	c := &Recoder{r: r, root: root, plan: map[*Part]string{}, encodes: o.EncodeHeaders, heads: map[*Part]bool{}, left: map[*Part]error{}}
	var err error
	c.clean, err = c.look(root)
	return c, err
}

// RecodeOptions say what a Recoder does beside leaves.
type RecodeOptions struct {
	EncodeHeaders bool
}

// Changes reports whether WriteTo writes anything but the message as it is.
func (c *Recoder) Changes() bool { return len(c.plan)+len(c.heads) > 0 }

// HeaderFault says why the header of the message cannot become ASCII; nil: it can, is, or is not
// asked to.
func (c *Recoder) HeaderFault() error { return c.left[c.root] }

// Clean reports whether what WriteTo writes has ASCII alone, in lines of at most 998 bytes.
func (c *Recoder) Clean() bool { return c.clean }

// Growth is about how many bytes WriteTo writes beyond those of the message.
func (c *Recoder) Growth() int64 { return c.growth }

// WriteTo writes the message.
func (c *Recoder) WriteTo(w io.Writer) (int64, error) {
	s := &sink{w: w}
	err := c.write(s, c.root)
	if err == nil { // what stands behind the tree, if anything does
		err = s.err
	}
	return s.n, err
}

// A byteLook notes what of a text SMTP cannot carry as it is.
type byteLook struct {
	high bool // a byte beyond ASCII, or NUL
	long bool // a line over 998 bytes
	line int
}

func (l *byteLook) Write(p []byte) (int, error) {
	for _, b := range p {
		if b >= 0x80 || b == 0 {
			l.high = true
		}
		if b == '\n' {
			l.line = 0
			continue
		}
		if l.line++; l.line > maxLine+1 { // the CR is not of the line
			l.long = true
		}
	}
	return len(p), nil
}

func (l *byteLook) clean() bool { return !l.high && !l.long }

func (c *Recoder) section(from, to int64) *io.SectionReader {
	return io.NewSectionReader(c.r, from, max(to-from, 0))
}

// fine reports whether a piece of the message can go as it is.
func (c *Recoder) fine(from, to int64) (bool, error) {
	var l byteLook
	if _, err := io.Copy(&l, c.section(from, to)); err != nil {
		return false, fmt.Errorf("read message: %w", err)
	}
	return l.clean(), nil
}

// look decides what becomes of a part, and reports whether it is clean then.
func (c *Recoder) look(p *Part) (bool, error) {
	head, err := c.head(p)
	if err != nil {
		return false, err
	}
	if len(p.Children) == 0 || p.IsMultipart() && p.Subtype == "signed" {
		body, err := c.fine(p.BodyOffset, p.End)
		if body || err != nil || len(p.Children) > 0 {
			return head && body, err
		}
		body, err = c.leaf(p)
		if body && err == nil { // and lines that are no fields go
			var fields []byte
			var l byteLook
			fields, _, err = c.header(p)
			_, _ = l.Write(fields)
			head = l.clean()
		}
		return head && body, err
	}
	before := len(c.plan)
	clean, at := head, p.BodyOffset
	if p.IsMessage() {
		c.inside++
		defer func() { c.inside-- }()
	}
	for _, child := range p.Children {
		for _, step := range []func() (bool, error){
			func() (bool, error) { return c.fine(at, child.HeaderOffset) },
			func() (bool, error) { return c.look(child) },
		} {
			ok, err := step()
			if err != nil {
				return false, err
			}
			clean = clean && ok
		}
		at = child.End
	}
	rest, err := c.fine(at, p.End)
	clean = clean && rest
	if clean && len(c.plan) > before && (p.Encoding == "8bit" || p.Encoding == "binary") {
		if _, ok, err := c.header(p); ok && err == nil {
			c.plan[p] = "7bit"
		}
	}
	return clean, err
}

// head reports whether the header of a part is clean once it is written.
func (c *Recoder) head(p *Part) (bool, error) {
	clean, err := c.fine(p.HeaderOffset, p.BodyOffset)
	if clean || err != nil || !c.encodes || c.inside > 0 || p.BodyOffset-p.HeaderOffset >= MaxHeader {
		return clean, err
	}
	block, err := RawHeader(c.r, p)
	if err != nil {
		return false, err
	}
	encoded, err := EncodeHeader(block)
	if err != nil {
		c.left[p] = err
		return false, nil
	}
	var l byteLook
	_, _ = l.Write(encoded)
	if !bytes.Equal(encoded, block) {
		c.heads[p] = true
		c.growth += int64(len(encoded) - len(block))
	}
	return l.clean(), nil
}

// rawHeader is the header of a part as it is written.
func (c *Recoder) rawHeader(p *Part) ([]byte, error) {
	block, err := RawHeader(c.r, p)
	if err != nil || !c.heads[p] {
		return block, err
	}
	return EncodeHeader(block)
}

// leaf chooses the encoding of a leaf that cannot go as it is; false where it has to.
func (c *Recoder) leaf(p *Part) (bool, error) {
	switch p.Encoding {
	case "7bit", "8bit", "binary", "base64", "quoted-printable":
	default:
		return false, nil
	}
	if _, ok, err := c.header(p); !ok || err != nil {
		return false, err
	}
	n, err := io.Copy(io.Discard, Open(c.r, p))
	if err != nil {
		return false, fmt.Errorf("read message: %w", err)
	}
	size := (n + 2) / 3 * 4
	size += 2 * (size / 76)
	c.plan[p] = "base64"
	if p.Type == "text" {
		count := &sink{w: io.Discard}
		if err := writeQuoted(count, Open(c.r, p)); err != nil {
			return false, fmt.Errorf("read message: %w", err)
		}
		if count.n <= size {
			c.plan[p], size = "quoted-printable", count.n
		}
	}
	c.growth += size - p.Size() + 100 // with its field
	return true, nil
}

// header gives the fields of a part but its encoding; false for a part whose header is too long to
// be written again, or that is a container which was not gone into.
func (c *Recoder) header(p *Part) ([]byte, bool, error) {
	if p.BodyOffset-p.HeaderOffset >= MaxHeader {
		return nil, false, nil
	}
	block, err := c.rawHeader(p)
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
		return nil, false, nil // a message of a multipart/digest
	}
	if !versioned { // without it the encoding says nothing (RFC 2045 section 4)
		out = append(out, "MIME-Version: 1.0\r\n"...)
	}
	return out, true, nil
}

// endsBlank reports whether a header ends in an empty line, as one that runs into its body does
// not.
func (c *Recoder) endsBlank(p *Part) bool {
	var end [4]byte
	n := min(p.BodyOffset-p.HeaderOffset, int64(len(end)))
	if _, err := c.r.ReadAt(end[:n], p.BodyOffset-n); err != nil {
		return false
	}
	return string(end[:n]) == "\r\n\r\n" || string(end[:n]) == "\r\n"
}

func (c *Recoder) write(s *sink, p *Part) error {
	encoding := c.plan[p]
	if encoding == "" {
		if c.heads[p] {
			head, err := c.rawHeader(p)
			if err != nil {
				return err
			}
			s.Write(head)
		} else if err := c.copy(s, p.HeaderOffset, p.BodyOffset); err != nil {
			return err
		}
		if p.IsMessage() && len(p.Children) == 1 && c.plan[p.Children[0]] != "" && !c.endsBlank(p) {
			s.Write([]byte("\r\n")) // else the fields of the message inside would be this part's
		}
	} else {
		head, _, err := c.header(p)
		if err != nil {
			return err
		}
		s.Write(append(head, "Content-Transfer-Encoding: "+encoding+"\r\n\r\n"...))
	}
	if len(p.Children) == 0 {
		switch encoding {
		case "base64":
			return writeWrapped(s, Open(c.r, p), p.End == c.root.End)
		case "quoted-printable":
			return writeQuoted(s, Open(c.r, p))
		}
		return c.copy(s, p.BodyOffset, p.End)
	}
	at := p.BodyOffset
	for _, child := range p.Children {
		if err := c.copy(s, at, child.HeaderOffset); err != nil {
			return err
		}
		if err := c.write(s, child); err != nil {
			return err
		}
		at = child.End
	}
	return c.copy(s, at, p.End)
}

func (c *Recoder) copy(s *sink, from, to int64) error {
	_, err := io.Copy(s, c.section(from, to))
	return err
}

// writeWrapped writes content as base64 in lines of 76 characters; ended has the last one end in
// CRLF too.
func writeWrapped(s *sink, content io.Reader, ended bool) error {
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

// writeQuoted writes text as quoted-printable (RFC 2045 section 6.7). No line begins with a dash,
// so that none is taken for a boundary.
func writeQuoted(s *sink, content io.Reader) error {
	r, q := bufio.NewReaderSize(content, 8<<10), &quoter{w: bufio.NewWriterSize(s, 8<<10)}
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

const maxQuoted = 76 // characters of a line, the soft break's = included

// quoter is what is known of the line that is being written.
type quoter struct {
	w     *bufio.Writer
	col   int
	blank byte // a space or tab that stands escaped at the end of a line only
	cr    bool // a CR that may begin a line end
}

func (q *quoter) add(b byte) {
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

func (q *quoter) end() {
	if q.cr {
		q.flushBlank(false)
		q.put('\r', true)
	}
	q.flushBlank(true)
}

func (q *quoter) flushBlank(escaped bool) {
	if b := q.blank; b != 0 {
		q.blank = 0
		q.put(b, escaped)
	}
}

// put writes one byte, after a soft break where the line has no room for it.
func (q *quoter) put(b byte, escaped bool) {
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
