// Package charset converts text to UTF-8 from any charset that occurs in mail, even if the charset
// is not declared. It does not know messages.
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

// maxCharsetName is the maximum length of the name of a charset, in bytes.
const maxCharsetName = 64

// A namedCharset is a charset with all its names.
type namedCharset struct {
	names  string // normalized names, separated by spaces
	decode func([]byte) string
	bytes  charsetBytes
}

// charsetBytes says what the bytes of a charset are.
type charsetBytes int

const (
	multiByte  charsetBytes = iota // several bytes per character
	oneByte                        // one byte per character
	sevenBits                      // no byte above 127
	undeclared                     // the name does not say what bytes above 127 are
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
// letter case, punctuation and a leading x, and it writes "cp" for the different prefixes of the
// number of a code page.
func appendCharsetKey(key []byte, name string) []byte {
	name, _, _ = strings.Cut(name, "@") // such as iso-8859-15@euro
	name, _, _ = strings.Cut(name, "//")
	if len(name) > 6 && name[2] == '_' && name[5] == '.' { // such as en_US.UTF-8
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

// findCharset returns the charset with the name, nil if it is unknown.
func findCharset(name string) *namedCharset {
	if name == "" || len(name) > maxCharsetName {
		return nil
	}
	var key [maxCharsetName + 8]byte
	return charsets()[string(appendCharsetKey(key[:0], name))]
}

// Known reports whether name is the name of a charset that this package knows.
func Known(name string) bool { return findCharset(name) != nil }

// Declared reports whether name is the name of a known charset that defines the bytes above 127.
func Declared(name string) bool {
	c := findCharset(name)
	return c != nil && c.bytes != undeclared
}

// IsUTF8 reports whether name is one of the names of UTF-8.
func IsUTF8(name string) bool { return findCharset(name) == findCharset("utf-8") }

// Same reports whether a and b are names of the same known charset.
func Same(a, b string) bool { return Known(a) && findCharset(a) == findCharset(b) }

// Decode decodes text in the named charset. If that charset is unknown or obviously wrong, it
// decodes as Guess does.
func Decode(b []byte, charset string) string {
	if charset == "utf-8" || charset == "UTF-8" || charset == "us-ascii" { // the common case
		if utf8.Valid(b) && bytes.IndexByte(b, esc) < 0 {
			return string(b)
		}
	}
	c := findCharset(charset)
	ascii := IsASCII(b)
	if c == nil || ascii && hasISO2022(b) || !ascii && utf8.Valid(b) && c.cannotBe(b) {
		return Guess(b)
	}
	return c.decode(b)
}

// cannotBe reports whether b is certainly not in the charset c. b must be valid UTF-8 with
// non-ASCII characters. A charset of seven bits has no such bytes. Text in a multi-byte charset
// practically never looks like UTF-8 characters of three bytes.
func (c *namedCharset) cannotBe(b []byte) bool {
	switch {
	case c.bytes == sevenBits:
		return true
	case c.bytes != multiByte || c.isUnicode():
		return false
	}
	return bytes.ContainsFunc(b, func(r rune) bool { return r >= 0x800 })
}

// Convert converts the beginning of a text to UTF-8: at most limit bytes of it or, if the charset
// has several bytes per character, at most wideLimit bytes, since that conversion is slow. It
// returns b itself if no conversion is needed.
func Convert(b []byte, charset string, limit, wideLimit int) []byte {
	c := findCharset(charset)
	switch {
	case c == nil || c.bytes == undeclared || c == findCharset("utf-8"):
		if !hasISO2022(b) || !IsASCII(b) {
			return b
		}
	case c.bytes == oneByte:
		if IsASCII(b) {
			return b
		}
		wideLimit = limit
	}
	return []byte(Decode(b[:min(len(b), wideLimit)], charset))
}

// DecodeRaw decodes raw 8-bit text of a header. charset is the one that the message declares; it is
// used if b is not UTF-8.
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
		return replaceInvalidUTF8(out)
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

// codePageDecoder returns a decoder for a code page. upper has the 128 characters of its upper
// half. The lower half is ASCII.
func codePageDecoder(upper string) func([]byte) string {
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

// wholePageDecoder returns a decoder for a code page. page has its 256 characters.
func wholePageDecoder(page string) func([]byte) string {
	return func(b []byte) string {
		table := []rune(page)
		out := make([]rune, len(b))
		for i, c := range b {
			out[i] = table[c]
		}
		return string(out)
	}
}

// nationalDecoder returns a decoder for a national variant of ASCII (ISO 646). letters are the
// letters that it has in place of #$@[\]^`{|}~.
func nationalDecoder(letters string) func([]byte) string {
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

// accentDecoder is like codePageDecoder, for charsets that write an accent before its letter. The
// decoder combines the two.
func accentDecoder(upper string) func([]byte) string {
	decode := codePageDecoder(upper)
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
	return replaceInvalidUTF8(b)
}

// isNotUTF8 reports whether the text has bytes above 127 and no character of UTF-8 among them.
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

// replaceInvalidUTF8 replaces invalid UTF-8 by U+FFFD. It is fast if b is valid, the common case.
func replaceInvalidUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// Guess decodes text in an unknown charset. If the text is not valid UTF-8, it is decoded as
// windows-1252. If it is ASCII with escape sequences of ISO-2022, it is decoded as ISO-2022.
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
	metaContent = regexp.MustCompile(`(?i)\bcontent\s*=`) // a meta element with content declares a charset only if it has http-equiv
	metaHeader  = regexp.MustCompile(`(?i)\bhttp-equiv\s*=`)
)

const maxMeta = 32 << 10 // bytes of HTML in which a charset is searched

// charsetInHTML returns the first known charset that the HTML declares, "" if there is none. It
// skips declarations of a Unicode charset, since HTML that is readable as ASCII is not UTF-16.
func charsetInHTML(html []byte) string {
	for _, tag := range metaTag.FindAll(html[:min(len(html), maxMeta)], 200) {
		if bytes.HasPrefix(tag, []byte("<!--")) || metaContent.Match(tag) && !metaHeader.Match(tag) {
			continue
		}
		if m := metaCharset.FindSubmatch(tag); m != nil {
			if c := findCharset(string(m[1])); c != nil && !c.isUnicode() {
				return string(m[1])
			}
		}
	}
	return ""
}

// Body decodes the content of a text part. name is the declared charset. If name does not say what
// bytes above 127 are, a byte order mark or the declaration in the HTML decides (WHATWG HTML
// section 13.2.3.2), unless the content is UTF-8.
func Body(raw []byte, name string, isHTML bool) string {
	if !Declared(name) {
		name = ""
	}
	if c := findCharset(name); c != nil && c.isUnicode() && (isNotUTF8(raw) && IsUTF8(name) || isPlainASCII(raw)) {
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

// isPlainASCII reports whether a text of at least four bytes is printable ASCII, so that it is not
// UTF-16 or UTF-32. It returns false if the text has a "+", since that may be UTF-7.
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
