package zonefile

import (
	"fmt"
	"strings"
)

// An entry is what RFC 1035 section 5.1 calls so: a record or a directive, which may have several
// lines.
type entry struct {
	line   int  // on which it begins
	indent bool // whether it begins with white space, so that it has no name
	words  []word
}

// A word of an entry is printable ASCII. Other bytes are written as \DDD.
type word struct {
	text   string // without the quotation marks around it, but with its escapes
	quoted bool
}

// String returns the word as it stands in a file.
func (w word) String() string {
	if w.quoted {
		return `"` + w.text + `"`
	}
	return w.text
}

// A scanner splits a file into entries.
type scanner struct {
	text string
	at   int // index of the next byte
	line int // of the next byte
}

// next returns the next entry that has words, or nil at the end of the file.
func (s *scanner) next() (*entry, error) {
	e := &entry{line: s.line}
	var open []int // the lines of the parentheses that are open
	fresh := true  // whether nothing of the line has been read
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == '\n':
			s.at++
			s.line++
			if len(open) > 0 {
				continue
			}
			if len(e.words) > 0 {
				return e, nil
			}
			e, fresh = &entry{line: s.line}, true
			continue
		case c == ' ' || c == '\t':
			s.at++
			e.indent = e.indent || fresh
		case c == ';':
			end := strings.IndexByte(s.text[s.at:], '\n')
			if end < 0 {
				end = len(s.text) - s.at
			}
			s.at += end
		case c == '(':
			s.at++
			open = append(open, s.line)
		case c == ')' && len(open) == 0:
			return nil, errorAt(s.line, "a ) has no ( before it")
		case c == ')':
			s.at++
			open = open[:len(open)-1]
		default:
			w, err := s.word()
			if err != nil {
				return nil, err
			}
			e.words = append(e.words, w)
		}
		fresh = false
	}
	switch {
	case len(open) > 0:
		return nil, errorAt(open[len(open)-1], "a ( has no ) after it")
	case len(e.words) == 0:
		return nil, nil
	}
	return e, nil
}

// word reads the word that begins at the next byte. A quoted string right after an equals sign
// belongs to the word, as in alpn="h2" (RFC 9460 section 2.1).
func (s *scanner) word() (word, error) {
	var b strings.Builder
	w := word{quoted: s.text[s.at] == '"'}
	inside := w.quoted // whether the next byte is inside of quotes
	if inside {
		s.at++
	}
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case c == '\n' && inside:
			return w, errorAt(s.line, "a quotation mark is not closed on its line")
		case c == '"' && w.quoted:
			s.at++
			w.text = b.String()
			return w, nil
		case c == '"' && !inside && !strings.HasSuffix(b.String(), "="),
			!inside && strings.IndexByte(" \t\n;()", c) >= 0:
			w.text = b.String()
			return w, nil
		case c == '"':
			b.WriteByte(c)
			s.at++
			if inside { // the end of such a string
				w.text = b.String()
				return w, nil
			}
			inside = true
			continue
		case c == '\\':
			text, err := s.escape()
			if err != nil {
				return w, err
			}
			b.WriteString(text)
			continue
		case c < ' ' && c != '\t' || c == 0x7f:
			return w, errorAt(s.line, "there is a control character (%d), which no zone file has", c)
		}
		writeByte(&b, c)
		s.at++
	}
	if inside {
		return w, errorAt(s.line, "a quotation mark is not closed")
	}
	w.text = b.String()
	return w, nil
}

// escape reads a backslash and what it escapes.
func (s *scanner) escape() (string, error) {
	rest := s.text[s.at+1:]
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	switch {
	case rest == "" || rest[0] == '\n':
		return "", errorAt(s.line, `a \ stands at the end of the line`)
	case digit(rest[0]) && (len(rest) < 3 || !digit(rest[1]) || !digit(rest[2]) || rest[:3] > "255"):
		return "", errorAt(s.line, `after a \ there are three digits up to 255, or one other character`)
	case digit(rest[0]):
		s.at += 4
		return `\` + rest[:3], nil
	}
	s.at += 2
	if rest[0] > ' ' && rest[0] <= '~' {
		return `\` + rest[:1], nil
	}
	return fmt.Sprintf(`\%03d`, rest[0]), nil
}

// writeByte writes a byte of a word.
func writeByte(b *strings.Builder, c byte) {
	if c >= ' ' && c <= '~' {
		b.WriteByte(c)
		return
	}
	fmt.Fprintf(b, `\%03d`, c)
}
