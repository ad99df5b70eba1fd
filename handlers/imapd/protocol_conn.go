package imapd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/handlers/imapd/deflate"
)

const (
	// Bytes of one command, its strings included; go-imap fails beyond 50 KiB.
	maxCommand = 48 << 10
	// Bytes of a literal before log-in; after log-in only maxCommand limits it.
	maxLiteral = 4096
	// Bytes of a refused literal that are skipped; more end the connection.
	maxSkipped = 2 * AppendLimit
	outBuffer  = 32 << 10 // bytes of replies that are buffered before they are sent
	// To read a command from its first byte, without the message of an APPEND.
	commandTimeout = time.Minute
	writeTimeout   = time.Minute // to write each piece of outBuffer bytes
	lingerTime     = time.Second
	lingerSize     = 1 << 20
	minRate        = 8 << 10 // bytes a second: the slowest rate at which a message may arrive
)

// continuation is the line that go-imap writes when it accepts a literal.
const continuation = "+ Ready for literal data\r\n"

// idleTooLong is the text of the BYE that a client gets if it sends nothing within its time limit.
const idleTooLong = "Idle for too long"

// errClosedByServer ends a connection after the BYE with the reason was sent.
var errClosedByServer = errors.New("connection ended by the server")

// A protocolConn stands between a client and go-imap's parser, and does what the parser cannot.
//
// Commands: it passes on one command at a time: checked, of limited size, and on one line. Literals
// become quoted strings. Only the message of an APPEND or REPLACE stays a literal. A
// non-synchronizing literal (RFC 7888) becomes a synchronizing one; the protocolConn then reads the
// parser's continuation request instead of the client. So it knows whether the parser accepts the
// literal. If not, it skips the bytes, which the parser would otherwise run as commands. The parser
// sees no literal of unchecked size, so the server can offer LITERAL+. intercept sees each command
// before the parser does, and may answer or change it.
//
// Replies: it buffers them until the parser waits for the client, adds the items that the parser
// cannot write, and compresses them if COMPRESS is on.
//
// It sets its own deadlines and ignores the parser's, which are for whole messages and would cut
// off slow connections.
type protocolConn struct {
	net.Conn // after TLS: reads and writes plain text
	in       *bufio.Reader
	slot     *connlimit.Slot
	ctx      context.Context
	cancel   context.CancelFunc

	// Only the reading goroutine uses these fields.
	intercept func(command []byte) []byte // returns the command for the parser; nil: answered
	text      []byte                      // buffer for a command
	line      []byte                      // the bytes that the parser has not read yet
	literal   int64                       // bytes of a literal that the parser has not read yet
	command   command
	badLines  int    // since the last command
	tag       string // of the command that the parser runs
	// The parser's command is a SEARCH with RETURN (SAVE); savesAlone if RETURN has no other
	// option.
	saves, savesAlone bool
	saveRefused       bool // a SEARCH with SAVE has ended in NO; the session must empty "$"
	// The error of every further Read; the parser reads again after an error.
	ending   error
	loginBy  time.Time // when the client must have logged in; zero once it has
	idleTime time.Duration

	mu                sync.Mutex
	announced         announcedLiteral
	verb              string      // of the command that the parser runs
	continuationAsked bool        // the next line answers a "+" of the parser and is no command
	patch             *replyPatch // for the next reply that matches it
	patchOfFetch      string      // a text to insert at the beginning of the next FETCH reply
	held              heldReply
	// Send folder names as UTF-8 (RFC 6855 section 3, RFC 9051 section 5.1).
	utf8Names  bool
	caps       string        // capabilities to list that go-imap does not know
	pool       *deflate.Pool // compresses the output; nil without compression
	out        []byte
	greeted    bool // the greeting has been sent, or must not be sent
	waiting    bool // for the client's next command, so replies are sent at once
	hasSession bool // go-imap has a session on this connection
	err        error
	onClose    func()

	// A writer holds mu for as long as a slow client takes, so stop has its own lock.
	stopMu sync.Mutex
	// The text of the BYE that ends the connection when its command is done; "" if it goes on.
	stopping string
}

// A command is the state of the command that the client is sending.
type command struct {
	afterLiteral bool // the message of an APPEND is being read; the rest of its line follows
	continuation bool // a line that the parser has asked for with "+", not a command
	append       bool
	single       bool   // a REPLACE, which has exactly one message
	message      bool   // the last literal is the message of an APPEND or REPLACE
	end          string // the text that must follow that message: ")" or nothing
	// The end that the parser expects after an APPEND: that of its first message.
	parserEnd string
	takesMore bool       // the session waits for the next message of the APPEND
	next      appendItem // the next message of the APPEND
	// The literal marker of that message; empty once the message is being read.
	marker    literalMarker
	refused   string // why the parser must not run the command: a status and a text
	malformed bool   // the line is not a command, or cannot be parsed
}

// An announcedLiteral is the literal that the last line passed to the parser has announced.
type announcedLiteral struct {
	pending  bool
	accepted bool
	nonSync  bool
	size     int64
}

func newProtocolConn(conn net.Conn, greeted bool, loginBy time.Time, idle time.Duration, done func()) *protocolConn {
	w := &protocolConn{
		Conn: conn, in: bufio.NewReaderSize(conn, 4096),
		greeted: greeted, loginBy: loginBy, idleTime: idle, onClose: done, caps: " ID",
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// SetDeadline does nothing: a protocolConn sets its own deadlines.
func (w *protocolConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (w *protocolConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (w *protocolConn) SetWriteDeadline(time.Time) error { return nil }

// loggedIn removes the time limit for log-in. It is called while the parser runs a command.
func (w *protocolConn) loggedIn() {
	w.loginBy = time.Time{}
	w.setCaps(capsAfterLogin)
}

// Read returns at most one line to the parser, or bytes of a literal.
func (w *protocolConn) Read(p []byte) (int, error) {
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

// next prepares the next bytes for the parser once it has read everything so far.
func (w *protocolConn) next() error {
	if err := w.releaseTaggedOK(); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.mu.Lock()
	a := w.announced
	w.announced = announcedLiteral{}
	w.mu.Unlock()
	switch {
	case a.pending && a.accepted:
		w.command.afterLiteral = true
		w.literal = a.size
		if a.size > 0 {
			w.setReadLimit(commandTimeout + time.Duration(a.size/minRate)*time.Second)
			return nil
		}
	case a.pending && a.nonSync:
		// The parser has refused the command, but the client sends the literal anyway.
		if err := w.skip(a.size); err != nil {
			return err
		}
	default:
		if !a.pending && w.command.afterLiteral {
			break // the rest of the line after a literal
		}
		w.command = command{}
	}
	if w.command.afterLiteral && w.command.message {
		return w.readAfterMessage()
	}
	return w.nextCommand()
}

// skip discards a refused literal and the rest of its command.
func (w *protocolConn) skip(size int64) error {
	for {
		w.setReadLimit(commandTimeout + time.Duration(size/minRate)*time.Second)
		if _, err := io.CopyN(io.Discard, w.in, size); err != nil {
			return w.readError(err)
		}
		w.text = w.text[:0]
		if err := w.readLine(); err != nil {
			return w.readError(err)
		}
		m, err := scanLine(w.text)
		if errors.Is(err, errLostLiteral) {
			return w.closeWith("[CLIENTBUG] " + err.Error())
		}
		if !m.nonSync { // a line that cannot be parsed ends the command too
			w.command = command{}
			return nil // a client that waits to send a synchronizing literal already has its answer
		}
		size = m.size
		if size > w.maxSkip() {
			return w.closeWith("[TOOBIG] The literal is too large")
		}
	}
}

// maxSkip is the size in bytes of the largest literal that is skipped. It is small before log-in,
// when no client has a message to send.
func (w *protocolConn) maxSkip() int64 {
	if w.loginBy.IsZero() {
		return maxSkipped
	}
	return maxCommand
}

func (w *protocolConn) readLiteral(p []byte) (int, error) {
	w.acknowledge()
	n, err := w.in.Read(p[:min(int64(len(p)), w.literal)])
	w.literal -= int64(n)
	if err != nil {
		w.ending = w.readError(err)
	}
	return n, w.ending
}

// awaitLine waits for the first byte of a line. Between commands that may take long; replies that
// are written meanwhile are sent at once.
func (w *protocolConn) awaitLine() error {
	limit := w.idleTime
	if w.command.afterLiteral {
		limit = commandTimeout
	}
	w.mu.Lock()
	err := w.flushLocked()
	w.out = nil // an idle connection needs no buffer
	w.waiting = true
	w.mu.Unlock()
	w.setReadLimit(limit)
	if err == nil {
		_, err = w.in.Peek(1)
	}
	w.mu.Lock()
	w.waiting = false
	w.mu.Unlock()
	w.setReadLimit(commandTimeout) // for the whole command, strings included
	return err
}

// readError returns the error for the parser. If the server ends the connection, it first sends the
// client a BYE with the reason.
func (w *protocolConn) readError(err error) error {
	stopping := w.stopReason()
	switch {
	case stopping != "":
		return w.closeWith(stopping)
	case errors.Is(err, errTooLong):
		return w.closeWith(err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return w.closeWith(idleTooLong)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.EOF
	}
	return err
}

// closeWith sends a BYE with the reason, after which nothing more is written. It must be called
// between replies.
func (w *protocolConn) closeWith(why string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = append(w.out, "* BYE "+why+"\r\n"...)
	if err := w.flushLocked(); err != nil {
		return err
	}
	w.err = errClosedByServer
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok && w.stopReason() == "" && half.CloseWrite() == nil {
		// A close with unread bytes resets the connection, and the client might not receive the
		// BYE.
		w.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		// The connection ends; the client's bytes do not matter.
		_, _ = io.CopyN(io.Discard, w.in, lingerSize)
	}
	return errClosedByServer
}

// setReadLimit sets the read deadline to d from now, or to the end of the log-in time if that is
// earlier. It does nothing once the connection is stopping, since stop has ended reading.
func (w *protocolConn) setReadLimit(d time.Duration) {
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

// stop ends the connection when its command is done; a BYE says why. It does not wait.
func (w *protocolConn) stop(why string) {
	w.stopMu.Lock()
	defer w.stopMu.Unlock()
	w.stopping = why
	w.Conn.SetReadDeadline(time.Unix(1, 0))
}

// tlsState returns the result of the TLS handshake, nil without TLS.
func (w *protocolConn) tlsState() *tls.ConnectionState {
	c, ok := w.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	state := c.ConnectionState()
	return &state
}

func (w *protocolConn) stopReason() string {
	w.stopMu.Lock()
	defer w.stopMu.Unlock()
	return w.stopping
}

// failed reports whether nothing more can be written.
func (w *protocolConn) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// Write takes a reply of the parser.
func (w *protocolConn) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if w.announced.pending && string(p) == continuation {
		w.announced.accepted = true
		if w.announced.nonSync {
			return len(p), nil
		}
	}
	if !w.greeted {
		w.greeted = true
		return len(p), nil
	}
	if p[0] == '+' && (w.verb == "IDLE" || w.verb == "AUTHENTICATE") {
		w.continuationAsked = true
	}
	if err := w.put(w.patchReply(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writeReply adds a reply that go-imap does not write. It must be called between replies of the
// parser.
func (w *protocolConn) writeReply(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.put(fmt.Appendf(nil, format+"\r\n", args...))
	}
}

// writeAnswers adds whole replies that go-imap does not write. It does not keep p. It must be
// called between replies of the parser.
func (w *protocolConn) writeAnswers(p []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || len(p) == 0 {
		return w.err
	}
	return w.put(p)
}

func (w *protocolConn) put(p []byte) error {
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

func (w *protocolConn) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flushLocked()
}

func (w *protocolConn) flushLocked() error {
	if w.err != nil || len(w.out) == 0 {
		return w.err
	}
	err := w.send(w.out)
	w.out = w.out[:0]
	return err
}

// send writes to the client piece by piece, each with its own deadline: a slow client has time for
// every piece, and a dead one blocks no goroutine.
func (w *protocolConn) send(p []byte) error {
	for len(p) > 0 && w.err == nil {
		n := min(len(p), outBuffer)
		w.Conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if w.pool != nil {
			w.err = w.pool.Write(w.Conn, p[:n])
		} else {
			_, w.err = w.Conn.Write(p[:n])
		}
		p = p[n:]
	}
	return w.err
}

// abort ends the connection without sending anything more, after a reply that failed midway.
func (w *protocolConn) abort(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.out = nil
	w.Conn.Close()
}

// Close sends the buffered replies and closes the connection. The parser calls it when it has
// ended.
func (w *protocolConn) Close() error {
	w.cancel()
	w.mu.Lock()
	_ = w.flushLocked() // a client that has left needs no reply
	over := !w.hasSession
	w.mu.Unlock()
	err := w.Conn.Close()
	if over {
		w.onClose()
	}
	return err
}

func (w *protocolConn) setSession(open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hasSession = open
}

const maxTag = 256 // bytes: the longest tag that patches of replies allow for

// capsAfterLogin are the capabilities after log-in, besides those of go-imap.
const capsAfterLogin = " ID CONDSTORE QUOTA QUOTA=RES-STORAGE COMPRESS=DEFLATE MULTIAPPEND" +
	" SORT THREAD=REFERENCES THREAD=ORDEREDSUBJECT" +
	" QRESYNC OBJECTID PREVIEW SAVEDATE REPLACE"

// A replyPatch is a text to add to one reply of the parser, because go-imap cannot write it.
type replyPatch struct {
	prefix  string // the beginning of the reply
	suffix  string // the end of the reply; the text is inserted before it
	text    string
	hold    bool // the reply is held back, see heldReply
	drop    bool // the reply is not sent
	started bool
	held    []byte // the end of the reply so far, which may arrive in pieces
}

// patchFetch inserts the text at the beginning of the next FETCH reply.
func (w *protocolConn) patchFetch(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patchOfFetch = text
}

// patchEnd inserts the text into the next reply with this prefix, before its suffix.
func (w *protocolConn) patchEnd(begin, end, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patch = &replyPatch{prefix: begin, suffix: end, text: text}
}

// dropReply discards the next reply with this prefix and suffix.
func (w *protocolConn) dropReply(begin, end string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patch = &replyPatch{prefix: begin, suffix: end, drop: true}
}

func (w *protocolConn) setCaps(caps string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.caps = caps
}

// patchReply returns the bytes to send for one piece of the parser's replies. The parser begins
// each reply with a new piece, so content of a message is never mistaken for a reply.
func (w *protocolConn) patchReply(p []byte) []byte {
	switch w.verb {
	case "REPLACE", "UID REPLACE":
		p = completedReplace(p)
	case "ENABLE":
		names, ok := bytes.CutPrefix(p, []byte("* ENABLED"))
		w.utf8Names = w.utf8Names || ok && (bytes.Contains(names, []byte(" IMAP4rev2")) || bytes.Contains(names, []byte(" UTF8=ACCEPT")))
	case "LIST", "LSUB", "STATUS", "SELECT", "EXAMINE":
		if w.utf8Names && (bytes.HasPrefix(p, []byte("* L")) || bytes.HasPrefix(p, []byte("* STATUS "))) {
			// go-imap escapes the "&" of names, and no other "&-" occurs.
			p = bytes.ReplaceAll(p, []byte("&-"), []byte("&"))
		}
	}
	if a := w.patch; a != nil {
		out, done := a.apply(p)
		if done {
			w.patch = nil
		}
		if (done || a.started) && a.drop {
			return nil
		}
		if (done || a.started) && a.hold {
			w.held.line = append(w.held.line, out...)
			return nil
		}
		if done || a.started {
			return out
		}
	}
	if i := afterFetch(p); i > 0 && w.patchOfFetch != "" {
		text := w.patchOfFetch
		w.patchOfFetch = ""
		return slices.Concat(p[:i], []byte(text), p[i:])
	}
	switch w.verb {
	case "", "CAPABILITY", "LOGIN", "AUTHENTICATE":
		return addCaps(p, w.caps)
	case "SORT", "UID SORT", "THREAD", "UID THREAD":
		return orderingReply(w.verb, p)
	case "SEARCH", "UID SEARCH":
		p = correctServerBug(p)
		w.saveRefused = w.saveRefused || w.saves && bytes.HasPrefix(p, []byte(w.tag+" NO "))
	}
	return correctServerBug(p)
}

// addCaps adds capabilities to a reply that lists them, and replaces LITERAL- by LITERAL+, since a
// server must not offer both (RFC 7888 section 5).
func addCaps(p []byte, caps string) []byte {
	const last = " LITERAL-" // go-imap lists it in every state
	if i := bytes.Index(p, []byte("CAPABILITY ")); i < 0 || i > 64+maxTag {
		return p
	}
	if i := bytes.Index(p, []byte(last)); i >= 0 {
		return slices.Concat(p[:i], []byte(" LITERAL+"+caps), p[i+len(last):])
	}
	return p
}

// correctServerBug replaces go-imap's reply to arguments that it cannot parse: that is the client's
// error, not the server's. Errors of this package never use that text.
func correctServerBug(p []byte) []byte {
	tag, found := bytes.CutSuffix(p, []byte(" NO [SERVERBUG] Internal server error\r\n"))
	if !found || len(tag) > maxTag {
		return p
	}
	return slices.Concat(tag, []byte(" BAD [CLIENTBUG] The arguments cannot be read\r\n"))
}

func (a *replyPatch) apply(p []byte) (out []byte, done bool) {
	if !a.started && !bytes.HasPrefix(p, []byte(a.prefix)) {
		return p, false
	}
	a.started = true
	all := append(a.held, p...)
	if bytes.HasSuffix(all, []byte(a.suffix)) {
		head := len(all) - len(a.suffix)
		return slices.Concat(all[:head], []byte(a.text), all[head:]), true
	}
	cut := max(len(all)-len(a.suffix), 0)
	a.held = slices.Clone(all[cut:])
	return all[:cut], false
}

// afterFetch returns the index after "* 12 FETCH (", or 0 if p does not begin with that.
func afterFetch(p []byte) int {
	rest, ok := bytes.CutPrefix(p, []byte("* "))
	if !ok {
		return 0
	}
	digits := len(rest) - len(bytes.TrimLeft(rest, "0123456789"))
	if !bytes.HasPrefix(rest[digits:], []byte(" FETCH (")) {
		return 0
	}
	return len("* ") + digits + len(" FETCH (")
}

// intercept sees each command before go-imap's parser does. It answers the commands that the parser
// does not know and returns nil for them. It removes the extensions from the other commands; the
// session's methods find them in ss.extensions.
func (ss *session) intercept(text []byte) []byte {
	tag, verb := commandName(text)
	ss.extensions = extensions{verb: verb}
	ss.clearRefusedSave()
	if err := cmp.Or(ss.checkTaint(verb), ss.checkSelected(verb)); err != nil {
		ss.writeResult(tag, err)
		return nil
	}
	switch verb {
	case "ID", "GETQUOTA", "GETQUOTAROOT", "COMPRESS":
		ss.writeResult(tag, ss.runIntercepted(tag, verb, newCommandEditor(text)))
		return nil
	case "REPLACE", "UID REPLACE":
		text, err := ss.beginReplace(verb, newCommandEditor(text))
		ss.writeResult(tag, err)
		return text
	}
	text, verb, o, err := takeOrdering(tag, verb, text)
	if err != nil {
		ss.writeResult(tag, err)
		return nil
	}
	text, a := takeExtensions(verb, text)
	a.ordering = o
	if err := ss.checkResync(a); err != nil {
		ss.writeResult(tag, err)
		return nil
	}
	if len(text) > maxCommand {
		ss.writeResult(tag, badCommand("The command is too long"))
		return nil
	}
	ss.extensions = a
	ss.enableCondStore(a)
	return text
}

// clearRefusedSave empties "$" if the previous command was a SEARCH with SAVE that ended in NO (RFC
// 5182 section 2.1).
func (ss *session) clearRefusedSave() {
	if !ss.conn.saveRefused {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.conn.saveRefused = false
	if ss.selected != nil {
		ss.selected.saved = nil
	}
}

// writeResult writes the tagged reply for the error of an intercepted command; nil means that the
// command has been answered.
func (ss *session) writeResult(tag string, err error) {
	if err == nil {
		return
	}
	e := ss.imapError(err)
	code := ""
	if e.Code != "" {
		code = "[" + string(e.Code) + "] "
	}
	ss.conn.writeReply("%s %s %s%s", plainText(tag), e.Type, code, e.Text)
	ss.conn.saveRefused = ss.conn.saveRefused || ss.conn.saves && e.Type == imap.StatusResponseTypeNo
}

// runIntercepted runs a command that go-imap does not know.
func (ss *session) runIntercepted(tag, verb string, p *commandEditor) error {
	if verb != "ID" && ss.user.MailboxID == "" {
		return badCommand("Log in first")
	}
	switch verb {
	case "ID":
		return ss.id(tag, p)
	case "COMPRESS":
		return ss.compress(tag, p)
	case "GETQUOTA":
		return ss.getQuota(tag, p)
	}
	return ss.getQuotaRoot(tag, p)
}

// quoted returns s as a quoted string. The parser has accepted s as a string.
func quoted(s string) string { return string(appendQuoted(nil, []byte(s))) }
