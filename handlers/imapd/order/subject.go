// Package order sorts and threads messages as the IMAP commands SORT and THREAD do (RFC 5256). It
// does not know where messages are stored, nor how the commands are parsed.
package order

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// AppendCasemap appends a text to b in the form in which i;unicode-casemap compares texts byte by
// byte (RFC 5051 section 2): each character in title case, and decomposed.
func AppendCasemap(b, text []byte) []byte {
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			b = append(b, c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		i += size
		// norm.NFKD.Properties does not decompose Hangul syllables (Unicode section 3.12).
		if n := r - '가'; n >= 0 && r <= '힣' {
			b = utf8.AppendRune(utf8.AppendRune(b, 0x1100+n/588), 0x1161+n%588/28)
			n %= 28
			if n > 0 {
				b = utf8.AppendRune(b, 0x11a7+n)
			}
			continue
		}
		// Characters are decomposed one by one, because the collation does not reorder combining
		// characters.
		at := len(b)
		b = utf8.AppendRune(b, unicode.ToTitle(r))
		if d := norm.NFKD.Properties(b[at:]).Decomposition(); d != nil {
			b = append(b[:at], d...)
		}
	}
	return b
}

// AppendBaseSubject appends the base subject (RFC 5256 section 2.1) of a decoded subject to b, in
// the form of AppendCasemap. isReply reports whether the subject marks a reply or a forward.
func AppendBaseSubject(b, subject []byte) (out []byte, isReply bool) {
	from := len(b)
	b = AppendCasemap(b, subject)
	to := from // step (1): runs of white space become one space
	for _, c := range b[from:] {
		if c == '\t' || c == '\r' || c == '\n' {
			c = ' '
		}
		if c == ' ' && to > from && b[to-1] == ' ' {
			continue
		}
		b[to] = c
		to++
	}
	base, isReply := baseSubject(b[from:to])
	return append(b[:from], base...), isReply
}

// baseSubject returns the base subject of s by steps (2) to (6) of RFC 5256 section 2.1.
func baseSubject(s []byte) (base []byte, isReply bool) {
	for {
		for { // step (2), subj-trailer
			if rest, ok := bytes.CutSuffix(s, []byte("(FWD)")); ok {
				s, isReply = rest, true
			} else if rest, ok := bytes.CutSuffix(s, []byte(" ")); ok {
				s = rest
			} else {
				break
			}
		}
		for { // steps (3) to (5)
			s = bytes.TrimPrefix(s, []byte(" "))
			rest, last := s, s // rest is s after all blobs; last begins at the last blob
			for {
				after, ok := cutBlob(rest)
				if !ok {
					break
				}
				rest, last = after, rest
			}
			if after, ok := cutReplyMark(rest); ok {
				s, isReply = after, true
				continue
			}
			s = rest
			if len(s) == 0 {
				s = last
			}
			break
		}
		inner, forwarded := bytes.CutPrefix(s, []byte("[FWD:")) // step (6)
		if !forwarded || !bytes.HasSuffix(inner, []byte("]")) {
			return s, isReply
		}
		s, isReply = inner[:len(inner)-1], true
	}
}

// cutBlob cuts a subj-blob, such as "[list] ", off the front. ok is false if there is none.
func cutBlob(s []byte) (rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '[' {
		return s, false
	}
	end := bytes.IndexAny(s[1:], "[]")
	if end < 0 || s[1+end] == '[' {
		return s, false
	}
	return bytes.TrimPrefix(s[end+2:], []byte(" ")), true
}

// cutReplyMark cuts a subj-refwd, such as "RE:", off the front. ok is false if there is none.
func cutReplyMark(s []byte) (rest []byte, ok bool) {
	for _, mark := range [...]string{"RE", "FWD", "FW"} {
		rest, ok = bytes.CutPrefix(s, []byte(mark))
		if ok {
			break
		}
	}
	if !ok {
		return s, false
	}
	rest, _ = cutBlob(bytes.TrimPrefix(rest, []byte(" ")))
	return bytes.CutPrefix(rest, []byte(":"))
}
