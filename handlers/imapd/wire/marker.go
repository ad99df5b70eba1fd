package wire

import (
	"bytes"
	"errors"
	"strconv"
)

// A literalMarker is the "{123}" or "{123+}" at the end of a line that announces a literal (RFC
// 9051 section 4.3).
type literalMarker struct {
	found   bool
	size    int64
	nonSync bool // the client does not wait for the server's consent
}

// findMarker checks one line of a command, without its line end, and finds the literal marker at
// its end. A brace is part of a string only if it is quoted.
func findMarker(line []byte) (literalMarker, error) {
	if bytes.ContainsAny(line, "\x00\r\n") {
		return literalMarker{}, errors.New("a command has no NUL and no line end within a line")
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
		return literalMarker{}, errors.New("a line ends within a quoted string")
	}
	return literalMarker{}, nil
}

func parseMarker(line []byte, at int) (literalMarker, error) {
	m := literalMarker{found: true}
	digits, closed := bytes.CutSuffix(line[at+1:], []byte("}"))
	digits, m.nonSync = bytes.CutSuffix(digits, []byte("+"))
	size, err := strconv.ParseUint(string(digits), 10, 32)
	if err != nil || !closed || digits[0] == '+' {
		return literalMarker{}, errors.New("a brace begins no literal")
	}
	m.size = int64(size)
	return m, nil
}
