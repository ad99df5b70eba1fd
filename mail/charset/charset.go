// Package charset converts text to UTF-8 from any charset that occurs in mail, declared or not. It
// does not know messages.
package charset

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/unicode/norm"
)

// maxCharset is the maximum length of a charset's name.
const maxCharset = 64

// A namedCharset is one row of charsetNames.
type namedCharset struct {
	names  string // separated by spaces
	decode func([]byte) string
	bytes  charsetBytes
}

type charsetBytes int

const (
	multiByte  charsetBytes = iota // several bytes per character
	oneByte                        // one byte per character
	sevenBits                      // no byte above 127
	undeclared                     // the name does not define bytes above 127
)

// isUnicode reports whether the charset is UTF-7, UTF-8, UTF-16 or UTF-32.
func (c *namedCharset) isUnicode() bool { return strings.HasPrefix(c.names, "utf") }

var charsets = sync.OnceValue(func() map[string]*namedCharset {
	rows := charsetNames()
	byName := make(map[string]*namedCharset, 800)
	for i := range rows {
		for name := range strings.FieldsSeq(rows[i].names) {
			byName[name] = &rows[i]
		}
	}
	return byName
})

// appendCharsetKey appends the normalized name of a charset to key, which must be empty. It ignores
// variations: letter case, punctuation, a leading x, and the prefix of a code page's number, which
// becomes "cp".
func appendCharsetKey(key []byte, name string) []byte {
	name, _, _ = strings.Cut(name, "@") // iso-8859-15@euro
	name, _, _ = strings.Cut(name, "//")
	if len(name) > 6 && name[2] == '_' && name[5] == '.' { // en_US.UTF-8
		name = name[6:]
	}
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			key = append(key, c)
		}
	}
	for len(key) > 3 && key[0] == 'x' {
		key = key[1:]
	}
	digits := bytes.TrimLeft(key, "abcdefghijklmnopqrstuvwxyz")
	if len(digits) < 3 || len(digits) > 5 || len(bytes.Trim(digits, "0123456789")) > 0 {
		return key
	}
	switch string(key[:len(key)-len(digits)]) {
	case "", "windows", "win", "ms", "ibm", "dos", "oem", "codepage", "cpibm", "mscp", "windowscp", "csibm", "ansi", "microsoft", "microsoftcp", "ccsid", "cscp":
		n := copy(key[2:cap(key)], digits)
		key = append(key[:0], "cp"...)[:2+n]
	}
	return key
}

// find returns the charset with the name, nil if it is unknown.
func find(name string) *namedCharset {
	if name == "" || len(name) > maxCharset {
		return nil
	}
	var key [maxCharset + 8]byte
	return charsets()[string(appendCharsetKey(key[:0], name))]
}

// Known reports whether the charset's name is known.
func Known(name string) bool { return find(name) != nil }

// Declared reports whether the name is that of a known charset that defines the bytes above 127.
func Declared(name string) bool {
	c := find(name)
	return c != nil && c.bytes != undeclared
}

// IsUTF8 reports whether the name is a name of UTF-8.
func IsUTF8(name string) bool { return find(name) == find("utf-8") }

// Same reports whether two names are known names of the same charset.
func Same(a, b string) bool { return Known(a) && find(a) == find(b) }

// Decode decodes text in the named charset. It uses Guess if the charset is unknown or obviously
// wrong.
func Decode(b []byte, charset string) string {
	if charset == "utf-8" || charset == "UTF-8" || charset == "us-ascii" { // the common case
		if utf8.Valid(b) && bytes.IndexByte(b, esc) < 0 {
			return string(b)
		}
	}
	c := find(charset)
	ascii := IsASCII(b)
	if c == nil || ascii && hasISO2022(b) || !ascii && utf8.Valid(b) && c.cannotBe(b) {
		return Guess(b)
	}
	return c.decode(b)
}

// cannotBe reports whether b, valid UTF-8 that is not ASCII, cannot be in the charset c. Charsets
// of seven bits have no such bytes. Text in a multi-byte charset practically never looks like UTF-8
// characters of three bytes.
func (c *namedCharset) cannotBe(b []byte) bool {
	switch {
	case c.bytes == sevenBits:
		return true
	case c.bytes != multiByte || c.isUnicode():
		return false
	}
	return bytes.ContainsFunc(b, func(r rune) bool { return r >= 0x800 })
}

// Convert converts the beginning of a text to UTF-8: at most most bytes, or mostWide bytes of a
// multi-byte charset, which is slow to convert. It returns b if no conversion is needed.
func Convert(b []byte, charset string, most, mostWide int) []byte {
	c := find(charset)
	switch {
	case c == nil || c.bytes == undeclared || c == find("utf-8"):
		if !hasISO2022(b) || !IsASCII(b) {
			return b
		}
	case c.bytes == oneByte:
		if IsASCII(b) {
			return b
		}
		mostWide = most
	}
	return []byte(Decode(b[:min(len(b), mostWide)], charset))
}

// DecodeRaw decodes raw 8-bit text of a header. If it is not UTF-8, it is probably in the message's
// charset.
func DecodeRaw(b []byte, charset string) string {
	if charset == "" || utf8.Valid(b) {
		return Guess(b)
	}
	if s := Decode(b, charset); !strings.ContainsRune(s, utf8.RuneError) {
		return s
	}
	return Guess(b)
}

func encodingDecoder(enc encoding.Encoding) func([]byte) string {
	return func(b []byte) string {
		out, err := enc.NewDecoder().Bytes(b)
		if err != nil {
			return Guess(b)
		}
		return validUTF8(out)
	}
}

func charmapDecoder(m *charmap.Charmap) func([]byte) string {
	return func(b []byte) string {
		var out strings.Builder
		out.Grow(len(b) + len(b)/2)
		for _, c := range b {
			out.WriteRune(m.DecodeByte(c))
		}
		return out.String()
	}
}

// codePage returns a decoder for a code page with the given upper half of 128 characters. The lower
// half is ASCII.
func codePage(upper string) func([]byte) string {
	return func(b []byte) string {
		table := []rune(upper)
		var out strings.Builder
		out.Grow(len(b) + len(b)/2)
		for _, c := range b {
			r := rune(c)
			if c >= utf8.RuneSelf {
				r = table[c-utf8.RuneSelf]
			}
			out.WriteRune(r)
		}
		return out.String()
	}
}

// wholePage returns a decoder for a code page of 256 characters.
func wholePage(page string) func([]byte) string {
	return func(b []byte) string {
		table := []rune(page)
		out := make([]rune, len(b))
		for i, c := range b {
			out[i] = table[c]
		}
		return string(out)
	}
}

// national returns a decoder for a national variant of ASCII (ISO 646), in which letters replace
// #$@[\]^`{|}~.
func national(letters string) func([]byte) string {
	return func(b []byte) string {
		if !IsASCII(b) {
			return Guess(b)
		}
		in := []rune(letters)
		return strings.Map(func(r rune) rune {
			if i := strings.IndexRune("#$@[\\]^`{|}~", r); i >= 0 {
				return in[i]
			}
			return r
		}, string(b))
	}
}

// withAccents is like codePage for charsets with accents before their letters. The decoder moves
// each accent after its letter.
func withAccents(upper string) func([]byte) string {
	decode := codePage(upper)
	return func(b []byte) string {
		out := []rune(decode(b))
		for i := 0; i+1 < len(out); i++ {
			if unicode.Is(unicode.Mn, out[i]) {
				out[i], out[i+1] = out[i+1], out[i]
				i++
			}
		}
		return norm.NFC.String(string(out))
	}
}

func decodeUTF8(b []byte) string {
	if hasISO2022(b) && IsASCII(b) {
		return decodeISO2022(b)
	}
	if isNotUTF8(b) {
		return Guess(b)
	}
	return validUTF8(b)
}

// isNotUTF8 reports whether the text has bytes above 127, none of which form a UTF-8 character.
func isNotUTF8(b []byte) bool {
	bad := false
	for len(b) > 0 {
		_, n := utf8.DecodeRune(b)
		if n > 1 {
			return false
		}
		bad = bad || b[0] >= utf8.RuneSelf
		b = b[n:]
	}
	return bad
}

func decodeUnknown(b []byte) string { return Guess(b) }

// validUTF8 replaces invalid UTF-8 by U+FFFD. It is fast for valid UTF-8, the common case.
func validUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// Guess decodes text without a known charset: as windows-1252 if it is not valid UTF-8, as ISO-2022
// if it is ASCII with escape sequences of ISO-2022, otherwise as UTF-8.
func Guess(b []byte) string {
	switch {
	case !utf8.Valid(b):
		return charmapDecoder(charmap.Windows1252)(b)
	case hasISO2022(b) && IsASCII(b):
		return decodeISO2022(b)
	}
	return string(b)
}

var (
	metaTag     = regexp.MustCompile(`(?is)<!--.*?-->|<(?:meta|\?xml)\b[^>]*`)
	metaCharset = regexp.MustCompile(`(?i)(?:charset|encoding)\s*=\s*["']?\s*([a-z0-9_:.@-]{1,40})`)
	metaOther   = regexp.MustCompile(`(?i)\bcontent\s*=`) // a meta element with content, which declares a charset only with http-equiv
	metaHeader  = regexp.MustCompile(`(?i)\bhttp-equiv\s*=`)
)

const maxMeta = 32 << 10 // bytes of HTML that are searched for its charset

// charsetInHTML returns the first known charset that the HTML declares, "" if there is none. It
// ignores declarations of Unicode: HTML that can be read as ASCII here is not UTF-16.
func charsetInHTML(html []byte) string {
	for _, tag := range metaTag.FindAll(html[:min(len(html), maxMeta)], 200) {
		if bytes.HasPrefix(tag, []byte("<!--")) || metaOther.Match(tag) && !metaHeader.Match(tag) {
			continue
		}
		if m := metaCharset.FindSubmatch(tag); m != nil {
			if c := find(string(m[1])); c != nil && !c.isUnicode() {
				return string(m[1])
			}
		}
	}
	return ""
}

// Body decodes the content of a text part with the declared charset name. If name does not define
// bytes above 127, a byte order mark or the HTML's own declaration decides (WHATWG HTML section
// 13.2.3.2), unless the content is UTF-8.
func Body(raw []byte, name string, isHTML bool) string {
	if !Declared(name) {
		name = ""
	}
	if c := find(name); c != nil && c.isUnicode() && (isNotUTF8(raw) && IsUTF8(name) || isPlainASCII(raw)) {
		name = ""
	}
	if bytes.HasPrefix(raw, []byte("\xff\xfe")) || bytes.HasPrefix(raw, []byte("\xfe\xff")) {
		if !Known(name) || IsUTF8(name) {
			name = "utf-16"
		}
	}
	if name == "" && isHTML && (!utf8.Valid(raw) || IsASCII(raw)) {
		name = charsetInHTML(raw)
	}
	return strings.TrimPrefix(Decode(raw, name), "\ufeff")
}

// isPlainASCII reports whether a text is printable ASCII and at least four bytes long, so that it
// is not UTF-16 or UTF-32. It returns false for a text with +, which may be UTF-7.
func isPlainASCII(b []byte) bool {
	if len(b) < 4 || bytes.IndexByte(b, '+') >= 0 {
		return false
	}
	for _, c := range b {
		if c >= 0x7f || c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != '\f' {
			return false
		}
	}
	return true
}

// IsASCII reports whether a text has no byte above 127.
func IsASCII[S string | []byte](s S) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
