package imapd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

var errTooLong = errors.New("[TOOBIG] The command is too long")

// nextCommand waits for the client's next command, or the next line of what it is sending, and shows it to the front.
func (w *wire) nextCommand() error {
	for {
		w.mu.Lock()
		fresh := !w.prompted && !w.command.open
		w.prompted = false
		w.mu.Unlock()
		if err := w.gather(); err != nil {
			return err
		}
		if !fresh {
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

// introduce notes what the command is and gives it as the parser shall see it; nil: it has been answered.
func (w *wire) introduce() []byte {
	tag, verb := commandName(w.text)
	w.mu.Lock()
	w.verb, w.amend = verb, nil
	w.mu.Unlock()
	if w.command.broken {
		w.tell("%s BAD [CLIENTBUG] A string within a command has no line end and no NUL", plainText(tag))
		w.passOver()
		return nil
	}
	if w.front == nil || w.command.message {
		return w.text
	}
	return w.front(w.text)
}

// passOver skips the message of a command that the parser does not get: it is on its way all the same where it is announced
// by a non-synchronizing literal.
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

// gather reads a command into w.text, its literals as quoted strings, up to its end or to the message of an APPEND.
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
		if err := w.command.take(w.text, from, m); err != nil {
			return w.bye(err.Error())
		}
		switch {
		case !m.found:
			w.command.open = false
			return nil
		case w.command.message:
			w.announce(m)
			return nil
		}
		if err := w.readString(m); err != nil {
			return w.ended(err)
		}
	}
}

// announce leaves the marker of a message to the parser, as one that it may refuse.
func (w *wire) announce(m marker) {
	w.mu.Lock()
	w.asked = asked{pending: true, nonSync: m.nonSync, size: m.size}
	w.mu.Unlock()
	if m.nonSync {
		w.text = append(w.text[:m.at], "{"+m.digits+"}\r\n"...)
	}
}

// readString puts a literal as a quoted string in the place of its marker. One with a line end or a NUL breaks the command:
// where the parser gives a command up, it would go on behind the line end as if that began another.
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
	content := make([]byte, m.size)
	if _, err := io.ReadFull(w.in, content); err != nil {
		return err
	}
	w.command.broken = w.command.broken || bytes.ContainsAny(content, "\x00\r\n")
	w.text = appendQuoted(w.text[:m.at], content)
	if len(w.text) > maxCommand {
		return errTooLong
	}
	return nil
}

func appendQuoted(to, content []byte) []byte {
	to = append(to, '"')
	for _, c := range content {
		if c == '"' || c == '\\' {
			to = append(to, '\\')
		}
		to = append(to, c)
	}
	return append(to, '"')
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

// take looks at a line, which begins at from, and its literal; the error is what the client is told.
func (c *command) take(text []byte, from int, m marker) error {
	line := strings.TrimRight(string(text[from:m.at]), "\r\n")
	if c.message && (m.found || line != "" && line != ")") {
		return errors.New("[CLIENTBUG] One APPEND takes one message")
	}
	if !c.open && from == 0 {
		_, verb := commandName([]byte(line))
		c.append = verb == "APPEND"
	}
	if !m.found {
		return nil
	}
	if c.append && hasArgument(string(text[:m.at])) {
		c.message = true
		if m.nonSync && m.size > AppendLimit {
			return errors.New("[TOOBIG] The message is too large")
		}
		return nil
	}
	if m.size > maxLiteral {
		return errors.New("[TOOBIG] The literal is too large for this command")
	}
	return nil
}

// hasArgument tells whether a command goes on behind its verb.
func hasArgument(text string) bool {
	_, rest, _ := strings.Cut(text, " ")
	_, args, _ := strings.Cut(rest, " ")
	return strings.TrimSpace(args) != ""
}
