package msg

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
		if c := lowerByte(name[i]); 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
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

// findCharset returns nil for an unknown charset.
func findCharset(name string) *namedCharset {
	if name == "" || len(name) > maxCharset {
		return nil
	}
	var key [maxCharset + 8]byte
	return charsets()[string(appendCharsetKey(key[:0], name))]
}

// toUTF8 decodes text in the named charset. Bytes of an unknown or undeclared charset
// are what guessUTF8 makes of them.
func toUTF8(b []byte, charset string) string {
	if charset == "utf-8" || charset == "UTF-8" || charset == "us-ascii" { // as mostly
		if utf8.Valid(b) && bytes.IndexByte(b, esc) < 0 {
			return string(b)
		}
	}
	c := findCharset(charset)
	ascii := isASCII(b)
	if c == nil || ascii && hasISO2022(b) || !ascii && utf8.Valid(b) && c.cannotBe(b) {
		return guessUTF8(b)
	}
	return c.decode(b)
}

// cannotBe tells whether UTF-8 that has more than ASCII is not in the charset that it says: no
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

// ConvertUTF8 converts the beginning of a text to UTF-8: at most most bytes, or mostWide of
// a charset with more than a byte for a character, which takes long. Where there is nothing to
// convert it returns b.
func ConvertUTF8(b []byte, charset string, most, mostWide int) []byte {
	c := findCharset(charset)
	switch {
	case c == nil || c.bytes == undeclared || c == findCharset("utf-8"):
		if !hasISO2022(b) || !isASCII(b) {
			return b
		}
	case c.bytes == oneByte:
		if isASCII(b) {
			return b
		}
		mostWide = most
	}
	return []byte(toUTF8(b[:min(len(b), mostWide)], charset))
}

// rawUTF8 decodes raw 8-bit text of a header, which is in the message's charset if it is no UTF-8.
func rawUTF8(b []byte, charset string) string {
	if charset == "" || utf8.Valid(b) {
		return guessUTF8(b)
	}
	if s := toUTF8(b, charset); !strings.ContainsRune(s, utf8.RuneError) {
		return s
	}
	return guessUTF8(b)
}

func multi(enc encoding.Encoding) func([]byte) string {
	return func(b []byte) string {
		out, err := enc.NewDecoder().Bytes(b)
		if err != nil {
			return guessUTF8(b)
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
		if !isASCII(b) {
			return guessUTF8(b)
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
	if hasISO2022(b) && isASCII(b) {
		return decodeISO2022(b)
	}
	if noUTF8(b) {
		return guessUTF8(b)
	}
	return validUTF8(b)
}

// noUTF8 tells whether bytes above 127 stand in a text that never make a character of UTF-8.
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

func decodeUnknown(b []byte) string { return guessUTF8(b) }

// validUTF8 has U+FFFD in the place of what is no UTF-8. Where all is, as mostly, it is fast.
func validUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// guessUTF8 takes bytes that name no charset for ISO-2022 if they have its escape sequences, else
// for UTF-8 if they can be, else for windows-1252.
func guessUTF8(b []byte) string {
	switch {
	case !utf8.Valid(b):
		return single(charmap.Windows1252)(b)
	case hasISO2022(b) && isASCII(b):
		return decodeISO2022(b)
	}
	return string(b)
}

// declaredCharset is the charset of a part, "" if it names none that says what its bytes above 127
// are.
func (p *Part) declaredCharset() string {
	name := p.Params["charset"]
	if c := findCharset(name); c == nil || c.bytes == undeclared {
		return ""
	}
	return name
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
			if c := findCharset(string(m[1])); c != nil && !c.isUnicode() {
				return string(m[1])
			}
		}
	}
	return ""
}

// bodyText decodes the content of a text part. Where it names no charset a byte order mark or the
// HTML does (WHATWG HTML section 13.2.3.2), unless all is UTF-8.
func bodyText(p *Part, raw []byte) string {
	name := p.declaredCharset()
	if c := findCharset(name); c != nil && c.isUnicode() && (noUTF8(raw) && c == findCharset("utf-8") || isPlainASCII(raw)) {
		name = ""
	}
	if bytes.HasPrefix(raw, []byte("\xff\xfe")) || bytes.HasPrefix(raw, []byte("\xfe\xff")) {
		if c := findCharset(name); c == nil || c == findCharset("utf-8") {
			name = "utf-16"
		}
	}
	if name == "" && p.Subtype == "html" && (!utf8.Valid(raw) || isASCII(raw)) {
		name = charsetInHTML(raw)
	}
	return strings.TrimPrefix(toUTF8(raw, name), "\ufeff")
}

// isPlainASCII tells whether a text of some length has nothing but ASCII to be read, which is not
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

// decodeText turns a raw field value into clean text of at most limit bytes: unfolded,
// RFC 2047 words decoded, raw 8-bit bytes as UTF-8, in the message's charset if that is known, or
// windows-1252; no control characters.
func decodeText(value []byte, charset string, limit int) string {
	// An encoded word is at most some nine times as long as its text.
	if most := limit*9 + 1024; len(value) > most {
		value = value[:most]
	}
	return cleanText(decodeWords(rawUTF8(unfold(value), charset)), limit)
}

// cleanText replaces control characters, trims, and cuts to limit bytes between runes.
func cleanText(s string, limit int) string {
	if strings.IndexFunc(s, isControl) >= 0 {
		s = strings.Map(func(r rune) rune {
			if isControl(r) {
				return ' '
			}
			return r
		}, s)
	}
	return strings.TrimSpace(cut(strings.TrimSpace(s), limit))
}

func isControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}

// cut shortens s to at most limit bytes without splitting a rune.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// wordDecoder decodes RFC 2047 words, also with spaces in them, without padding, and
// with a character split over two words of one charset.
type wordDecoder struct {
	s       string
	guess   bool // decode words of unknown charsets, and base64 with other characters in it
	out     strings.Builder
	bytes   []byte // decoded bytes of the words so far that stand side by side
	charset string
	nextEnd int // where the next "?=" is, looked for only when passed: this keeps it linear
}

// decodeWords leaves a word that cannot be decoded as it came (RFC 2047 section 6.2).
func decodeWords(s string) string { return decodeAllWords(s, false) }

// guessWords decodes words as the most lenient reader does.
func guessWords(s string) string { return decodeAllWords(s, true) }

func decodeAllWords(s string, guess bool) string {
	first := strings.Index(s, "=?")
	if first < 0 {
		return s
	}
	d := wordDecoder{s: s, guess: guess, nextEnd: -1}
	plain := 0 // start of the text not yet written
	for i := first; i >= 0; i = indexFrom(s, "=?", i) {
		next := d.word(i, plain)
		if next == 0 {
			i += 2
			continue
		}
		i, plain = next, next
	}
	d.flush()
	d.out.WriteString(s[plain:])
	return d.out.String()
}

func indexFrom(s, sub string, from int) int {
	if i := strings.Index(s[from:], sub); i >= 0 {
		return from + i
	}
	return -1
}

// word decodes the word at i, where plain text since plain has not been written, and
// returns the index behind it, or 0 if there is no word.
func (d *wordDecoder) word(i, plain int) int {
	charset, rest, ok := strings.Cut(d.s[i+2:min(len(d.s), i+70)], "?")
	if !ok || charset == "" || strings.ContainsAny(charset, " \t\"=") || len(rest) < 2 || rest[1] != '?' || !strings.ContainsRune("bBqQ", rune(rest[0])) {
		return 0
	}
	start := i + 2 + len(charset) + 3
	if d.nextEnd < start {
		d.nextEnd = len(d.s)
		if e := indexFrom(d.s, "?=", start); e >= 0 {
			d.nextEnd = e
		}
	}
	if d.nextEnd == len(d.s) {
		return 0
	}
	isBase64 := rest[0] == 'b' || rest[0] == 'B'
	for !isBase64 && d.endsLater() {
		d.nextEnd = indexFrom(d.s, "?=", d.nextEnd+2)
	}
	text := d.s[start:d.nextEnd]
	if strings.Contains(text, "=?") { // this one was never closed, the next one is
		return 0
	}
	charset, _, _ = strings.Cut(strings.ToLower(charset), "*") // RFC 2231 §5, language
	if !d.guess && (findCharset(charset) == nil || isBase64 && strings.Trim(text, base64Text) != "") {
		return 0
	}
	same := charset == d.charset || findCharset(charset) == findCharset(d.charset) && findCharset(charset) != nil
	if gap := d.s[plain:i]; d.bytes == nil || !same || strings.Trim(gap, " \t") != "" {
		afterWord := d.bytes != nil
		d.flush()
		if !afterWord || strings.Trim(gap, " \t") != "" {
			d.out.WriteString(gap)
		}
		d.charset = charset
	}
	if d.bytes == nil {
		d.bytes = []byte{}
	}
	if isBase64 {
		var state base64State
		d.bytes = state.flush(state.append(d.bytes, []byte(text)))
	} else {
		d.bytes = appendQ(d.bytes, text)
	}
	return d.nextEnd + 2
}

// endsLater tells whether the end of a word in Q is none: a question mark that should have been
// encoded, with an encoded byte behind it, as in "=?utf-8?Q?Why?=20not?=".
func (d *wordDecoder) endsLater() bool {
	rest := d.s[d.nextEnd+2 : min(len(d.s), d.nextEnd+80)] // a word has 75 characters
	if len(rest) < 4 || !isHex(rest[0]) || !isHex(rest[1]) {
		return false
	}
	rest, _, _ = strings.Cut(rest, " ")
	rest, _, more := strings.Cut(rest, "?=")
	return more && !strings.Contains(rest, "=?")
}

func (d *wordDecoder) flush() {
	if d.bytes != nil {
		d.out.WriteString(toUTF8(d.bytes, d.charset))
		d.bytes = nil
	}
}

func appendQ(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '_':
			dst = append(dst, ' ')
		case s[i] == '=' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			dst = append(dst, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
		default:
			dst = append(dst, s[i])
		}
	}
	return dst
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}
