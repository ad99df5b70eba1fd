package deliver

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on one reply, in bytes and lines. RFC 5321 §4.5.3.1.5 allows 512 bytes per line.
const (
	maxReplyLine  = 4 << 10
	maxReplyBytes = 16 << 10
	maxReplyLines = 100
	maxReplyText  = 1 << 10 // bytes of the text that is stored and shown
)

var (
	errReplyTooLong = errors.New("the reply of the server is too long")
	errReplySyntax  = errors.New("the reply of the server is not valid SMTP")
	errUnsolicited  = errors.New("the server sent data that no command asked for")
)

// reply is one reply of a server (RFC 5321 §4.2). The lines are without code and line end.
type reply struct {
	code  int
	lines []string
}

// readReply reads one reply, which may have several lines. Lines may end in a bare LF. It returns
// errReplyTooLong if the reply exceeds a limit. br must have a buffer of maxReplyLine bytes.
func readReply(br *bufio.Reader) (reply, error) {
	var r reply
	for total := 0; ; {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return reply{}, errReplyTooLong
		}
		if err != nil {
			return reply{}, err
		}
		total += len(line)
		if total > maxReplyBytes || len(r.lines) == maxReplyLines {
			return reply{}, errReplyTooLong
		}
		code, more, text, ok := parseReplyLine(strings.TrimRight(string(line), "\r\n"))
		if !ok || len(r.lines) > 0 && code != r.code {
			return reply{}, errReplySyntax
		}
		r.code = code
		r.lines = append(r.lines, text)
		if !more {
			return r, nil
		}
	}
}

// parseReplyLine splits "250-text" into 250, true and "text".
func parseReplyLine(line string) (code int, more bool, text string, ok bool) {
	if len(line) < 3 {
		return 0, false, "", false
	}
	for _, d := range []byte(line[:3]) {
		if d < '0' || d > '9' {
			return 0, false, "", false
		}
		code = code*10 + int(d-'0')
	}
	if code < 200 || code > 599 {
		return 0, false, "", false
	}
	if len(line) == 3 {
		return code, false, "", true
	}
	if line[3] != ' ' && line[3] != '-' {
		return 0, false, "", false
	}
	return code, line[3] == '-', line[4:], true
}

func (r reply) class() int { return r.code / 100 }

// enhancedCode returns the enhanced status code (RFC 3463) at the start of the reply. It returns ""
// if there is none, or if the code does not match the class of the reply code.
func (r reply) enhancedCode() string {
	if len(r.lines) == 0 {
		return ""
	}
	status, _, _ := strings.Cut(r.lines[0], " ")
	parts := strings.Split(status, ".")
	if len(parts) != 3 || parts[0] != fmt.Sprint(r.class()) {
		return ""
	}
	for _, p := range parts {
		if len(p) == 0 || len(p) > 3 || strings.Trim(p, "0123456789") != "" {
			return ""
		}
	}
	return status
}

// String returns the reply as one printable line of at most maxReplyText bytes, which begins with
// the reply code. Where later lines repeat the enhanced code of the first, it is left out.
func (r reply) String() string {
	status := r.enhancedCode()
	var b strings.Builder
	fmt.Fprintf(&b, "%d", r.code)
	for i, line := range r.lines {
		if i > 0 && status != "" {
			line = strings.TrimPrefix(line, status)
		}
		line = strings.TrimSpace(line)
		if line != "" {
			b.WriteByte(' ')
			b.WriteString(line)
		}
	}
	return printableLine(b.String(), maxReplyText)
}

// printableLine makes text from others safe to log and show: one printable line of valid UTF-8,
// with at most limit bytes.
func printableLine(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
