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

// ErrHeader is wrapped by errors about a header that cannot be written. The error text names the
// field.
var ErrHeader = errors.New("header refused")

const (
	foldAt      = 78  // RFC 5322 §2.1.1
	maxLine     = 998 // the same
	maxWord     = 64  // RFC 2047 §2 allows 75; 64 leaves room for a field name
	wordPrefixQ = "=?utf-8?q?"
	wordPrefixB = "=?utf-8?b?"
)

// checkHeader refuses an invalid field name, and a value with line breaks, control characters or
// invalid UTF-8.
func checkHeader(name, value string) error {
	if fieldName([]byte(name+":")) != len(name) || name == "" || len(name) > 76 {
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

// appendField appends one field, folded at spaces. It keeps a long word whole, up to the maximum
// length of a line.
func appendField(b []byte, name, value string) ([]byte, error) {
	if err := checkHeader(name, value); err != nil {
		return nil, err
	}
	// Some programs keep the line end of a fold within quotes as part of a file name.
	contentField := len(name) > 8 && strings.EqualFold(name[:8], "content-")
	b = append(append(b, name...), ':')
	rest := " " + strings.TrimSpace(value)
	used := len(name) + 1
	for used+len(rest) > foldAt {
		at := foldPoint(rest, foldAt-used)
		if contentField {
			outside := foldPoint(withoutQuotedSpace(rest), foldAt-used)
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

// withoutQuotedSpace replaces spaces within quotes by underscores.
func withoutQuotedSpace(s string) string {
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

// foldPoint returns the index of the space before which to break: the last within room, else the
// first after it, 0 if there is none. The text before it is never blank.
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

// encodeText encodes an unstructured value for a header: unchanged if possible, else as RFC 2047
// words.
func encodeText(s string) string {
	if charset.IsASCII(s) && !strings.Contains(s, "=?") && longestWord(s) <= maxWord && !strings.Contains(s, "  ") {
		return s
	}
	return encodeWords(s)
}

// encodeField encodes a value as RFC 2047 words. It leaves an ASCII value unchanged, since it may
// be structured.
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

// encodeWords returns s as RFC 2047 words of at most maxWord characters, separated by spaces, in
// encoding Q or B, whichever is shorter.
func encodeWords(s string) string {
	special := 0
	for i := range len(s) {
		if s[i] != ' ' && !plainInQ(s[i]) {
			special++
		}
	}
	if len(s)+2*special <= len(s)*4/3 {
		return joinWords(s, wordPrefixQ, maxWord-len(wordPrefixQ)-2, sizeInQ, appendQEncodedWord)
	}
	return joinWords(s, wordPrefixB, (maxWord-len(wordPrefixB)-2)/4*3, func(r rune) int { return utf8.RuneLen(r) }, base64.StdEncoding.AppendEncode)
}

// joinWords splits s between characters into encoded words and joins these with spaces. size
// returns the length of an encoded character, room is the maximum length of a word.
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

func sizeInQ(r rune) int {
	if r == ' ' || r < utf8.RuneSelf && plainInQ(byte(r)) {
		return 1
	}
	return 3 * utf8.RuneLen(r)
}

// plainInQ reports whether c needs no escape in Q, even in a display name (RFC 2047 §5).
func plainInQ(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || strings.IndexByte("!*+-/", c) >= 0
}

const hexDigits = "0123456789ABCDEF"

func appendQEncodedWord(dst, src []byte) []byte {
	for _, c := range src {
		switch {
		case c == ' ':
			dst = append(dst, '_')
		case plainInQ(c):
			dst = append(dst, c)
		default:
			dst = append(dst, '=', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return dst
}

// encodeAddress encodes an address for a header. A non-ASCII local part stays unchanged (RFC 6532);
// such a message needs SMTPUTF8.
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

// encodeParam returns "; name=value" in the simplest form that the value allows: token,
// quoted string, or RFC 2231 with continuations.
func encodeParam(name, value string) string {
	switch {
	case isToken(value) && !strings.ContainsAny(value, "*'%") && len(value) <= 60: // RFC 2231 gives these a meaning
		return "; " + name + "=" + value
	case charset.IsASCII(value) && !strings.Contains(value, "=?") && len(value) <= 60 && strings.Trim(value, " ") == value: // some programs would decode an encoded word or lose outer blanks
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
		enc := percentRune(r)
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

func percentRune(r rune) string {
	if r < utf8.RuneSelf && isToken(string(r)) && !strings.ContainsRune("*'%", r) {
		return string(r)
	}
	var out []byte
	for _, c := range []byte(string(r)) {
		out = append(out, '%', hexDigits[c>>4], hexDigits[c&15])
	}
	return string(out)
}
