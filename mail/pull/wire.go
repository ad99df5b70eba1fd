package pull

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	maxLine     = 64 << 10 // bytes of an answer's line, literals apart
	pieceSize   = 256 << 10
	maxLiteral  = pieceSize + 1<<10
	maxDepth    = 50        // of lists in lists; the library's errors grow with the square of it
	smallAnswer = 256 << 10 // bytes of an answer that is short
)

// bounds are what one command may cost.
type bounds struct {
	bytes   int64
	time    time.Duration
	silence time.Duration // 0: as long as time
}

// A wire is a connection that keeps the bounds of the command under way. The library's own deadlines, which begin anew
// with each response, are not heard.
type wire struct {
	net.Conn
	greeting []byte // to be read first

	mu      sync.Mutex
	left    int64
	until   time.Time // zero: no command is under way
	silence time.Duration
	cause   error // why nothing more is read
	lines   lineScanner
}

// begin sets the bounds of a command.
func (w *wire) begin(b bounds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.silence, w.until = b.bytes, b.silence, time.Time{}
	if b.time > 0 {
		w.until = time.Now().Add(b.time)
	}
	w.wait()
}

// end lifts the bound on time. What comes unasked still counts.
func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = time.Time{}
	w.wait()
}

// wait sets the deadline of the next piece; it works on a Read that has begun, too.
func (w *wire) wait() {
	at := w.until
	if piece := time.Now().Add(w.silence); !at.IsZero() && w.silence > 0 && piece.Before(at) {
		at = piece
	}
	_ = w.Conn.SetReadDeadline(at) // a closed connection says so when it is read
}

// abort ends the connection; cause is why.
func (w *wire) abort(cause error) {
	w.mu.Lock()
	if w.cause == nil {
		w.cause = cause
	}
	w.mu.Unlock()
	_ = w.Conn.Close()
}

// why is what ended the connection; nil if it is still good.
func (w *wire) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// Read is net.Conn's.
func (w *wire) Read(p []byte) (int, error) {
	if len(w.greeting) > 0 {
		n := copy(p, w.greeting)
		w.greeting = w.greeting[n:]
		return n, nil
	}
	if err := w.why(); err != nil {
		return 0, err
	}
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left -= int64(n)
	switch {
	case w.cause != nil:
	case w.left < 0:
		w.cause = ErrTooMuch
	case !w.lines.scan(p[:n]):
		w.cause = fmt.Errorf("%w: a line, literal or list without end", ErrTooMuch)
	case n > 0: // an error comes again with the next call
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.cause = ErrStalled
	case errors.Is(err, io.EOF):
		w.cause = ErrClosed
	case err != nil:
		w.cause = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	if w.cause != nil {
		return 0, w.cause
	}
	if w.silence > 0 {
		w.wait()
	}
	return n, nil
}

// SetReadDeadline does nothing: begin and end set the deadlines.
func (w *wire) SetReadDeadline(time.Time) error { return nil }

// SetDeadline does nothing: begin and end set the deadlines.
func (w *wire) SetDeadline(time.Time) error { return nil }

// A lineScanner finds lines and literals that are longer than they may be, and lists that are too deep.
type lineScanner struct {
	line    int   // bytes of the line so far
	depth   int   // of lists
	literal int64 // bytes of the literal that are still to come
	mark    byte  // what was seen of a literal's "{n}\r\n": '{', '}' or 0
	size    int64
}

// scan takes the next bytes; false says that something is too long.
func (l *lineScanner) scan(p []byte) bool {
	for len(p) > 0 {
		if l.literal > 0 {
			n := min(l.literal, int64(len(p)))
			l.literal -= n
			p = p[n:]
			continue
		}
		if !l.next(p[0]) {
			return false
		}
		p = p[1:]
	}
	return true
}

func (l *lineScanner) next(b byte) bool {
	l.line++
	switch {
	case b == '\n' && l.mark == '}':
		l.literal, l.mark = l.size, 0
		return l.literal <= maxLiteral
	case b == '\n':
		l.line, l.mark, l.depth = 0, 0, 0
	case b == '(', b == ')' && l.depth > 0:
		l.mark = 0
		if l.depth++; b == ')' {
			l.depth -= 2
		}
	case b == '{':
		l.mark, l.size = '{', 0
	case l.mark == '{' && b >= '0' && b <= '9':
		l.size = min(l.size*10+int64(b-'0'), 1<<40)
	case l.mark == '{' && b == '}', l.mark == '}' && b == '\r':
		l.mark = '}'
	default:
		l.mark = 0
	}
	return l.line <= maxLine && l.depth <= maxDepth
}
