package maildir

import (
	"encoding/base64"
	"strings"
	"unicode/utf16"
)

// utf7Base64 is the variant of base64 in modified UTF-7 (RFC 3501 section 5.1.3).
var utf7Base64 = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,").WithPadding(base64.NoPadding)

// EncodeName encodes one level of a folder's name in modified UTF-7. It also encodes "." and "/",
// which have a meaning in the names of directories.
func EncodeName(name string) string {
	var out strings.Builder
	var run []rune // characters that must be encoded
	flush := func() {
		if len(run) == 0 {
			return
		}
		var b []byte
		for _, unit := range utf16.Encode(run) {
			b = append(b, byte(unit>>8), byte(unit))
		}
		out.WriteString("&" + utf7Base64.EncodeToString(b) + "-")
		run = run[:0]
	}
	for _, c := range name {
		switch {
		case c == '&':
			flush()
			out.WriteString("&-")
		case c >= ' ' && c < 0x7f && c != '.' && c != '/':
			flush()
			out.WriteRune(c)
		default:
			run = append(run, c)
		}
	}
	flush()
	return out.String()
}

// decodeUTF7 decodes modified UTF-7. ok is false if text is invalid.
func decodeUTF7(text string) (name string, ok bool) {
	var out strings.Builder
	for {
		plain, rest, more := strings.Cut(text, "&")
		out.WriteString(plain)
		if !more {
			return out.String(), true
		}
		encoded, after, ended := strings.Cut(rest, "-")
		if !ended {
			return "", false
		}
		if encoded == "" {
			out.WriteByte('&')
		} else {
			b, err := utf7Base64.DecodeString(encoded)
			if err != nil || len(b)%2 != 0 {
				return "", false
			}
			units := make([]uint16, len(b)/2)
			for i := range units {
				units[i] = uint16(b[2*i])<<8 | uint16(b[2*i+1])
			}
			out.WriteString(string(utf16.Decode(units)))
		}
		text = after
	}
}
