package imapd

import (
	"encoding/base64"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// modifiedBase64 is that of folder names (RFC 3501 section 5.1.3).
var modifiedBase64 = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,").WithPadding(base64.NoPadding)

// decodeName reads a folder's name as clients write it: in modified UTF-7, or in UTF-8 where that was agreed.
func decodeName(text string) (string, bool) {
	var out strings.Builder
	for {
		plain, rest, found := strings.Cut(text, "&")
		out.WriteString(plain)
		if !found {
			return out.String(), utf8.ValidString(out.String())
		}
		shifted, after, closed := strings.Cut(rest, "-")
		if !closed {
			return "", false
		}
		if shifted == "" {
			out.WriteByte('&')
		} else if !decodeShifted(&out, shifted) {
			return "", false
		}
		text = after
	}
}

func decodeShifted(out *strings.Builder, shifted string) bool {
	raw, err := modifiedBase64.DecodeString(shifted)
	if err != nil || len(raw) == 0 || len(raw)%2 != 0 {
		return false
	}
	units := make([]uint16, len(raw)/2)
	for i := range units {
		units[i] = uint16(raw[2*i])<<8 | uint16(raw[2*i+1])
	}
	for _, r := range utf16.Decode(units) {
		if r == utf8.RuneError {
			return false
		}
		out.WriteRune(r)
	}
	return true
}
