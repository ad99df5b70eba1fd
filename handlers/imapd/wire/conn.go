// Package wire reads the commands of an IMAP client and writes the answers: lines, literals,
// strings, numbers and sets (RFC 9051 sections 4 and 9), each of limited size. It does not know the
// meaning of a command: its caller asks for one argument after another.
package wire

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/deflate"
)

const (
	// MaxCommandBytes is the maximum size of a command in bytes. It includes strings, but not the
	// messages of an APPEND.
	MaxCommandBytes = 48 << 10
	// MaxMessageBytes is the maximum size in bytes of a message in a command (RFC 7889).
	MaxMessageBytes = 36 << 20

	maxStringBeforeLogin = 4096                // bytes of a literal before log-in
	maxSkipped           = 2 * MaxMessageBytes // bytes of a refused literal that are skipped; a larger one ends the connection
	maxBadLines          = 20                  // invalid lines that a client may send one after another
	outBuffer            = 32 << 10            // bytes of answers that are buffered
	// commandTimeout is the time for a command to arrive after its first byte, without the
	// messages of an APPEND.
	commandTimeout = time.Minute
	writeTimeout   = time.Minute // for the client to receive outBuffer bytes
	lingerTime     = time.Second // how long Bye reads and discards input
	lingerSize     = 1 << 20     // bytes that Bye reads and discards
	minRate        = 8 << 10     // the lowest rate at which a message may arrive, in bytes per second
)

// IdleTooLong is the text of the BYE for a client that sends nothing within its time limit.
const IdleTooLong = "Idle for too long"

// errClosedByServer is returned by reads and writes after the server has sent a BYE.
var errClosedByServer = errors.New("the server has ended the IMAP connection")

// errTooLong has the text of the BYE after a command of more than MaxCommandBytes bytes.
var errTooLong = errors.New("[TOOBIG] The command is too long")

// errUnfinished is the error of a command if the connection ends before the end of the command.
var errUnfinished = No(imap.ResponseCodeClientBug, "The command has no end")

// Bad returns the tagged answer BAD, for a command that is syntactically wrong.
func Bad(format string, args ...any) error {
	return &imap.Error{Type: imap.StatusResponseTypeBad, Code: imap.ResponseCodeClientBug, Text: fmt.Sprintf(format, args...)}
}

// No returns the tagged answer NO. code may be "".
func No(code imap.ResponseCode, text string) error {
	return &imap.Error{Type: imap.StatusResponseTypeNo, Code: code, Text: text}
}

// A Conn is the connection of one client. Next reads its commands. Answers are buffered until the
// server waits for the client. A Conn sets its own deadlines, so that a slow client has time for
// each piece, and a dead client blocks no goroutine.
//
// A command whose literals are too large is refused without reading them. A client that does not
// wait for the continuation request (RFC 7888) sends them anyway. Next skips them, since they would
// otherwise run as commands.
type Conn struct {
	net.Conn // below compression, and above TLS

	// Only the goroutine that reads uses these fields.
	in       *bufio.Reader
	text     []byte        // the current line of the command
	rest     []byte        // the part of text that is not parsed yet
	marker   literalMarker // at the end of text; empty once its literal was asked for
	message  bool          // a message is being read; the command continues after it
	unread   int64         // bytes of that message that are not read yet
	size     int           // bytes of the command so far
	badLines int           // invalid lines since the last command
	ending   error         // returned by every later read
	loginBy  time.Time     // when the client must have logged in; zero once it has
	idleTime time.Duration // longest time between two commands
	utf8     bool          // folder names are in UTF-8, which quoted strings may have too

	// These fields are for writing. mu protects them.
	mu      sync.Mutex
	pool    *deflate.Pool // compresses the output; nil without compression
	out     []byte        // buffered answers
	waiting bool          // the server waits for the client, so answers are sent at once
	err     error         // of the first failed write, returned by every later one

	// A writer holds mu while a slow client reads. So that Stop need not wait, it has its own lock.
	stopMu sync.Mutex
	// The text of the BYE after the current command; "" if the connection goes on.
	stopping string
}

// New returns a connection to a client. The client must log in until loginBy; the zero time means
// no limit. Between two commands it may be idle for the time idle.
func New(conn net.Conn, loginBy time.Time, idle time.Duration) *Conn {
	return &Conn{Conn: conn, in: bufio.NewReaderSize(conn, 4096), loginBy: loginBy, idleTime: idle}
}

// LoggedIn removes the time limit for log-in, and allows literals up to MaxCommandBytes.
func (c *Conn) LoggedIn() { c.loginBy = time.Time{} }

// UseUTF8 changes folder names from modified UTF-7 to UTF-8, and allows UTF-8 in quoted strings
// (RFC 6855 section 3, RFC 9051 section 5.1).
func (c *Conn) UseUTF8() { c.utf8 = true }

// UTF8 reports whether UseUTF8 was called.
func (c *Conn) UTF8() bool { return c.utf8 }

// TLSState returns the state of TLS, nil without TLS.
func (c *Conn) TLSState() *tls.ConnectionState {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	state := secure.ConnectionState()
	return &state
}

// Next skips what is left of the last command, waits for the next command and returns it. It
// answers invalid lines itself. After an error the connection has ended, and the client got a BYE
// if it is still there.
func (c *Conn) Next() (*Command, error) {
	for {
		if err := c.skipRest(); err != nil {
			return nil, err
		}
		c.size = 0
		malformed, err := c.awaitLine(c.idleTime)
		if err != nil {
			return nil, err
		}
		cmd := newCommand(c)
		if malformed == nil && cmd.err == nil {
			c.badLines = 0
			return cmd, nil
		}
		// If the invalid line has a tag, so has the answer (RFC 9051 section 7.1.3).
		if c.badLines++; c.badLines > maxBadLines {
			return nil, c.end("[CLIENTBUG] Too many lines that are no commands")
		}
		why := "A command has a tag, a space and a name"
		if malformed != nil {
			why = malformed.Error()
		}
		tag := cmd.Tag
		if tag == "" {
			tag = "*"
		}
		c.WriteLine("%s BAD [CLIENTBUG] %s", tag, why)
	}
}

// NextLine waits for a line that is not a command, as in AUTHENTICATE and IDLE. It returns the line
// without its line end. Its error is the tagged answer.
func (c *Conn) NextLine() (string, error) {
	malformed, err := c.awaitLine(c.idleTime)
	switch {
	case err != nil:
		return "", errUnfinished
	case malformed != nil:
		return "", Bad("%s", malformed)
	case c.marker.found:
		return "", c.end("[CLIENTBUG] No literal is expected")
	}
	return string(c.rest), nil
}

// skipRest skips what is left of a command: the rest of a message, and literals that the client
// sends without waiting. A client that waits for the continuation request does not send the
// literal, since it has got the tagged answer instead.
func (c *Conn) skipRest() error {
	for c.ending == nil && (c.message || c.marker.nonSync) {
		n := c.unread
		if !c.message {
			n = c.marker.size
		}
		if n > c.maxSkippedBytes() {
			return c.end("[TOOBIG] The literal is too large")
		}
		if err := c.Flush(); err != nil { // the client may wait for the answer before it sends a long message
			return c.fail(err)
		}
		c.setReadLimit(commandTimeout + time.Duration(n/minRate)*time.Second)
		if _, err := io.CopyN(io.Discard, c.in, n); err != nil {
			return c.fail(err)
		}
		c.size = 0
		if _, err := c.readLine(); err != nil { // an invalid line ends the command too
			return err
		}
	}
	return c.ending
}

// maxSkippedBytes returns the size in bytes of the largest literal that is skipped. It is small
// before log-in, when no client has a message to send.
func (c *Conn) maxSkippedBytes() int64 {
	if c.loginBy.IsZero() {
		return maxSkipped
	}
	return MaxCommandBytes
}

// awaitLine waits until a line begins, at most for the time limit, and reads it with readLine.
// Answers that are written while it waits are sent at once.
func (c *Conn) awaitLine(limit time.Duration) (malformed, err error) {
	if c.ending != nil {
		return nil, c.ending
	}
	c.mu.Lock()
	err = c.flush()
	c.out = nil // an idle connection needs no buffer
	c.waiting = true
	c.mu.Unlock()
	c.setReadLimit(limit)
	if err == nil && c.stopReason() != "" {
		err = errClosedByServer
	}
	if err == nil {
		_, err = c.in.Peek(1)
	}
	c.mu.Lock()
	c.waiting = false
	c.mu.Unlock()
	if err != nil {
		return nil, c.fail(err)
	}
	c.setReadLimit(commandTimeout) // for the whole command, with its strings
	return c.readLine()
}

// readLine reads a line into c.text and finds the literal marker at its end. malformed says why the
// line cannot be part of a command. The connection ends if the bytes of a literal may follow such a
// line.
func (c *Conn) readLine() (malformed, err error) {
	if cap(c.text) > 8<<10 {
		c.text = nil
	}
	c.text, c.rest, c.marker, c.message, c.unread = c.text[:0], nil, literalMarker{}, false, 0
	for {
		part, err := c.in.ReadSlice('\n')
		c.text = append(c.text, part...)
		switch {
		case c.size+len(c.text) > MaxCommandBytes:
			return nil, c.end(errTooLong.Error())
		case err == nil:
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		default:
			return nil, c.fail(err)
		}
		break
	}
	c.size += len(c.text)
	line := bytes.TrimSuffix(bytes.TrimSuffix(c.text, []byte("\n")), []byte("\r"))
	m, malformed := findMarker(line)
	if malformed != nil && bytes.HasSuffix(bytes.TrimRight(line, " \t\r\x00"), []byte("+}")) {
		return nil, c.end("[CLIENTBUG] The size of a literal cannot be read")
	}
	c.rest, c.marker = line, m
	return malformed, nil
}

// readString reads the literal that the current line announces as a string, and then the next line
// of the command.
func (c *Conn) readString() (string, error) {
	m, limit := c.marker, int64(MaxCommandBytes)
	if !c.loginBy.IsZero() {
		limit = maxStringBeforeLogin
	}
	if m.size > limit || int64(c.size)+m.size > MaxCommandBytes {
		return "", No(imap.ResponseCodeTooBig, "The literal is too large for this command")
	}
	if !m.nonSync {
		c.WriteLine("+ Ready for literal data")
	}
	if err := c.Flush(); err != nil {
		c.fail(err)
		return "", errUnfinished
	}
	content := make([]byte, m.size)
	if _, err := io.ReadFull(c.in, content); err != nil {
		c.fail(err)
		return "", errUnfinished
	}
	c.size += len(content)
	malformed, err := c.readLine()
	switch {
	case err != nil:
		return "", errUnfinished
	case malformed != nil:
		return "", Bad("%s", malformed)
	case bytes.ContainsAny(content, "\x00\r\n"):
		return "", Bad("A string in a command cannot have a line end or NUL")
	}
	return string(content), nil
}

// readMessage asks for the message that the current line announces, and returns a reader of its
// bytes. After these, EndOfMessage reads the next line of the command.
func (c *Conn) readMessage() (io.Reader, error) {
	m := c.marker
	if !m.nonSync {
		c.WriteLine("+ Ready for literal data")
	}
	if err := c.Flush(); err != nil {
		return nil, c.fail(err)
	}
	c.marker, c.rest, c.message, c.unread = literalMarker{}, nil, true, m.size
	c.setReadLimit(commandTimeout + time.Duration(m.size/minRate)*time.Second)
	return messageReader{c}, nil
}

// A messageReader reads a message. It fails if the message does not arrive completely.
type messageReader struct{ conn *Conn }

func (r messageReader) Read(p []byte) (int, error) {
	c := r.conn
	switch {
	case c.ending != nil:
		return 0, errUnfinished
	case c.unread == 0:
		return 0, io.EOF
	}
	c.acknowledge()
	n, err := c.in.Read(p[:min(int64(len(p)), c.unread)])
	c.unread -= int64(n)
	if err != nil {
		c.fail(err)
		return n, errUnfinished
	}
	return n, nil
}

// endMessage reads the next line of the command after a message.
func (c *Conn) endMessage() error {
	c.acknowledge()
	c.size = 0
	malformed, err := c.awaitLine(commandTimeout)
	switch {
	case err != nil:
		return errUnfinished
	case malformed != nil:
		return Bad("%s", malformed)
	}
	return nil
}

// acknowledge sends a TCP acknowledgement if the next read has to wait for the client.
func (c *Conn) acknowledge() {
	if c.in.Buffered() == 0 {
		acknowledge(c.Conn)
	}
}

// fail ends the connection because a read or write failed. If that was because of Stop or a
// deadline, the client gets a BYE with the reason.
func (c *Conn) fail(err error) error {
	stopping := c.stopReason()
	switch {
	case c.ending != nil:
		return c.ending
	case stopping != "":
		return c.end(stopping)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.end(IdleTooLong)
	}
	c.ending = err
	return err
}

// end sends a BYE with the reason and ends the connection. Later reads and writes fail.
func (c *Conn) end(why string) error {
	c.ending = errClosedByServer
	c.Bye(why)
	return errClosedByServer
}

// setReadLimit sets the read deadline to d from now, or to the end of the log-in time if that is
// earlier. After Stop it does nothing, so that reads fail at once.
func (c *Conn) setReadLimit(d time.Duration) {
	until := time.Now().Add(d)
	if !c.loginBy.IsZero() && c.loginBy.Before(until) {
		until = c.loginBy
	}
	c.stopMu.Lock()
	defer c.stopMu.Unlock()
	if c.stopping == "" {
		c.Conn.SetReadDeadline(until)
	}
}

// Stop ends the connection after the current command, with a BYE that says why. It does not wait
// for that.
func (c *Conn) Stop(why string) {
	c.stopMu.Lock()
	defer c.stopMu.Unlock()
	c.stopping = why
	c.Conn.SetReadDeadline(time.Unix(1, 0))
}

// stopReason returns the reason that Stop was given, "" if it was not called.
func (c *Conn) stopReason() string {
	c.stopMu.Lock()
	defer c.stopMu.Unlock()
	return c.stopping
}
