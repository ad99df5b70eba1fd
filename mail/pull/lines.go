package pull

import (
	"bytes"
	"fmt"
)

const (
	maxLine    = 64 << 10 // bytes of a response line, without its literals
	maxLiteral = pieceSize + 1<<10
	maxDepth   = 50 // nesting of lists; error texts of the library grow quadratically with it
	maxWord    = 16 // bytes of the name of a response that are kept
)

// knownResponses are the responses that a server may send. Others are refused, since a server could
// make the library parse them endlessly.
var knownResponses = map[string]bool{
	"OK": true, "NO": true, "BAD": true, "BYE": true, "PREAUTH": true, "CAPABILITY": true, "FLAGS": true, "EXISTS": true,
	"RECENT": true, "FETCH": true, "EXPUNGE": true, "SEARCH": true, "ESEARCH": true, "LIST": true,
}

// A lineScanner checks the server's data before the library parses it. It finds lines and literals
// that are too long, lists that are nested too deeply, unexpected responses, and lists among
// capabilities, on which the library would loop forever.
type lineScanner struct {
	line         int   // bytes of the current line
	depth        int   // nesting depth of lists
	literal      int64 // bytes of the literal that are still to come
	literalState byte  // position in "{n}\r\n", which announces a literal: '{', '}' or 0
	size         int64
	words        int    // complete words of the line; -1 once the name of the response is known
	word         []byte // the beginning of the current word
	inCaps       bool   // inside a list of capabilities
	codeMatched  int    // how many bytes of capsCode were just read
	err          error  // the error that was found, or nil
}

const capsCode = "[CAPABILITY"

// scan checks the next bytes. It returns false if it has found an error, which is in err.
func (l *lineScanner) scan(p []byte) (ok bool) {
	for len(p) > 0 && l.err == nil {
		if l.literal > 0 {
			n := min(l.literal, int64(len(p)))
			l.literal -= n
			p = p[n:]
			continue
		}
		l.checkName(p[0])
		l.checkLengths(p[0])
		p = p[1:]
	}
	return l.err == nil
}

// checkLengths updates lengths and depth for the byte b, and checks their limits.
func (l *lineScanner) checkLengths(b byte) {
	l.line++
	switch {
	case b == '\n' && l.literalState == '}':
		l.literal, l.literalState = l.size, 0
	case b == '\n':
		l.line, l.literalState, l.depth, l.words, l.word, l.inCaps = 0, 0, 0, 0, l.word[:0], false
	case b == '{':
		l.literalState, l.size = '{', 0
	case l.literalState == '{' && b >= '0' && b <= '9':
		l.size = min(l.size*10+int64(b-'0'), 1<<40)
	case l.literalState == '{' && b == '}', l.literalState == '}' && b == '\r':
		l.literalState = '}'
	case b == '(':
		l.literalState = 0
		l.depth++
	case b == ')':
		l.literalState, l.depth = 0, max(l.depth-1, 0)
	default:
		l.literalState = 0
	}
	if l.line > maxLine || l.depth > maxDepth || l.literal > maxLiteral {
		l.err = fmt.Errorf("%w: a line, a literal or the nesting of lists is too long", ErrTooMuch)
	}
}

// checkName checks the name of a response, and lists of capabilities.
func (l *lineScanner) checkName(b byte) {
	if l.codeMatched < len(capsCode) && b == capsCode[l.codeMatched] {
		l.codeMatched++
	} else if l.codeMatched == len(capsCode) || b != capsCode[0] {
		l.inCaps, l.codeMatched = l.inCaps || l.codeMatched == len(capsCode), 0
	} else {
		l.codeMatched = 1
	}
	switch {
	case l.inCaps && b == ']':
		l.inCaps = false
	case l.inCaps && b == '(':
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
	if l.inCaps && b == '(' {
		l.err = fmt.Errorf("%w: the capabilities contain a list", ErrProtocol)
	}
}

// endWord checks a complete word at the start of a line: "*", an optional number, and the name of
// the response.
func (l *lineScanner) endWord() {
	word := bytes.ToUpper(l.word)
	l.word = l.word[:0]
	switch {
	case l.words == 0 && string(word) != "*": // a tagged response or "+"
		l.words = -1
	case l.words == 0 || l.words == 1 && len(word) > 0 && word[0] >= '0' && word[0] <= '9':
		l.words++
	case knownResponses[string(word)]:
		l.words, l.inCaps = -1, l.inCaps || string(word) == "CAPABILITY"
	default:
		l.err = fmt.Errorf("%w: unknown response %.20q", ErrProtocol, word)
	}
}
