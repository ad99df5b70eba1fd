package msg

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/charset"
	"github.com/mailstead/mailstead/mail/date"
	"github.com/mailstead/mailstead/mail/transfer"
	"github.com/mailstead/mailstead/mail/visible"
)

// decodeText converts a raw field value to clean text of at most limit bytes. It unfolds the value,
// decodes RFC 2047 encoded words, and removes control characters. Raw 8-bit text is read as UTF-8
// if it is valid, otherwise in the charset label if that is known, otherwise as windows-1252.
func decodeText(value []byte, label string, limit int) string {
	// An encoded word is at most about nine times as long as its text.
	if most := limit*9 + 1024; len(value) > most {
		value = value[:most]
	}
	return cleanText(decodeWords(charset.DecodeRaw(unfold(value), label)), limit)
}

// cleanText replaces control characters by spaces, trims s, and shortens it to limit bytes without
// splitting a character.
func cleanText(s string, limit int) string {
	if strings.IndexFunc(s, visible.IsControl) >= 0 {
		s = strings.Map(func(r rune) rune {
			if visible.IsControl(r) {
				return ' '
			}
			return r
		}, s)
	}
	return strings.TrimSpace(cut(strings.TrimSpace(s), limit))
}

// cut shortens s to at most limit bytes without splitting a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// wordDecoder decodes RFC 2047 encoded words. It tolerates spaces in a word, missing padding, and a
// character that is split over two words of one charset.
type wordDecoder struct {
	s       string
	lenient bool // also decode words of unknown charsets, and base64 with invalid characters
	out     strings.Builder
	bytes   []byte // decoded bytes of the adjacent words so far; they may end in a part of a character
	charset string
	nextEnd int // index of the next "?="; kept until it is passed, so that the time is linear
}

// decodeWords decodes RFC 2047 encoded words. A word that cannot be decoded stays as it is (RFC
// 2047 section 6.2).
func decodeWords(s string) string { return decodeAllWords(s, false) }

// decodeWordsLeniently decodes RFC 2047 encoded words even if they are invalid, like the most
// lenient programs.
func decodeWordsLeniently(s string) string { return decodeAllWords(s, true) }

func decodeAllWords(s string, lenient bool) string {
	first := strings.Index(s, "=?")
	if first < 0 {
		return s
	}
	d := wordDecoder{s: s, lenient: lenient, nextEnd: -1}
	plain := 0 // start of the text not yet written
	for i := first; i >= 0; i = indexFrom(s, "=?", i) {
		next := d.decodeWord(i, plain)
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

// decodeWord decodes the encoded word at index i and returns the index after it, or 0 if there is
// none. The text from plain to i has not been written yet.
func (d *wordDecoder) decodeWord(i, plain int) int {
	label, rest, ok := strings.Cut(d.s[i+2:min(len(d.s), i+70)], "?")
	if !ok || label == "" || strings.ContainsAny(label, " \t\"=") || len(rest) < 2 || rest[1] != '?' || !strings.ContainsRune("bBqQ", rune(rest[0])) {
		return 0
	}
	start := i + 2 + len(label) + 3
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
	if strings.Contains(text, "=?") { // this word is not closed; the "?=" belongs to a later one
		return 0
	}
	label, _, _ = strings.Cut(strings.ToLower(label), "*") // drop the language (RFC 2231 §5)
	if !d.lenient && (!charset.Known(label) || isBase64 && strings.Trim(text, transfer.Base64Text) != "") {
		return 0
	}
	same := label == d.charset || charset.Same(label, d.charset)
	if gap := d.s[plain:i]; d.bytes == nil || !same || strings.Trim(gap, " \t") != "" {
		afterWord := d.bytes != nil
		d.flush()
		if !afterWord || strings.Trim(gap, " \t") != "" {
			d.out.WriteString(gap)
		}
		d.charset = label
	}
	if d.bytes == nil {
		d.bytes = []byte{}
	}
	if isBase64 {
		var state transfer.Base64
		d.bytes = state.Flush(state.Append(d.bytes, []byte(text)))
	} else {
		d.bytes = appendQDecoded(d.bytes, text)
	}
	return d.nextEnd + 2
}

// endsLater reports whether the "?=" found in a Q-encoded word is not its end: the text has an
// unencoded question mark before an encoded byte, as in "=?utf-8?Q?Why?=20not?=".
func (d *wordDecoder) endsLater() bool {
	rest := d.s[d.nextEnd+2 : min(len(d.s), d.nextEnd+80)] // an encoded word has at most 75 characters
	if len(rest) < 4 || !transfer.IsHex(rest[0]) || !transfer.IsHex(rest[1]) {
		return false
	}
	rest, _, _ = strings.Cut(rest, " ")
	rest, _, more := strings.Cut(rest, "?=")
	return more && !strings.Contains(rest, "=?")
}

// flush writes the decoded bytes in UTF-8.
func (d *wordDecoder) flush() {
	if d.bytes != nil {
		d.out.WriteString(charset.Decode(d.bytes, d.charset))
		d.bytes = nil
	}
}

func appendQDecoded(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '_':
			dst = append(dst, ' ')
		case s[i] == '=' && i+2 < len(s) && transfer.IsHex(s[i+1]) && transfer.IsHex(s[i+2]):
			dst = append(dst, transfer.Unhex(s[i+1])<<4|transfer.Unhex(s[i+2]))
			i += 2
		default:
			dst = append(dst, s[i])
		}
	}
	return dst
}

// dropComments removes comments: text in parentheses, which may be nested.
func dropComments(s string) string {
	if !strings.Contains(s, "(") {
		return s
	}
	var out strings.Builder
	depth := 0
	for i := range len(s) {
		switch {
		case s[i] == '(':
			depth++
		case s[i] == ')' && depth > 0:
			depth--
		case depth == 0:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}

// parseDate parses the value of a Date field, see date.Parse. It leaves out comments, and reads at
// most 128 bytes.
func parseDate(s string) time.Time { return date.Parse(dropComments(cut(s, 128))) }
