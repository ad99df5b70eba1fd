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
	maxCommand = 48 << 10        // bytes of one command, its strings included; go-imap goes wrong past 50 KiB
	maxLiteral = 4096            // bytes of a literal before log-in; later the command's own bound is the only one
	maxSkipped = 2 * AppendLimit // bytes of a literal that is refused and passed over; a larger one ends the connection
	outBuffer  = 32 << 10        // bytes of answers that are gathered before they are sent
	lineTime   = time.Minute     // for a command from its first byte, without the message of an APPEND
	writeTime  = time.Minute     // for each piece of outBuffer bytes
	lingerTime = time.Second
	lingerSize = 1 << 20
	minRate    = 8 << 10 // bytes a second that a message must come in with
)

// continuation is what go-imap writes when it accepts a literal.
const continuation = "+ Ready for literal data\r\n"

// idleTooLong is the reason that a client gets if it sends nothing in its time.
const idleTooLong = "Idle for too long"

// errClosedByServer ends a connection after the client has got the reason.
var errClosedByServer = errors.New("connection ended by the server")

// A protocolConn stands between a client and go-imap's parser, and does what the parser cannot.
//
// Commands: it passes on one command at a time, checked, of limited size and on one line; literals
// become quoted strings. Only the message of an APPEND or REPLACE stays a literal. A
// non-synchronizing one (RFC 7888) becomes a synchronizing one, and the protocolConn takes the
// parser's continuation request in the client's place. So it knows whether the parser accepts the
// literal; if not, it skips the bytes, which the parser would run as commands. The parser sees no
// literal of unchecked size, so LITERAL+ may be offered. intercept sees each command before the
// parser, and may answer or change it.
//
// Replies: it gathers them until the parser waits for the client, patches what the parser cannot
// write, and compresses them where that was agreed.
//
// It has deadlines of its own: the parser's are for whole messages, and slow lines fail them.
type protocolConn struct {
	net.Conn // TLS is undone
	in       *bufio.Reader
	slot     *connlimit.Slot
	ctx      context.Context
	cancel   context.CancelFunc

	// Of the goroutine that reads.
	intercept func(command []byte) []byte // gives the command as the parser shall see it, nil if it has answered it
	text      []byte                      // room for a command
	line      []byte                      // what the parser has not taken yet
	literal   int64                       // bytes of a literal that it has not taken yet
	command   command
	badLines  int    // since the last command
	tag       string // of the command that the parser has
	// The parser's command is a SEARCH with RETURN (SAVE), which has no other option.
	saves, savesAlone bool
	saveRefused       bool      // a SEARCH with SAVE has ended in NO, which the session is to see
	ending            error     // what every further Read gives; the parser asks again after an error
	loginBy           time.Time // when the client must have logged in; zero once it has
	idleTime          time.Duration

	mu                sync.Mutex
	literalAsked      announcedLiteral
	verb              string      // of the command that the parser has
	continuationAsked bool        // the next line is no command but what the parser has asked for
	patch             *replyPatch // of the next answer that it fits
	patchOfFetch      string      // goes to the beginning of the next FETCH reply
	held              heldEnd
	utf8Names         bool          // folders' names are UTF-8 (RFC 6855 section 3, RFC 9051 section 5.1)
	caps              string        // capabilities that the parser does not know of
	pool              *deflate.Pool // compresses what is sent; nil: it is not compressed
	out               []byte
	greeted           bool // the greeting has been sent, or is not to be
	waiting           bool // for the client, so that answers go out at once
	hasSession        bool // go-imap has a session on it
	err               error
	onClose           func()

	// A writer holds mu for as long as a slow client takes, so stopping has a lock of its own.
	stopMu   sync.Mutex
	stopping string // why the connection ends when its command is done
}

// A command is what is known of the command that the client is sending.
type command struct {
	afterLiteral bool // the message of an APPEND is on its way, and then the line behind it
	continuation bool // it is no command but a line that the parser has asked for
	append       bool
	single       bool          // it is a REPLACE, which has one message
	message      bool          // its last literal is the message of an APPEND or REPLACE
	end          string        // what must stand behind that message
	parserEnd    string        // what the parser awaits at the end of an APPEND: the end of its first message
	takesMore    bool          // the session waits for the next message of the APPEND
	next         appendItem    // that message
	marker       literalMarker // of that message; none once it is being read
	refused      string        // why the parser must not run the command: a status, and a text
	malformed    bool          // its line is no command, or cannot be read
}

// An announcedLiteral is the literal that the line given to the parser has announced.
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

// SetDeadline does nothing: a protocolConn has deadlines of its own.
func (w *protocolConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (w *protocolConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (w *protocolConn) SetWriteDeadline(time.Time) error { return nil }

// loggedIn lifts the limit on the time before log-in. It is called while the parser runs a command.
func (w *protocolConn) loggedIn() {
	w.loginBy = time.Time{}
	w.setCaps(capsAfterLogin)
}

// Read gives the parser at most one line, or the bytes of a literal.
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

// next finds out, when the parser has taken everything and wants more, what that is.
func (w *protocolConn) next() error {
	if err := w.releaseEnd(); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.mu.Lock()
	a := w.literalAsked
	w.literalAsked = announcedLiteral{}
	w.mu.Unlock()
	switch {
	case a.pending && a.accepted:
		w.command.afterLiteral = true
		w.literal = a.size
		if a.size > 0 {
			w.setReadLimit(lineTime + time.Duration(a.size/minRate)*time.Second)
			return nil
		}
	case a.pending && a.nonSync:
		// The parser has refused the command, and its literal is on its way all the same.
		if err := w.skip(a.size); err != nil {
			return err
		}
	default:
		if !a.pending && w.command.afterLiteral {
			break // the line behind a literal
		}
		w.command = command{}
	}
	if w.command.afterLiteral && w.command.message {
		return w.readAfterMessage()
	}
	return w.nextCommand()
}

// skip skips a literal that was refused and the rest of its command.
func (w *protocolConn) skip(size int64) error {
	for {
		w.setReadLimit(lineTime + time.Duration(size/minRate)*time.Second)
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
		if !m.nonSync { // a line that cannot be read ends the command too
			w.command = command{}
			return nil // a client that waits to send a synchronizing literal has its answer already
		}
		size = m.size
		if size > w.maxSkip() {
			return w.closeWith("[TOOBIG] The literal is too large")
		}
	}
}

// maxSkip is the size of the largest literal that is skipped. Nobody has much to send before
// log-in.
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

// awaitLine waits for the first byte of a line. Between commands that may take long, and what is
// written meanwhile goes out at once.
func (w *protocolConn) awaitLine() error {
	limit := w.idleTime
	if w.command.afterLiteral {
		limit = lineTime
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
	w.setReadLimit(lineTime) // for the whole command, strings included
	return err
}

// readError tells the client why its connection ends, if our side ends it, and returns the error
// for the parser.
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

// closeWith tells the client why its connection ends; nothing is written after it. It must be
// called between replies.
func (w *protocolConn) closeWith(why string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = append(w.out, "* BYE "+why+"\r\n"...)
	if err := w.flushLocked(); err != nil {
		return err
	}
	w.err = errClosedByServer
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok && w.stopReason() == "" && half.CloseWrite() == nil {
		// Closing while bytes of the client are unread would take the BYE away from it.
		w.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, w.in, lingerSize) // whatever it is, nobody wants it
	}
	return errClosedByServer
}

// setReadLimit gives the client so much time, or what is left for its log-in. It does nothing once
// the connection is stopping: reading has ended then.
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

// tlsState is what was agreed on in the handshake; nil without TLS.
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

// Write takes replies of the parser.
func (w *protocolConn) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if w.literalAsked.pending && string(p) == continuation {
		w.literalAsked.accepted = true
		if w.literalAsked.nonSync {
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

// writeReply adds a reply of our own. It must be called between replies of the parser.
func (w *protocolConn) writeReply(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.put(fmt.Appendf(nil, format+"\r\n", args...))
	}
}

// writeAnswers adds whole replies of our own, which it does not keep. It must be called between
// replies of the parser.
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

// send writes to the client piece by piece, so that a slow line has time for each, and a dead one
// blocks nobody.
func (w *protocolConn) send(p []byte) error {
	for len(p) > 0 && w.err == nil {
		n := min(len(p), outBuffer)
		w.Conn.SetWriteDeadline(time.Now().Add(writeTime))
		if w.pool != nil {
			w.err = w.pool.Write(w.Conn, p[:n])
		} else {
			_, w.err = w.Conn.Write(p[:n])
		}
		p = p[n:]
	}
	return w.err
}

// abort ends the connection without sending anything more, when a reply has failed halfway.
func (w *protocolConn) abort(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.out = nil
	w.Conn.Close()
}

// Close sends what is left and closes the connection. The parser calls it last when it has ended.
func (w *protocolConn) Close() error {
	w.cancel()
	w.mu.Lock()
	_ = w.flushLocked() // a client that has gone needs no answer
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

const maxTag = 256 // bytes of a tag that patches of replies reckon with

// capsAfterLogin are the capabilities after log-in, besides those of go-imap.
const capsAfterLogin = " ID CONDSTORE QUOTA QUOTA=RES-STORAGE COMPRESS=DEFLATE MULTIAPPEND" +
	" SORT THREAD=REFERENCES THREAD=ORDEREDSUBJECT" +
	" QRESYNC OBJECTID PREVIEW SAVEDATE REPLACE"

// A replyPatch is a text that is added to one reply of the parser, because go-imap has no means to
// write it.
type replyPatch struct {
	prefix  string // what the reply begins with
	suffix  string // what it ends with: the text goes before that
	text    string
	hold    bool // the reply waits, see heldEnd
	drop    bool // the reply is not sent
	started bool
	held    []byte // of the reply's end, which may come in pieces
}

// patchFetch adds the text to the beginning of the next FETCH reply.
func (w *protocolConn) patchFetch(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patchOfFetch = text
}

// patchEnd adds the text to the next reply with this prefix, before its suffix.
func (w *protocolConn) patchEnd(begin, end, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patch = &replyPatch{prefix: begin, suffix: end, text: text}
}

// dropReply keeps the next reply with this prefix and end from the client.
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

// patchReply returns what goes out for a piece of the parser's replies. The parser begins each
// reply with a new piece, so nothing in the content of a message is taken for a reply.
func (w *protocolConn) patchReply(p []byte) []byte {
	switch w.verb {
	case "REPLACE", "UID REPLACE":
		p = completedReplace(p)
	case "ENABLE":
		names, ok := bytes.CutPrefix(p, []byte("* ENABLED"))
		w.utf8Names = w.utf8Names || ok && (bytes.Contains(names, []byte(" IMAP4rev2")) || bytes.Contains(names, []byte(" UTF8=ACCEPT")))
	case "LIST", "LSUB", "STATUS", "SELECT", "EXAMINE":
		if w.utf8Names && (bytes.HasPrefix(p, []byte("* L")) || bytes.HasPrefix(p, []byte("* STATUS "))) {
			p = bytes.ReplaceAll(p, []byte("&-"), []byte("&")) // go-imap escapes the "&" of names, and no other stands there
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

// addCaps adds capabilities to a reply that lists them, and replaces LITERAL- by LITERAL+: they are
// never both offered (RFC 7888 section 5).
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

// correctServerBug corrects what go-imap says about arguments that it cannot read: the fault is the
// client's. Every error of our own has a reply of its own.
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

// afterFetch returns the index after "* 12 FETCH (", or 0 if p does not begin so.
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

// intercept sees each command before go-imap's parser. It answers the commands that the parser does
// not know; then it returns nil. From the others it takes the extensions, which the session's
// methods find in ss.extensions.
func (ss *session) intercept(text []byte) []byte {
	tag, verb := commandName(text)
	ss.extensions = extensions{verb: verb}
	ss.emptyRefused()
	if err := cmp.Or(ss.mayRun(verb), ss.checkSelected(verb)); err != nil {
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

// emptyRefused empties "$" if the SEARCH before was to fill it and has ended in NO (RFC 5182
// section 2.1).
func (ss *session) emptyRefused() {
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

// writeResult writes how an intercepted command has ended; nil says that it has been answered.
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

// quoted writes a string of a client's that the parser has taken as one.
func quoted(s string) string { return string(appendQuoted(nil, []byte(s))) }
