package smtpd

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/handlers/connlimit"
)

// A wire stands between a connection and go-smtp, and hands it one command at a time. So it knows
// at every byte whether that is a command, a log-in's answer, a chunk or a message, and holds what
// the library does not:
//
//   - the end of a message is CRLF.CRLF and nothing else, also after CR CR LF, which the library
//     reads on behind;
//   - a chunk that is cut short is an error, not the end of the message;
//   - after a chunk whose size nobody can read, and after any error in a message, nothing more is a
//     command;
//   - time is bounded for a whole command and by rate for a message, not for a read of any size;
//   - STARTTLS begins a session anew, with nothing that came before it (RFC 3207 section 4.2);
//   - <Postmaster> needs no domain (RFC 5321 section 4.1.1.3).
//
// go-smtp's goroutine for the connection is the only one that reads and writes; end, cut and
// progress may come from others.
type wire struct {
	net.Conn          // TLS, or raw
	raw      net.Conn // TCP
	limits   *Limits
	host     string
	log      smtp.Logger
	place    *connlimit.Slot
	canTLS   bool // STARTTLS may be given
	started  time.Time

	in      *bufio.Reader
	pending []byte // of the line that is being handed on
	chunk   int64  // bytes of a BDAT chunk still to come
	verb    string // of the newest command
	esmtp   bool   // the newest greeting was EHLO
	settled bool   // the connection keeps its place
	wantTLS bool   // STARTTLS was answered; what follows is the handshake
	tls     string // version and cipher, "" without

	out     []byte
	code    int  // of the newest reply
	partial bool // the reply's line has not ended
	mute    bool // the next reply is not sent

	err      error // ends everything that is read
	idle     atomic.Int32
	lineEnds time.Time // when the command that is awaited must have come

	body *body // the message that comes after DATA
	pace pace

	mu       sync.Mutex
	stopping *farewell // why the connection is to end
	busy     bool      // within a message, which a stop lets end
}

// pace measures how fast a message comes.
type pace struct {
	began time.Time
	got   int64
}

// farewell is why we end a connection; it is said with 421.
type farewell struct{ enhanced, text string }

func (f *farewell) Error() string { return f.enhanced + " " + f.text }

var (
	errTooSlow  = &farewell{"4.4.2", "You took too long"}
	errStopping = &farewell{"4.3.2", "This server is stopping"}
	errCrowded  = &farewell{"4.3.2", "Others wait for your place; come again later"}
	errClosed   = &farewell{"4.2.1", "This mailbox is closed"}
	errTooMany  = &farewell{"4.7.0", "Too many commands that lead to nothing"}
	errLine     = &farewell{"4.5.2", "The line is too long"}
	errChunk    = &farewell{"4.5.2", "Where the chunk ends cannot be told"}
	errCut      = errors.New("the connection ended within a message")
	errPanic    = &farewell{"4.3.0", "Something went wrong on our side"}
)

const (
	inBuffer  = 16 << 10 // also the longest command, RFC 4954 section 4 wants 12288 bytes
	outBuffer = 4 << 10
	maxHello  = 255
	badLine   = "?\r\n" // which go-smtp answers with a syntax error
)

func newWire(c net.Conn, l *Limits, host string, log smtp.Logger) *wire {
	return &wire{Conn: c, raw: c, limits: l, host: host, log: log, started: time.Now()}
}

// take gives the wire its place among the connections, and room for what comes.
func (w *wire) take(p *connlimit.Slot) {
	w.place = p
	w.in = bufio.NewReaderSize(reads{w}, inBuffer)
}

// settle says that the connection keeps its place whatever happens.
func (w *wire) settle() {
	w.settled = true
	w.place.Busy()
}

// Read gives go-smtp the next of what it waits for.
func (w *wire) Read(p []byte) (n int, err error) {
	defer w.recovered(&err)
	if len(w.pending) == 0 && w.chunk > 0 {
		return w.readChunk(p)
	}
	if len(w.pending) == 0 {
		if err := w.next(); err != nil {
			return 0, err
		}
	}
	n = copy(p, w.pending)
	w.pending = w.pending[n:]
	return n, nil
}

// recovered keeps a panic here, which go-smtp does not catch, from ending more than this
// connection.
func (w *wire) recovered(err *error) {
	if v := recover(); v != nil {
		w.log.Printf("panic serving %v: %v\n%s", w.RemoteAddr(), v, debug.Stack())
		*err = w.fail(errPanic)
	}
}

// fail makes err the end of everything; the first one stays.
func (w *wire) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// hangUp ends the connection after the reply that is being given.
func (w *wire) hangUp() { _ = w.fail(io.EOF) }

// progress says that a command has achieved something.
func (w *wire) progress() { w.idle.Store(0) }

func (w *wire) readChunk(p []byte) (int, error) {
	w.startBody()
	n, err := w.in.Read(p[:min(int64(len(p)), w.chunk)])
	w.chunk -= int64(n)
	if w.chunk == 0 {
		w.endBody()
	}
	if err == io.EOF {
		err = errCut // never EOF: the library takes that for the end of the chunk
	}
	return n, err
}

// next fills pending with a command, or with the end of a message that DATA has let in.
func (w *wire) next() error {
	if w.err != nil {
		return w.err
	}
	if w.code == 354 {
		return w.finishBody()
	}
	w.lineEnds = time.Now().Add(w.limits.Idle)
	line, err := w.in.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull:
		return w.fail(errLine)
	case err != nil:
		return w.fail(err) // and a command that was cut is none
	}
	if int(w.idle.Add(1)) > w.limits.Commands {
		return w.fail(errTooMany)
	}
	answer := w.code == 334
	w.code = 0
	w.pending = line
	if answer {
		w.verb = ""
		return nil
	}
	return w.command(line)
}

// command looks at a command before go-smtp does.
func (w *wire) command(line []byte) error {
	text := strings.TrimRight(string(line), "\r\n")
	verb, arg := text, ""
	if len(text) > 4 && text[4] == ' ' {
		verb, arg = text[:4], strings.TrimSpace(text[5:])
	}
	w.verb = strings.ToUpper(verb)
	switch {
	case strings.HasPrefix(w.verb, "BDAT"):
		return w.beginChunk(arg)
	case strings.ContainsFunc(text, isControl):
		w.pending = []byte(badLine)
	case strings.HasPrefix(w.verb, "STARTTLS") && w.canTLS:
		return w.startTLS(text)
	case w.verb == "EHLO" || w.verb == "HELO":
		w.esmtp = w.verb == "EHLO"
		if len(arg) > maxHello {
			w.pending = []byte(badLine)
		}
	case w.verb == "RCPT":
		w.pending = []byte(withDomain(text, w.host) + "\r\n")
	case w.verb == "MAIL":
		w.pending = []byte(boundedSize(text) + "\r\n")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// withDomain completes RCPT TO:<Postmaster>, which go-smtp cannot read.
func withDomain(line, host string) string {
	const path = "<postmaster>"
	i := strings.IndexByte(line, '<')
	if i < 0 || len(line) < i+len(path) || !strings.EqualFold(line[i:i+len(path)], path) {
		return line
	}
	return line[:i] + "<postmaster@" + host + ">" + line[i+len(path):]
}

// boundedSize lowers a SIZE parameter that go-smtp cannot hold to the largest one that it can. RFC
// 1870 section 5 allows 20 digits; such a message is too large (552 5.3.4, section 6.1), and its
// command is no syntax error.
func boundedSize(line string) string {
	const name = " SIZE="
	for at := pathEnd(line); at < len(line); at++ {
		if len(line)-at <= len(name) || !strings.EqualFold(line[at:at+len(name)], name) {
			continue
		}
		digits, rest := line[at+len(name):], ""
		if end := strings.IndexAny(digits, " \t"); end >= 0 {
			digits, rest = digits[:end], digits[end:]
		}
		if strings.Trim(digits, "0123456789") != "" || len(digits) > maxSizeDigits {
			return line
		}
		if _, err := strconv.ParseUint(digits, 10, 32); err != nil {
			return line[:at+len(name)] + strconv.FormatUint(math.MaxUint32, 10) + rest
		}
		return line
	}
	return line
}

// maxSizeDigits is the length of a size-value (RFC 1870 section 5).
const maxSizeDigits = 20

// pathEnd gives where the parameters of MAIL begin: behind its path, whose local part may be
// quoted.
func pathEnd(line string) int {
	i := strings.IndexByte(line, '<')
	if i < 0 {
		return 0
	}
	for quoted := false; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == '>' && !quoted:
			return i + 1
		}
	}
	return min(i, len(line))
}

// startTLS answers STARTTLS and ends what was said so far.
func (w *wire) startTLS(text string) error {
	if len(text) != len("STARTTLS") {
		w.pending = []byte(badLine)
		return nil
	}
	w.pending = nil
	w.in.Discard(w.in.Buffered()) // what came before the handshake was said by anybody
	w.out = append(w.out, "220 2.0.0 Go ahead\r\n"...)
	if err := w.flush(); err != nil {
		return err
	}
	w.wantTLS = true
	return w.fail(io.EOF)
}

// beginChunk reads the size of a chunk just as go-smtp does. Without it nobody knows where the next
// command begins.
func (w *wire) beginChunk(arg string) error {
	args := strings.Fields(arg)
	if len(args) == 0 || len(args) > 2 || len(args) == 2 && !strings.EqualFold(args[1], "LAST") || w.verb != "BDAT" {
		return w.fail(errChunk)
	}
	size, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil || int64(size) > 2*w.limits.Size {
		return w.fail(errChunk)
	}
	w.chunk = int64(size)
	return nil
}

// Close sends what is left to say and closes the connection, unless TLS is to begin on it.
func (w *wire) Close() error {
	if w.wantTLS {
		return nil
	}
	err := w.flush()
	return errors.Join(err, w.Conn.Close())
}

// stop ends the connection as soon as it is not within a message.
func (w *wire) stop(why *farewell) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopping = why
	if !w.busy {
		_ = w.raw.SetReadDeadline(time.Unix(1, 0))
	}
}

// cut ends the connection at once.
func (w *wire) cut() { _ = w.raw.Close() }

// shake does the TLS handshake. What was read before counts for nothing (RFC 3207 section 4.2).
func (w *wire) shake(c *tls.Config) error {
	w.lineEnds = time.Now().Add(w.limits.Handshake)
	if err := w.arm(); err != nil {
		return err
	}
	if err := w.raw.SetWriteDeadline(w.lineEnds); err != nil {
		return err
	}
	conn := tls.Server(w.raw, c)
	if err := conn.Handshake(); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	state := conn.ConnectionState()
	w.Conn, w.tls = conn, tls.VersionName(state.Version)+" "+tls.CipherSuiteName(state.CipherSuite)
	w.in.Reset(reads{w})
	w.pending, w.verb, w.code, w.esmtp, w.err = nil, "", 0, false, nil
	w.mute, w.wantTLS, w.canTLS = w.wantTLS, false, false
	return nil
}

// reads is the connection as the buffer reads it: answers go out first, and time is bounded.
type reads struct{ w *wire }

func (r reads) Read(p []byte) (int, error) {
	w := r.w
	if w.err != nil {
		return 0, w.err
	}
	if err := w.flush(); err != nil {
		return 0, err
	}
	if err := w.arm(); err != nil {
		return 0, w.fail(err)
	}
	n, err := w.Conn.Read(p)
	w.place.Busy()
	if w.busy {
		w.pace.got += int64(n)
	}
	if err == nil {
		return n, nil
	}
	return n, w.fail(w.readError(err))
}

// arm sets when the next bytes must have come.
func (w *wire) arm() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := w.lineEnds
	switch {
	case w.busy:
		until = time.Now().Add(w.limits.BodyIdle)
		paced := w.pace.began.Add(w.limits.BodyGrace + time.Duration(w.pace.got)*time.Second/time.Duration(w.limits.Rate))
		if paced.Before(until) {
			until = paced
		}
	case w.stopping != nil:
		return w.stopping
	default:
		if !w.settled {
			w.place.Idle()
		}
		if end := w.started.Add(w.limits.Session); end.Before(until) {
			until = end
		}
	}
	return w.raw.SetReadDeadline(until)
}

func (w *wire) readError(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && w.stopping != nil && !w.busy:
		return w.stopping
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errTooSlow
	case w.busy:
		return fmt.Errorf("%w: %w", errCut, err)
	}
	return io.EOF
}

// startBody begins to measure a message; chunks of one message are measured one by one.
func (w *wire) startBody() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.busy {
		w.busy = true
		w.pace = pace{began: time.Now(), got: int64(w.in.Buffered())}
	}
}

func (w *wire) endBody() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	if w.stopping != nil {
		_ = w.raw.SetReadDeadline(time.Unix(1, 0))
	}
}

// Write takes replies, which leave when there is nothing more to read (RFC 2920 section 3.2).
func (w *wire) Write(p []byte) (int, error) {
	if !w.partial {
		w.reply(p)
	} else if !w.mute {
		w.out = append(w.out, p...)
	}
	w.partial = !bytes.HasSuffix(p, []byte("\n"))
	if w.mute && !w.partial {
		w.mute = false
	}
	if len(w.out) > outBuffer {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// reply takes the beginning of a reply's line.
func (w *wire) reply(p []byte) {
	if len(p) > 3 {
		w.code, _ = strconv.Atoi(string(p[:3]))
	}
	if !w.mute {
		w.out = append(w.out, w.reworded(p)...)
	}
}

// reworded puts our name where RFC 5321 section 4.2.3 wants it, and says why a connection ends.
func (w *wire) reworded(p []byte) []byte {
	var f *farewell
	switch {
	case w.code == 421 && errors.As(w.err, &f):
		return []byte("421 " + f.enhanced + " " + w.host + " " + f.text + "\r\n")
	case w.code == 421 || w.code == 221:
		if words := bytes.SplitN(p, []byte(" "), 3); len(words) == 3 {
			return []byte(fmt.Sprintf("%s %s %s %s", words[0], words[1], w.host, words[2]))
		}
	case w.code == 250 && w.verb == "EHLO" && bytes.HasPrefix(p, []byte("250-Hello ")):
		return []byte("250-" + w.host + " greets " + string(p[len("250-Hello "):]))
	case w.code == 250 && w.verb == "HELO":
		return []byte("250 " + w.host + "\r\n")
	}
	return p
}

func (w *wire) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	_ = w.raw.SetWriteDeadline(time.Now().Add(w.limits.Write))
	_, err := w.Conn.Write(w.out)
	w.out = w.out[:0]
	if err != nil {
		w.cut() // there is no use in trying to say goodbye
		return w.fail(fmt.Errorf("answer %s: %w", w.RemoteAddr(), err))
	}
	return nil
}
