package imapd

import (
	"bytes"
	"slices"
)

const maxTag = 256 // bytes of a tag that corrections of answers reckon with

// capsAfterLogin are what is told once a client has logged in, on top of what go-imap tells.
const capsAfterLogin = " ID CONDSTORE QUOTA QUOTA=RES-STORAGE COMPRESS=DEFLATE"

// An amendment is a text that one answer of the parser's gets, which has no means to write it.
type amendment struct {
	begin string // what the answer begins with; "" for a FETCH
	end   string // what it ends with: the text goes before that. "" for a FETCH: the text goes behind its "("
	text  string
	begun bool
	kept  []byte // of the answer's end, which may come in pieces
}

// amendFetch has the next FETCH answer begin with the text.
func (w *wire) amendFetch(text string) { w.setAmendment(&amendment{text: text}) }

// amendEnd has the next answer that begins and ends so carry the text before its end.
func (w *wire) amendEnd(begin, end, text string) {
	w.setAmendment(&amendment{begin: begin, end: end, text: text})
}

func (w *wire) setAmendment(a *amendment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.amend = a
}

func (w *wire) setCaps(caps string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.caps = caps
}

// amended gives what goes out for a piece of the parser's answers. The parser writes each answer
// from the beginning of a piece, so nothing in the content of a message is taken for one.
func (w *wire) amended(p []byte) []byte {
	if a := w.amend; a != nil {
		out, done := a.apply(p)
		if done {
			w.amend = nil
		}
		if done || a.begun {
			return out
		}
	}
	switch w.verb {
	case "", "CAPABILITY", "LOGIN", "AUTHENTICATE":
		return addCaps(p, w.caps)
	}
	return blame(p)
}

// addCaps adds capabilities to an answer that lists them, and has LITERAL+ in place of LITERAL-,
// which are never both offered (RFC 7888 section 5).
func addCaps(p []byte, caps string) []byte {
	const last = " LITERAL-" // go-imap tells it in every state
	if i := bytes.Index(p, []byte("CAPABILITY ")); i < 0 || i > 64+maxTag {
		return p
	}
	if i := bytes.Index(p, []byte(last)); i >= 0 {
		return slices.Concat(p[:i], []byte(" LITERAL+"+caps), p[i+len(last):])
	}
	return p
}

// blame corrects what go-imap says about arguments that it cannot read: the fault is not ours.
// Every error of our own comes with an answer.
func blame(p []byte) []byte {
	tag, found := bytes.CutSuffix(p, []byte(" NO [SERVERBUG] Internal server error\r\n"))
	if !found || len(tag) > maxTag {
		return p
	}
	return slices.Concat(tag, []byte(" BAD [CLIENTBUG] The arguments cannot be read\r\n"))
}

func (a *amendment) apply(p []byte) (out []byte, done bool) {
	if a.begin == "" {
		i := behindFetch(p)
		if i == 0 {
			return p, false
		}
		return slices.Concat(p[:i], []byte(a.text), p[i:]), true
	}
	if !a.begun && !bytes.HasPrefix(p, []byte(a.begin)) {
		return p, false
	}
	a.begun = true
	all := append(a.kept, p...)
	if bytes.HasSuffix(all, []byte(a.end)) {
		head := len(all) - len(a.end)
		return slices.Concat(all[:head], []byte(a.text), all[head:]), true
	}
	cut := max(len(all)-len(a.end), 0)
	a.kept = slices.Clone(all[cut:])
	return all[:cut], false
}

// behindFetch gives the place behind "* 12 FETCH (", 0 if p does not begin so.
func behindFetch(p []byte) int {
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
