package page

import (
	"bytes"
	"slices"
	"strings"
)

// HasTexts returns a Prefilter that is true for rows with all of the texts. It does not look for ""
// and for texts with characters that JSON escapes.
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

// HasFolded returns a Prefilter that is true for rows with the text in any case, as
// strings.EqualFold and strings.ToLower fold it.
func HasFolded(text string) func(row []byte) bool {
	want := []byte(strings.ToLower(text))
	if text == "" || !isPlain(string(want)) {
		return HasTexts()
	}
	// Search for the letter that is the rarest in English, so that few places must be compared.
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
		return has(row, small) || capital != small && has(row, capital) || hasFoldingChar(row)
	}
}

// rarity returns the rank of a character by frequency in names and addresses: a higher rank is
// rarer.
func rarity(b byte) int { return strings.IndexByte("e.ta@oin1shrdl2cum0-wf3gypbv45k9867jxqz", b) }

// equalASCII reports whether two texts of the same length are equal, ignoring case. want must be in
// lower case.
func equalASCII(text, want []byte) bool {
	for n, b := range text {
		if foldASCII(b, 'A', 'Z') != want[n] {
			return false
		}
	}
	return true
}

// foldASCII changes the case of an ASCII letter from first to last, and returns other bytes as they
// are.
func foldASCII(b, first, last byte) byte {
	if first <= b && b <= last {
		return b ^ ('a' - 'A')
	}
	return b
}

// foldingChars lists the non-ASCII characters that fold to an ASCII letter: the Kelvin sign, the
// long s and the dotted I.
var foldingChars = [][]byte{[]byte("\u212a"), []byte("\u017f"), []byte("\u0130")}

func hasFoldingChar(row []byte) bool {
	return slices.ContainsFunc(foldingChars, func(char []byte) bool { return bytes.Contains(row, char) })
}

// isPlain reports whether the text is stored unchanged in a row, in every encoding of rows.
func isPlain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\\<>&`, r) })
}
