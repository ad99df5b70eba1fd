package imapd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/emersion/go-imap/v2"
)

var errTooLong = errors.New("[TOOBIG] The command is too long")

// nextCommand waits for the client's next command, or the next line of what it is sending, and
// shows it to the front.
func (w *wire) nextCommand() error {
	for {
		w.mu.Lock()
		prompted := w.prompted
		w.prompted = false
		w.mu.Unlock()
		w.command.prompted = prompted
		if err := w.gather(); err != nil {
			return err
		}
		if prompted {
			w.line = w.text
			return nil
		}
		if w.line = w.introduce(); w.line != nil {
			return nil
		}
		w.command = command{}
		if w.ending != nil {
			return w.ending
		}
	}
}

// introduce notes what the command is and gives it as the parser shall see it; nil: it has been
// answered.
func (w *wire) introduce() []byte {
	tag, verb := commandName(w.text)
	w.mu.Lock()
	w.verb, w.amend = verb, nil
	w.mu.Unlock()
	if w.command.refused == "" {
		if w.text = mendNames(verb, w.text); len(w.text) > maxCommand {
			w.command.refused = "BAD [CLIENTBUG] The command is too long"
		}
	}
	if w.command.refused != "" {
		w.tell("%s %s", plainText(tag), w.command.refused)
		w.passOver()
		return nil
	}
	if w.front == nil || w.command.message {
		return w.text
	}
	return w.front(w.text)
}

// passOver skips the last literal of a command that the parser does not get: it is on its way all
// the same where it is non-synchronizing.
func (w *wire) passOver() {
	w.mu.Lock()
	a := w.asked
	w.asked = asked{}
	w.mu.Unlock()
	if !a.nonSync {
		return
	}
	err := w.flush() // who sends a long message may wait for what is said about it
	if err == nil {
		err = w.skip(a.size)
	}
	w.ending = err
}

// commandName gives the tag and, in capitals, the verb; UID is part of the verb.
func commandName(text []byte) (tag, verb string) {
	fields := bytes.SplitN(bytes.TrimRight(text, "\r\n"), []byte(" "), 4)
	tag = string(fields[0])
	if len(fields) > 1 {
		verb = strings.ToUpper(string(fields[1]))
	}
	if verb == "UID" && len(fields) > 2 {
		verb += " " + strings.ToUpper(string(fields[2]))
	}
	return tag, verb
}

// gather reads a command into w.text, its literals as quoted strings, up to its end or to the
// message of an APPEND.
func (w *wire) gather() error {
	if err := w.await(); err != nil {
		return w.ended(err)
	}
	if cap(w.text) > 8<<10 {
		w.text = nil
	}
	w.text = w.text[:0]
	for {
		from := len(w.text)
		if err := w.readText(); err != nil {
			return w.ended(err)
		}
		m, err := scanLine(w.text[from:])
		if err != nil {
			return w.bye("[CLIENTBUG] " + err.Error())
		}
		m.at += from
		w.command.take(w.text, from, m)
		switch {
		case !m.found:
			return nil
		case w.command.prompted:
			return w.bye("[CLIENTBUG] No literal is asked for")
		case w.command.message:
			return w.announce(m)
		case m.size > w.maxString() || int64(len(w.text))+m.size > maxCommand:
			return w.tooLarge(m, "The literal is too large for this command")
		}
		if err := w.readString(m); err != nil {
			return w.ended(err)
		}
	}
}

// announce leaves the marker of a message to the parser, as one that it may refuse.
func (w *wire) announce(m marker) error {
	if m.size > AppendLimit {
		return w.tooLarge(m, "The message is too large")
	}
	w.ask(m)
	if m.nonSync {
		w.text = append(w.text[:m.at], "{"+m.digits+"}\r\n"...)
	}
	return nil
}

func (w *wire) ask(m marker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = asked{pending: true, nonSync: m.nonSync, size: m.size}
}

// maxString is the size of the largest literal that may stand in a command and is no message.
func (w *wire) maxString() int64 {
	if w.loginBy.IsZero() {
		return maxCommand
	}
	return maxLiteral
}

// tooLarge refuses a command for its literal. One that is on its way is passed over, unless it is
// so large that the end of the connection costs less (RFC 7888 section 4).
func (w *wire) tooLarge(m marker, why string) error {
	if m.nonSync && m.size > w.maxSkip() {
		return w.bye("[TOOBIG] " + why)
	}
	w.command.refused = "NO [TOOBIG] " + why
	w.ask(m)
	return nil
}

// endMessage reads the line behind the message of an APPEND. The parser gets the end that belongs
// there in any case, since it has taken the message: what is wrong with the line, the session asks
// for before it keeps the message.
func (w *wire) endMessage() error {
	if err := w.await(); err != nil {
		return w.ended(err)
	}
	w.text, w.command.open = w.text[:0], false
	if err := w.readText(); err != nil {
		return w.ended(err)
	}
	m, err := scanLine(w.text)
	if err != nil {
		return w.bye("[CLIENTBUG] " + err.Error())
	}
	if m.found || strings.TrimRight(string(w.text), " \r\n") != w.command.end {
		w.command.refused = "One APPEND takes one message" // MULTIAPPEND (RFC 3502) is not offered
	}
	if m.nonSync {
		if m.size > w.maxSkip() {
			return w.bye("[TOOBIG] The literal is too large")
		}
		end, why := w.command.end, w.command.refused
		if err := w.skip(m.size); err != nil {
			return err
		}
		w.command = command{end: end, refused: why}
	}
	w.line = []byte(w.command.end + "\r\n")
	return nil
}

// checkEnd reads on to the end of an APPEND, whose message the parser has taken, and tells what is
// wrong with the command. A message that its command does not end behind must not be kept.
func (w *wire) checkEnd() error {
	if len(w.line) == 0 && w.ending == nil {
		w.ending = w.next()
	}
	if w.ending != nil {
		return refused(imap.ResponseCodeClientBug, "The command has no end")
	}
	if w.command.refused != "" {
		return badCommand("%s", w.command.refused)
	}
	return nil
}

// readString puts a literal as a quoted string in the place of its marker. One with a line end or a
// NUL breaks the command: where the parser gives a command up, it would go on behind the line end
// as if that began another.
func (w *wire) readString(m marker) error {
	if !m.nonSync {
		w.mu.Lock()
		w.out = append(w.out, continuation...)
		err := w.flushLocked()
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	w.text = append(w.text[:m.at], '"')
	var piece [512]byte
	for left := m.size; left > 0; {
		n, err := io.ReadFull(w.in, piece[:min(left, int64(len(piece)))])
		if err != nil {
			return err
		}
		if bytes.ContainsAny(piece[:n], "\x00\r\n") {
			w.command.refused = "BAD [CLIENTBUG] A string within a command has no line end and no NUL"
		}
		w.text = appendEscaped(w.text, piece[:n])
		left -= int64(n)
	}
	w.text = append(w.text, '"')
	if len(w.text) > maxCommand {
		return errTooLong
	}
	return nil
}

func appendQuoted(to, content []byte) []byte {
	return append(appendEscaped(append(to, '"'), content), '"')
}

func appendEscaped(to, content []byte) []byte {
	for _, c := range content {
		if c == '"' || c == '\\' {
			to = append(to, '\\')
		}
		to = append(to, c)
	}
	return to
}

// readText adds a line with its line end to w.text.
func (w *wire) readText() error {
	for {
		part, err := w.in.ReadSlice('\n')
		w.text = append(w.text, part...)
		switch {
		case len(w.text) > maxCommand:
			return errTooLong
		case err == nil:
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// take looks at a line, which begins at from, and its literal.
func (c *command) take(text []byte, from int, m marker) {
	if !c.open && from == 0 {
		_, verb := commandName(text) // a marker right behind the verb is no argument
		c.append = verb == "APPEND"
	}
	if m.found && c.append && hasArgument(string(text[:m.at])) {
		c.message = true
		if bytes.HasSuffix(text[:m.at], []byte("(~")) { // UTF8 (~{…} (RFC 6855 section 4)
			c.end = ")"
		}
	}
}

// hasArgument tells whether a command goes on behind its verb.
func hasArgument(text string) bool {
	_, rest, _ := strings.Cut(text, " ")
	_, args, _ := strings.Cut(rest, " ")
	return strings.TrimSpace(args) != ""
}
