package imapd

import (
	"encoding/base64"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// modifiedBase64 is that of folder names (RFC 3501 section 5.1.3).
var modifiedBase64 = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,").WithPadding(base64.NoPadding)

// unreadableName replaces a folder's name that cannot be read: no folder has this name or can get
// it.
const unreadableName = `"#unreadable"`

// nameArgs has the positions of folders' names in each command. Those of LIST may stand anywhere.
var nameArgs = map[string][]int{
	"SELECT": {2}, "EXAMINE": {2}, "CREATE": {2}, "DELETE": {2}, "RENAME": {2, 3}, "SUBSCRIBE": {2}, "UNSUBSCRIBE": {2},
	"STATUS": {2}, "APPEND": {2}, "GETQUOTAROOT": {2}, "COPY": {3}, "MOVE": {3}, "UID COPY": {4}, "UID MOVE": {4},
}

// replaceBadNames replaces each folder's name that cannot be read by one that no folder has. The
// command is well formed, so its answer must be NO; the parser would answer BAD.
func replaceBadNames(verb string, text []byte) []byte {
	p, at, replacement := newCommandEditor(text), nameArgs[verb], unreadableName
	if verb == "LIST" || verb == "LSUB" {
		replacement = quoted(strings.Repeat("#", 256)) // not even with a reference before it
		for i := 2; i < len(p.tokens) && p.word(i) != "RETURN"; i++ {
			at = append(at, i)
		}
	}
	for _, i := range at {
		name, ok := p.value(i)
		if !ok {
			continue
		}
		if _, ok := decodeName(name); !ok {
			p.replace(i, i, replacement)
		}
	}
	if len(p.edits) == 0 {
		return text
	}
	return p.result()
}

// decodeName reads a folder's name as clients write it: in modified UTF-7, or in UTF-8 where that
// was agreed. It takes what go-imap takes.
func decodeName(text string) (string, bool) {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
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
		case !closed, shifted != "" && shiftedBefore && plain == "": // two shifts in a row could be one
			return "", false
		case shifted == "":
			out.WriteByte('&')
		case !decodeShifted(&out, shifted):
			return "", false
		}
		text, shiftedBefore = after, shifted != ""
	}
}

// decodeShifted reads UTF-16 in modified base64, of characters that could not stand for themselves.
func decodeShifted(out *strings.Builder, shifted string) bool {
	raw, err := modifiedBase64.DecodeString(shifted)
	if err != nil || len(raw) == 0 || len(raw)%2 != 0 {
		return false
	}
	for i := 0; i < len(raw); i += 2 {
		r := rune(raw[i])<<8 | rune(raw[i+1])
		if utf16.IsSurrogate(r) {
			if i += 2; i == len(raw) {
				return false
			}
			if r = utf16.DecodeRune(r, rune(raw[i])<<8|rune(raw[i+1])); r == utf8.RuneError {
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
