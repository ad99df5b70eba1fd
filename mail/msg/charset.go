package msg

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
)

// mailCharsets are names that mail uses and the indexes lack or take otherwise.
var mailCharsets = map[string]encoding.Encoding{
	"utf-16":     unicode.UTF16(unicode.BigEndian, unicode.UseBOM), // RFC 2781 §4.3
	"hz-gb-2312": simplifiedchinese.HZGB2312,
	"gb2312":     simplifiedchinese.GB18030,
	"gbk":        simplifiedchinese.GB18030,
	"cp936":      simplifiedchinese.GB18030,
	"ms936":      simplifiedchinese.GB18030,
	"cp932":      japanese.ShiftJIS,
	"cp949":      korean.EUCKR,
	"ms949":      korean.EUCKR,
	"ks_c_5601":  korean.EUCKR,
	"cp950":      traditionalchinese.Big5,
	"ms950":      traditionalchinese.Big5,
	"cp850":      charmap.CodePage850,
	"cp437":      charmap.CodePage437,
	"cp858":      charmap.CodePage858,
}

// lookupCharset returns nil for an unknown charset.
func lookupCharset(name string) encoding.Encoding {
	if enc := mailCharsets[name]; enc != nil {
		return enc
	}
	if enc, err := htmlindex.Get(name); err == nil && enc != encoding.Replacement {
		return enc
	}
	if enc, err := ianaindex.MIME.Encoding(name); err == nil && enc != nil {
		return enc
	}
	if enc, err := ianaindex.IANA.Encoding(name); err == nil {
		return enc
	}
	return nil
}

// toUTF8 decodes text in the named charset. Bytes of an unknown or undeclared charset
// are UTF-8 if they can be, else windows-1252.
func toUTF8(b []byte, charset string) string {
	charset = strings.ToLower(strings.Trim(charset, " \t\"'"))
	if len(charset) > 64 {
		charset = ""
	}
	switch charset {
	case "utf-8", "utf8":
		return validUTF8(b)
	case "", "us-ascii", "ascii", "unknown-8bit", "x-unknown", "unknown", "default":
		return guessUTF8(b)
	}
	enc := lookupCharset(charset)
	if enc == nil {
		return guessUTF8(b)
	}
	out, err := enc.NewDecoder().Bytes(b)
	if err != nil {
		return guessUTF8(b)
	}
	return validUTF8(out)
}

// validUTF8 has U+FFFD in the place of what is no UTF-8. Where all is, as mostly, it is fast.
func validUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func guessUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+len(b)/2)
	for _, c := range b {
		out = utf8.AppendRune(out, charmap.Windows1252.DecodeByte(c))
	}
	return string(out)
}

// decodeText turns a raw field value into clean text of at most limit bytes: unfolded,
// RFC 2047 words decoded, raw 8-bit bytes as UTF-8 or windows-1252, no control characters.
func decodeText(value []byte, limit int) string {
	// An encoded word is at most some nine times as long as its text.
	if most := limit*9 + 1024; len(value) > most {
		value = value[:most]
	}
	return cleanText(decodeWords(guessUTF8(unfold(value))), limit)
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
	out     strings.Builder
	bytes   []byte // decoded bytes of the words so far that stand side by side
	charset string
	nextEnd int // where the next "?=" is, looked for only when passed: this keeps it linear
}

func decodeWords(s string) string {
	first := strings.Index(s, "=?")
	if first < 0 {
		return s
	}
	d := wordDecoder{s: s, nextEnd: -1}
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
	text := d.s[start:d.nextEnd]
	if strings.Contains(text, "=?") { // this one was never closed, the next one is
		return 0
	}
	charset, _, _ = strings.Cut(strings.ToLower(charset), "*") // RFC 2231 §5, language
	if gap := d.s[plain:i]; d.bytes == nil || charset != d.charset || strings.Trim(gap, " \t") != "" {
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
	if rest[0] == 'b' || rest[0] == 'B' {
		var state base64State
		d.bytes = state.flush(state.append(d.bytes, []byte(text)))
	} else {
		d.bytes = appendQ(d.bytes, text)
	}
	return d.nextEnd + 2
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
