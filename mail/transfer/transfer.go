// Package transfer decodes the content transfer encodings of MIME (RFC 2045 section 6) and
// uuencode. It accepts damaged input. It does not know parts or messages.
package transfer

import (
	"bytes"
	"io"
)

// UUEncode is the name of uuencode in Content-Transfer-Encoding.
const UUEncode = "x-uuencode"

// NewReader returns a reader of the decoded content, if the encoding is base64, quoted-printable or
// UUEncode. For other encodings it returns the content unchanged.
func NewReader(encoding string, content *io.SectionReader) io.Reader {
	switch encoding {
	case "base64":
		return &base64Reader{decodeReader: newDecodeReader(content)}
	case "quoted-printable":
		return &qpReader{decodeReader: newDecodeReader(content)}
	case UUEncode:
		return &uuReader{decodeReader: newDecodeReader(content)}
	}
	return content
}

// Base64 decodes base64 in pieces. It skips characters that are not base64.
type Base64 struct {
	acc uint32
	n   int // number of sextets (six bits) in acc
}

// Append decodes src and appends the result to dst.
func (b *Base64) Append(dst, src []byte) []byte {
	for _, c := range src {
		v := base64Values[c]
		if v < 64 {
			b.acc = b.acc<<6 | uint32(v)
			if b.n++; b.n == 4 {
				dst = append(dst, byte(b.acc>>16), byte(b.acc>>8), byte(b.acc))
				b.acc, b.n = 0, 0
			}
		} else if c == '=' {
			dst = b.Flush(dst)
		}
	}
	return dst
}

// Flush appends the bytes of an incomplete group. It is called at padding and at the end of the
// input.
func (b *Base64) Flush(dst []byte) []byte {
	switch b.n {
	case 2:
		dst = append(dst, byte(b.acc>>4))
	case 3:
		dst = append(dst, byte(b.acc>>10), byte(b.acc>>2))
	}
	b.acc, b.n = 0, 0
	return dst
}

// Base64Letters is the alphabet of base64. Base64Text also has the padding, and white space that
// some programs put into the text.
const (
	Base64Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	Base64Text    = Base64Letters + "= \t"
)

var base64Values = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range []byte(Base64Letters) {
		t[c] = byte(i)
	}
	return t
}()

// decodeReader is what all decoders need: a piece of input, and decoded bytes that were not read
// yet.
type decodeReader struct {
	r     io.Reader
	in    []byte
	out   []byte
	taken int
	err   error
}

func newDecodeReader(r *io.SectionReader) decodeReader {
	return decodeReader{r: r, in: make([]byte, min(r.Size()+1, 8<<10))}
}

// read implements Read for a decoder. It copies decoded bytes from d.out. If there are none, it
// calls decode with the next input, which decode must decode into d.out. last says that no more
// input follows.
func (d *decodeReader) read(b []byte, decode func(in []byte, last bool)) (int, error) {
	for d.taken == len(d.out) {
		if d.err != nil {
			return 0, d.err
		}
		d.out, d.taken = d.out[:0], 0
		var n int
		n, d.err = d.r.Read(d.in)
		decode(d.in[:n], d.err != nil)
	}
	n := copy(b, d.out[d.taken:])
	d.taken += n
	return n, nil
}

type base64Reader struct {
	decodeReader
	state Base64
}

func (b *base64Reader) Read(p []byte) (int, error) {
	return b.read(p, func(in []byte, last bool) {
		b.out = b.state.Append(b.out, in)
		if last {
			b.out = b.state.Flush(b.out)
		}
	})
}

// maxBlank is how much white space at the end of a line is dropped in quoted-printable, in bytes.
const maxBlank = 1 << 10

type qpReader struct {
	decodeReader
	held []byte // input that cannot be decoded without the bytes after it: white space, or an incomplete escape
}

func (q *qpReader) Read(p []byte) (int, error) {
	return q.read(p, func(in []byte, last bool) {
		if len(q.held) > 0 {
			in = append(q.held, in...)
			q.held = nil
		}
		rest := q.decode(in, last)
		if len(rest) > 0 {
			q.held = bytes.Clone(rest)
		}
	})
}

// decode appends decoded bytes to q.out. It returns the end of the input if that can be decoded
// only together with the bytes after it.
func (q *qpReader) decode(in []byte, last bool) []byte {
	for i := 0; i < len(in); {
		n := bytes.IndexAny(in[i:], "= \t")
		if n < 0 {
			q.out = append(q.out, in[i:]...)
			return nil
		}
		q.out = append(q.out, in[i:i+n]...)
		i += n
		used := q.decodeEscape(in[i:], last)
		if used == 0 {
			return in[i:]
		}
		i += used
	}
	return nil
}

// decodeEscape decodes "=" or white space at the start of in (RFC 2045 §6.7). It returns the number
// of bytes used, 0 if more input is needed. An invalid escape stays as it is.
func (q *qpReader) decodeEscape(in []byte, last bool) int {
	if in[0] == '=' && len(in) >= 3 && IsHex(in[1]) && IsHex(in[2]) {
		q.out = append(q.out, Unhex(in[1])<<4|Unhex(in[2]))
		return 3
	}
	soft := in[0] == '='
	blank := 0
	if soft {
		blank = 1
	}
	for blank < len(in) && (in[blank] == ' ' || in[blank] == '\t') {
		blank++
	}
	if blank == len(in) && !last && blank < maxBlank {
		return 0
	}
	if soft && len(in) == 2 && IsHex(in[1]) && !last {
		return 0
	}
	atEnd := blank == len(in) && last || blank < len(in) && (in[blank] == '\r' || in[blank] == '\n')
	switch {
	case atEnd && soft:
		return q.skipSoftBreak(in, blank, last)
	case atEnd:
		return blank
	case soft:
		q.out = append(q.out, '=')
		return 1
	}
	q.out = append(q.out, in[:blank]...)
	return blank
}

// skipSoftBreak skips a soft line break. at is the index of its line end. It returns the number of
// bytes used, 0 if more input is needed.
func (q *qpReader) skipSoftBreak(in []byte, at int, last bool) int {
	switch {
	case at == len(in):
		return at
	case in[at] == '\n' || at+1 < len(in) && in[at+1] != '\n':
		return at + 1
	case at+1 < len(in):
		return at + 2
	case last:
		return at + 1
	}
	return 0
}

// UU is the state of decoding a uuencoded body. The encoded content is between the lines "begin"
// and "end".
type UU struct{ began, ended bool }

// Length returns how many bytes the next line encodes.
func (u *UU) Length(line []byte) int {
	switch {
	case u.ended || len(line) == 0:
		return 0
	case !u.began:
		word, _, _ := bytes.Cut(line, []byte(" "))
		u.began = bytes.EqualFold(word, []byte("begin"))
		return 0
	case bytes.EqualFold(line, []byte("end")):
		u.ended = true
		return 0
	}
	// Blanks at the end of a line encode zeros, but may have been lost on the way.
	return min(int(line[0]-' ')&63, (len(line)+2)/4*3)
}

// appendLine decodes a line and appends the result to dst.
func (u *UU) appendLine(dst, line []byte) []byte {
	line = bytes.TrimRight(line, "\r")
	n := u.Length(line)
	for i := 1; n > 0; i += 4 {
		var acc uint32
		for j := i; j < i+4; j++ {
			acc <<= 6
			if j < len(line) {
				acc |= uint32(line[j]-' ') & 63
			}
		}
		group := [3]byte{byte(acc >> 16), byte(acc >> 8), byte(acc)}
		dst = append(dst, group[:min(n, 3)]...)
		n -= 3
	}
	return dst
}

type uuReader struct {
	decodeReader
	state UU
	line  []byte // the current line, of which at most maxUULine bytes are kept
}

const maxUULine = 256

func (u *uuReader) Read(p []byte) (int, error) {
	return u.read(p, func(in []byte, last bool) {
		for len(in) > 0 {
			line, rest, ended := bytes.Cut(in, []byte("\n"))
			u.line = append(u.line, line[:min(len(line), maxUULine-len(u.line))]...)
			in = rest
			if ended {
				u.out = u.state.appendLine(u.out, u.line)
				u.line = u.line[:0]
			}
		}
		if last {
			u.out = u.state.appendLine(u.out, u.line)
			u.line = u.line[:0]
		}
	})
}

// InBase64 reports whether a byte is in the alphabet of base64.
func InBase64(c byte) bool { return base64Values[c] < 64 }

// IsHex reports whether a byte is a hexadecimal digit, in upper or lower case.
func IsHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// Unhex returns the value of a hexadecimal digit.
func Unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}
