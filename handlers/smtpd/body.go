package smtpd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/mailstead/mailstead/mail/msg"
)

// maxLineBytes is the length in bytes of the longest line that a message may have. RFC 5321 section
// 4.5.3.1.6 requires at least 1000.
const maxLineBytes = 64 << 10

// errLongLine is returned for a message with a line of more than maxLineBytes bytes.
var errLongLine = errors.New("the message has a line of more than 64 KiB")

// errTooMuchRefused is returned if a client sends more than three times the maximum size of a
// message, although its message was refused.
var errTooMuchRefused = errors.New("the client keeps sending a message that was refused")

// A bodyReader reads the message after DATA up to CRLF.CRLF, and removes the dots that RFC 5321
// section 4.5.2 adds. Only CRLF ends a line. So a dot after a bare LF or CR does not end the
// message, and is not removed.
type bodyReader struct {
	conn    *protocolConn
	started bool   // the first byte was asked for
	done    bool   // the end of the message was read
	midLine bool   // the next byte is not the first of its line
	line    int    // bytes of the current line so far
	rest    []byte // bytes that Read has not returned yet
	read    int64  // bytes so far, with line ends and added dots
	discard bool   // the message was refused; the rest of it is skipped
}

// message returns the reader of the message after DATA. It returns the same reader until finishBody
// is called.
func (w *protocolConn) message() *bodyReader {
	if w.body == nil {
		w.body = &bodyReader{conn: w}
	}
	return w.body
}

// finishBody skips the rest of a message. go-smtp then gets only the end of the message.
func (w *protocolConn) finishBody() error {
	b := w.message()
	b.discard = true
	if _, err := io.Copy(io.Discard, b); err != nil {
		return w.fail(io.EOF)
	}
	w.body, w.code = nil, 0
	w.pending = []byte(".\r\n")
	return nil
}

// Read returns the bytes of the message that are available. It waits only if there are none.
func (b *bodyReader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if len(b.rest) == 0 {
			if n > 0 && (b.done || b.conn.in.Buffered() == 0) {
				break
			}
			if err := b.fill(); err != nil {
				return n, err
			}
			continue
		}
		c := copy(p[n:], b.rest)
		b.rest = b.rest[c:]
		n += c
	}
	return n, nil
}

// fill moves what the buffer has into rest: all complete lines, or else one line, or the part of a
// line that fits into the buffer.
func (b *bodyReader) fill() error {
	if b.done {
		return io.EOF
	}
	if !b.started {
		b.started = true
		b.conn.startBody()
	}
	if lines := b.bufferedLines(); len(lines) > 0 {
		_, _ = b.conn.in.Discard(len(lines))
		return b.takePiece(lines)
	}
	piece, err := b.conn.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = nil
		// The next byte decides whether the CR ends the line.
		if bytes.HasSuffix(piece, []byte("\r")) {
			piece = piece[:len(piece)-1]
			_ = b.conn.in.UnreadByte()
		}
	}
	if err == io.EOF {
		err = errTruncated // not EOF, which means the end of the message
	}
	if err != nil {
		_ = b.conn.fail(err)
		return err
	}
	return b.takePiece(piece)
}

// bufferedLines returns the complete lines in the buffer, up to the first that begins with a dot.
// None of them is longer than maxLineBytes, since the buffer is shorter.
func (b *bodyReader) bufferedLines() []byte {
	there, _ := b.conn.in.Peek(b.conn.in.Buffered())
	if b.midLine || len(there) == 0 || there[0] == '.' {
		return nil
	}
	end := bytes.Index(there, []byte("\r\n."))
	if end < 0 {
		end = bytes.LastIndex(there, []byte("\r\n"))
	}
	if end < 0 {
		return nil
	}
	return there[:end+2]
}

// takePiece puts a piece of the message into rest. Before that it looks for the end of the message,
// checks the length of the line, and removes an added dot.
func (b *bodyReader) takePiece(piece []byte) error {
	first := !b.midLine
	if first && string(piece) == ".\r\n" {
		b.done = true
		b.conn.endBody()
		return io.EOF
	}
	b.read += int64(len(piece))
	b.line += len(piece)
	ended := bytes.HasSuffix(piece, []byte("\r\n"))
	b.midLine = !ended
	if b.line > maxLineBytes && !b.discard {
		return errLongLine
	}
	if piece[len(piece)-1] == '\n' {
		b.line = 0
	}
	if b.discard {
		if b.read > 3*b.conn.limits.Size {
			return errTooMuchRefused
		}
		return nil
	}
	if first && piece[0] == '.' {
		piece = piece[1:]
	}
	b.rest = piece
	return nil
}

// A normalizer reads from r. It makes every line end CRLF and removes NULs, so that all programs
// that read the stored message see the same lines.
type normalizer struct {
	r     io.Reader      // nil after free
	lines io.WriteCloser // writes normalized lines to ready
	ready bytes.Buffer
	raw   [8 << 10]byte
	err   error
}

// normalizers has unused normalizers, so that their buffers are used again.
var normalizers = sync.Pool{New: func() any { return new(normalizer) }}

func newNormalizer(r io.Reader) *normalizer {
	n := normalizers.Get().(*normalizer)
	n.r, n.err = r, nil
	n.ready.Reset()
	n.lines = msg.NormalizeLines(&n.ready)
	return n
}

// free returns the normalizer to the pool.
func (n *normalizer) free() {
	n.r, n.lines = nil, nil
	normalizers.Put(n)
}

func (n *normalizer) Read(p []byte) (int, error) {
	for n.ready.Len() == 0 {
		if n.err != nil {
			return 0, n.err
		}
		var c int
		c, n.err = n.r.Read(n.raw[:])
		if _, err := n.lines.Write(n.raw[:c]); err != nil {
			return 0, err
		}
		if n.err == io.EOF {
			if err := n.lines.Close(); err != nil {
				return 0, err
			}
		}
	}
	return n.ready.Read(p)
}
