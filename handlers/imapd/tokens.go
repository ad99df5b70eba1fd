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

// tokenize divides a command without literals into tokens. What stands between brackets is part of
// an atom, spaces included, so that BODY[HEADER.FIELDS (TO)] is one.
func tokenize(text []byte) []token {
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

// A commandEditor is a command in tokens, with the edits to make in it.
type commandEditor struct {
	text   []byte
	tokens []token
	edits  []edit
}

type edit struct {
	from, to int
	text     string
}

func newCommandEditor(text []byte) *commandEditor {
	return &commandEditor{text: text, tokens: tokenize(text)}
}

// word is the atom at i in capitals, "" for anything else.
func (p *commandEditor) word(i int) string {
	if i < 0 || i >= len(p.tokens) || p.tokens[i].kind != 'a' {
		return ""
	}
	return strings.ToUpper(p.raw(i))
}

func (p *commandEditor) raw(i int) string { return string(p.text[p.tokens[i].from:p.tokens[i].to]) }

// value is the string or atom at i.
func (p *commandEditor) value(i int) (string, bool) {
	switch {
	case i >= len(p.tokens) || p.tokens[i].kind == '(' || p.tokens[i].kind == ')':
		return "", false
	case p.tokens[i].kind == 'a':
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

func (p *commandEditor) is(i int, kind byte) bool {
	return i < len(p.tokens) && p.tokens[i].kind == kind
}

// closing returns the index of the parenthesis that closes the one at i.
func (p *commandEditor) closing(i int) (int, bool) {
	for depth := 0; i < len(p.tokens); i++ {
		switch p.tokens[i].kind {
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

// replace replaces the tokens from i to j, both inclusive, by a text.
func (p *commandEditor) replace(i, j int, text string) {
	p.edits = append(p.edits, edit{p.tokens[i].from, p.tokens[j].to, text})
}

// remove removes the tokens from i to j, and the spaces before them.
func (p *commandEditor) remove(i, j int) {
	from := p.tokens[i].from
	for from > 0 && p.text[from-1] == ' ' {
		from--
	}
	p.edits = append(p.edits, edit{from, p.tokens[j].to, ""})
}

// removeItem removes an item of a list; no space stays where the item was.
func (p *commandEditor) removeItem(i int) {
	if p.is(i-1, '(') && i+1 < len(p.tokens) && p.tokens[i+1].kind != ')' {
		p.edits = append(p.edits, edit{p.tokens[i].from, p.tokens[i+1].from, ""})
		return
	}
	p.remove(i, i)
}

// result returns the text with all edits, which were made in order.
func (p *commandEditor) result() []byte {
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
