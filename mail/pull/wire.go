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
	pieceSize   = 256 << 10
	smallAnswer = 256 << 10 // bytes of an answer that is short
)

// bounds are what one command may cost.
type bounds struct {
	bytes   int64
	time    time.Duration
	silence time.Duration // 0: as long as time
}

// A wire is a connection that keeps the bounds of the command under way. The library's own
// deadlines, which begin again with each response, are not heard.
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
		w.cause = w.lines.wrong
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
