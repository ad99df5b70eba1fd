// Package wire reads the commands of an IMAP client and writes the answers: lines, literals,
// strings, numbers and sets (RFC 9051 sections 4 and 9), each of limited size. It does not know
// what a command means: its caller asks for one argument after the other.
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
	// MaxCommand is the size in bytes of the longest command, its strings included but not the
	// messages of an APPEND.
	MaxCommand = 48 << 10
	// MaxMessage is the size in bytes of the largest message that a command may carry (RFC 7889).
	MaxMessage = 36 << 20

	maxStringBeforeLogin = 4096           // bytes of a literal before log-in
	maxSkipped           = 2 * MaxMessage // bytes of a refused literal that are skipped; more end the connection
	maxBadLines          = 20             // lines without a command that a client may send in a row
	outBuffer            = 32 << 10       // bytes of answers that are buffered before they are sent
	// To read a command from its first byte, without the messages of an APPEND.
	commandTimeout = time.Minute
	writeTimeout   = time.Minute // to write each piece of outBuffer bytes
	lingerTime     = time.Second
	lingerSize     = 1 << 20
	minRate        = 8 << 10 // bytes a second: the slowest rate at which a message may arrive
)

// IdleTooLong is the text of the BYE that a client gets if it sends nothing within its time limit.
const IdleTooLong = "Idle for too long"

// errClosedByServer ends a connection after the BYE with the reason was sent.
var errClosedByServer = errors.New("connection ended by the server")

var errTooLong = errors.New("[TOOBIG] The command is too long")

// errUnfinished ends a command whose client has left, or was disconnected, before its end.
var errUnfinished = No(imap.ResponseCodeClientBug, "The command has no end")

// Bad returns a tagged BAD: the client has sent what is no command.
func Bad(format string, args ...any) error {
	return &imap.Error{Type: imap.StatusResponseTypeBad, Code: imap.ResponseCodeClientBug, Text: fmt.Sprintf(format, args...)}
}

// No returns a tagged NO; code may be "".
func No(code imap.ResponseCode, text string) error {
	return &imap.Error{Type: imap.StatusResponseTypeNo, Code: code, Text: text}
}

// A Conn is the connection of one client. Next reads its commands. Its answers are buffered until
// the client is waited for. It sets its own deadlines: a slow client has time for each piece, and a
// dead one blocks no goroutine.
//
// Literals: a command is refused without reading its literals if they are too large. A client that
// does not wait for the server's consent (RFC 7888) sends them nevertheless; Next skips them, since
// they would otherwise run as commands.
type Conn struct {
	net.Conn // after TLS: reads and writes plain text

	// The goroutine that reads uses these fields.
	in       *bufio.Reader
	text     []byte        // the current line of the command
	rest     []byte        // what the command has not parsed of it
	marker   literalMarker // at the end of the line; empty once its literal was read or asked for
	message  bool          // a message is being read; the rest of its line follows
	unread   int64         // bytes of that message
	size     int           // bytes of the command so far
	badLines int           // since the last command
	ending   error         // of every further read
	loginBy  time.Time     // when the client must have logged in; zero once it has
	idleTime time.Duration
	utf8     bool // folder names are UTF-8, and quoted strings may be

	mu      sync.Mutex
	pool    *deflate.Pool // compresses the output; nil without compression
	out     []byte
	waiting bool // for the client, so that answers are sent at once
	err     error

	// A writer holds mu for as long as a slow client takes, so Stop has its own lock.
	stopMu sync.Mutex
	// The text of the BYE that ends the connection when its command is done; "" if it goes on.
	stopping string
}

// New returns a connection to a client that must log in until loginBy (zero: it need not), and may
// then be idle for the time idle between commands.
func New(conn net.Conn, loginBy time.Time, idle time.Duration) *Conn {
	return &Conn{Conn: conn, in: bufio.NewReaderSize(conn, 4096), loginBy: loginBy, idleTime: idle}
}

// LoggedIn removes the time limit for log-in, and allows strings up to MaxCommand.
func (c *Conn) LoggedIn() { c.loginBy = time.Time{} }

// UseUTF8 makes folder names UTF-8 instead of modified UTF-7, and allows UTF-8 in quoted strings
// (RFC 6855 section 3, RFC 9051 section 5.1).
func (c *Conn) UseUTF8() { c.utf8 = true }

// UTF8 reports whether UseUTF8 was called.
func (c *Conn) UTF8() bool { return c.utf8 }

// TLSState returns the result of the TLS handshake, nil without TLS.
func (c *Conn) TLSState() *tls.ConnectionState {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	state := secure.ConnectionState()
	return &state
}

// Next skips what is left of the last command, waits for the next one, and returns it. It answers
// lines that are no commands itself. After an error the connection is over, and the client has got
// its BYE.
func (c *Conn) Next() (*Command, error) {
	for {
		if err := c.skip(); err != nil {
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
		// An answer to a line that has a tag has the same tag (RFC 9051 section 7.1.3).
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
		c.Line("%s BAD [CLIENTBUG] %s", tag, why)
	}
}

// NextLine waits for a line that is no command, as AUTHENTICATE and IDLE do, and returns it without
// its line end. The error is a tagged answer, which a client that has left does not get.
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

// skip skips what is left of a command: the rest of a message, and the literals that its client
// sends without waiting. A client that waits has its answer already.
func (c *Conn) skip() error {
	for c.ending == nil && (c.message || c.marker.nonSync) {
		n := c.unread
		if !c.message {
			n = c.marker.size
		}
		if n > c.maxSkip() {
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
		if _, err := c.readLine(); err != nil { // a line that cannot be read ends the command too
			return err
		}
	}
	return c.ending
}

// maxSkip is the size in bytes of the largest literal that is skipped. It is small before log-in,
// when no client has a message to send.
func (c *Conn) maxSkip() int64 {
	if c.loginBy.IsZero() {
		return maxSkipped
	}
	return MaxCommand
}

// awaitLine waits for a line and reads it. Between commands that may take long; answers that are
// written meanwhile are sent at once.
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
	c.setReadLimit(commandTimeout) // for the whole command, strings included
	return c.readLine()
}

// readLine reads a line into c.text, and finds the literal that it announces. malformed is set for
// a line that cannot be part of a command. The connection ends if bytes of a literal may follow
// such a line.
func (c *Conn) readLine() (malformed, err error) {
	if cap(c.text) > 8<<10 {
		c.text = nil
	}
	c.text, c.rest, c.marker, c.message, c.unread = c.text[:0], nil, literalMarker{}, false, 0
	for {
		part, err := c.in.ReadSlice('\n')
		c.text = append(c.text, part...)
		switch {
		case c.size+len(c.text) > MaxCommand:
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

// readString reads the literal that the current line announces, as a string, and the line after it.
func (c *Conn) readString() (string, error) {
	m, limit := c.marker, int64(MaxCommand)
	if !c.loginBy.IsZero() {
		limit = maxStringBeforeLogin
	}
	if m.size > limit || int64(c.size)+m.size > MaxCommand {
		return "", No(imap.ResponseCodeTooBig, "The literal is too large for this command")
	}
	if !m.nonSync {
		c.Line("+ Ready for literal data")
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

// readMessage asks for the message that the current line announces, and returns its bytes. Once
// they were read, EndOfMessage goes on.
func (c *Conn) readMessage() (io.Reader, error) {
	m := c.marker
	if !m.nonSync {
		c.Line("+ Ready for literal data")
	}
	if err := c.Flush(); err != nil {
		return nil, c.fail(err)
	}
	c.marker, c.rest, c.message, c.unread = literalMarker{}, nil, true, m.size
	c.setReadLimit(commandTimeout + time.Duration(m.size/minRate)*time.Second)
	return messageReader{c}, nil
}

// A messageReader reads the message of an APPEND. It fails if the message is not whole.
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

// endMessage reads the line after a message.
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

// acknowledge sends a TCP acknowledgement for the bytes read so far, before waiting for more.
func (c *Conn) acknowledge() {
	if c.in.Buffered() == 0 {
		acknowledge(c.Conn)
	}
}

// fail ends the connection because of an error of reading or writing. If the server has ended it,
// the client gets a BYE with the reason.
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

// end sends a BYE with the reason; then nothing more is read or written.
func (c *Conn) end(why string) error {
	c.ending = errClosedByServer
	c.Bye(why)
	return errClosedByServer
}

// setReadLimit sets the read deadline to d from now, or to the end of the log-in time if that is
// earlier. It does nothing once the connection is stopping, since Stop has ended reading.
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

// Stop ends the connection when its command is done; a BYE says why. It does not wait.
func (c *Conn) Stop(why string) {
	c.stopMu.Lock()
	defer c.stopMu.Unlock()
	c.stopping = why
	c.Conn.SetReadDeadline(time.Unix(1, 0))
}

func (c *Conn) stopReason() string {
	c.stopMu.Lock()
	defer c.stopMu.Unlock()
	return c.stopping
}
