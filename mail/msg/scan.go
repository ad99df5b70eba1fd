package msg

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/transfer"
)

// Part is one node of a message's MIME tree (RFC 2045, RFC 2046). A multipart has one
// child or more; a message/rfc822 or message/global part has exactly one child, the
// message inside; every other part is a leaf. Texts are decoded UTF-8.
type Part struct {
	Type, Subtype     string            // lower case; default text/plain, or message/rfc822 in a multipart/digest
	Params            map[string]string // parameters of Content-Type; names in lower case
	ID                string            // Content-ID with its brackets, "" without the field
	Description       string
	Encoding          string // Content-Transfer-Encoding, lower case; default "7bit"
	Disposition       string // Content-Disposition, lower case, "" without the field
	DispositionParams map[string]string
	Language          []string
	Location, MD5     string

	// HeaderOffset, BodyOffset and End are offsets from the start of the whole message.
	// The header is [HeaderOffset, BodyOffset) with the empty line, the body [BodyOffset, End).
	HeaderOffset, BodyOffset, End int64

	Lines       int64 // number of line ends in the body
	DecodedSize int64 // bytes of the body after decoding; exact if its encoding is valid

	// Envelope is set on the root and on the child of a message/rfc822 part. A message/rfc822 part
	// that is not the root has the same Envelope as its child.
	Envelope *Envelope
	Children []*Part
}

// Envelope holds the header fields that IMAP's ENVELOPE and the message index need
// (RFC 9051 §7.5.2). Sender and ReplyTo are empty when the message has none.
type Envelope struct {
	Date     time.Time // zero if the field is missing or unreadable
	DateText string
	Subject  string
	// EmptySubject is true if there is a Subject field and it is empty.
	EmptySubject bool

	From, Sender, ReplyTo, To, Cc, Bcc []Address

	InReplyTo  []string // each with its brackets
	MessageID  string   // with its brackets, "" without the field
	References []string // each with its brackets, oldest first
}

// Size returns the length of the body in bytes, still encoded.
func (p *Part) Size() int64 { return p.End - p.BodyOffset }

// MediaType returns "type/subtype" in lower case.
func (p *Part) MediaType() string { return p.Type + "/" + p.Subtype }

// IsMultipart reports whether the part's children are MIME parts separated by a boundary.
func (p *Part) IsMultipart() bool { return p.Type == "multipart" }

// IsMessage reports whether the part is a whole message whose structure is known,
// that is, its Envelope and its one child are set.
func (p *Part) IsMessage() bool {
	return p.Type == "message" && (p.Subtype == "rfc822" || p.Subtype == "global")
}

// filename returns the sender's file name for the part, "" if there is none. It may be unsafe.
func (p *Part) filename() string {
	if name := p.DispositionParams["filename"]; name != "" {
		return name
	}
	return p.Params["name"]
}

// Scan parses a message in one pass and returns its part tree. It accepts any bytes: content that
// it cannot parse becomes a leaf. All errors come from r. The time is linear in the size of the
// message; MaxParts and the other limits bound the memory.
func Scan(r io.Reader) (*Part, error) {
	s := &scanner{lines: newLineReader(r), text: textBudget{left: maxTreeText}, rawBytesLeft: MaxHeader}
	defer s.lines.free()
	root := s.openPart(&Part{Envelope: &Envelope{}}, false)
	s.run()
	if s.lines.err != nil {
		return nil, fmt.Errorf("read message: %w", s.lines.err)
	}
	return root, nil
}

// scanner holds the state of Scan. stack has the parts that are open at the current line, outermost
// first.
type scanner struct {
	lines *lineReader
	stack []frame
	parts int
	text  textBudget

	inHeader     bool
	header       []byte // header of the innermost part so far, with LF as line end
	hasField     bool
	midLine      bool
	fieldAt      int64 // offset of the next header field, if a look-ahead found one; the lines before it belong to the header
	raw          []rawHeader
	rawBytesLeft int
	count        int64 // number of line ends before the current line
	lineEnd      int64 // offset of the end of the previous line, before its line break
	leafSize     leafSizer
}

// frame is an open part: one whose end was not yet found.
type frame struct {
	part     *Part
	envelope *Envelope // envelope to fill from the header of the part, nil if it is not a message
	boundary string    // boundary of an open multipart, "" once it is closed
	digest   bool      // the parent is a multipart/digest, which changes the default type
	firstEnd int64     // number of line ends before the body
}

// rawHeader is a header with raw 8-bit text. It is parsed again if a text part declares a charset.
type rawHeader struct {
	part, message *Part
	envelope      *Envelope
	digest        bool
	block         []byte
	used          int // bytes that it took from the text budget
}

func (s *scanner) run() {
	for {
		piece, eol, ok := s.lines.next()
		if !ok {
			break
		}
		off := s.lines.off - int64(len(piece)+eol)
		s.scanPiece(piece, eol, off)
		s.lineEnd = off + int64(len(piece))
		s.midLine = eol == 0
		if eol > 0 {
			s.count++
		}
	}
	s.finishHeaders(s.lines.off, s.count)
	s.closeParts(0, s.lines.off, s.count)
	for _, h := range s.raw {
		charset := headerCharset(h.part)
		if charset == "" {
			charset = headerCharset(h.message)
		}
		if charset != "" {
			s.text.reparseHeader(h, charset)
		}
	}
}

// scanPiece processes one piece of a line: a boundary, or a piece of the header or of the body. eol
// is the length of its line end, off its offset in the message.
func (s *scanner) scanPiece(piece []byte, eol int, off int64) {
	dashes := !s.midLine && len(piece) > 2 && piece[0] == '-' && piece[1] == '-'
	if dashes && s.handleBoundary(piece, off) {
		return
	}
	inHeader := s.inHeader
	for s.inHeader {
		var taken bool
		piece, taken = s.addHeaderLine(piece, eol, off)
		if taken {
			return
		}
	}
	// A boundary that ends the multipart's own header is known only after the header was parsed.
	if inHeader && dashes && s.handleBoundary(piece, off) {
		return
	}
	s.leafSize.add(piece, eol)
}

// handleBoundary processes a boundary line of any open multipart (RFC 2046 §5.1.1). The boundary of
// an outer multipart also ends inner parts that are still open. It returns false if the line is not
// a boundary.
func (s *scanner) handleBoundary(line []byte, off int64) (isBoundary bool) {
	if len(line) > maxBoundary+64 {
		return false
	}
	line = bytes.TrimRight(line[2:], " \t")
	for i := len(s.stack) - 1; i >= 0; i-- {
		b := s.stack[i].boundary
		if bare := strings.Trim(b, "'"); len(bare)+2 == len(b) && !bytes.HasPrefix(line, []byte("'")) {
			b = bare // some programs put the parameter in single quotes, which are not part of the boundary
		}
		if b == "" || len(line) < len(b) || string(line[:len(b)]) != b {
			continue
		}
		last := len(line) == len(b)+2 && line[len(b)] == '-' && line[len(b)+1] == '-'
		if len(line) == len(b) || last {
			s.startPart(i, last, off)
			return true
		}
	}
	return false
}

// startPart ends the parts above level at a boundary line, and begins the next part of the
// multipart at that level. last says that the line closes the multipart.
func (s *scanner) startPart(level int, last bool, off int64) {
	s.finishHeaders(off, s.count)
	// The line end before the boundary belongs to the boundary.
	s.closeParts(level+1, s.lineEnd, s.count-1)
	s.leafSize = leafSizer{}
	multi := &s.stack[level]
	if last {
		multi.boundary = ""
		return
	}
	if s.parts >= MaxParts {
		return
	}
	child := &Part{HeaderOffset: s.lines.off}
	digest := multi.part.Subtype == "digest"
	multi.part.Children = append(multi.part.Children, child)
	s.openPart(child, digest)
}

func (s *scanner) openPart(p *Part, digest bool) *Part {
	s.parts++
	s.stack = append(s.stack, frame{part: p, envelope: p.Envelope, digest: digest})
	s.inHeader, s.hasField = true, false
	s.header = s.header[:0]
	return p
}

// addHeaderLine adds a piece of a line to the header. It returns false if the piece belongs to the
// body. A line that is not a field ends the header, with two exceptions. One is that a known field
// follows later. The other is that the header declares a base64 body, the line is not base64, and
// an empty line follows later. It also returns the piece, as a copy if it had to look ahead, since
// that overwrites the bytes of the argument.
func (s *scanner) addHeaderLine(piece []byte, eol int, off int64) (_ []byte, inHeader bool) {
	if !s.midLine {
		if len(piece) == 0 {
			s.endHeader(off+int64(eol), s.count+1)
			return piece, true
		}
		folded := piece[0] == ' ' || piece[0] == '\t'
		switch {
		case folded && s.hasField:
		case !folded && fieldNameLength(bytes.TrimPrefix(piece, byteOrderMark)) > 0:
			s.hasField = true
		case !s.hasField && isMboxLine(piece):
		case off+int64(len(piece)+eol) <= s.fieldAt:
		case bytes.HasPrefix(piece, []byte("--")): // possibly a boundary that this header declares
			s.endHeader(off, s.count)
			return piece, false
		default:
			piece = bytes.Clone(piece)
			at, isField := s.lines.fieldAhead(s.stack[len(s.stack)-1].envelope != nil)
			if !isField && (at < 0 || isBase64Line(piece) || !s.isBase64()) {
				s.endHeader(off, s.count)
				return piece, false
			}
			s.fieldAt = at
		}
	}
	if room := MaxHeader - len(s.header); room > 0 {
		s.header = append(s.header, piece[:min(len(piece), room)]...)
		if eol > 0 {
			s.header = append(s.header, '\n')
		}
	}
	return piece, true
}

// isBase64 reports whether the header read so far declares a base64 body.
func (s *scanner) isBase64() bool {
	for f := range fields(s.header) {
		if bytes.EqualFold(f.name, []byte("content-transfer-encoding")) && encodingName(f.value) == "base64" {
			return true
		}
	}
	return false
}

func isBase64Line(line []byte) bool {
	return len(line)%4 == 0 && len(bytes.Trim(line, transfer.Base64Letters+"=")) == 0
}

// endHeader parses the header of the innermost part. off is the offset of its body, count the
// number of line ends before the body. If the part is a message/rfc822, endHeader opens the message
// inside it.
func (s *scanner) endHeader(off, count int64) {
	s.inHeader = false
	f := &s.stack[len(s.stack)-1]
	p := f.part
	p.BodyOffset, f.firstEnd = off, count
	before := s.text.left
	s.text.readHeader(s.header, p, f.envelope, f.digest)
	if len(s.header) <= s.rawBytesLeft && !utf8.Valid(s.header) {
		s.rawBytesLeft -= len(s.header)
		s.raw = append(s.raw, rawHeader{p, s.innermostMessage(), f.envelope, f.digest, bytes.Clone(s.header), before - s.text.left})
	}
	atLimit := len(s.stack) >= MaxDepth
	switch {
	case p.IsMultipart():
		f.boundary = p.Params["boundary"]
		if atLimit || len(f.boundary) > maxBoundary {
			f.boundary = ""
		}
		if atLimit {
			p.makeLeaf()
		}
	case p.IsMessage():
		if atLimit || s.parts >= MaxParts || !isUnencoded(p.Encoding) {
			p.makeLeaf()
			break
		}
		inner := &Part{HeaderOffset: off, Envelope: &Envelope{}}
		p.Children = []*Part{inner}
		if p.Envelope == nil {
			p.Envelope = inner.Envelope
		}
		s.openPart(inner, false)
		return
	}
	s.leafSize = leafSizer{encoding: p.Encoding}
}

// innermostMessage returns the innermost open part that is a message.
func (s *scanner) innermostMessage() *Part {
	i := len(s.stack) - 1
	for i > 0 && s.stack[i].envelope == nil {
		i--
	}
	return s.stack[i].part
}

// finishHeaders ends headers that run into a boundary or into the end of the message, without an
// empty line.
func (s *scanner) finishHeaders(off, count int64) {
	for s.inHeader {
		s.endHeader(off, count)
	}
}

// closeParts closes open parts until height parts are left open. Their bodies end at offset end;
// count is the number of line ends before it.
func (s *scanner) closeParts(height int, end, count int64) {
	toEnd := end == s.lines.off
	for i := len(s.stack) - 1; i >= height; i-- {
		f := &s.stack[i]
		p := f.part
		// If end is the line end before an empty body, the part and its parents end where the body
		// begins.
		end = max(end, p.BodyOffset)
		p.End = end
		p.Lines = max(count-f.firstEnd, 0)
		p.DecodedSize = p.Size()
		if len(p.Children) == 0 && i == len(s.stack)-1 {
			p.DecodedSize = s.leafSize.size(p.Size(), toEnd)
		}
		if p.IsMultipart() && len(p.Children) == 0 {
			// The boundary was not found, so the content is displayed as text.
			p.Type, p.Subtype = "text", "plain"
		}
	}
	s.stack = s.stack[:height]
}

// makeLeaf makes a leaf of a multipart or message that is not parsed further.
func (p *Part) makeLeaf() {
	p.Type, p.Subtype = "application", "octet-stream"
}

// isUnencoded reports whether the encoding is 7bit, 8bit, binary or unknown, so that the body can
// be parsed as it is.
func isUnencoded(encoding string) bool {
	return encoding != "base64" && encoding != "quoted-printable" && encoding != transfer.UUEncode
}

// leafSizer computes the size of a leaf after decoding, from its lines.
type leafSizer struct {
	encoding string
	n        int64 // base64: number of characters; other encodings: number of bytes
	uu       transfer.UU
	midLine  bool
	pending  int64 // quoted-printable: length of the last line end, which may belong to a boundary
}

func (l *leafSizer) add(piece []byte, eol int) {
	switch l.encoding {
	case "base64":
		l.n += int64(len(bytes.TrimRight(piece, "= \t")))
	case "quoted-printable":
		l.n += l.pending
		l.pending = int64(eol)
		if eol > 0 {
			piece = bytes.TrimRight(piece, " \t")
		}
		l.n += int64(len(piece) - 2*bytes.Count(piece, []byte("=")))
		if eol > 0 && len(piece) > 0 && piece[len(piece)-1] == '=' {
			l.n++
			l.pending = 0
		}
	case transfer.UUEncode:
		if !l.midLine {
			l.n += int64(l.uu.Length(piece))
		}
		l.midLine = eol == 0
	}
}

// size returns the decoded size. raw is the size of the encoded body; toEnd says that the body ends
// with the message.
func (l *leafSizer) size(raw int64, toEnd bool) int64 {
	switch l.encoding {
	case "base64":
		return min(l.n/4*3+l.n%4*3/4, raw)
	case "quoted-printable":
		if toEnd {
			l.n += l.pending
		}
		return max(0, min(l.n, raw))
	case transfer.UUEncode:
		return min(l.n, raw)
	}
	return raw
}

// lineReader splits a stream at CRLF, LF and bare CR. Its buffer has a fixed size; a longer line is
// returned in pieces.
type lineReader struct {
	r          io.Reader
	buf        []byte // taken from lineBuffers
	start, end int
	lf         int // index of the next LF at or after start; end if there is none in the buffer; -1 if not yet searched
	off        int64
	eof        bool
	err        error
}

var lineBuffers = sync.Pool{New: func() any { return new([scanBuffer]byte) }}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: r, buf: lineBuffers.Get().(*[scanBuffer]byte)[:], lf: -1}
}

// free returns the buffer to the pool. After that, neither the reader nor the pieces that it
// returned may be used.
func (l *lineReader) free() {
	lineBuffers.Put((*[scanBuffer]byte)(l.buf))
	l.buf = nil
}

// next returns the next piece of a line without its line end, and the length of that line end,
// which is 0 if the line continues or the stream ends. The piece is valid until the next call. ok
// is false at the end and after a read error, which is in err.
func (l *lineReader) next() (piece []byte, eol int, ok bool) {
	for {
		i, found := l.findEnd()
		if found {
			piece = l.buf[l.start:i]
			eol = 1
			if l.buf[i] == '\r' && i+1 < l.end && l.buf[i+1] == '\n' {
				eol = 2
			}
			l.advance(i + eol)
			return piece, eol, true
		}
		full := l.start == 0 && l.end == len(l.buf)
		if l.eof || full {
			piece = l.buf[l.start:i]
			l.advance(i)
			return piece, 0, len(piece) > 0
		}
		if !l.fill() {
			return nil, 0, false
		}
	}
}

// findEnd returns the index of the next line end. If the buffer has none, it returns false and the
// index up to which the bytes belong to the line. A CR at the end of the buffer is left out, since
// an LF may follow.
func (l *lineReader) findEnd() (end int, found bool) {
	if l.lf < l.start {
		l.lf = l.end
		if i := bytes.IndexByte(l.buf[l.start:l.end], '\n'); i >= 0 {
			l.lf = l.start + i
		}
	}
	if i := bytes.IndexByte(l.buf[l.start:l.lf], '\r'); i >= 0 {
		i += l.start
		return i, i+1 < l.end || l.eof
	}
	return l.lf, l.lf < l.end
}

// fieldAhead looks for a known header field or an empty line, as far as the buffer reaches. It
// returns the offset of whichever comes first, or -1 if there is neither or if a possible boundary
// comes first. The call invalidates the piece that next returned.
func (l *lineReader) fieldAhead(inMessage bool) (at int64, isField bool) {
	for pos := l.start; ; {
		n := bytes.IndexAny(l.buf[pos:l.end], "\r\n")
		if n < 0 {
			if !l.eof && (l.start > 0 || l.end < len(l.buf)) {
				pos -= l.start
				if l.fill() {
					continue
				}
			}
			n = l.end - pos
		}
		line := l.buf[pos : pos+n]
		switch {
		case bytes.HasPrefix(line, []byte("--")) || pos == l.end:
			return -1, false
		case len(line) == 0 || isKnownField(line, inMessage):
			return l.off + int64(pos-l.start), len(line) > 0
		case pos+n == l.end:
			return -1, false
		}
		pos += n + 1
		if l.buf[pos-1] == '\r' {
			if pos == l.end && !l.eof {
				return -1, false
			}
			if pos < l.end && l.buf[pos] == '\n' {
				pos++
			}
		}
	}
}

// advance moves the start of the unread bytes to index to.
func (l *lineReader) advance(to int) {
	l.off += int64(to - l.start)
	l.start = to
}

// fill moves the unread bytes to the start of the buffer and reads more. It returns false after a
// read error.
func (l *lineReader) fill() (ok bool) {
	copy(l.buf, l.buf[l.start:l.end])
	l.end -= l.start
	l.start, l.lf = 0, -1
	n, err := io.ReadFull(l.r, l.buf[l.end:])
	l.end += n
	if err == nil {
		return true
	}
	l.eof = true
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		l.err = err
		return false
	}
	return true
}
