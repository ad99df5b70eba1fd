// Package charset turns text in any charset that mail is labelled with, or that it has without a
// label, into UTF-8. It does not know messages.
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

// maxCharset bounds a charset's name.
const maxCharset = 64

// A namedCharset is one row of charsetNames.
type namedCharset struct {
	names  string // divided by spaces
	decode func([]byte) string
	bytes  charsetBytes
}

type charsetBytes int

const (
	manyBytes  charsetBytes = iota // for a character
	oneByte                        // for a character
	sevenBits                      // and no byte above 127
	undeclared                     // the name says nothing of bytes above 127
)

// isUnicode reports UTF-8, UTF-16 and UTF-32.
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

// appendCharsetKey appends to an empty key a charset's name without what writers vary: letter case,
// punctuation, a leading x, and what stands before the number of a code page, which is "cp" here.
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

// find returns nil for an unknown charset.
func find(name string) *namedCharset {
	if name == "" || len(name) > maxCharset {
		return nil
	}
	var key [maxCharset + 8]byte
	return charsets()[string(appendCharsetKey(key[:0], name))]
}

// Known reports whether there is a charset of that name.
func Known(name string) bool { return find(name) != nil }

// Declared reports whether a name is that of a charset, and says what bytes above 127 are.
func Declared(name string) bool {
	c := find(name)
	return c != nil && c.bytes != undeclared
}

// IsUTF8 reports whether a name is one of UTF-8.
func IsUTF8(name string) bool { return find(name) == find("utf-8") }

// Same reports whether two names are those of one charset.
func Same(a, b string) bool { return Known(a) && find(a) == find(b) }

// Decode decodes text in the named charset. Bytes of an unknown or undeclared charset
// are what Guess makes of them.
func Decode(b []byte, charset string) string {
	if charset == "utf-8" || charset == "UTF-8" || charset == "us-ascii" { // as mostly
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

// cannotBe reports whether UTF-8 that has more than ASCII is not in the charset that it says: no
// charset of seven bits has such bytes, and texts in one of several bytes a character do not look
// like UTF-8 with three.
func (c *namedCharset) cannotBe(b []byte) bool {
	switch {
	case c.bytes == sevenBits:
		return true
	case c.bytes != manyBytes || c.isUnicode():
		return false
	}
	return bytes.ContainsFunc(b, func(r rune) bool { return r >= 0x800 })
}

// Convert converts the beginning of a text to UTF-8: at most most bytes, or mostWide of
// a charset with more than a byte for a character, which takes long. Where there is nothing to
// convert it returns b.
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

// DecodeRaw decodes raw 8-bit text of a header, which is in the message's charset if it is not
// UTF-8.
func DecodeRaw(b []byte, charset string) string {
	if charset == "" || utf8.Valid(b) {
		return Guess(b)
	}
	if s := Decode(b, charset); !strings.ContainsRune(s, utf8.RuneError) {
		return s
	}
	return Guess(b)
}

func multi(enc encoding.Encoding) func([]byte) string {
	return func(b []byte) string {
		out, err := enc.NewDecoder().Bytes(b)
		if err != nil {
			return Guess(b)
		}
		return validUTF8(out)
	}
}

func single(m *charmap.Charmap) func([]byte) string {
	return func(b []byte) string {
		var out strings.Builder
		out.Grow(len(b) + len(b)/2)
		for _, c := range b {
			out.WriteRune(m.DecodeByte(c))
		}
		return out.String()
	}
}

// codePage decodes by the 128 characters of the upper half; the lower half is ASCII.
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

// wholePage decodes by 256 characters.
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

// national decodes ASCII in which letters of a country stand in the place of #$@[\]^`{|}~
// (ISO 646).
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

// withAccents decodes as codePage does, and puts accents behind their letters, before which they
// are written.
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
	if noUTF8(b) {
		return Guess(b)
	}
	return validUTF8(b)
}

// noUTF8 reports whether bytes above 127 stand in a text that never make a character of UTF-8.
func noUTF8(b []byte) bool {
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

// validUTF8 has U+FFFD in the place of what is no UTF-8. Where all is, as mostly, it is fast.
func validUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// Guess takes bytes that name no charset for ISO-2022 if they have its escape sequences, else
// for UTF-8 if they can be, else for windows-1252.
func Guess(b []byte) string {
	switch {
	case !utf8.Valid(b):
		return single(charmap.Windows1252)(b)
	case hasISO2022(b) && IsASCII(b):
		return decodeISO2022(b)
	}
	return string(b)
}

var (
	metaTag     = regexp.MustCompile(`(?is)<!--.*?-->|<(?:meta|\?xml)\b[^>]*`)
	metaCharset = regexp.MustCompile(`(?i)(?:charset|encoding)\s*=\s*["']?\s*([a-z0-9_:.@-]{1,40})`)
	metaOther   = regexp.MustCompile(`(?i)\bcontent\s*=`) // of a name that the page gives itself, without http-equiv
	metaHeader  = regexp.MustCompile(`(?i)\bhttp-equiv\s*=`)
)

const maxMeta = 32 << 10 // bytes of HTML in which its charset is looked for

// charsetInHTML is the first charset that HTML names and that is known, "" for none. What is read
// as ASCII here is not UTF-16, whatever it says.
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

// Body decodes the content of a text part whose charset is declared as name. Where that says
// nothing of bytes above 127 a byte order mark or the HTML does (WHATWG HTML section 13.2.3.2),
// unless all is UTF-8.
func Body(raw []byte, name string, isHTML bool) string {
	if !Declared(name) {
		name = ""
	}
	if c := find(name); c != nil && c.isUnicode() && (noUTF8(raw) && IsUTF8(name) || isPlainASCII(raw)) {
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

// isPlainASCII reports whether a text of some length has nothing but ASCII to be read, which is not
// UTF-16 or UTF-32. UTF-7 may be.
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
