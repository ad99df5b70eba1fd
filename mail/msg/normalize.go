package msg

import (
	"bytes"
	"io"
)

// NormalizeLines returns a writer that turns bare LF and bare CR into CRLF and drops
// NUL on the way to w, so that no two readers can see different lines or ends in the
// same message (RFC 5321 §2.3.8). Close writes what is held back; it does not close w.
func NormalizeLines(w io.Writer) io.WriteCloser {
	return &lineNormalizer{w: w, buf: make([]byte, 0, normalizeBuffer)}
}

const normalizeBuffer = 8 << 10

type lineNormalizer struct {
	w      io.Writer
	buf    []byte
	heldCR bool // a CR came last: the next byte tells whether it was bare
	err    error
}

func (l *lineNormalizer) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 && l.err == nil {
		i := bytes.IndexByte(b, '\n')
		switch {
		case i < 0:
			l.run(b)
			b = nil
		case i == 0 || b[i-1] != '\r':
			l.run(b[:i])
			l.heldCR = false
			l.put([]byte("\r\n"))
			b = b[i+1:]
		default:
			l.run(b[:i-1])
			l.endCR()
			l.put([]byte("\r\n"))
			b = b[i+1:]
		}
	}
	if l.err != nil {
		return 0, l.err
	}
	return n, nil
}

// run writes bytes that hold no LF.
func (l *lineNormalizer) run(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexAny(b, "\r\x00")
		if i < 0 {
			i = len(b)
		}
		if i > 0 {
			l.endCR()
			l.put(b[:i])
		}
		if i == len(b) {
			return
		}
		if b[i] == '\r' {
			l.endCR()
			l.heldCR = true
		}
		b = b[i+1:]
	}
}

// endCR writes the line end of a CR that turned out to be bare.
func (l *lineNormalizer) endCR() {
	if l.heldCR {
		l.heldCR = false
		l.put([]byte("\r\n"))
	}
}

func (l *lineNormalizer) put(b []byte) {
	for len(b) > 0 && l.err == nil {
		n := min(len(b), cap(l.buf)-len(l.buf))
		l.buf = append(l.buf, b[:n]...)
		b = b[n:]
		if len(l.buf) == cap(l.buf) {
			l.flush()
		}
	}
}

func (l *lineNormalizer) flush() {
	if l.err == nil && len(l.buf) > 0 {
		_, l.err = l.w.Write(l.buf)
	}
	l.buf = l.buf[:0]
}

func (l *lineNormalizer) Close() error {
	l.endCR()
	l.flush()
	return l.err
}
