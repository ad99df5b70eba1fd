package pull

import (
	"bytes"
	"fmt"
)

const (
	maxLine    = 64 << 10 // bytes of a response line without its literals
	maxLiteral = pieceSize + 1<<10
	maxDepth   = 50 // nesting of lists; the library's errors grow quadratically with it
	maxWord    = 16 // bytes of the name of a response
)

// knownResponses are the responses that a server may send to our commands or unsolicited. Others
// are refused, since a server can make the library parse them endlessly.
var knownResponses = map[string]bool{
	"OK": true, "NO": true, "BAD": true, "BYE": true, "PREAUTH": true, "CAPABILITY": true, "FLAGS": true, "EXISTS": true,
	"RECENT": true, "FETCH": true, "EXPUNGE": true, "SEARCH": true, "ESEARCH": true, "LIST": true,
}

// A lineScanner checks the server's data before the library parses it. It detects data that the
// library must not see: lines and literals that are too long, lists that are nested too deeply,
// unexpected responses, and lists among capabilities, on which the library would loop forever.
type lineScanner struct {
	line    int   // bytes of the line so far
	depth   int   // nesting depth of lists
	literal int64 // remaining bytes of the literal
	mark    byte  // state within a literal's "{n}\r\n": '{', '}' or 0
	size    int64
	words   int    // complete words of the line; negative once the response is known
	word    []byte // the beginning of the current word
	caps    bool   // the current position is in a list of capabilities
	code    int    // number of bytes of capsCode just matched
	err     error  // the error found, or nil
}

const capsCode = "[CAPABILITY"

// scan checks the next bytes. It returns false if it has found an error.
func (l *lineScanner) scan(p []byte) bool {
	for len(p) > 0 && l.err == nil {
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
	return l.err == nil
}

// next updates the lengths and depths and checks their limits.
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
		l.err = fmt.Errorf("%w: a line, literal or list without end", ErrTooMuch)
	}
}

// name checks the names of responses, and capabilities.
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
		l.err = fmt.Errorf("%w: the capabilities contain a list", ErrProtocol)
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
	l.endWord()
	if l.caps && b == '(' {
		l.err = fmt.Errorf("%w: the capabilities contain a list", ErrProtocol)
	}
}

// endWord checks a complete word at the beginning of a line: "*", an optional number, and the name
// of the response.
func (l *lineScanner) endWord() {
	word := bytes.ToUpper(l.word)
	l.word = l.word[:0]
	switch {
	case l.words == 0 && string(word) != "*": // a tag, or "+"
		l.words = -1
	case l.words == 0 || l.words == 1 && len(word) > 0 && word[0] >= '0' && word[0] <= '9':
		l.words++
	case knownResponses[string(word)]:
		l.words, l.caps = -1, l.caps || string(word) == "CAPABILITY"
	default:
		l.err = fmt.Errorf("%w: an answer %.20q", ErrProtocol, word)
	}
}
