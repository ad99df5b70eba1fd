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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/handlers/connlimit"
)

// A protocolConn is the connection that go-smtp reads from and writes to. It passes one command at
// a time to the library. So it knows whether a byte belongs to a command, the response of a log-in,
// a BDAT chunk or a message. It does what the library does not:
//
//   - only CRLF.CRLF ends a message. The library misses that end after CR CR LF;
//   - a truncated chunk is an error, not the end of the message;
//   - after a chunk with an invalid size, or an error in a message, no later bytes are run as
//     commands;
//   - a deadline applies to a whole command and a minimum rate to a message. The library has one
//     deadline for each read;
//   - STARTTLS begins a new session and discards all that was sent before (RFC 3207 section 4.2);
//   - the recipient <Postmaster> is accepted without a domain (RFC 5321 section 4.1.1.3);
//   - a submitted message may be sent at a later time (RFC 4865);
//   - REQUIRETLS is offered under TLS (RFC 8689). The library does not see TLS.
//
// Only the goroutine of go-smtp that serves the connection may read and write. Other goroutines may
// call stop, closeNow and resetIdleCommands.
type protocolConn struct {
	net.Conn            // the TCP connection, or TLS over it
	raw        net.Conn // the TCP connection
	limits     *Limits
	host       string
	log        smtp.Logger
	slot       *connlimit.Slot
	canTLS     bool             // STARTTLS is allowed
	now        func() time.Time // the service's clock; nil: messages cannot be sent later (MX)
	release    futureRelease    // of the last MAIL command
	requireTLS bool             // the last MAIL command has REQUIRETLS
	started    time.Time        // when the connection began

	in       *bufio.Reader
	pending  []byte // the part of the current line that go-smtp has not read yet
	chunk    int64  // bytes of the BDAT chunk that are not read yet
	verb     string // of the last command
	sentEHLO bool   // the last greeting was EHLO, not HELO
	wantTLS  bool   // STARTTLS was answered, and the handshake is next
	tls      string // TLS version and cipher suite; "" without TLS

	out           []byte // replies that are not sent yet
	code          int    // of the last reply
	inReply       bool   // the line of the reply is not complete yet
	suppressReply bool   // the next reply is dropped

	err          error        // returned by every later read
	idleCommands atomic.Int32 // commands since the last one that had an effect
	lineDeadline time.Time    // when the whole next command must have arrived

	body *bodyReader // the message after DATA
	rate transferRate

	mu        sync.Mutex
	stopping  *closeReply // the reply that ends the connection; nil: it goes on
	inMessage bool        // a message is being read; stop lets it finish
}

// transferRate measures the rate at which a message arrives.
type transferRate struct {
	began    time.Time
	received int64 // bytes
}

// A closeReply is the last reply on a connection that the server ends. Its code is 421, except
// after an invalid BDAT command: then the connection ends because bytes of a message may follow.
type closeReply struct {
	code           int
	enhanced, text string
}

func (f *closeReply) Error() string { return f.enhanced + " " + f.text }

var (
	errTooSlow        = &closeReply{421, "4.4.2", "Timeout exceeded"}
	errStopping       = &closeReply{421, "4.3.2", "Server shutting down"}
	errEvicted        = &closeReply{421, "4.3.2", "Idle connection closed for others, try again later"}
	errMailboxClosed  = &closeReply{421, "4.2.1", "Mailbox disabled"}
	errIdleCommands   = &closeReply{421, "4.7.0", "Too many commands without effect"}
	errCommandTooLong = &closeReply{421, "4.5.2", "Line too long"}
	errInvalidChunk   = &closeReply{501, "5.5.4", "Invalid BDAT command"}
	errChunkTooLarge  = &closeReply{552, "5.3.4", "Message too large"}
	errTruncated      = errors.New("the connection ended before the whole message arrived")
	errPanic          = &closeReply{421, "4.3.0", "Internal error"}
)

const (
	inBufferSize  = 16 << 10 // bytes; also the longest command, for which RFC 4954 section 4 requires 12288
	outBufferSize = 4 << 10  // bytes of replies that are collected before they are sent
	maxHello      = 255      // bytes of the name after EHLO or HELO
	invalidLine   = "?\r\n"  // passed to go-smtp, which answers it with a syntax error
)

func newProtocolConn(c net.Conn, l *Limits, host string, log smtp.Logger) *protocolConn {
	return &protocolConn{Conn: c, raw: c, limits: l, host: host, log: log, started: time.Now()}
}

// attachSlot sets the connection's slot, and makes its read buffer.
func (w *protocolConn) attachSlot(slot *connlimit.Slot) {
	w.slot = slot
	w.in = bufio.NewReaderSize(connReader{w}, inBufferSize)
}

// Read returns bytes of a command, a chunk or the end of a message, whichever go-smtp waits for.
func (w *protocolConn) Read(p []byte) (n int, err error) {
	defer w.recoverPanic(&err)
	if len(w.pending) == 0 && w.chunk > 0 {
		return w.readChunk(p)
	}
	if len(w.pending) == 0 {
		if err := w.nextCommand(); err != nil {
			return 0, err
		}
	}
	n = copy(p, w.pending)
	w.pending = w.pending[n:]
	return n, nil
}

// recoverPanic ends this connection after a panic in this package. go-smtp does not recover from
// panics while it reads.
func (w *protocolConn) recoverPanic(err *error) {
	if v := recover(); v != nil {
		w.log.Printf("panic serving %v: %v\n%s", w.RemoteAddr(), v, debug.Stack())
		*err = w.fail(errPanic)
	}
}

// fail makes every later read return err, unless an earlier call has set another error.
func (w *protocolConn) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// closeAfterReply ends the connection after the current reply.
func (w *protocolConn) closeAfterReply() { _ = w.fail(io.EOF) }

// resetIdleCommands records that a command has had an effect.
func (w *protocolConn) resetIdleCommands() { w.idleCommands.Store(0) }

// readChunk reads bytes of a BDAT chunk.
func (w *protocolConn) readChunk(p []byte) (int, error) {
	w.startBody()
	n, err := w.in.Read(p[:min(int64(len(p)), w.chunk)])
	w.chunk -= int64(n)
	if w.chunk == 0 {
		w.endBody()
	}
	if err == io.EOF {
		err = errTruncated // not EOF, which the library takes for the end of the chunk
	}
	return n, err
}

// nextCommand fills pending with the next command, or with the end of the message after DATA.
func (w *protocolConn) nextCommand() error {
	if w.err != nil {
		return w.err
	}
	if w.code == 354 {
		return w.finishBody()
	}
	w.lineDeadline = time.Now().Add(w.limits.Idle)
	line, err := w.in.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull:
		return w.fail(errCommandTooLong)
	case err != nil:
		return w.fail(err) // the client may have sent a part of a command
	}
	if int(w.idleCommands.Add(1)) > w.limits.Commands {
		return w.fail(errIdleCommands)
	}
	answer := w.code == 334
	w.code = 0
	w.pending = line
	if answer {
		w.verb = ""
		return nil
	}
	return w.checkCommand(line)
}

// checkCommand checks a command, and may change it, before go-smtp reads it.
func (w *protocolConn) checkCommand(line []byte) error {
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
		w.pending = []byte(invalidLine)
	case strings.HasPrefix(w.verb, "STARTTLS") && w.canTLS:
		return w.startTLS(text)
	case w.verb == "EHLO" || w.verb == "HELO":
		w.sentEHLO = w.verb == "EHLO"
		if len(arg) > maxHello {
			w.pending = []byte(invalidLine)
		}
	case w.verb == "RCPT":
		w.pending = []byte(completePostmaster(text, w.host) + "\r\n")
	case w.verb == "MAIL":
		text, w.requireTLS = cutRequireTLS(text)
		if w.now != nil {
			text, w.release = cutFutureRelease(text, w.now())
		}
		w.pending = []byte(limitSizeParameter(text) + "\r\n")
	}
	return nil
}

// isControl reports whether r is an ASCII control character other than tab.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// completePostmaster adds the domain in RCPT TO:<Postmaster>, which go-smtp cannot parse.
func completePostmaster(line, host string) string {
	const path = "<postmaster>"
	i := strings.IndexByte(line, '<')
	if i < 0 || len(line) < i+len(path) || !strings.EqualFold(line[i:i+len(path)], path) {
		return line
	}
	return line[:i] + "<postmaster@" + host + ">" + line[i+len(path):]
}

// limitSizeParameter replaces a SIZE parameter that is too large for go-smtp by the largest value
// that it can parse. RFC 1870 section 5 allows 20 digits. The reply must say that the message is
// too large (552 5.3.4, section 6.1), not that the syntax is wrong.
func limitSizeParameter(line string) string {
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

// maxSizeDigits is the maximum number of digits of a SIZE parameter (RFC 1870 section 5).
const maxSizeDigits = 20

// pathEnd returns the index after the path of a MAIL command, where its parameters begin. It knows
// quoted local parts.
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

// startTLS answers STARTTLS. It discards what the client has sent after the command.
func (w *protocolConn) startTLS(text string) error {
	if len(text) != len("STARTTLS") {
		w.pending = []byte(invalidLine)
		return nil
	}
	w.pending = nil
	w.in.Discard(w.in.Buffered()) // bytes before the handshake may be an attacker's
	w.out = append(w.out, "220 2.0.0 Ready to start TLS\r\n"...)
	if err := w.flush(); err != nil {
		return err
	}
	w.wantTLS = true
	return w.fail(io.EOF)
}

// beginChunk parses the size of a BDAT chunk exactly as go-smtp does. If the size is invalid, it
// ends the connection, because nobody knows where the next command begins.
func (w *protocolConn) beginChunk(arg string) error {
	args := strings.Fields(arg)
	if len(args) == 0 || len(args) > 2 || len(args) == 2 && !strings.EqualFold(args[1], "LAST") || w.verb != "BDAT" {
		return w.fail(errInvalidChunk)
	}
	size, err := strconv.ParseUint(args[0], 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && int64(size) > 2*w.limits.Size:
		return w.fail(errChunkTooLarge) // RFC 1870 section 6.3; it is too large to be skipped
	case err != nil:
		return w.fail(errInvalidChunk)
	}
	w.chunk = int64(size)
	return nil
}

// Close sends the collected replies and closes the connection. If a TLS handshake is next, it does
// nothing.
func (w *protocolConn) Close() error {
	if w.wantTLS {
		return nil
	}
	err := w.flush()
	return errors.Join(err, w.Conn.Close())
}

// stop ends the connection with the reply why: at once, or after the message that is being read.
func (w *protocolConn) stop(why *closeReply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopping = why
	if !w.inMessage {
		_ = w.raw.SetReadDeadline(time.Unix(1, 0))
	}
}

// closeNow closes the connection at once, without a reply.
func (w *protocolConn) closeNow() { _ = w.raw.Close() }

// handshake makes the TLS handshake, and forgets the session before it (RFC 3207 section 4.2).
func (w *protocolConn) handshake(c *tls.Config) error {
	w.lineDeadline = time.Now().Add(w.limits.Handshake)
	if err := w.setReadDeadline(); err != nil {
		return err
	}
	if err := w.raw.SetWriteDeadline(w.lineDeadline); err != nil {
		return err
	}
	conn := tls.Server(w.raw, c)
	if err := conn.Handshake(); err != nil {
		return fmt.Errorf("make the TLS handshake with an SMTP client: %w", err)
	}
	state := conn.ConnectionState()
	w.Conn, w.tls = conn, tls.VersionName(state.Version)+" "+tls.CipherSuiteName(state.CipherSuite)
	w.in.Reset(connReader{w})
	w.pending, w.verb, w.code, w.sentEHLO, w.err = nil, "", 0, false, nil
	w.suppressReply, w.wantTLS, w.canTLS = w.wantTLS, false, false
	return nil
}

// tlsState returns the state of TLS, nil without TLS.
func (w *protocolConn) tlsState() *tls.ConnectionState {
	c, ok := w.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	state := c.ConnectionState()
	return &state
}

// A connReader reads from the connection into the buffer. Before each read it sends the collected
// replies and sets a deadline.
type connReader struct{ w *protocolConn }

func (r connReader) Read(p []byte) (int, error) {
	w := r.w
	if w.err != nil {
		return 0, w.err
	}
	if err := w.flush(); err != nil {
		return 0, err
	}
	if err := w.setReadDeadline(); err != nil {
		return 0, w.fail(err)
	}
	n, err := w.Conn.Read(p)
	w.slot.Busy()
	if w.inMessage {
		w.rate.received += int64(n)
	}
	if err == nil {
		return n, nil
	}
	return n, w.fail(w.readError(err))
}

// setReadDeadline sets the time by which the next bytes must have arrived.
func (w *protocolConn) setReadDeadline() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := w.lineDeadline
	switch {
	case w.inMessage:
		until = time.Now().Add(w.limits.BodyIdle)
		paced := w.rate.began.Add(w.limits.BodyGrace + time.Duration(w.rate.received)*time.Second/time.Duration(w.limits.Rate))
		if paced.Before(until) {
			until = paced
		}
	case w.stopping != nil:
		return w.stopping
	default:
		w.slot.Idle()
		if end := w.started.Add(w.limits.Session); end.Before(until) {
			until = end
		}
	}
	return w.raw.SetReadDeadline(until)
}

// readError returns the error that ends the connection, for err from a read.
func (w *protocolConn) readError(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && w.stopping != nil && !w.inMessage:
		return w.stopping
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errTooSlow
	case w.inMessage:
		return fmt.Errorf("%w: %w", errTruncated, err)
	}
	return io.EOF
}

// startBody is called at the beginning of a message or chunk. It begins to measure the rate.
func (w *protocolConn) startBody() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.inMessage {
		w.inMessage = true
		w.rate = transferRate{began: time.Now(), received: int64(w.in.Buffered())}
	}
}

// endBody is called at the end of a message or chunk. If stop was called in the meantime, the
// connection ends now.
func (w *protocolConn) endBody() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inMessage = false
	if w.stopping != nil {
		_ = w.raw.SetReadDeadline(time.Unix(1, 0))
	}
}

// Write buffers replies. They are sent when no more input is buffered (RFC 2920 section 3.2).
func (w *protocolConn) Write(p []byte) (int, error) {
	if !w.inReply {
		w.writeReplyLine(p)
	} else if !w.suppressReply {
		w.out = append(w.out, p...)
	}
	w.inReply = !bytes.HasSuffix(p, []byte("\n"))
	if w.suppressReply && !w.inReply {
		w.suppressReply = false
	}
	if len(w.out) > outBufferSize {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// writeReplyLine records the code of a reply line and buffers the line. p are its first bytes,
// which patchReply may change.
func (w *protocolConn) writeReplyLine(p []byte) {
	if len(p) > 3 {
		w.code, _ = strconv.Atoi(string(p[:3]))
	}
	if !w.suppressReply {
		w.out = append(w.out, w.patchReply(p)...)
	}
}

// codePatches replace wrong codes in replies of go-smtp. It uses 502 for commands that it knows,
// but 502 means that a command is not implemented (RFC 5321 section 4.2.4).
var codePatches = []struct{ verbs, reply, instead string }{
	{"AUTH", "502 5.5.4", "501 5.5.4"}, // RFC 4954 section 4
	{"AUTH MAIL RCPT DATA BDAT", "502 5.5.1", "503 5.5.1"},
	{"MAIL RCPT", "500 5.5.4 Unknown", "555 5.5.4 Unknown"}, // RFC 5321 section 4.1.1.11
	{"", "454 4.7.0 Invalid base64", "501 5.5.2 Invalid base64"},
}

// patchCode corrects the code of a reply by codePatches.
func (w *protocolConn) patchCode(p []byte) []byte {
	for _, c := range codePatches {
		if rest, ok := bytes.CutPrefix(p, []byte(c.reply)); ok && (c.verbs == "" || w.verb != "" && slices.Contains(strings.Fields(c.verbs), w.verb)) {
			return append([]byte(c.instead), rest...)
		}
	}
	return p
}

// patchReply adds the host name to replies that must have it (RFC 5321 section 4.2.3), extensions
// to the reply to EHLO, and the reason to a reply that ends the connection.
func (w *protocolConn) patchReply(p []byte) []byte {
	var f *closeReply
	switch {
	case w.code == 421 && errors.As(w.err, &f):
		return fmt.Appendf(nil, "%d %s %s %s\r\n", f.code, f.enhanced, w.host, f.text)
	case w.code == 421 || w.code == 221:
		if words := bytes.SplitN(p, []byte(" "), 3); len(words) == 3 {
			return []byte(fmt.Sprintf("%s %s %s %s", words[0], words[1], w.host, words[2]))
		}
	case w.code == 250 && w.verb == "EHLO" && bytes.HasPrefix(p, []byte("250-Hello ")):
		greeting := "250-" + w.host + " greets " + string(p[len("250-Hello "):])
		if w.now != nil && strings.HasSuffix(greeting, "\n") {
			greeting += futureReleaseLine(w.now())
		}
		if w.tls != "" && strings.HasSuffix(greeting, "\n") {
			greeting += "250-REQUIRETLS\r\n" // RFC 8689
		}
		return []byte(greeting)
	case w.code == 250 && w.verb == "HELO":
		return []byte("250 " + w.host + "\r\n")
	}
	return w.patchCode(p)
}

// flush sends the collected replies.
func (w *protocolConn) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	_ = w.raw.SetWriteDeadline(time.Now().Add(w.limits.Write))
	_, err := w.Conn.Write(w.out)
	w.out = w.out[:0]
	if err != nil {
		w.closeNow() // no more replies can be sent
		return w.fail(fmt.Errorf("send SMTP replies to %s: %w", w.RemoteAddr(), err))
	}
	return nil
}
