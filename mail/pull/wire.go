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
	pieceSize     = 256 << 10
	smallResponse = 256 << 10 // bytes of a short response
)

// bounds are the limits of one command.
type bounds struct {
	bytes   int64
	time    time.Duration
	silence time.Duration // 0: no limit but time
}

// A wire is a connection that enforces the bounds of the current command. It ignores the library's
// own deadlines, which restart with each response.
type wire struct {
	net.Conn
	greeting []byte // data to return first

	mu      sync.Mutex
	left    int64
	until   time.Time // zero if no command is running
	silence time.Duration
	cause   error // why reading has ended
	lines   lineScanner
}

// begin sets the bounds for a command.
func (w *wire) begin(b bounds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.silence, w.until = b.bytes, b.silence, time.Time{}
	if b.time > 0 {
		w.until = time.Now().Add(b.time)
	}
	w.wait()
}

// end removes the time limit. Unsolicited data still counts towards the limit of bytes.
func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = time.Time{}
	w.wait()
}

// wait sets the deadline for the next piece. It also affects a Read that is blocked.
func (w *wire) wait() {
	at := w.until
	if piece := time.Now().Add(w.silence); !at.IsZero() && w.silence > 0 && piece.Before(at) {
		at = piece
	}
	_ = w.Conn.SetReadDeadline(at) // the next Read returns the error of a closed connection
}

// abort closes the connection. Later reads return cause.
func (w *wire) abort(cause error) {
	w.mu.Lock()
	if w.cause == nil {
		w.cause = cause
	}
	w.mu.Unlock()
	_ = w.Conn.Close()
}

// closeCause returns the error that ended the connection, nil if it is still open.
func (w *wire) closeCause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// Read implements net.Conn and enforces the bounds.
func (w *wire) Read(p []byte) (int, error) {
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
	case n > 0: // an error is returned again by the next call
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
