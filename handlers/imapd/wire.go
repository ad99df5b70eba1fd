package imapd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/mailstead/mailstead/handlers/connlimit"
)

const (
	maxCommand = 48 << 10        // bytes of one command, its strings included; go-imap goes wrong past 50 KiB
	maxLiteral = 4096            // bytes of a literal before log-in; later the command's own bound is the only one
	maxSkipped = 2 * AppendLimit // bytes of a literal that is refused and passed over; a larger one ends the connection
	outBuffer  = 32 << 10        // bytes of answers that are gathered before they are sent
	lineTime   = time.Minute     // for a command from its first byte, without the message of an APPEND
	writeTime  = time.Minute     // for each piece of outBuffer bytes
	lingerTime = time.Second
	lingerSize = 1 << 20
	slowest    = 8 << 10 // bytes a second that a message must come in with
)

// continuation is what go-imap writes when it accepts a literal.
const continuation = "+ Ready for literal data\r\n"

// tooLong is said to a client that has not said enough in its time.
const tooLong = "Nothing came for too long"

// errBye ends a connection whose client has been told why.
var errBye = errors.New("connection ended by the server")

// A wire stands between a client and go-imap's parser and makes good what the parser lacks. It
// hands on one command at a time, checked, of bounded size and on one line: literals become quoted
// strings. Only the message of an APPEND stays a literal; the wire turns a non-synchronizing one
// (RFC 7888) into a synchronizing one and answers the parser's go-ahead in the client's place, so
// that it knows whether the parser has taken it: if not, it skips the bytes, which the parser would
// run as commands. The parser sees no literal whose size the wire has not bounded, so the wire may
// offer LITERAL+. Before the parser, its front sees each command and may answer or change it. The
// wire gathers answers until the parser waits for the client, adds to them what the parser cannot
// write, compresses them where that was agreed, and has its own deadlines; the parser's are for
// whole messages and fail slow lines.
type wire struct {
	net.Conn // TLS is undone
	in       *bufio.Reader
	place    *connlimit.Slot
	ctx      context.Context
	cancel   context.CancelFunc

	// Of the goroutine that reads.
	front    func(command []byte) []byte // gives the command as the parser shall see it, nil if it has answered it
	text     []byte                      // room for a command
	line     []byte                      // what the parser has not taken yet
	literal  int64                       // bytes of a literal that it has not taken yet
	command  command
	ending   error     // what every further Read gives; the parser asks again after an error
	loginBy  time.Time // when the client must have logged in; zero once it has
	idleTime time.Duration

	mu       sync.Mutex
	asked    asked
	verb     string     // of the command that the parser has
	prompted bool       // the next line is no command but what the parser has asked for
	amend    *amendment // of the next answer that it fits
	caps     string     // capabilities that the parser does not know of
	packers  *packers   // compress what is sent; nil where that was not agreed
	out      []byte
	greeted  bool // the greeting has been sent, or is not to be
	waiting  bool // for the client, so that answers go out at once
	session  bool // go-imap has a session on it
	err      error
	done     func()

	// A writer holds mu for as long as a slow client takes, so what ends a connection has a lock of
	// its own.
	stopMu   sync.Mutex
	stopping string // why the connection ends when its command is done
}

// A command is what the wire knows of the command that the client is sending.
type command struct {
	open     bool // the message of an APPEND is on its way, and then the line behind it
	prompted bool // it is no command but a line that the parser has asked for
	append   bool
	message  bool   // its last literal is the message of an APPEND
	end      string // what must stand behind that message, without the line end
	refused  string // why the parser must not run the command: a status, and a text
}

// asked is the literal that the line given to the parser has announced.
type asked struct {
	pending  bool
	accepted bool
	nonSync  bool
	size     int64
}

func newWire(conn net.Conn, greeted bool, loginBy time.Time, idle time.Duration, done func()) *wire {
	w := &wire{
		Conn: conn, in: bufio.NewReaderSize(conn, 4096),
		greeted: greeted, loginBy: loginBy, idleTime: idle, done: done, caps: " ID",
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// SetDeadline does nothing: the wire has deadlines of its own.
func (w *wire) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (w *wire) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// loggedIn lifts the bound on the time before log-in. It is called while the parser runs a command.
func (w *wire) loggedIn() {
	w.loginBy = time.Time{}
	w.setCaps(capsAfterLogin)
}

// Read gives the parser at most one line, or the bytes of a literal.
func (w *wire) Read(p []byte) (int, error) {
	for w.ending == nil {
		if len(w.line) > 0 {
			n := copy(p, w.line)
			w.line = w.line[n:]
			return n, nil
		}
		if w.literal > 0 {
			return w.readLiteral(p)
		}
		w.ending = w.next()
	}
	return 0, w.ending
}

// next finds out, when the parser has taken everything and wants more, what that is.
func (w *wire) next() error {
	if err := w.flush(); err != nil {
		return err
	}
	w.mu.Lock()
	a := w.asked
	w.asked = asked{}
	w.mu.Unlock()
	switch {
	case a.pending && a.accepted:
		w.command.open = true
		if w.literal = a.size; a.size > 0 {
			w.allow(lineTime + time.Duration(a.size/slowest)*time.Second)
			return nil
		}
	case a.pending && a.nonSync:
		// The parser has refused the command, and its literal is on its way all the same.
		if err := w.skip(a.size); err != nil {
			return err
		}
	default:
		if !a.pending && w.command.open {
			break // the line behind a literal
		}
		w.command = command{}
	}
	if w.command.open && w.command.message {
		return w.endMessage()
	}
	return w.nextCommand()
}

// skip passes over a literal that was refused and what is left of its command.
func (w *wire) skip(size int64) error {
	for {
		w.allow(lineTime + time.Duration(size/slowest)*time.Second)
		if _, err := io.CopyN(io.Discard, w.in, size); err != nil {
			return w.ended(err)
		}
		w.text = w.text[:0]
		if err := w.readText(); err != nil {
			return w.ended(err)
		}
		m, err := scanLine(w.text)
		if err != nil {
			return w.bye(err.Error())
		}
		if !m.nonSync {
			w.command = command{}
			return nil // a client that waits to send a synchronizing literal has its answer already
		}
		if size = m.size; size > w.maxSkip() {
			return w.bye("[TOOBIG] The literal is too large")
		}
	}
}

// maxSkip is the size of the largest literal that is passed over. A stranger has nothing large to
// say.
func (w *wire) maxSkip() int64 {
	if w.loginBy.IsZero() {
		return maxSkipped
	}
	return maxCommand
}

func (w *wire) readLiteral(p []byte) (int, error) {
	n, err := w.in.Read(p[:min(int64(len(p)), w.literal)])
	w.literal -= int64(n)
	if err != nil {
		w.ending = w.ended(err)
	}
	return n, w.ending
}

// await waits for the first byte of a line. Between commands that may take long, and what is
// written meanwhile goes out at once.
func (w *wire) await() error {
	patience := w.idleTime
	if w.command.open {
		patience = lineTime
	}
	w.mu.Lock()
	err := w.flushLocked()
	w.out = nil // an idle connection needs no buffer
	w.waiting = true
	w.mu.Unlock()
	w.allow(patience)
	if err == nil {
		_, err = w.in.Peek(1)
	}
	w.mu.Lock()
	w.waiting = false
	w.mu.Unlock()
	w.allow(lineTime) // for the whole command, strings included
	return err
}

// ended tells the client why its connection ends, if it is our side that ends it.
func (w *wire) ended(err error) error {
	stopping := w.stopReason()
	switch {
	case stopping != "":
		return w.bye(stopping)
	case errors.Is(err, errTooLong):
		return w.bye(err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return w.bye(tooLong)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.EOF
	}
	return err
}

// bye tells the client why its connection ends; nothing is written after it. It must be called
// between answers.
func (w *wire) bye(why string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = append(w.out, "* BYE "+why+"\r\n"...)
	if err := w.flushLocked(); err != nil {
		return err
	}
	w.err = errBye
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok && w.stopReason() == "" && half.CloseWrite() == nil {
		// Closing while bytes of the client are unread would take the BYE away from it.
		w.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, w.in, lingerSize) // whatever it is, nobody wants it
	}
	return errBye
}

// allow gives the client so much time, or what is left for its log-in. Once the server is stopping,
// all reading has ended.
func (w *wire) allow(d time.Duration) {
	until := time.Now().Add(d)
	if !w.loginBy.IsZero() && w.loginBy.Before(until) {
		until = w.loginBy
	}
	w.stopMu.Lock()
	defer w.stopMu.Unlock()
	if w.stopping == "" {
		w.Conn.SetReadDeadline(until)
	}
}

// stop ends the connection when its command is done; a BYE says why. It waits for nothing.
func (w *wire) stop(why string) {
	w.stopMu.Lock()
	defer w.stopMu.Unlock()
	w.stopping = why
	w.Conn.SetReadDeadline(time.Unix(1, 0))
}

func (w *wire) stopReason() string {
	w.stopMu.Lock()
	defer w.stopMu.Unlock()
	return w.stopping
}

// failed tells whether nothing more can be written.
func (w *wire) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// Write takes answers of the parser.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if w.asked.pending && string(p) == continuation {
		w.asked.accepted = true
		if w.asked.nonSync {
			return len(p), nil
		}
	}
	if !w.greeted {
		w.greeted = true
		return len(p), nil
	}
	if p[0] == '+' && (w.verb == "IDLE" || w.verb == "AUTHENTICATE") {
		w.prompted = true
	}
	if err := w.put(w.amended(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// tell adds an answer of our own. It must be called between answers of the parser.
func (w *wire) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.put(fmt.Appendf(nil, format+"\r\n", args...))
	}
}

func (w *wire) put(p []byte) error {
	if len(w.out)+len(p) > outBuffer {
		if err := w.flushLocked(); err != nil {
			return err
		}
	}
	if len(p) >= outBuffer {
		return w.send(p)
	}
	w.out = append(w.out, p...)
	if w.waiting {
		return w.flushLocked()
	}
	return nil
}

func (w *wire) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flushLocked()
}

func (w *wire) flushLocked() error {
	if w.err != nil || len(w.out) == 0 {
		return w.err
	}
	err := w.send(w.out)
	w.out = w.out[:0]
	return err
}

// send writes to the client, piece by piece, so that a slow line has time for each and a dead one
// holds nobody.
func (w *wire) send(p []byte) error {
	for len(p) > 0 && w.err == nil {
		n := min(len(p), outBuffer)
		w.Conn.SetWriteDeadline(time.Now().Add(writeTime))
		if w.packers != nil {
			w.err = w.packers.write(w.Conn, p[:n])
		} else {
			_, w.err = w.Conn.Write(p[:n])
		}
		p = p[n:]
	}
	return w.err
}

// abort ends the connection without sending anything more, when an answer has failed halfway.
func (w *wire) abort(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.out = nil
	w.Conn.Close()
}

// Close sends what is left and closes the connection. The parser's last call of it ends the wire.
func (w *wire) Close() error {
	w.cancel()
	w.mu.Lock()
	_ = w.flushLocked() // a client that has gone needs no answer
	over := !w.session
	w.mu.Unlock()
	err := w.Conn.Close()
	if over {
		w.done()
	}
	return err
}

func (w *wire) setSession(open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = open
}
