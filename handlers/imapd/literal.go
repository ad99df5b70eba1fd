package imapd

import (
	"errors"
	"strconv"
)

// A literalMarker is the "{123}" or "{123+}" at the end of a line that announces a literal (RFC
// 3501 section 4.3, RFC 7888).
type literalMarker struct {
	found   bool
	at      int // where it begins; without one, the line's length
	digits  string
	size    int64
	nonSync bool
}

// scanLine checks one line of a command and finds the marker at its end. It refuses whatever
// go-imap's parser could take to end a command somewhere else than we do: it reads quoted strings
// over line ends, ends a line at a bare CR, and goes on behind a malformed marker.
func scanLine(line []byte) (literalMarker, error) {
	end := len(line)
	if end > 0 && line[end-1] == '\n' {
		end--
	}
	if end > 0 && line[end-1] == '\r' {
		end--
	}
	quoted := false
	for i := 0; i < end; i++ {
		switch c := line[i]; {
		case c == 0 || c == '\r' || c == '\n':
			return literalMarker{}, errors.New("a command has no NUL and no line end within a line")
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '{' && !quoted:
			return parseMarker(line[:end], i)
		}
	}
	if quoted {
		return literalMarker{}, errors.New("a line ends within a quoted string")
	}
	return literalMarker{at: len(line)}, nil
}

func parseMarker(line []byte, at int) (literalMarker, error) {
	m := literalMarker{found: true, at: at}
	i := at + 1
	for i < len(line) && line[i] >= '0' && line[i] <= '9' {
		i++
	}
	m.digits = string(line[at+1 : i])
	if i < len(line) && line[i] == '+' {
		m.nonSync = true
		i++
	}
	size, err := strconv.ParseUint(m.digits, 10, 32)
	if err != nil || i != len(line)-1 || line[i] != '}' {
		return literalMarker{}, errors.New("a brace begins no literal")
	}
	m.size = int64(size)
	return m, nil
}
