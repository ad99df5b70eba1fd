package smtpd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/mailstead/mailstead/mail/msg"
)

// maxLine is the longest accepted line of a message, in bytes; RFC 5321 section 4.5.3.1.6 requires
// 1000.
const maxLine = 64 << 10

// errLongLine is returned for a message with a line over maxLine.
var errLongLine = errors.New("the message has a line that is too long")

// errTooMuchRefused is returned for a message that goes on long after it was refused.
var errTooMuchRefused = errors.New("the client keeps sending after its message was refused")

// body reads the message after DATA up to CRLF.CRLF, without the dots of RFC 5321 section 4.5.2. A
// bare LF or CR does not end a line: a dot after it neither ends the message nor is removed.
type body struct {
	conn    *protocolConn
	started bool
	done    bool
	midLine bool   // the next byte is not the first of a line
	line    int    // bytes of the line so far
	rest    []byte // bytes that fill has read and Read has not returned yet
	read    int64
	discard bool // the message was refused; the rest of it is skipped
}

// message returns the reader of the message after DATA, the same one until finishBody.
func (w *protocolConn) message() *body {
	if w.body == nil {
		w.body = &body{conn: w}
	}
	return w.body
}

// finishBody reads the rest of a message, and passes only its end to go-smtp.
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

// Read returns the bytes of the message that are available; it waits only for the first.
func (b *body) Read(p []byte) (int, error) {
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

// fill reads the complete lines in the buffer, or else one line, or the part of it that fits into
// the buffer.
func (b *body) fill() error {
	if b.done {
		return io.EOF
	}
	if !b.started {
		b.started = true
		b.conn.startBody()
	}
	if lines := b.lines(); len(lines) > 0 {
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
		err = errTruncated // not EOF, which would be the end of the message
	}
	if err != nil {
		_ = b.conn.fail(err)
		return err
	}
	return b.takePiece(piece)
}

// lines returns the complete lines in the buffer up to one that begins with a dot. The buffer is
// shorter than maxLine.
func (b *body) lines() []byte {
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

func (b *body) takePiece(piece []byte) error {
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
	if b.line > maxLine && !b.discard {
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

// normalizer reads from r with CRLF as every line end and without NUL, so that all readers of the
// stored message see the same lines.
type normalizer struct {
	r     io.Reader // nil after free
	lines io.WriteCloser
	ready bytes.Buffer
	raw   [8 << 10]byte
	err   error
}

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
