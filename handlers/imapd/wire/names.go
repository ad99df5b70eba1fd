package wire

import (
	"encoding/base64"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// modifiedBase64 is the base64 encoding in modified UTF-7 (RFC 3501 section 5.1.3).
var modifiedBase64 = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,").WithPadding(base64.NoPadding)

// decodeName decodes a folder name from modified UTF-7, in which UTF-8 is accepted too. ok is false
// if it cannot be decoded.
func decodeName(text string) (name string, ok bool) {
	if !isValidName(text) {
		return "", false
	}
	var out strings.Builder
	for shiftedBefore := false; ; {
		plain, rest, found := strings.Cut(text, "&")
		out.WriteString(plain)
		if !found {
			return out.String(), true
		}
		shifted, after, closed := strings.Cut(rest, "-")
		switch {
		case !closed, shifted != "" && shiftedBefore && plain == "": // two adjacent encoded parts must be one
			return "", false
		case shifted == "":
			out.WriteByte('&')
		case !decodeShifted(&out, shifted):
			return "", false
		}
		text, shiftedBefore = after, shifted != ""
	}
}

// isValidName reports whether a folder name is UTF-8 without control characters.
func isValidName(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// decodeShifted decodes the part between "&" and "-", which is UTF-16 in modified base64. It
// returns false for invalid text, and for printable ASCII, which must not be encoded.
func decodeShifted(out *strings.Builder, shifted string) (valid bool) {
	raw, err := modifiedBase64.DecodeString(shifted)
	if err != nil || len(raw) == 0 || len(raw)%2 != 0 {
		return false
	}
	for i := 0; i < len(raw); i += 2 {
		r := rune(raw[i])<<8 | rune(raw[i+1])
		if utf16.IsSurrogate(r) {
			i += 2
			if i == len(raw) {
				return false
			}
			r = utf16.DecodeRune(r, rune(raw[i])<<8|rune(raw[i+1]))
			if r == utf8.RuneError {
				return false
			}
		}
		if r >= ' ' && r < 0x7f {
			return false
		}
		out.WriteRune(r)
	}
	return true
}

// encodeName encodes a folder name in modified UTF-7.
func encodeName(name string) string {
	var out strings.Builder
	for len(name) > 0 {
		plain := strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r > '~' })
		if plain < 0 {
			plain = len(name)
		}
		out.WriteString(strings.ReplaceAll(name[:plain], "&", "&-"))
		name = name[plain:]
		shifted := strings.IndexFunc(name, func(r rune) bool { return r >= ' ' && r <= '~' })
		if shifted < 0 {
			shifted = len(name)
		}
		if shifted == 0 {
			continue
		}
		var raw []byte
		for _, unit := range utf16.Encode([]rune(name[:shifted])) {
			raw = append(raw, byte(unit>>8), byte(unit))
		}
		out.WriteString("&" + modifiedBase64.EncodeToString(raw) + "-")
		name = name[shifted:]
	}
	return out.String()
}

// Folder returns a folder name as an answer has it: quoted, and encoded unless the client uses
// UTF-8.
func (c *Conn) Folder(name string) string {
	switch {
	case strings.EqualFold(name, "INBOX"):
		return "INBOX"
	case c.utf8:
		return Quote(name)
	}
	return Quote(encodeName(name))
}

// Quote returns s as a quoted string. s must not contain NUL, CR or LF.
func Quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
