package imapd

import (
	"bytes"
	"slices"
)

const maxTag = 256 // bytes of a tag that patches of replies reckon with

// capsAfterLogin are the capabilities after log-in, besides those of go-imap.
const capsAfterLogin = " ID CONDSTORE QUOTA QUOTA=RES-STORAGE COMPRESS=DEFLATE"

// A replyPatch is a text that is added to one reply of the parser, because go-imap has no means to
// write it.
type replyPatch struct {
	prefix  string // what the reply begins with; "" for a FETCH
	suffix  string // what it ends with: the text goes before that. "" for a FETCH: the text goes after its "("
	text    string
	started bool
	held    []byte // of the reply's end, which may come in pieces
}

// patchFetch adds the text to the beginning of the next FETCH reply.
func (w *protocolConn) patchFetch(text string) { w.setPatch(&replyPatch{text: text}) }

// patchEnd adds the text to the next reply with this prefix, before its suffix.
func (w *protocolConn) patchEnd(begin, end, text string) {
	w.setPatch(&replyPatch{prefix: begin, suffix: end, text: text})
}

func (w *protocolConn) setPatch(a *replyPatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patch = a
}

func (w *protocolConn) setCaps(caps string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.caps = caps
}

// patchReply returns what goes out for a piece of the parser's replies. The parser begins each
// reply with a new piece, so nothing in the content of a message is taken for a reply.
func (w *protocolConn) patchReply(p []byte) []byte {
	if a := w.patch; a != nil {
		out, done := a.apply(p)
		if done {
			w.patch = nil
		}
		if done || a.started {
			return out
		}
	}
	switch w.verb {
	case "", "CAPABILITY", "LOGIN", "AUTHENTICATE":
		return addCaps(p, w.caps)
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
	if a.prefix == "" {
		i := afterFetch(p)
		if i == 0 {
			return p, false
		}
		return slices.Concat(p[:i], []byte(a.text), p[i:]), true
	}
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
