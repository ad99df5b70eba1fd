package pull

import (
	"bytes"
	"fmt"
)

const (
	maxLine    = 64 << 10 // bytes of an answer's line, literals apart
	maxLiteral = pieceSize + 1<<10
	maxDepth   = 50 // of lists in lists; the library's errors grow with the square of it
	maxWord    = 16 // bytes of what an answer is called
)

// answers are what a server may say unasked or to what we ask; the library reads others too, and
// can be had to read them for ever.
var answers = map[string]bool{
	"OK": true, "NO": true, "BAD": true, "BYE": true, "PREAUTH": true, "CAPABILITY": true, "FLAGS": true, "EXISTS": true,
	"RECENT": true, "FETCH": true, "EXPUNGE": true, "SEARCH": true, "ESEARCH": true, "LIST": true,
}

// A lineScanner sees what a server says before the library does, and finds what that must not see:
// lines and literals that are longer than they may be, lists that are too deep, answers that nobody
// asks for, and lists among capabilities, of which the library never comes to the end.
type lineScanner struct {
	line    int   // bytes of the line so far
	depth   int   // of lists
	literal int64 // bytes of the literal that are still to come
	mark    byte  // what was seen of a literal's "{n}\r\n": '{', '}' or 0
	size    int64
	words   int    // that have ended; negative: the answer is known
	word    []byte // the beginning of the one under way
	caps    bool   // these are capabilities
	code    int    // bytes of capsCode that were just seen
	wrong   error  // what was found
}

const capsCode = "[CAPABILITY"

// scan takes the next bytes; false says that something is wrong.
func (l *lineScanner) scan(p []byte) bool {
	for len(p) > 0 && l.wrong == nil {
		if l.literal > 0 {
			n := min(l.literal, int64(len(p)))
			l.literal -= n
			p = p[n:]
			continue
		}
		l.name(p[0])
		l.next(p[0])
		p = p[1:]
	}
	return l.wrong == nil
}

// next counts what has an end.
func (l *lineScanner) next(b byte) {
	l.line++
	switch {
	case b == '\n' && l.mark == '}':
		l.literal, l.mark = l.size, 0
	case b == '\n':
		l.line, l.mark, l.depth, l.words, l.word, l.caps = 0, 0, 0, 0, l.word[:0], false
	case b == '{':
		l.mark, l.size = '{', 0
	case l.mark == '{' && b >= '0' && b <= '9':
		l.size = min(l.size*10+int64(b-'0'), 1<<40)
	case l.mark == '{' && b == '}', l.mark == '}' && b == '\r':
		l.mark = '}'
	case b == '(':
		l.mark = 0
		l.depth++
	case b == ')':
		l.mark, l.depth = 0, max(l.depth-1, 0)
	default:
		l.mark = 0
	}
	if l.line > maxLine || l.depth > maxDepth || l.literal > maxLiteral {
		l.wrong = fmt.Errorf("%w: a line, literal or list without end", ErrTooMuch)
	}
}

// name looks at what an answer is called, and at capabilities.
func (l *lineScanner) name(b byte) {
	if l.code < len(capsCode) && b == capsCode[l.code] {
		l.code++
	} else if l.code == len(capsCode) || b != capsCode[0] {
		l.caps, l.code = l.caps || l.code == len(capsCode), 0
	} else {
		l.code = 1
	}
	switch {
	case l.caps && b == ']':
		l.caps = false
	case l.caps && b == '(':
		l.wrong = fmt.Errorf("%w: a list among capabilities", ErrProtocol)
	}
	if l.words < 0 {
		return
	}
	if b != ' ' && b != '(' && b != '\r' && b != '\n' {
		if len(l.word) <= maxWord {
			l.word = append(l.word, b)
		}
		return
	}
	l.wordEnds()
	if l.caps && b == '(' {
		l.wrong = fmt.Errorf("%w: a list among capabilities", ErrProtocol)
	}
}

// wordEnds judges a word at the beginning of a line: "*", perhaps a number, and what the answer is
// called.
func (l *lineScanner) wordEnds() {
	word := bytes.ToUpper(l.word)
	l.word = l.word[:0]
	switch {
	case l.words == 0 && string(word) != "*": // a tag, or "+"
		l.words = -1
	case l.words == 0 || l.words == 1 && len(word) > 0 && word[0] >= '0' && word[0] <= '9':
		l.words++
	case answers[string(word)]:
		l.words, l.caps = -1, l.caps || string(word) == "CAPABILITY"
	default:
		l.wrong = fmt.Errorf("%w: an answer %.20q", ErrProtocol, word)
	}
}
