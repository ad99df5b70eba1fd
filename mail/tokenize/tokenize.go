// Package tokenize splits texts into words for searching mail. Words are in lower case and without
// accents. It does not know where the texts come from or how the words are stored.
package tokenize

import (
	"bytes"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	// MaxWord is the maximum length of a word in bytes. Longer words are shortened to it.
	MaxWord = 40
	// MaxAddress is the maximum length in bytes of an email address that counts as a word.
	MaxAddress = 100
)

// A Splitter splits texts into words. It reuses buffers, so only one goroutine may use it at a
// time. The zero value is ready to use.
type Splitter struct {
	word  []byte
	folds []byte
}

// Split calls each for the words of text in order. A word is a run of letters, digits and marks (a
// simple form of Unicode's annex 29). In a script without spaces, every two adjacent characters are
// a word, and so is the last character alone. For an email address, Split also calls each with the
// whole address and with "@" and its domain; then whole is true. word is valid until each returns.
func (s *Splitter) Split(text string, each func(word []byte, whole bool)) {
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf && !asciiWord[c] {
			if c == '@' {
				s.emitAddress(text, i, each)
			}
			i++
			continue
		}
		n, ascii := wordLength(text[i:])
		switch {
		case n == 0:
			_, size := utf8.DecodeRuneInString(text[i:])
			n = size
		case ascii:
			s.emitASCII(text[i:i+n], each)
		default:
			s.splitUnicode(text[i:i+n], each)
		}
		i += n
	}
}

// asciiWord says which ASCII characters are part of words.
var asciiWord = func() (is [utf8.RuneSelf]bool) {
	for c := range is {
		is[c] = c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	return is
}()

// wordLength returns the length of the word at the start of text, 0 if there is none. ascii reports
// whether the word is ASCII.
func wordLength(text string) (n int, ascii bool) {
	ascii = true
	for n < len(text) {
		if c := text[n]; c < utf8.RuneSelf {
			if !asciiWord[c] {
				return n, ascii
			}
			n++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[n:])
		if !unicode.In(r, unicode.L, unicode.N, unicode.M) {
			return n, ascii
		}
		ascii = false
		n += size
	}
	return n, ascii
}

// emitASCII calls each for a word in ASCII.
func (s *Splitter) emitASCII(word string, each func([]byte, bool)) {
	s.word = s.word[:0]
	for i := 0; i < min(len(word), MaxWord); i++ {
		s.word = append(s.word, lower(word[i]))
	}
	each(s.word, false)
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// maxRun is how many bytes of a run of letters are processed at once.
const maxRun = 8 << 10

// splitUnicode folds a run of letters to lower case without accents, and calls each for its words.
// It splits the run between scripts with and without spaces.
func (s *Splitter) splitUnicode(run string, each func([]byte, bool)) {
	for len(run) > maxRun {
		cut := maxRun
		for !utf8.RuneStart(run[cut]) {
			cut--
		}
		s.splitUnicode(run[:cut], each)
		run = run[cut:]
	}
	if s.foldLatin(run) {
		s.emitWord(each)
		return
	}
	s.folds = norm.NFKC.AppendString(s.folds[:0], run)
	s.word = s.word[:0]
	for rest := s.folds; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if isSpaceless(r) {
			s.emitWord(each)
			n := spacelessLength(rest)
			emitPairs(rest[:n], each)
			rest = rest[n:]
			continue
		}
		s.appendFolded(r)
		rest = rest[size:]
	}
	s.emitWord(each)
}

// foldLatin folds a run of Latin letters and accents by a table. It returns false if the run has
// other letters.
func (s *Splitter) foldLatin(run string) (ok bool) {
	s.word = s.word[:0]
	folds := latinFolds()
	for _, r := range run {
		if r >= latinEnd {
			return false
		}
		if part := folds[r]; len(s.word)+len(part) <= MaxWord {
			s.word = append(s.word, part...)
		}
	}
	return true
}

const latinEnd = 0x250 // after Latin Extended-B

// latinFolds maps each Latin letter to lower case without accents.
var latinFolds = sync.OnceValue(func() *[latinEnd]string {
	var out [latinEnd]string
	for r := range out {
		var s Splitter
		s.appendFolded(rune(r))
		out[r] = string(s.word)
	}
	return &out
})

// emitWord calls each for the current word, unless it is empty, and begins a new one.
func (s *Splitter) emitWord(each func([]byte, bool)) {
	if len(s.word) > 0 {
		each(s.word, false)
	}
	s.word = s.word[:0]
}

// appendFolded appends a letter to the current word, in lower case and without accents.
func (s *Splitter) appendFolded(r rune) {
	if len(s.word) >= MaxWord {
		return
	}
	switch r {
	case 'ß', 'ẞ':
		s.word = append(s.word, "ss"...)
		return
	case 'ς':
		r = 'σ'
	case 'ı', 'İ':
		r = 'i'
	}
	var in [utf8.UTFMax]byte
	var out [32]byte
	for _, part := range string(norm.NFKD.Append(out[:0], in[:utf8.EncodeRune(in[:], r)]...)) {
		part = unicode.ToLower(part)
		if !unicode.In(part, unicode.L, unicode.N) || len(s.word)+utf8.RuneLen(part) > MaxWord {
			continue // an accent
		}
		s.word = utf8.AppendRune(s.word, part)
	}
}

// isSpaceless reports whether r belongs to a script without spaces. Hangul counts as one, since it
// attaches endings to words.
func isSpaceless(r rune) bool {
	return r >= 0xe00 && (r == 'ー' || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}

// spacelessLength returns the length of the longest prefix of text that is in scripts without
// spaces.
func spacelessLength(text []byte) (n int) {
	for n < len(text) {
		r, size := utf8.DecodeRune(text[n:])
		if !isSpaceless(r) && !unicode.Is(unicode.M, r) {
			break
		}
		n += size
	}
	return n
}

// emitPairs calls each for every two adjacent characters, and for the last character alone, so that
// every character begins a word.
func emitPairs(text []byte, each func([]byte, bool)) {
	for len(text) > 0 {
		_, one := utf8.DecodeRune(text)
		_, two := utf8.DecodeRune(text[one:])
		each(text[:one+two], false)
		text = text[one:]
	}
}

// emitAddress calls each for the email address around the @ at text[at], if there is one, and for
// "@" and its domain.
func (s *Splitter) emitAddress(text string, at int, each func([]byte, bool)) {
	from, to := at, at+1
	for from > 0 && at-from < 64 && isAddressByte(text[from-1], true) {
		from--
	}
	for to < len(text) && to-at <= MaxAddress && isAddressByte(text[to], false) {
		to++
	}
	local := strings.TrimLeft(text[from:at], ".-")
	domain := strings.TrimRight(text[at+1:to], ".-")
	if local == "" || domain == "" || len(local)+1+len(domain) > MaxAddress {
		return
	}
	s.word = AppendLower(s.word[:0], local)
	s.word = append(s.word, '@')
	s.word = AppendLower(s.word, domain)
	if len(s.word) > MaxAddress {
		return
	}
	n := bytes.IndexByte(s.word, '@')
	each(s.word, true)
	each(s.word[n:], true)
}

// isAddressByte reports whether c can be part of an email address in a text. local says that it is
// in the local part, not in the domain.
func isAddressByte(c byte, local bool) bool {
	switch {
	case c >= utf8.RuneSelf, asciiWord[c&0x7f], c == '.', c == '-':
		return true
	}
	return local && strings.IndexByte("_+%&'/=#~", c) >= 0
}

// AppendLower appends text in lower case to b. Addresses are indexed in this form.
func AppendLower(b []byte, text string) []byte {
	for _, r := range text {
		b = utf8.AppendRune(b, unicode.ToLower(r))
	}
	return b
}
