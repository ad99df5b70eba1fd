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
	pieceSize     = 256 << 10 // bytes of a message that are fetched at a time
	smallResponse = 256 << 10 // bytes of the response to a command other than a fetch
)

// bounds are the limits on one command.
type bounds struct {
	bytes   int64
	time    time.Duration
	silence time.Duration // longest pause between two reads; 0 means no limit
}

// A boundedConn is a connection that enforces the bounds of the current command. It ignores the
// deadlines that the library sets, since those begin again with each response.
type boundedConn struct {
	net.Conn
	greeting []byte // data that Read returns first

	mu      sync.Mutex
	left    int64
	until   time.Time // end of the time limit; zero if no command is running
	silence time.Duration
	cause   error // why no more can be read, or nil
	lines   lineScanner
}

// startCommand sets the limits for a command that begins now.
func (w *boundedConn) startCommand(b bounds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.silence, w.until = b.bytes, b.silence, time.Time{}
	if b.time > 0 {
		w.until = time.Now().Add(b.time)
	}
	w.setDeadline()
}

// endCommand ends the time limit of a command. Data that the server sends afterwards still counts
// towards the limit of bytes of that command.
func (w *boundedConn) endCommand() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = time.Time{}
	w.setDeadline()
}

// setDeadline sets the deadline for the next read. It also affects a Read that is blocked.
func (w *boundedConn) setDeadline() {
	at := w.until
	if piece := time.Now().Add(w.silence); !at.IsZero() && w.silence > 0 && piece.Before(at) {
		at = piece
	}
	_ = w.Conn.SetReadDeadline(at) // if the connection is closed, the next Read returns the error
}

// abort closes the connection. Reads then return cause.
func (w *boundedConn) abort(cause error) {
	w.mu.Lock()
	if w.cause == nil {
		w.cause = cause
	}
	w.mu.Unlock()
	_ = w.Conn.Close()
}

// closeCause returns the error that ended the connection, nil if the connection is still open.
func (w *boundedConn) closeCause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// Read implements net.Conn. It enforces the limits of the current command.
func (w *boundedConn) Read(p []byte) (int, error) {
	if len(w.greeting) > 0 {
		n := copy(p, w.greeting)
		w.greeting = w.greeting[n:]
		return n, nil
	}
	if err := w.closeCause(); err != nil {
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
		w.cause = w.lines.err
	case n > 0: // the next Read returns the error again
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
		w.setDeadline()
	}
	return n, nil
}

// SetReadDeadline does nothing. Only startCommand and endCommand set deadlines.
func (w *boundedConn) SetReadDeadline(time.Time) error { return nil }

// SetDeadline does nothing. Only startCommand and endCommand set deadlines.
func (w *boundedConn) SetDeadline(time.Time) error { return nil }
