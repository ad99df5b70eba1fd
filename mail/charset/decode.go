package charset

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/transfer"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
)

const (
	esc      = 0x1b
	shiftOut = 0x0e
	shiftIn  = 0x0f
)

// decodeUTF16 decodes UTF-16 in the byte order that the byte order mark gives. Without a mark,
// big-endian is assumed (RFC 2781 section 4.3), unless most zero bytes are at odd positions, as in
// little-endian text with ASCII characters.
func decodeUTF16(b []byte) string {
	var zeros [2]int
	for i, c := range b[:min(len(b), 512)] {
		if c == 0 {
			zeros[i%2]++
		}
	}
	order := unicode.BigEndian
	if zeros[1] > zeros[0] {
		order = unicode.LittleEndian
	}
	return encodingDecoder(unicode.UTF16(order, unicode.UseBOM))(b)
}

// decodeUTF7 decodes UTF-7 (RFC 2152). A plus sign stays if no base64 follows it.
func decodeUTF7(b []byte) string {
	var out strings.Builder
	out.Grow(len(b))
	for len(b) > 0 {
		plus := bytes.IndexByte(b, '+')
		if plus < 0 {
			break
		}
		out.WriteString(replaceInvalidUTF8(b[:plus]))
		b = b[plus+1:]
		end := 0
		for end < len(b) && transfer.InBase64(b[end]) {
			end++
		}
		switch {
		case end == 0 && len(b) > 0 && b[0] == '-':
			out.WriteByte('+')
		case end == 0:
			out.WriteByte('+')
			continue
		default:
			var state transfer.Base64
			code := state.Flush(state.Append(nil, b[:end]))
			units := make([]uint16, len(code)/2)
			for i := range units {
				units[i] = binary.BigEndian.Uint16(code[2*i:])
			}
			out.WriteString(string(utf16.Decode(units)))
		}
		b = b[end:]
		if len(b) > 0 && b[0] == '-' {
			b = b[1:]
		}
	}
	out.WriteString(replaceInvalidUTF8(b))
	return out.String()
}

// A set2022 is a character set that can be selected by an escape sequence of ISO-2022.
type set2022 int

const (
	setASCII set2022 = iota
	setJIS0208
	setJIS0212
	setRoman
	setKana
	setKorean
	setChinese
	setLatin1
	setGreek
	setUnknown
)

// escapes2022 are the escape sequences of ISO-2022-JP to -JP-3, ISO-2022-KR and ISO-2022-CN (RFC
// 1468, 1554, 1557, 1922). A set that is shifted becomes active by SO or, for one character, by ESC
// N.
var escapes2022 = []struct {
	seq     string
	set     set2022
	shifted bool
}{
	{"$B", setJIS0208, false}, {"$@", setJIS0208, false}, {"$(B", setJIS0208, false}, {"$(@", setJIS0208, false}, {"$(O", setJIS0208, false}, {"$(Q", setJIS0208, false},
	{"$(D", setJIS0212, false}, {"$(P", setUnknown, false}, {"$A", setChinese, false}, {"$(A", setChinese, false}, {"$(C", setKorean, false},
	{"(B", setASCII, false}, {"(J", setRoman, false}, {"(H", setASCII, false}, {"(I", setKana, false},
	{"$)C", setKorean, true}, {"$)A", setChinese, true}, {"$)G", setUnknown, true}, {"$)E", setUnknown, true}, {"$*H", setUnknown, true}, {")I", setKana, true},
	{".A", setLatin1, true}, {".F", setGreek, true},
}

// hasISO2022 reports whether the text has an escape sequence that selects a set with two bytes per
// character.
func hasISO2022(b []byte) bool {
	for {
		i := bytes.IndexByte(b, esc)
		if i < 0 {
			return false
		}
		b = b[i+1:]
		if len(b) > 1 && b[0] == '$' {
			for _, e := range escapes2022 {
				if strings.HasPrefix(e.seq, "$") && bytes.HasPrefix(b, []byte(e.seq)) {
					return true
				}
			}
		}
	}
}

// decodeISO2022 decodes text in any ISO-2022 charset, since their escape sequences do not conflict.
// Bytes above 127, which ISO-2022 does not have, are decoded as Shift_JIS. A text without escape
// sequences may also be EUC-JP.
func decodeISO2022(b []byte) string {
	if !IsASCII(b) && !hasISO2022(b) {
		onlyKana := true
		for _, c := range b {
			onlyKana = onlyKana && (c < utf8.RuneSelf || 0xa1 <= c && c <= 0xdf)
		}
		if euc := encodingDecoder(japanese.EUCJP)(b); !onlyKana && !strings.ContainsRune(euc, utf8.RuneError) {
			return euc
		}
		return encodingDecoder(japanese.ShiftJIS)(b)
	}
	d := iso2022Decoder{shifted: setKana}
	d.out.Grow(len(b))
	for i := 0; i < len(b); {
		i += d.readNext(b[i:])
	}
	d.flush()
	return d.out.String()
}

type iso2022Decoder struct {
	out          strings.Builder
	set, shifted set2022
	shiftedOut   bool // SO is active
	run          []byte
	runSet       set2022 // the character set of the bytes in run
	high         bool    // the bytes in run are above 127
}

// readNext reads one byte, one escape sequence or one shift at the start of b. It returns the
// length of what it read.
func (d *iso2022Decoder) readNext(b []byte) int {
	c := b[0]
	switch {
	case c == esc && len(b) > 2 && b[1] == 'N' && b[2] < utf8.RuneSelf:
		d.flush()
		d.put(d.shifted, false, b[2])
		d.flush()
		return 3
	case c == esc:
		for _, e := range escapes2022 {
			if bytes.HasPrefix(b[1:], []byte(e.seq)) {
				d.flush()
				if e.shifted {
					d.shifted = e.set
				} else {
					d.set = e.set
				}
				return 1 + len(e.seq)
			}
		}
	case c == shiftOut || c == shiftIn:
		d.flush()
		d.shiftedOut = c == shiftOut
		return 1
	}
	if c == '\n' { // each line begins in ASCII
		d.flush()
		d.set, d.shiftedOut = setASCII, false
	}
	set := d.set
	if d.shiftedOut {
		set = d.shifted
	}
	if c <= ' ' || c == 0x7f {
		set = setASCII
	}
	d.put(set, c >= utf8.RuneSelf, c)
	return 1
}

func (d *iso2022Decoder) put(set set2022, high bool, c byte) {
	if set != d.runSet || high != d.high {
		d.flush()
		d.runSet, d.high = set, high
	}
	d.run = append(d.run, c)
}

// flush decodes the bytes in run by means of an 8-bit charset that contains their character set.
func (d *iso2022Decoder) flush() {
	if len(d.run) == 0 {
		return
	}
	run := d.run
	d.run = d.run[:0]
	if d.high {
		d.out.WriteString(encodingDecoder(japanese.ShiftJIS)(run))
		return
	}
	var enc encoding.Encoding
	lead := []byte(nil)
	switch d.runSet {
	case setASCII:
		d.out.Write(run)
		return
	case setRoman: // JIS X 0201, but with the tilde, which links need
		d.out.WriteString(strings.ReplaceAll(string(run), `\`, "¥"))
		return
	case setJIS0208:
		enc = japanese.EUCJP
	case setJIS0212:
		enc, lead = japanese.EUCJP, []byte{0x8f}
	case setKana:
		enc = japanese.ShiftJIS
	case setKorean:
		enc = korean.EUCKR
	case setChinese:
		enc = simplifiedchinese.GB18030
	case setLatin1:
		enc = charmap.ISO8859_1
	case setGreek:
		enc = charmap.ISO8859_7
	default:
		d.out.WriteRune(utf8.RuneError)
		return
	}
	upper := make([]byte, 0, len(run)+len(run)/2)
	for i, c := range run {
		if i%2 == 0 {
			upper = append(upper, lead...)
		}
		upper = append(upper, c|0x80)
	}
	d.out.WriteString(encodingDecoder(enc)(upper))
}

// The letters of a Johab syllable by their five bits (KS X 1001 annex 3); -1 means no letter.
var (
	johabInitial = [32]int8{-1, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}
	johabMedial  = [32]int8{-1, -1, -1, 0, 1, 2, 3, 4, -1, -1, 5, 6, 7, 8, 9, 10, -1, -1, 11, 12, 13, 14, 15, 16, -1, -1, 17, 18, 19, 20, -1, -1}
	johabFinal   = [32]int8{-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, -1, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, -1, -1}
)

// Johab letters that can occur alone, outside of a syllable.
const (
	johabInitials = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
	johabFinals   = "ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
)

// decodeJohab decodes Johab. In Johab, two bytes hold the three letters of a syllable, or a
// character of KS X 1001 with another code than there.
func decodeJohab(b []byte) string {
	initials, finals := []rune(johabInitials), []rune(johabFinals)
	var out strings.Builder
	out.Grow(len(b) * 3 / 2)
	for i := 0; i < len(b); i++ {
		if b[i] < utf8.RuneSelf {
			out.WriteByte(b[i])
			continue
		}
		if i+1 == len(b) || b[i+1] < 0x31 {
			out.WriteRune(utf8.RuneError)
			continue
		}
		first, second := b[i], b[i+1]
		i++
		if first >= 0xd8 {
			out.WriteString(johabSymbol(first, second))
			continue
		}
		code := uint(first)<<8 | uint(second)
		initial, medial, final := johabInitial[code>>10&31], johabMedial[code>>5&31], johabFinal[code&31]
		noInitial, noMedial, noFinal := code>>10&31 == 1, code>>5&31 == 2, code&31 == 1
		switch {
		case initial >= 0 && medial >= 0 && final >= 0:
			out.WriteRune(0xac00 + (rune(initial)*21+rune(medial))*28 + rune(final))
		case initial >= 0 && noMedial && noFinal:
			out.WriteRune(initials[initial])
		case noInitial && medial >= 0 && noFinal:
			out.WriteRune(0x314f + rune(medial))
		case noInitial && noMedial && final > 0:
			out.WriteRune(finals[final-1])
		case noInitial && noMedial && noFinal:
			out.WriteRune('\u3000')
		default:
			out.WriteRune(utf8.RuneError)
		}
	}
	return out.String()
}

func johabSymbol(first, second byte) string {
	if first == 0xdf || first > 0xf9 || second > 0x7e && second < 0x91 || second == 0xff || first == 0xd8 {
		return string(utf8.RuneError)
	}
	row, cell := 2*(int(first)-0xd9), int(second)-0x31
	if first >= 0xe0 {
		row = 2*int(first) - 0x197
	}
	if second >= 0x91 {
		cell = int(second) - 0x43
	}
	if cell >= 94 {
		row, cell = row+1, cell-94
	}
	return encodingDecoder(korean.EUCKR)([]byte{byte(row + 0xa1), byte(cell + 0xa1)})
}
