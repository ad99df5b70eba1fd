package ical

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/charset"
)

// A line is one content line (RFC 5545 section 3.1): its name in upper case, its parameters as
// written, and its value without blanks around it.
type line struct {
	name, params, value string
}

// decodeUnfolded unfolds a calendar and converts it to UTF-8. It unfolds before the conversion,
// since programs fold between any two bytes, even within a character. UTF-16 and UTF-32 are
// converted first, since a line end has several bytes in them.
func decodeUnfolded(text []byte, label string) string {
	convert := func(label string) []byte { return charset.Convert(text, label, MaxSize, MaxSize) }
	isCalendar := func(b []byte) bool { return bytes.Contains(bytes.ToUpper(b[:min(len(b), 4096)]), []byte("BEGIN:")) }
	if bytes.IndexByte(text[:min(len(text), 64)], 0) >= 0 { // it is UTF-16 or UTF-32
		out := convert(label)
		if !isCalendar(out) {
			out = convert("utf-16")
		}
		text = unfolded(out)
	} else {
		text = unfolded(text)
		if out := convert(label); isCalendar(out) {
			text = out
		} // otherwise the declared charset is wrong
	}
	if !utf8.Valid(text) {
		text = convert("windows-1252")
	}
	return strings.TrimLeft(string(text), "\ufeff")
}

// unfolded removes each line end that a blank follows, together with the blank (RFC 5545 section
// 3.1).
func unfolded(text []byte) []byte {
	if bytes.IndexByte(text, '\n') < 0 {
		text = bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\n' && i+1 < len(text) && (text[i+1] == ' ' || text[i+1] == '\t') {
			i++
			continue
		}
		if c != '\r' {
			out = append(out, c)
		}
	}
	return out
}

// readLines splits an unfolded text into content lines. It skips other lines and control
// characters. It stops after maxLines+1 lines, so that the caller can tell that there are too many.
func readLines(text string) (out []line) {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
	for raw := range strings.SplitSeq(text, "\n") {
		head, value, ok := cutUnquoted(raw, ':')
		if !ok { // perhaps a quote is not closed
			head, value, ok = strings.Cut(raw, ":")
		}
		if !ok {
			continue
		}
		name, params, _ := strings.Cut(head, ";")
		out = append(out, line{strings.ToUpper(strings.TrimSpace(name)), params, strings.TrimSpace(value)})
		if len(out) > maxLines {
			break
		}
	}
	return out
}

// cutUnquoted splits a text at the first separator outside of quotes.
func cutUnquoted(text string, separator byte) (before, after string, ok bool) {
	quoted := false
	for i := range len(text) {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == separator && !quoted:
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

// param returns the value of a parameter (RFC 5545 section 3.2, RFC 6868), "" if the line does not
// have it.
func (l line) param(name string) string {
	for rest, more := l.params, true; more; {
		var part string
		part, rest, more = cutUnquoted(rest, ';')
		key, value, _ := strings.Cut(part, "=")
		if strings.EqualFold(strings.TrimSpace(key), name) {
			return strings.TrimSpace(strings.NewReplacer("^n", "\n", "^'", `"`, "^^", "^").Replace(strings.Trim(value, ` "`)))
		}
	}
	return ""
}

// quotedParam returns the value of a parameter as it is written in a content line.
func quotedParam(value string) string {
	value = strings.NewReplacer("^", "^^", "\n", "^n", `"`, "^'").Replace(value)
	if strings.ContainsAny(value, ",;:^ ") {
		return `"` + value + `"`
	}
	return value
}

// unescaped removes the backslashes from a text value (RFC 5545 section 3.3.11).
func unescaped(text string) string {
	return strings.NewReplacer(`\n`, "\n", `\N`, "\n", `\,`, ",", `\;`, ";", `\\`, `\`).Replace(text)
}

func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, ",", `\,`, ";", `\;`).Replace(text)
}
