package msg

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/charset"
	"github.com/mailstead/mailstead/mail/visible"
)

// ErrHeader is wrapped by errors about a header field that cannot be written. The text of the error
// names the field.
var ErrHeader = errors.New("header refused")

const (
	foldAt      = 78  // columns; RFC 5322 §2.1.1
	maxLine     = 998 // bytes without CRLF; RFC 5322 §2.1.1
	maxWord     = 64  // characters of an encoded word; RFC 2047 §2 allows 75, but a field name needs room too
	wordPrefixQ = "=?utf-8?q?"
	wordPrefixB = "=?utf-8?b?"
)

// checkHeader returns an error if the field name is invalid, or if the value has line breaks,
// control characters or invalid UTF-8.
func checkHeader(name, value string) error {
	if fieldNameLength([]byte(name+":")) != len(name) || name == "" || len(name) > 76 {
		return fmt.Errorf("%w: %q is not a field name", ErrHeader, cut(name, 80))
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r != '\t' && visible.IsControl(r) }) {
		return fmt.Errorf("%w: %s has a line break or a control character", ErrHeader, name)
	}
	if !utf8.ValidString(value) {
		return fmt.Errorf("%w: %s is not UTF-8", ErrHeader, name)
	}
	return nil
}

// appendField appends one header field, folded at spaces to lines of 78 columns. A longer word
// stays whole; a word that exceeds a line of 998 bytes is an error.
func appendField(b []byte, name, value string) ([]byte, error) {
	if err := checkHeader(name, value); err != nil {
		return nil, err
	}
	// A Content-* field is not folded within quotes, since some programs then read the line end as
	// part of a file name.
	contentField := len(name) > 8 && strings.EqualFold(name[:8], "content-")
	b = append(append(b, name...), ':')
	rest := " " + strings.TrimSpace(value)
	used := len(name) + 1
	for used+len(rest) > foldAt {
		at := foldPoint(rest, foldAt-used)
		if contentField {
			outside := foldPoint(underscoreQuotedSpaces(rest), foldAt-used)
			if outside > 0 && used+outside <= maxLine || outside == 0 && used+len(rest) <= maxLine {
				at = outside
			}
		}
		if at == 0 {
			break
		}
		if used+at > maxLine {
			return nil, fmt.Errorf("%w: %s has a word too long for a line", ErrHeader, name)
		}
		b = append(append(b, rest[:at]...), "\r\n"...)
		rest = rest[at:]
		used = 0
	}
	if used+len(rest) > maxLine {
		return nil, fmt.Errorf("%w: %s has a word too long for a line", ErrHeader, name)
	}
	return append(append(b, rest...), "\r\n"...), nil
}

// underscoreQuotedSpaces replaces spaces within quotes by underscores.
func underscoreQuotedSpaces(s string) string {
	out := []byte(s)
	quoted := false
	for i := 0; i < len(out); i++ {
		switch {
		case out[i] == '\\' && quoted:
			i++
		case out[i] == '"':
			quoted = !quoted
		}
		if quoted && i < len(out) && out[i] == ' ' {
			out[i] = '_'
		}
	}
	return string(out)
}

// foldPoint returns the index of the space at which to fold: the last space within room bytes,
// otherwise the first one after them, 0 if there is none. The space before the first word does not
// count.
func foldPoint(s string, room int) int {
	first := len(s) - len(strings.TrimLeft(s, " \t"))
	if room > first {
		for i := min(room, len(s)-1); i > first; i-- {
			if s[i] == ' ' && s[i-1] != ' ' {
				return i
			}
		}
	}
	for i := max(room, first) + 1; i < len(s); i++ {
		if s[i] == ' ' && s[i-1] != ' ' {
			return i
		}
	}
	return 0
}

// encodeText encodes a value of free text for a header: unchanged if possible, otherwise as RFC
// 2047 encoded words.
func encodeText(s string) string {
	if charset.IsASCII(s) && !strings.Contains(s, "=?") && longestWord(s) <= maxWord && !strings.Contains(s, "  ") {
		return s
	}
	return encodeWords(s)
}

// encodeField encodes a header value as RFC 2047 encoded words. It leaves an ASCII value unchanged,
// since the value may have a syntax of its own.
func encodeField(s string) string {
	if charset.IsASCII(s) {
		return s
	}
	return encodeWords(s)
}

func longestWord(s string) int {
	most := 0
	for word := range strings.SplitSeq(s, " ") {
		most = max(most, len(word))
	}
	return most
}

// encodeWords returns s as RFC 2047 encoded words of at most maxWord characters, separated by
// spaces. It uses encoding Q or B, whichever is shorter.
func encodeWords(s string) string {
	special := 0
	for i := range len(s) {
		if s[i] != ' ' && !isPlainInQ(s[i]) {
			special++
		}
	}
	if len(s)+2*special <= len(s)*4/3 {
		return joinWords(s, wordPrefixQ, maxWord-len(wordPrefixQ)-2, qEncodedSize, appendQEncoded)
	}
	return joinWords(s, wordPrefixB, (maxWord-len(wordPrefixB)-2)/4*3, func(r rune) int { return utf8.RuneLen(r) }, base64.StdEncoding.AppendEncode)
}

// joinWords splits s between characters into encoded words and joins these with spaces. size
// returns the length of one character after encoding; room is the maximum length of the text of one
// word.
func joinWords(s, prefix string, room int, size func(rune) int, encode func(dst, src []byte) []byte) string {
	var out []byte
	start, used := 0, 0
	word := func(end int) {
		if len(out) > 0 {
			out = append(out, ' ')
		}
		out = append(encode(append(out, prefix...), []byte(s[start:end])), "?="...)
		start, used = end, 0
	}
	for i, r := range s {
		n := size(r)
		if used+n > room {
			word(i)
		}
		used += n
	}
	word(len(s))
	return string(out)
}

func qEncodedSize(r rune) int {
	if r == ' ' || r < utf8.RuneSelf && isPlainInQ(byte(r)) {
		return 1
	}
	return 3 * utf8.RuneLen(r)
}

// isPlainInQ reports whether the byte c needs no escape in encoding Q, even in a display name (RFC
// 2047 §5).
func isPlainInQ(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || strings.IndexByte("!*+-/", c) >= 0
}

const hexDigits = "0123456789ABCDEF"

func appendQEncoded(dst, src []byte) []byte {
	for _, c := range src {
		switch {
		case c == ' ':
			dst = append(dst, '_')
		case isPlainInQ(c):
			dst = append(dst, c)
		default:
			dst = append(dst, '=', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return dst
}

// encodeAddress encodes an address for a header. A non-ASCII local part stays unchanged (RFC 6532),
// so that the message needs SMTPUTF8.
func encodeAddress(a Address) string {
	email := a.Email()
	switch {
	case a.Name == "":
		return email
	case !charset.IsASCII(a.Name) || strings.Contains(a.Name, "=?") || longestWord(a.Name) > maxWord:
		return encodeWords(a.Name) + " <" + email + ">"
	}
	return quotePhrase(a.Name) + " <" + email + ">"
}

func encodeAddresses(list []Address) string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = encodeAddress(a)
	}
	return strings.Join(out, ", ")
}

// encodeParam returns "; name=value" in the simplest form that can express the value: token, quoted
// string, or RFC 2231 with continuations.
func encodeParam(name, value string) string {
	switch {
	case isToken(value) && !strings.ContainsAny(value, "*'%") && len(value) <= 60: // RFC 2231 gives * ' % a meaning
		return "; " + name + "=" + value
	case charset.IsASCII(value) && !strings.Contains(value, "=?") && len(value) <= 60 && strings.Trim(value, " ") == value: // some programs would decode "=?" or drop blanks at the ends
		return "; " + name + "=" + quoteString(value)
	}
	var out strings.Builder
	piece, number := "utf-8''", 0
	flush := func() {
		fmt.Fprintf(&out, "; %s*%d*=%s", name, number, piece)
		piece = ""
		number++
	}
	for _, r := range value {
		enc := percentEncodeRune(r)
		if len(piece)+len(enc) > 50 {
			flush()
		}
		piece += enc
	}
	if number == 0 {
		return "; " + name + "*=" + piece
	}
	flush()
	return out.String()
}

func percentEncodeRune(r rune) string {
	if r < utf8.RuneSelf && isToken(string(r)) && !strings.ContainsRune("*'%", r) {
		return string(r)
	}
	var out []byte
	for _, c := range []byte(string(r)) {
		out = append(out, '%', hexDigits[c>>4], hexDigits[c&15])
	}
	return string(out)
}
