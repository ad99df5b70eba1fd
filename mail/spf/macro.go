package spf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

var macroPattern = lazyregexp.New(macroExpand)

// Expand expands the macros in a well-formed text (RFC 7208 section 7). value returns the value of
// a macro letter, which is in lower case. Expand then splits, reverses and escapes that value as
// the macro says.
func Expand(text string, value func(letter byte) string) string {
	return macroPattern().ReplaceAllStringFunc(text, func(s string) string {
		switch s {
		case "%%":
			return "%"
		case "%_":
			return " "
		case "%-":
			return "%20"
		}
		letter, transformers := s[2], s[3:len(s)-1]
		lower := letter | 0x20
		out := transform(value(lower), transformers)
		if letter != lower {
			return escapeURL(out)
		}
		return out
	})
}

// transform applies the transformers of a macro to a value. It splits the value at the delimiters.
// If there is an r, it reverses the parts. Of the parts it keeps the last ones, as many as the
// number says.
func transform(value, transformers string) string {
	digits := strings.TrimLeft(transformers, "0123456789")
	keep, _ := strconv.Atoi(transformers[:len(transformers)-len(digits)])
	delimiters := strings.TrimLeft(digits, "rR")
	reverse := delimiters != digits
	if delimiters == "" {
		delimiters = "."
	}
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(delimiters, r) })
	if reverse {
		slices.Reverse(parts)
	}
	if 0 < keep && keep < len(parts) {
		parts = parts[len(parts)-keep:]
	}
	return strings.Join(parts, ".")
}

// escapeURL percent-encodes all characters but the unreserved ones (RFC 3986 section 2.3).
func escapeURL(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
