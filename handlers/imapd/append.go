package imapd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/service/inbox"
)

// Limits of the messages of one APPEND that are held before they are written to the store.
const (
	maxAppended    = 100
	maxAppendBytes = 64 << 20
)

// errUnfinished ends a command whose client has left, or was disconnected.
var errUnfinished = refusal(imap.ResponseCodeClientBug, "The command has no end")

// Append receives the messages of an APPEND and stores all or none of them (RFC 3502). It writes
// them to the store in batches, see maxAppended. The parser knows only the first message.
func (ss *session) Append(folder string, r imap.LiteralReader, options *imap.AppendOptions) (*imap.AppendData, error) {
	if ss.extensions.replaced != 0 {
		return nil, ss.replace(folder, r, options)
	}
	body := ss.server.Service.Core.NewSpool(maxAppendBytes)
	defer func() { body.Close() }()
	all := ss.server.Service.Inbox.BeginAppend(ss.user, folder)
	undo := func(err error) error { return ss.tryCreate(cmp.Or(all.Undo(), err)) }
	var messages []inbox.Append
	var held, room int64
	item, literal := appendItem{flags: options.Flags, date: options.Time, size: r.Size()}, io.Reader(r)
	for more := true; more; {
		var err error
		if item.size > AppendLimit {
			err = refusal(imap.ResponseCodeTooBig, "The message is too large")
		} else if len(messages) == maxAppended || held+item.size > maxAppendBytes {
			err = all.Put(false, messages...)
			body.Close()
			body = ss.server.Service.Core.NewSpool(maxAppendBytes)
			messages, held, room = nil, 0, 0
		}
		if err == nil && (literal != nil || item.size == 0 || item.size > room-held) {
			room, err = ss.server.Service.Inbox.CheckAppend(ss.conn.ctx, ss.user, folder, item.size, held)
		}
		m := inbox.Append{Received: item.date, Body: io.NewSectionReader(body, held, item.size)}
		if err == nil {
			m.Flags, m.Keywords, err = parseFlags(item.flags)
		}
		if err == nil && literal == nil {
			literal, err = ss.conn.takeMessage()
		}
		if err == nil {
			var n int64
			n, err = io.Copy(body, literal)
			if n < item.size && (err == nil || ss.conn.ending != nil) {
				err = errUnfinished
			}
		}
		if err != nil {
			ss.conn.skipMessage(literal)
			return nil, undo(err)
		}
		messages, held, literal = append(messages, m), held+item.size, nil
		item, more, err = ss.conn.nextMessage()
		if err != nil {
			return nil, undo(err)
		}
	}
	if err := all.Put(true, messages...); err != nil {
		return nil, undo(err)
	}
	validity, uids := all.UIDValidity, all.UIDs
	data := &imap.AppendData{UIDValidity: validity, UID: imap.UID(uids[0])}
	if len(uids) > 1 { // the parser writes the first UID
		rest := strings.TrimPrefix(uidSet(uids).String(), fmt.Sprint(uids[0]))
		ss.conn.patchEnd(ss.conn.tag+" OK [APPENDUID ", "] APPEND completed\r\n", rest)
	}
	return data, nil
}

// An appendItem is the description of one message of an APPEND, which the client sends before the
// message.
type appendItem struct {
	flags []imap.Flag
	date  time.Time // zero: not given
	size  int64
	end   string // the text that must follow the message
}

// parseAppendItem parses the text before the literal of a further message of an APPEND: optional
// flags, an optional date, and the beginning of a literal8 (RFC 3516, RFC 6855 section 4). ok is
// false if it is malformed.
func parseAppendItem(text []byte) (item appendItem, ok bool) {
	text, ok = bytes.CutPrefix(text, []byte(" "))
	if rest, found := bytes.CutPrefix(text, []byte("(")); ok && found {
		var list []byte
		list, text, ok = bytes.Cut(rest, []byte(") "))
		if ok && len(list) > 0 {
			for flag := range bytes.SplitSeq(list, []byte(" ")) {
				name := bytes.TrimPrefix(flag, []byte(`\`))
				ok = ok && len(name) > 0 && !bytes.ContainsAny(name, "(){ %*\"\\]")
				item.flags = append(item.flags, imap.Flag(flag))
			}
		}
	}
	if rest, found := bytes.CutPrefix(text, []byte(`"`)); ok && found {
		var date []byte
		date, text, ok = bytes.Cut(rest, []byte(`" `))
		if ok {
			var err error
			item.date, err = time.Parse("_2-Jan-2006 15:04:05 -0700", string(date))
			ok = err == nil
		}
	}
	switch strings.ToUpper(string(text)) {
	case "", "~":
		return item, ok
	case "UTF8 (~":
		item.end = ")"
		return item, ok
	}
	return item, false
}

// nextMessage reads from the end of one message to the next one of the APPEND; more is false at the
// end of the command. A malformed rest of the command is an error, because then no message of it
// must be kept.
func (w *protocolConn) nextMessage() (item appendItem, more bool, err error) {
	if len(w.line) == 0 && w.ending == nil {
		w.command.takesMore = !w.command.single
		w.ending = w.next()
		w.command.takesMore = false
	}
	switch {
	case w.ending != nil:
		return item, false, errUnfinished
	case w.command.refused != "":
		return item, false, badCommand("%s", w.command.refused)
	}
	return w.command.next, w.command.marker.found, nil
}

// takeMessage asks the client for the message that nextMessage has found, and returns a reader of
// its bytes.
func (w *protocolConn) takeMessage() (io.Reader, error) {
	m := w.command.marker
	w.command.marker = literalMarker{}
	if !m.nonSync {
		w.mu.Lock()
		w.out = append(w.out, continuation...)
		err := w.flushLocked()
		w.mu.Unlock()
		if err != nil {
			w.ending = err
			return nil, err
		}
	}
	w.command.end, w.command.afterLiteral = w.command.next.end, true
	w.literal = m.size
	w.setReadLimit(commandTimeout + time.Duration(m.size/minRate)*time.Second)
	return io.LimitReader(w, m.size), nil
}

// skipMessage skips a message that the session refuses and may have read in part. The parser then
// reads on to the end of the command.
func (w *protocolConn) skipMessage(read io.Reader) {
	if read != nil {
		_, _ = io.Copy(io.Discard, read) // if it fails, the next read fails too
	} else if w.ending == nil {
		w.ending = w.endAppend(w.command.marker)
	}
}

// acknowledge sends a TCP acknowledgement for the bytes read so far, before waiting for more.
func (w *protocolConn) acknowledge() {
	if w.in.Buffered() == 0 {
		acknowledge(w.Conn)
	}
}

// readAfterMessage reads the line after a message of an APPEND. If the line announces another
// message and the session waits for one, it records that message. Otherwise the command ends here,
// and the rest of it is skipped. The parser always gets the end of the command, since it has read
// its message.
func (w *protocolConn) readAfterMessage() error {
	w.acknowledge()
	if err := w.awaitLine(); err != nil {
		return w.readError(err)
	}
	w.text, w.command.afterLiteral = w.text[:0], false
	if err := w.readLine(); err != nil {
		return w.readError(err)
	}
	m, err := scanLine(w.text)
	switch {
	case errors.Is(err, errLostLiteral):
		return w.closeWith("[CLIENTBUG] " + err.Error())
	case err != nil:
		w.command.refused = err.Error()
		return w.endAppend(literalMarker{})
	}
	rest, ended := bytes.CutPrefix(w.text[:m.at], []byte(w.command.end))
	switch {
	case ended && !m.found && len(bytes.TrimRight(rest, " \r\n")) == 0:
	case ended && m.found && w.command.takesMore:
		if item, ok := parseAppendItem(rest); ok {
			item.size = m.size
			w.command.next, w.command.marker = item, m
			return nil
		}
		w.command.refused = "What stands before a message cannot be read"
	default:
		w.command.refused = "Behind a message comes the end of the command, or another message"
	}
	return w.endAppend(m)
}

// endAppend skips an unwanted literal and the rest of the line after it, and passes the end of the
// command to the parser.
func (w *protocolConn) endAppend(m literalMarker) error {
	if m.nonSync {
		if m.size > w.maxSkip() {
			return w.closeWith("[TOOBIG] The literal is too large")
		}
		c := w.command
		if err := w.skip(m.size); err != nil {
			return err
		}
		w.command = command{parserEnd: c.parserEnd, refused: c.refused}
	}
	w.line = []byte(w.command.parserEnd + "\r\n")
	return nil
}
