package msg

import (
	"bufio"
	"bytes"
	"io"

	"github.com/mailstead/mailstead/internal/buffers"
)

// NormalizeLines returns a writer that turns bare LF and bare CR into CRLF and drops
// NUL on the way to w, so that no two readers can see different lines or ends in the
// same message (RFC 5321 §2.3.8). Close writes what is held back and ends the writer; it does not
// close w.
func NormalizeLines(w io.Writer) io.WriteCloser { return &lineNormalizer{w: buffers.Writer(w)} }

type lineNormalizer struct {
	w      *bufio.Writer // nil after Close
	heldCR bool          // a CR came last: the next byte tells whether it was bare
	err    error         // what goes wrong first
}

func (l *lineNormalizer) Write(b []byte) (int, error) {
	n := len(b)
	if !l.heldCR {
		normal := normalPrefix(b)
		l.put(b[:normal])
		b = b[normal:]
	}
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

// normalPrefix is how many of the bytes are to stay as they are, mostly all. It looks fast, and may
// find none.
func normalPrefix(b []byte) int {
	if bytes.IndexByte(b, 0) >= 0 {
		return 0
	}
	if len(b) > 0 && b[len(b)-1] == '\r' { // what it is, the next byte tells
		b = b[:len(b)-1]
	}
	ends := 0
	for at := 0; ; ends++ {
		i := bytes.IndexByte(b[at:], '\r')
		if i < 0 {
			break
		}
		at += i + 2
		if at > len(b) || b[at-1] != '\n' {
			return 0
		}
	}
	if bytes.Count(b, []byte("\n")) != ends {
		return 0
	}
	return len(b)
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
	if l.err == nil {
		_, l.err = l.w.Write(b)
	}
}

func (l *lineNormalizer) Close() error {
	if l.w == nil {
		return l.err
	}
	l.endCR()
	if l.err == nil {
		l.err = l.w.Flush()
	}
	buffers.FreeWriter(l.w)
	err := l.err
	l.w = nil
	if err == nil {
		l.err = io.ErrClosedPipe // of what is written from now on
	}
	return err
}
