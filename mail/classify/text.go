package classify

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/charset"
	"github.com/mailstead/mailstead/mail/msg"
)

// readText adds the words of a text part, up to its share of the limits.
func (s *reader) readText(p *msg.Part, work []byte) error {
	share := max(s.rawLeft/max(s.textsLeft, 1), min(minPiece, s.rawLeft))
	textShare := max(s.textLeft/max(s.textsLeft, 1), min(minPiece, s.textLeft))
	s.textsLeft--
	raw := work[:min(int64(share), p.Size())]
	if n, err := s.src.ReadAt(raw, p.BodyOffset); n < len(raw) {
		return fmt.Errorf("read message part at offset %d: %w", p.BodyOffset, err)
	}
	s.rawLeft -= len(raw)
	switch p.Encoding {
	case "base64":
		raw = decodeBase64(raw)
	case "quoted-printable":
		raw = decodeQP(raw)
	}
	if p.Subtype != "html" {
		raw = raw[:min(len(raw), textShare)]
	}
	text := charset.Convert(raw, p.Params["charset"], maxText, maxConverted)
	if p.Subtype == "html" {
		text = s.stripHTML(text)
	}
	text = text[:min(len(text), textShare)]
	s.textLeft -= len(text)
	s.addWords(text, kindWord)
	return nil
}

// base64Values maps each character to its six bits, padding to 64, and any other character to 65.
var base64Values = func() (t [256]byte) {
	for i := range t {
		t[i] = 65
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		t[c] = byte(i)
	}
	t['='] = 64
	return t
}()

// decodeBase64 decodes base64 in place and returns the result. It skips characters that are not
// base64 (RFC 2045 section 6.8).
func decodeBase64(b []byte) []byte {
	var acc uint32
	held, n := 0, 0
	for i := 0; i < len(b); i++ {
		if held == 0 {
			for i+4 <= len(b) {
				w, x, y, z := base64Values[b[i]], base64Values[b[i+1]], base64Values[b[i+2]], base64Values[b[i+3]]
				if w|x|y|z >= 64 {
					break
				}
				b[n], b[n+1], b[n+2] = w<<2|x>>4, x<<4|y>>2, y<<6|z
				i, n = i+4, n+3
			}
			if i == len(b) {
				break
			}
		}
		v := base64Values[b[i]]
		if v < 64 {
			acc = acc<<6 | uint32(v)
			if held++; held == 4 {
				b[n], b[n+1], b[n+2] = byte(acc>>16), byte(acc>>8), byte(acc)
				n += 3
				acc, held = 0, 0
			}
		} else if v == 64 {
			switch held {
			case 2:
				b[n] = byte(acc >> 4)
				n++
			case 3:
				b[n], b[n+1] = byte(acc>>10), byte(acc>>2)
				n += 2
			}
			acc, held = 0, 0
		}
	}
	return b[:n]
}

// hexValues maps each hexadecimal digit to its value, and any other character to 255.
var hexValues = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = byte(i)
	}
	for i, c := range []byte("ABCDEF") {
		t[c] = byte(10 + i)
	}
	return t
}()

// decodeQP decodes quoted-printable in place and returns the result. An invalid escape is kept (RFC
// 2045 section 6.7).
func decodeQP(b []byte) []byte {
	n := 0
	for i := 0; i < len(b); {
		c := b[i]
		i++
		if c == '=' {
			if i+1 < len(b) {
				if hi, lo := hexValues[b[i]], hexValues[b[i+1]]; hi < 16 && lo < 16 {
					b[n] = hi<<4 | lo
					n++
					i += 2
					continue
				}
			}
			end := i
			for end < len(b) && (b[end] == ' ' || b[end] == '\t' || b[end] == '\r') {
				end++
			}
			if end == len(b) || b[end] == '\n' { // soft line break
				i = min(end+1, len(b))
				continue
			}
		}
		b[n] = c
		n++
	}
	return b[:n]
}

// stripHTML removes the markup from HTML, in place, and adds the hosts of the links in it.
func (s *reader) stripHTML(b []byte) []byte {
	n := 0
	unclosed := false // there is no ">" after this position
	for i := 0; i < len(b) && s.markupLeft > 0; {
		c := b[i]
		switch {
		case c == '&':
			s.markupLeft--
			size, r := decodeEntity(b[i:])
			i += size
			n += utf8.EncodeRune(b[n:], r)
			continue
		case c != '<' || unclosed || i+1 == len(b) || asciiFold[b[i+1]] < 'a' && b[i+1] != '/' && b[i+1] != '!' && b[i+1] != '?':
			b[n] = c
			n++
			i++
			continue
		case bytes.HasPrefix(b[i:], []byte("<!--")):
			s.markupLeft--
			s.comments = s.comments || n > 0 && asciiFold[b[n-1]] != 0
			end := bytes.Index(b[i+4:], []byte("-->"))
			if end < 0 {
				unclosed = true // some programs show the rest, so it counts as text
				i += 4
				continue
			}
			i += 4 + end + 3
			continue
		}
		s.markupLeft--
		end := bytes.IndexByte(b[i:], '>')
		if end < 0 {
			unclosed = true
			continue
		}
		tag := b[i+1 : i+end]
		i += end + 1
		var name [12]byte
		length, from := 0, 0
		if tag[0] == '/' {
			from = 1
		}
		for _, c := range tag[from:] {
			f := asciiFold[c]
			if f == 0 || length == len(name) {
				break
			}
			name[length] = f
			length++
		}
		switch string(name[:length]) { // these tags end a word; other tags may be within a word
		case "p", "br", "div", "tr", "td", "th", "li", "ul", "ol", "table", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "pre", "body", "head",
			"html", "blockquote", "title", "option", "center", "section", "article", "header", "footer", "img", "dd", "dt", "button", "input":
			b[n] = ' '
			n++
		}
		if from == 1 {
			continue
		}
		switch string(name[:length]) {
		case "script", "style":
			// An element without its end tag hides everything after its start tag.
			closing := append([]byte("</"), name[:length]...)
			at := indexFold(b[i:], closing)
			if at < 0 {
				return b[:n]
			}
			i += at
		case "form":
			s.hasForm = true
		case "img":
			s.images++
		}
		if len(tag) > length+4 {
			s.readAttributes(tag[length:])
		}
	}
	return b[:n]
}

// readAttributes adds the hosts of all links in a tag. It records whether the tag hides text.
func (s *reader) readAttributes(tag []byte) {
	for rest := tag; ; {
		at := bytes.Index(rest, []byte("://"))
		if at < 0 || s.links > maxLinks {
			break
		}
		s.links++
		rest = rest[at+3:]
		s.addHost(rest[:min(len(rest), 200)])
	}
	if at := bytes.Index(tag, []byte("display:")); at >= 0 && bytes.HasPrefix(bytes.TrimLeft(tag[at+8:min(len(tag), at+16)], " "), []byte("none")) {
		s.hidesText = true
	}
	if at := bytes.Index(tag, []byte("font-size:")); at >= 0 {
		if rest := bytes.TrimLeft(tag[at+10:min(len(tag), at+16)], " "); len(rest) > 1 && rest[0] <= '1' && rest[1] != '.' && asciiFold[rest[1]] != 0 && (rest[1] < '0' || rest[1] > '9') {
			s.hidesText = true
		}
	}
}

// indexFold is like bytes.Index, but ignores the letter case of b. sought must be in lower case,
// and its first character must not be a letter.
func indexFold(b, sought []byte) int {
	for from := 0; ; from++ {
		at := bytes.IndexByte(b[from:], sought[0])
		if at < 0 {
			return -1
		}
		from += at
		same := 1
		for same < min(len(sought), len(b)-from) && lower(b[from+same]) == sought[same] {
			same++
		}
		if same == len(sought) {
			return from
		}
	}
}

// entities are the HTML entities that occur in words and between them.
var entities = map[string]rune{
	"amp": '&', "lt": '<', "gt": '>', "quot": '"', "apos": '\'', "nbsp": ' ', "zwnj": 0x200c, "zwj": 0x200d, "shy": 0xad,
	"euro": '€', "pound": '£', "yen": '¥', "copy": '©', "reg": '®', "trade": '™', "hellip": '…', "ndash": '–', "mdash": '—', "middot": '·',
	"bull": '•', "rsquo": '’', "lsquo": '‘', "rdquo": '”', "ldquo": '“', "raquo": '»', "laquo": '«', "dollar": '$',
	"auml": 'ä', "ouml": 'ö', "uuml": 'ü', "Auml": 'Ä', "Ouml": 'Ö', "Uuml": 'Ü', "szlig": 'ß', "eacute": 'é', "egrave": 'è',
	"ecirc": 'ê', "agrave": 'à', "aacute": 'á', "acirc": 'â', "atilde": 'ã', "aring": 'å', "aelig": 'æ', "ccedil": 'ç', "iacute": 'í',
	"icirc": 'î', "iuml": 'ï', "euml": 'ë', "ntilde": 'ñ', "oacute": 'ó', "ograve": 'ò', "ocirc": 'ô', "otilde": 'õ', "oslash": 'ø',
	"uacute": 'ú', "ugrave": 'ù', "ucirc": 'û', "yacute": 'ý', "Eacute": 'É', "Egrave": 'È', "Agrave": 'À', "Aacute": 'Á', "Ccedil": 'Ç',
	"Iacute": 'Í', "Ntilde": 'Ñ', "Oacute": 'Ó', "Uacute": 'Ú', "iexcl": '¡', "iquest": '¿', "sol": '/', "colon": ':', "period": '.', "excl": '!',
}

// decodeEntity returns the length of the HTML entity at the start of b, and the character for it.
// If there is no entity, it returns 1 and &. No entity is shorter than its character in UTF-8.
func decodeEntity(b []byte) (size int, r rune) {
	end := 1
	for end < min(len(b), 12) && (asciiFold[b[end]] != 0 || b[end] == '#' && end == 1) {
		end++
	}
	if end < 3 {
		return 1, '&'
	}
	size = end
	if end < len(b) && b[end] == ';' {
		size++
	}
	name := b[1:end]
	if name[0] != '#' {
		if r, ok := entities[string(name)]; ok && size > end {
			return size, r
		}
		return 1, '&'
	}
	base, digits := rune(10), name[1:]
	if lower(digits[0]) == 'x' {
		base, digits = 16, digits[1:]
	}
	for _, c := range digits {
		v := rune(hexValues[c])
		if v >= base || r > utf8.MaxRune {
			return 1, '&'
		}
		r = r*base + v
	}
	if len(digits) == 0 || r > utf8.MaxRune || r == 0 || utf8.RuneLen(r) < 0 || utf8.RuneLen(r) > size {
		return 1, '&'
	}
	return size, r
}
