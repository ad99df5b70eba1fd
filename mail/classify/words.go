package classify

import (
	"bytes"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/publicsuffix"
)

const (
	minLetters = 3
	maxLetters = 20
	maxPairs   = 200 // only this many words of a message also form phrases, each with the word before it
)

// asciiFold maps ASCII letters to lower case, digits to themselves, and everything else to 0.
var asciiFold = func() (t [256]byte) {
	for c := range utf8.RuneSelf {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			t[c] = lower(byte(c))
		}
	}
	return t
}()

const lastAlphabet = 0x600 // after Latin, Greek, Cyrillic, Armenian and Hebrew

// alphabets maps letters to lower case, and everything else to 0. It is a table, since package
// unicode would be too slow for each letter of a text.
var alphabets = sync.OnceValue(func() *[lastAlphabet]uint16 {
	var t [lastAlphabet]uint16
	for r := range rune(lastAlphabet) {
		if unicode.In(r, unicode.L, unicode.M) {
			t[r] = uint16(min(unicode.ToLower(r), 0xffff))
		}
	}
	return &t
})

// A runeClass says what a character means for splitting a text into words.
type runeClass int

const (
	between   runeClass = iota // ends a word
	letter                     // belongs to a word
	invisible                  // is ignored
	dense                      // belongs to a script without spaces between words
	picture                    // is a word by itself
)

// classOf returns the class of a non-ASCII character, and the character that stands for it in
// words.
func classOf(r rune, alphabets *[lastAlphabet]uint16) (rune, runeClass) {
	switch {
	case r == 0xad || r == 0x34f || r == 0x61c:
		return r, invisible
	case r < lastAlphabet:
		if f := alphabets[r]; f != 0 {
			return rune(f), letter
		}
		return r, between
	case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff, r >= 0xfe00 && r <= 0xfe0f:
		return r, invisible
	case r >= 0xe00 && r < 0xf00, r >= 0x1000 && r < 0x10a0, r >= 0x1780 && r < 0x1800, r >= 0x3040 && r < 0xa000, r >= 0xac00 && r < 0xd800, r >= 0x20000 && r < 0x30000:
		return r, dense
	case r >= 0x1f000 && r < 0x1fb00, r >= 0x2600 && r < 0x27c0:
		return r, picture
	case r >= 0xff21 && r <= 0xff3a, r >= 0xff41 && r <= 0xff5a: // full width
		return 'a' + (r-0xff21)%32, letter
	case r >= 0x1d400 && r <= 0x1d6a3: // mathematical letters
		return 'a' + (r-0x1d400)%26, letter
	case r < 0x2000, r >= 0xa000 && r < 0xac00, r >= 0xf900 && r < 0xfe00, r >= 0x10000 && r < 0x1d000:
		return r, letter
	}
	return r, between
}

// addWords adds the words of a text, which is in UTF-8. Invalid bytes count as Latin-1.
func (s *reader) addWords(text []byte, k featureKind) {
	alphabets := alphabets()
	var buf [4*maxLetters + 4]byte // the current word
	var pair [8*maxLetters + 8]byte
	pairLen := 0 // length of the previous word and a space, which are in pair
	n, letters, digits := 0, 0, 0
	full := false // the limit on words is reached, so only links are read
	flush := func() {
		if k == kindWord && letters > 0 {
			s.words++
		}
		switch {
		case full:
		case digits == letters:
			if letters >= 3 {
				s.add(kindNumber, []byte{'0' + byte(min(letters, 9))})
			}
		case letters > maxLetters:
			s.add(kindLong, []byte{'0' + byte(min(letters/10, 9))})
			pairLen = 0
		case letters >= minLetters:
			s.add(k, buf[:n])
			if k == kindWord && s.words < maxPairs {
				if pairLen > 0 {
					copy(pair[pairLen:], buf[:n])
					s.add(kindPhrase, pair[:pairLen+n])
				}
				pairLen = copy(pair[:], buf[:n])
				pair[pairLen] = ' '
				pairLen++
			}
		}
		n, letters, digits = 0, 0, 0
		full = len(s.tokens) >= maxWords
	}
	lone := rune(0) // the previous character, if its class is dense
	for i := 0; i < len(text); {
		c := text[i]
		if f := asciiFold[c]; f != 0 {
			if letters < maxLetters {
				buf[n] = f
				n++
			}
			letters++
			if f <= '9' {
				digits++
			}
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if c >= 0xc2 && c < 0xd8 && i+1 < len(text) && text[i+1]&0xc0 == 0x80 { // fast path for letters that alphabets has
				if f := alphabets[rune(c&0x1f)<<6|rune(text[i+1]&0x3f)]; f >= utf8.RuneSelf && f < 0x800 {
					if letters < maxLetters {
						buf[n], buf[n+1] = 0xc0|byte(f>>6), 0x80|byte(f&0x3f)
						n += 2
					}
					letters++
					i += 2
					continue
				}
			}
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 {
				r = rune(c)
			}
			i += size
			r, class := classOf(r, alphabets)
			switch class {
			case letter:
				if letters < maxLetters {
					n += utf8.EncodeRune(buf[n:], r)
				}
				letters++
				continue
			case invisible:
				s.invisible = s.invisible || k == kindWord && letters > 0 && r != 0xad
				continue
			}
			flush()
			switch class {
			case dense, picture:
				m := 0
				if class == dense && lone != 0 {
					m = utf8.EncodeRune(buf[:], lone)
				}
				if m > 0 || class == picture {
					m += utf8.EncodeRune(buf[m:], r)
					if !full {
						s.add(k, buf[:m])
					}
					if k == kindWord {
						s.words++
					}
				}
				lone = 0
				if class == dense {
					lone = r
				}
				continue
			}
			lone = 0
			if r == '€' || r == '£' || r == '¥' {
				i += s.addMoney(text[i:], r)
			}
			continue
		}
		lone = 0
		i++
		if c == ':' && (n == 4 && string(buf[:n]) == "http" || n == 5 && string(buf[:n]) == "https") && bytes.HasPrefix(text[i:], []byte("//")) {
			n, letters, digits = 0, 0, 0
			i += 2
			i += s.addLink(text[i:])
			continue
		}
		if c == '.' && n == 3 && string(buf[:n]) == "www" {
			n, letters, digits = 0, 0, 0
			i += s.addLink(text[i:])
			continue
		}
		if letters > 0 {
			flush()
		}
		switch c {
		case '$':
			i += s.addMoney(text[i:], '$')
		case '!':
			s.hasExclamations = s.hasExclamations || i < len(text) && text[i] == '!'
		}
	}
	if letters > 0 {
		flush()
	}
}

// addMoney adds the currency and the number of digits of a sum of money. It returns the length of
// the sum in text, 0 if there is none.
func (s *reader) addMoney(text []byte, sign rune) int {
	i, digits := 0, 0
	for i < min(len(text), 24) {
		c := text[i]
		if c >= '0' && c <= '9' {
			digits++
		} else if c == '.' && i+3 <= len(text) && (i+3 == len(text) || asciiFold[text[i+3]] == 0 && text[i+3] != ',') { // cents
			break
		} else if c != ',' && c != '.' && (c != ' ' || digits > 0) {
			break
		}
		i++
	}
	if digits == 0 {
		return 0
	}
	if s.moneySums++; s.moneySums <= maxSums {
		s.add(kindMoney, append(utf8.AppendRune(nil, sign), '0'+byte(min(digits, 9))))
	}
	return i
}

// addLink adds the host of a link. It returns the length of the link.
func (s *reader) addLink(text []byte) int {
	if s.links++; s.links > maxLinks {
		return 0
	}
	end := bytes.IndexAny(text[:min(len(text), 2000)], " \t\r\n<>\"')]")
	if end < 0 {
		end = min(len(text), 2000)
	}
	s.addHost(text[:end])
	return end
}

// addHost adds the host of a link. text is the link after "//".
func (s *reader) addHost(text []byte) {
	var host [100]byte
	n := 0
	for _, c := range text {
		if c == '@' { // the text before the @ is a user name
			n = 0
			s.userLinks = true
			continue
		}
		if asciiFold[c] == 0 && c != '.' && c != '-' && c < utf8.RuneSelf || n == len(host) {
			break
		}
		host[n] = lower(c)
		n++
	}
	name := bytes.TrimPrefix(bytes.TrimRight(host[:n], "."), []byte("www."))
	if bytes.IndexByte(name, '.') < 1 || s.hosts == maxHosts || !s.add(kindHost, name) {
		return
	}
	s.hosts++
	if len(bytes.Trim(name, "0123456789.")) == 0 {
		s.addFact("has a link to a number in place of a name")
		return
	}
	s.addText(kindSite, registrableDomain(string(name)))
	s.add(kindLinkEnding, name[bytes.LastIndexByte(name, '.'):])
}

// registrableDomain returns the registrable domain of a host, which is the public suffix and one
// more label. It returns the host itself if there is none.
func registrableDomain(host string) string {
	if of, err := publicsuffix.EffectiveTLDPlusOne(strings.TrimSuffix(host, ".")); err == nil {
		return of
	}
	return host
}
