package imapd

import (
	"bytes"
	"strings"
)

// A token is a word of a command: an atom, a quoted string, or a parenthesis.
type token struct {
	kind     byte // 'a', 'q', '(' or ')'
	from, to int
}

// tokens divides a command, which has no literals. What stands between brackets is part of an atom,
// spaces included, so that BODY[HEADER.FIELDS (TO)] is one.
func tokens(text []byte) []token {
	end := len(bytes.TrimRight(text, "\r\n"))
	var list []token
	for i := 0; i < end; {
		switch c := text[i]; c {
		case ' ':
			i++
		case '(', ')':
			list = append(list, token{c, i, i + 1})
			i++
		case '"':
			to := endOfQuoted(text[:end], i)
			list = append(list, token{'q', i, to})
			i = to
		default:
			to := endOfAtom(text[:end], i)
			list = append(list, token{'a', i, to})
			i = to
		}
	}
	return list
}

func endOfQuoted(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func endOfAtom(text []byte, i int) int {
	bracket := false
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && bracket:
			i = endOfQuoted(text, i) - 1
		case c == '[':
			bracket = true
		case c == ']':
			bracket = false
		case !bracket && (c == ' ' || c == '(' || c == ')' || c == '"'):
			return i
		}
	}
	return len(text)
}

// A phrase is a command in tokens, with what shall change in it.
type phrase struct {
	text  []byte
	list  []token
	edits []edit
}

type edit struct {
	from, to int
	text     string
}

func newPhrase(text []byte) *phrase { return &phrase{text: text, list: tokens(text)} }

// word is the atom at i in capitals, "" for anything else.
func (p *phrase) word(i int) string {
	if i < 0 || i >= len(p.list) || p.list[i].kind != 'a' {
		return ""
	}
	return strings.ToUpper(p.raw(i))
}

func (p *phrase) raw(i int) string { return string(p.text[p.list[i].from:p.list[i].to]) }

// value is the string or atom at i.
func (p *phrase) value(i int) (string, bool) {
	switch {
	case i >= len(p.list) || p.list[i].kind == '(' || p.list[i].kind == ')':
		return "", false
	case p.list[i].kind == 'a':
		return p.raw(i), true
	}
	raw := p.raw(i)
	if len(raw) < 2 || raw[len(raw)-1] != '"' {
		return "", false
	}
	var out strings.Builder
	for j := 1; j < len(raw)-1; j++ {
		if raw[j] == '\\' {
			j++
		}
		out.WriteByte(raw[j])
	}
	return out.String(), true
}

func (p *phrase) is(i int, kind byte) bool { return i < len(p.list) && p.list[i].kind == kind }

// closing gives the index of the parenthesis that closes the one at i.
func (p *phrase) closing(i int) (int, bool) {
	for depth := 0; i < len(p.list); i++ {
		switch p.list[i].kind {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i, true
			}
		}
	}
	return 0, false
}

// replace puts a text in the place of the tokens from i to j, both inclusive.
func (p *phrase) replace(i, j int, text string) {
	p.edits = append(p.edits, edit{p.list[i].from, p.list[j].to, text})
}

// remove takes the tokens from i to j out, and the spaces before them.
func (p *phrase) remove(i, j int) {
	from := p.list[i].from
	for from > 0 && p.text[from-1] == ' ' {
		from--
	}
	p.edits = append(p.edits, edit{from, p.list[j].to, ""})
}

// removeItem takes an item out of a list; the list keeps no space where the item was.
func (p *phrase) removeItem(i int) {
	if p.is(i-1, '(') && i+1 < len(p.list) && p.list[i+1].kind != ')' {
		p.edits = append(p.edits, edit{p.list[i].from, p.list[i+1].from, ""})
		return
	}
	p.remove(i, i)
}

// result gives the text with all edits, which were made in order.
func (p *phrase) result() []byte {
	var out []byte
	at := 0
	for _, e := range p.edits {
		if e.from < at {
			e.from = at
		}
		out = append(append(out, p.text[at:e.from]...), e.text...)
		at = max(e.to, at)
	}
	return append(out, p.text[at:]...)
}
