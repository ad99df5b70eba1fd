package wire

import (
	"bytes"
	"errors"
	"strconv"
)

// A literalMarker is the "{123}" or "{123+}" at the end of a line, which announces a literal (RFC
// 9051 section 4.3). The zero value means that there is none.
type literalMarker struct {
	found   bool
	size    int64 // of the literal, in bytes
	nonSync bool  // the client does not wait for a continuation request
}

// findMarker checks one line of a command, without its line end, and returns the literal marker at
// its end. A brace outside a quoted string must begin a marker.
func findMarker(line []byte) (literalMarker, error) {
	if bytes.ContainsAny(line, "\x00\r\n") {
		return literalMarker{}, errors.New("a line of a command must not contain NUL, CR or LF")
	}
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '{' && !quoted:
			return parseMarker(line, i)
		}
	}
	if quoted {
		return literalMarker{}, errors.New("a line of a command ends within a quoted string")
	}
	return literalMarker{}, nil
}

// parseMarker parses the literal marker that begins at the index at and must end the line.
func parseMarker(line []byte, at int) (literalMarker, error) {
	m := literalMarker{found: true}
	digits, closed := bytes.CutSuffix(line[at+1:], []byte("}"))
	digits, m.nonSync = bytes.CutSuffix(digits, []byte("+"))
	size, err := strconv.ParseUint(string(digits), 10, 32)
	if err != nil || !closed || digits[0] == '+' {
		return literalMarker{}, errors.New("a brace outside quotes must begin a literal marker")
	}
	m.size = int64(size)
	return m, nil
}
