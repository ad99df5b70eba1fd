package page

import (
	"bytes"
	"slices"
	"strings"
)

// HasTexts makes a Prefilter: it is true for rows that have all of the texts. "" is in every row. A
// text with characters that JSON escapes is not looked for.
func HasTexts(texts ...string) func(row []byte) bool {
	var all [][]byte
	for _, text := range texts {
		if isPlain(text) {
			all = append(all, []byte(text))
		}
	}
	return func(row []byte) bool {
		for _, text := range all {
			if !bytes.Contains(row, text) {
				return false
			}
		}
		return true
	}
}

// HasFolded makes a Prefilter: it is true for rows that have the text in any case. What
// strings.EqualFold and strings.ToLower do not tell apart is the same.
func HasFolded(text string) func(row []byte) bool {
	want := []byte(strings.ToLower(text))
	if text == "" || !isPlain(string(want)) {
		return HasTexts()
	}
	// The letter that is the rarest in English leads to few places that have to be compared.
	rare := 0
	for n, b := range want {
		if rarity(b) > rarity(want[rare]) {
			rare = n
		}
	}
	small, capital := want[rare], foldASCII(want[rare], 'a', 'z')
	has := func(row []byte, b byte) bool {
		for from := rare; ; from++ {
			n := bytes.IndexByte(row[min(from, len(row)):], b)
			if n < 0 {
				return false
			}
			from += n
			if start := from - rare; start+len(want) <= len(row) && equalASCII(row[start:start+len(want)], want) {
				return true
			}
		}
	}
	return func(row []byte) bool {
		return has(row, small) || capital != small && has(row, capital) || hasFolding(row)
	}
}

// rarity orders characters by how seldom they are in names and addresses: the last is the rarest.
func rarity(b byte) int { return strings.IndexByte("e.ta@oin1shrdl2cum0-wf3gypbv45k9867jxqz", b) }

// equalASCII compares texts of the same length. want has no capitals.
func equalASCII(text, want []byte) bool {
	for n, b := range text {
		if foldASCII(b, 'A', 'Z') != want[n] {
			return false
		}
	}
	return true
}

// foldASCII changes the case of a letter of ASCII from first to last.
func foldASCII(b, first, last byte) byte {
	if first <= b && b <= last {
		return b ^ ('a' - 'A')
	}
	return b
}

// folding are the characters beyond ASCII that are a letter of ASCII in another case: the Kelvin
// sign, the long s and the I with a dot.
var folding = [][]byte{[]byte("\u212a"), []byte("\u017f"), []byte("\u0130")}

func hasFolding(row []byte) bool {
	return slices.ContainsFunc(folding, func(char []byte) bool { return bytes.Contains(row, char) })
}

// isPlain reports whether a row has the text as it is, whatever form the row is in.
func isPlain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\\<>&`, r) })
}
