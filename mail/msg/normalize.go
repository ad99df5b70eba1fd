package msg

import (
	"bufio"
	"bytes"
	"io"

	"github.com/mailstead/mailstead/internal/buffers"
)

// NormalizeLines returns a writer that converts bare LF and bare CR to CRLF, drops NUL, and writes
// the result to w. So all programs see the same lines and the same end of the message (RFC 5321
// §2.3.8). Close writes the pending bytes; it does not close w.
func NormalizeLines(w io.Writer) io.WriteCloser { return &lineNormalizer{w: buffers.Writer(w)} }

type lineNormalizer struct {
	w      *bufio.Writer // nil after Close
	heldCR bool          // the last byte was a CR; the next byte decides whether it is bare
	err    error         // the first error
}

func (l *lineNormalizer) Write(b []byte) (int, error) {
	n := len(b)
	if !l.heldCR {
		normal := unchangedLength(b)
		l.put(b[:normal])
		b = b[normal:]
	}
	for len(b) > 0 && l.err == nil {
		i := bytes.IndexByte(b, '\n')
		switch {
		case i < 0:
			l.writeRun(b)
			b = nil
		case i == 0 || b[i-1] != '\r':
			l.writeRun(b[:i])
			l.heldCR = false
			l.put([]byte("\r\n"))
			b = b[i+1:]
		default:
			l.writeRun(b[:i-1])
			l.writeHeldCR()
			l.put([]byte("\r\n"))
			b = b[i+1:]
		}
	}
	if l.err != nil {
		return 0, l.err
	}
	return n, nil
}

// unchangedLength returns how many bytes at the start of b certainly need no change: usually all
// except a CR at the end. It is a fast check that returns 0 if b has anything to convert.
func unchangedLength(b []byte) int {
	if bytes.IndexByte(b, 0) >= 0 {
		return 0
	}
	if len(b) > 0 && b[len(b)-1] == '\r' { // the next byte decides whether it is bare
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

// writeRun writes bytes that contain no LF. It converts bare CR, and it holds back a CR at the end.
func (l *lineNormalizer) writeRun(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexAny(b, "\r\x00")
		if i < 0 {
			i = len(b)
		}
		if i > 0 {
			l.writeHeldCR()
			l.put(b[:i])
		}
		if i == len(b) {
			return
		}
		if b[i] == '\r' {
			l.writeHeldCR()
			l.heldCR = true
		}
		b = b[i+1:]
	}
}

// writeHeldCR writes CRLF for a CR that was held back and turned out to be bare.
func (l *lineNormalizer) writeHeldCR() {
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
	l.writeHeldCR()
	if l.err == nil {
		l.err = l.w.Flush()
	}
	buffers.FreeWriter(l.w)
	err := l.err
	l.w = nil
	if err == nil {
		l.err = io.ErrClosedPipe // returned by Write after Close
	}
	return err
}
