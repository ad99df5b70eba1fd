package imapd

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/service/inbox"
)

// isReplace reports whether the command is a REPLACE (RFC 8508).
func isReplace(verb string) bool { return verb == "REPLACE" || verb == "UID REPLACE" }

// hasReplaceArguments reports whether a REPLACE has the number and the folder, so that its message
// comes next.
func hasReplaceArguments(text []byte) bool {
	_, verb := commandName(text)
	return len(tokenize(text)) >= 4+strings.Count(verb, "UID ")
}

// beginReplace checks a REPLACE before its message is received (RFC 8508 section 3.4), and returns
// it as an APPEND, which the parser knows.
func (ss *session) beginReplace(verb string, p *commandEditor) ([]byte, error) {
	at := 2 + strings.Count(verb, "UID ")
	given, ok := p.value(at + 1)
	switch {
	case ss.user.MailboxID == "":
		return nil, badCommand("Log in first")
	case !ok || !ss.conn.command.message || !isMessageNumber(p.word(at)):
		return nil, badCommand("%s takes the number of one message, a folder and a message as a literal", verb)
	}
	name, ok := decodeName(given)
	if !ok {
		return nil, refusal(imap.ResponseCodeNonExistent, "The name of the folder cannot be read")
	}
	m, err := scanLine(p.text)
	if err != nil {
		return nil, err
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel := ss.selected
	switch {
	case sel == nil:
		return nil, badCommand("Select a folder first")
	case sel.readOnly:
		return nil, errReadOnly
	}
	uid := sel.view.uidOfNumber(p.word(at), at == 3)
	if uid == 0 {
		return nil, refusal("", "There is no such message")
	}
	if err := ss.server.Service.Inbox.CheckReplace(ss.conn.ctx, ss.user, sel.folder, uid, name, m.size); err != nil {
		return nil, ss.tryCreate(err)
	}
	ss.extensions.replaced = uid
	p.replace(1, at, "APPEND")
	return p.result(), nil
}

// isMessageNumber reports whether a text is a seq-number (RFC 9051 section 9).
func isMessageNumber(text string) bool {
	n, err := strconv.ParseUint(text, 10, 32)
	return text == "*" || err == nil && n > 0 && text[0] != '0' && text[0] != '+'
}

// uidOfNumber returns the UID of the message with a seq-number or UID, 0 if the view does not have
// it.
func (v view) uidOfNumber(text string, isUID bool) uint32 {
	if text == "*" {
		return v.last()
	}
	n, _ := strconv.ParseUint(text, 10, 32)
	switch {
	case !isUID && n <= uint64(len(v)):
		return v[n-1]
	case isUID && v.seq(uint32(n)) != 0:
		return uint32(n)
	}
	return 0
}

// replace receives the message of a REPLACE, stores it and deletes the old one, both or neither.
// The parser polls after it, which reports both changes to the client.
func (ss *session) replace(folder string, r imap.LiteralReader, options *imap.AppendOptions) error {
	body := ss.server.Service.Core.NewSpool(AppendLimit)
	defer body.Close()
	flags, keywords, err := parseFlags(options.Flags)
	if err == nil {
		var n int64
		size := r.Size()
		n, err = io.Copy(body, r)
		if n < size && (err == nil || ss.conn.ending != nil) {
			err = errUnfinished
		}
	}
	if err != nil {
		ss.conn.skipMessage(r)
		return ss.replyError(err)
	}
	if _, _, err := ss.conn.nextMessage(); err != nil {
		return err
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel, old := ss.selected, ss.extensions.replaced
	validity, uid, err := ss.server.Service.Inbox.ReplaceMessage(ss.conn.ctx, ss.user, sel.folder, old, folder,
		inbox.Append{Flags: flags, Keywords: keywords, Received: options.Time, Body: body})
	if err != nil {
		return ss.tryCreate(err)
	}
	// Before the EXPUNGE, so that a client first learns of the new message (RFC 8508 section 4.3).
	ss.conn.writeReply("* OK [APPENDUID %d %d] Replacement message ready", validity, uid)
	sel.gone = union(sel.gone, []uint32{old})
	sel.ownExpunged++
	sel.removed = true
	return nil
}

// completedReplace corrects the parser's reply to a REPLACE, which it got as an APPEND.
func completedReplace(p []byte) []byte {
	tag, found := bytes.CutSuffix(p, []byte(" OK APPEND completed\r\n"))
	if !found || len(tag) > maxTag {
		return p
	}
	return slices.Concat(tag, []byte(" OK REPLACE completed\r\n"))
}
