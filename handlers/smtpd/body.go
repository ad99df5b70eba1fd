package smtpd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/mailstead/mailstead/mail/msg"
)

// maxLine is the longest line of a message that is taken; RFC 5321 section 4.5.3.1.6 asks for 1000
// bytes.
const maxLine = 64 << 10

// errLongLine is returned for a message with a line over maxLine.
var errLongLine = errors.New("the message has a line that is too long")

// errEndless is returned for a message that goes on long after it was refused.
var errEndless = errors.New("the message does not end")

// body reads the message after DATA up to CRLF.CRLF, without the dots of RFC 5321 section 4.5.2. A
// bare LF or CR does not end a line: after it neither the message ends nor is a dot removed.
type body struct {
	conn    *protocolConn
	started bool
	done    bool
	inLine  bool   // what comes next is not the beginning of a line
	line    int    // bytes of the line so far
	rest    []byte // of what was read
	read    int64
	discard bool // the message is refused
}

// message returns the message that follows DATA, always the same one until it has ended.
func (w *protocolConn) message() *body {
	if w.body == nil {
		w.body = &body{conn: w}
	}
	return w.body
}

// finishBody reads what is left of a message, and passes only its end to go-smtp.
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

// Read returns as many pieces of the message as are there.
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

// fill reads the whole lines that are there, or one line, or as much of it as the buffer holds.
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
		if bytes.HasSuffix(piece, []byte("\r")) { // the next byte tells what it is
			piece = piece[:len(piece)-1]
			_ = b.conn.in.UnreadByte()
		}
	}
	if err == io.EOF {
		err = errTruncated // never EOF: that would be the message's end
	}
	if err != nil {
		_ = b.conn.fail(err)
		return err
	}
	return b.takePiece(piece)
}

// lines gives the whole lines that are in the buffer, which is shorter than maxLine, up to one that
// begins with a dot.
func (b *body) lines() []byte {
	there, _ := b.conn.in.Peek(b.conn.in.Buffered())
	if b.inLine || len(there) == 0 || there[0] == '.' {
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
	first := !b.inLine
	if first && string(piece) == ".\r\n" {
		b.done = true
		b.conn.endBody()
		return io.EOF
	}
	b.read += int64(len(piece))
	b.line += len(piece)
	ended := bytes.HasSuffix(piece, []byte("\r\n"))
	b.inLine = !ended
	if b.line > maxLine && !b.discard {
		return errLongLine
	}
	if piece[len(piece)-1] == '\n' {
		b.line = 0
	}
	if b.discard {
		if b.read > 3*b.conn.limits.Size {
			return errEndless
		}
		return nil
	}
	if first && piece[0] == '.' {
		piece = piece[1:]
	}
	b.rest = piece
	return nil
}

// normalizer reads from r with every line end as CRLF and without NUL, so that no two readers of
// what is stored see different lines in it.
type normalizer struct {
	r     io.Reader // nil once it is free
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

// free lets the next message have its memory.
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
