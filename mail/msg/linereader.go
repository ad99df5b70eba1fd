package msg

import (
	"bytes"
	"errors"
	"io"
)

// lineReader cuts a stream at CRLF, LF and bare CR through a fixed buffer, so that a
// line of any length costs no more memory than the buffer.
type lineReader struct {
	r          io.Reader
	buf        []byte
	start, end int
	lf         int // index of the next LF at or after start, end if the buffer has none, -1 if not looked for
	off        int64
	eof        bool
	err        error
}

func newLineReader(r io.Reader) *lineReader {
	size := scanBuffer
	if l, ok := r.(interface{ Len() int }); ok {
		size = max(64, min(size, l.Len()+1))
	}
	return &lineReader{r: r, buf: make([]byte, size), lf: -1}
}

// next returns the next piece of a line, without its line end, and the length of that
// line end: 0 when the line goes on or the stream ends. The piece is valid until the
// next call. It answers false at the end and after a read error, which is then in err.
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

// findEnd returns the index of the next line end. Without one it answers false and the
// index up to which the bytes surely belong to the line: a CR that is last in the
// buffer may be half of a CRLF.
func (l *lineReader) findEnd() (int, bool) {
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

func (l *lineReader) advance(to int) {
	l.off += int64(to - l.start)
	l.start = to
}

func (l *lineReader) fill() bool {
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
