package msg

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/charset"
	"github.com/mailstead/mailstead/mail/transfer"
)

// maxParamText is the maximum length of a raw Content-Type or Content-Disposition value, in bytes.
const maxParamText = 64 << 10

// parseParams splits a Content-Type or Content-Disposition value into the text before its
// parameters (head) and the parameters. It decodes values by RFC 2231, and by RFC 2047, which many
// programs use instead. Semicolons may be missing. label is the charset of raw 8-bit text.
func parseParams(value []byte, label string) (head string, params map[string]string) {
	value = unfold(value)
	s := charset.DecodeRaw(value[:min(len(value), maxParamText)], label)
	head, rest := cutHead(s)
	p := paramReader{s: rest}
	for p.pos < len(p.s) && len(p.raw) < MaxParams {
		p.readParam()
	}
	return head, p.decode()
}

// cutHead splits off the text before the parameters, which may be quoted and may have space around
// its slash. head is "" if the value begins with a parameter.
func cutHead(s string) (head, rest string) {
	first, rest, _ := strings.Cut(s, ";")
	head = firstWord(first)
	if i := strings.IndexAny(head, ",:"); i >= 0 {
		head = head[:i]
	}
	if strings.IndexByte(head, '=') >= 0 {
		return "", s
	}
	if len(first) > len(head) && strings.IndexByte(first, '=') >= 0 { // the semicolon after the head is missing
		rest = s[strings.Index(s, head)+len(head):]
	} else if typ, subtype, ok := strings.Cut(first, "/"); ok && !strings.Contains(head, "/") || strings.HasSuffix(head, "/") {
		head = strings.TrimSpace(typ) + "/" + firstWord(subtype)
	}
	return strings.Trim(head, `"',:`), rest
}

// firstWord returns the first word of s, without a comment: "text/plain" for "text/plain (for
// people)".
func firstWord(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexAny(s, " \t("); i >= 0 {
		s = s[:i]
	}
	return s
}

func isToken(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?=`, s[i]) >= 0 {
			return false
		}
	}
	return s != ""
}

// rawParam is a parameter as written, perhaps one piece of a value (RFC 2231).
type rawParam struct {
	name, value string
}

type paramReader struct {
	s   string
	pos int
	raw []rawParam
}

// readParam reads one parameter and the semicolon after it, or skips text that is not a parameter.
func (p *paramReader) readParam() {
	rest := p.s[p.pos:]
	end := strings.IndexAny(rest, "=;")
	if end < 0 || rest[end] == ';' {
		p.skipPast(end)
		return
	}
	name := strings.ToLower(lastWord(dropComments(rest[:end])))
	p.pos += end + 1
	p.pos += len(p.s[p.pos:]) - len(strings.TrimLeft(p.s[p.pos:], " \t"))
	if rest := p.s[p.pos:]; strings.HasPrefix(rest, `\"`) || len(rest) > 2 && rest[:2] == `""` && strings.IndexByte("; \t", rest[2]) < 0 {
		p.pos++ // quotes within quotes: skip the outer quote
	}
	var value string
	if p.pos < len(p.s) && p.s[p.pos] == '"' {
		value = p.readQuoted() // the next call of readParam skips any text before the next parameter
	} else {
		value = p.readUnquoted(name)
	}
	if isToken(name) && len(name) <= 64 {
		p.raw = append(p.raw, rawParam{name, value})
	}
}

// skipPast moves past the semicolon at the given index after pos, or to the end if the index is
// negative.
func (p *paramReader) skipPast(semicolon int) {
	if semicolon < 0 {
		p.pos = len(p.s)
		return
	}
	p.pos += semicolon + 1
}

// lastWord returns the last word of s. Of the text before a "=", that is the name of the parameter;
// the other words are not part of it.
func lastWord(s string) string {
	s = strings.Trim(s, " \t,")
	return s[strings.LastIndexAny(s, " \t,")+1:]
}

// readQuoted reads a quoted string. A backslash that precedes neither a quote nor a backslash is
// kept, since some programs send Windows paths. If the closing quote is missing, or belongs to the
// next parameter, the string ends before the next semicolon.
func (p *paramReader) readQuoted() string {
	var out strings.Builder
	start := p.pos + 1
	for p.pos++; p.pos < len(p.s); p.pos++ {
		c := p.s[p.pos]
		if c == '"' && (p.s[p.pos-1] != '=' || !strings.Contains(p.s[start:p.pos], ";") || p.pos+1 == len(p.s) || strings.IndexByte("; \t", p.s[p.pos+1]) >= 0) {
			p.pos++
			return out.String()
		}
		if c == '"' {
			break
		}
		if c == '\\' && p.pos+1 < len(p.s) && (p.s[p.pos+1] == '"' || p.s[p.pos+1] == '\\') {
			p.pos++
			c = p.s[p.pos]
		}
		out.WriteByte(c)
	}
	value, _, cut := strings.Cut(p.s[start:], ";")
	if !cut {
		return strings.TrimRight(out.String(), `"`)
	}
	p.pos = start + len(value)
	return strings.TrimRight(value, " \t\\\"")
}

// nextParam matches the start of a parameter without a semicolon before it.
var nextParam = regexp.MustCompile(`(?i)[ \t]+(?:name|filename|charset|boundary|size|type|format|delsp|method|(?:creation|modification|read)-date)(?:\*[0-9]{0,3}\*?)?[ \t]*=`)

// readUnquoted reads a value without quotes. A file name may contain spaces, although the standard
// forbids them.
func (p *paramReader) readUnquoted(name string) string {
	from := p.pos
	if inner, _, ok := strings.Cut(strings.TrimPrefix(p.s[from:], "'"), "'"); ok && p.s[from] == '\'' && name != "boundary" { // the quotes of a boundary may be part of it
		if after := strings.TrimLeft(p.s[from+len(inner)+2:], " \t"); after == "" || after[0] == ';' {
			p.pos = from + len(inner) + 2
			return inner
		}
	}
	value, _, _ := strings.Cut(p.s[p.pos:], ";")
	p.skipPast(strings.IndexByte(p.s[p.pos:], ';'))
	if strings.IndexByte(value, '=') >= 0 {
		if at := nextParam.FindStringIndex(value); at != nil {
			value, p.pos = value[:at[0]], from+at[0]
		}
	}
	value = strings.TrimSpace(value)
	switch {
	case strings.HasPrefix(name, "name") || strings.HasPrefix(name, "filename"):
	case name == "boundary": // may contain parentheses, which look like a comment
		value, _, _ = strings.Cut(strings.ReplaceAll(value, "\t", " "), " ")
		value = strings.TrimRight(value, ",")
	default:
		value, _, _ = strings.Cut(firstWord(dropComments(value)), ",")
	}
	return strings.TrimRight(value, `"`)
}

// paramPieces holds the pieces of one parameter by their number (RFC 2231 §3, §4).
type paramPieces struct {
	text    map[int]string
	encoded map[int]bool
}

func (p *paramReader) decode() map[string]string {
	if len(p.raw) == 0 {
		return nil
	}
	out := make(map[string]string, len(p.raw))
	var pieces map[string]paramPieces
	for _, r := range p.raw {
		name, number, encoded := splitParamName(r.name)
		if number < 0 {
			if _, twice := out[name]; !twice {
				out[name] = decodePlainParam(name, r.value)
			}
			continue
		}
		if pieces == nil {
			pieces = make(map[string]paramPieces)
		}
		if _, ok := pieces[name]; !ok {
			pieces[name] = paramPieces{map[int]string{}, map[int]bool{}}
		}
		if _, twice := pieces[name].text[number]; !twice {
			pieces[name].text[number], pieces[name].encoded[number] = r.value, encoded
		}
	}
	for name, piece := range pieces {
		if text := piece.join(); text != "" {
			out[name] = text
		}
	}
	return out
}

// splitParamName splits a name such as "filename*1*" into the name, the number of the piece, and
// whether the piece is percent-encoded. The number is -1 for a plain name.
func splitParamName(s string) (name string, number int, encoded bool) {
	name, rest, starred := strings.Cut(s, "*")
	if !starred || name == "" {
		return s, -1, false
	}
	if rest == "" {
		return name, 0, true
	}
	digits, encoded := strings.CutSuffix(rest, "*")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > 999 {
		return s, -1, false
	}
	return name, n, encoded
}

// decodePlainParam returns the value of a parameter that is not written in the form of RFC 2231.
func decodePlainParam(name, value string) string {
	if name == "boundary" {
		return strings.TrimRight(cut(value, MaxParamValue), " ")
	}
	return cleanText(decodeWords(value), MaxParamValue)
}

// join joins the pieces in the order of their numbers, which may begin at 1 and have gaps.
func (p paramPieces) join() string {
	mark, label, anyEncoded := "", "", false
	var out []byte
	for n, i := range slices.Sorted(maps.Keys(p.text)) {
		text := p.text[i]
		if len(out) > 4*MaxParamValue {
			break
		}
		if !p.encoded[i] {
			out = append(out, text...)
			continue
		}
		if n == 0 {
			var rest string
			label, rest = splitCharset(text)
			mark, text = text[:len(text)-len(rest)], rest
		} else if mark != "" {
			text = strings.TrimPrefix(text, mark) // some programs repeat charset'language' in each piece
		}
		anyEncoded = anyEncoded || strings.Contains(text, "%")
		out = appendPercentDecoded(out, text)
	}
	if !anyEncoded { // some programs split RFC 2047 encoded words into pieces
		return cleanText(decodeWords(string(out)), MaxParamValue)
	}
	return cleanText(charset.Decode(out, label), MaxParamValue)
}

// splitCharset removes the prefix charset'language' from an encoded value (RFC 2231 §4), or
// charset' alone if the charset is known. label is that charset, "" if there is no prefix.
func splitCharset(s string) (label, text string) {
	label, rest, ok := strings.Cut(s, "'")
	if !ok {
		return "", s
	}
	_, text, ok = strings.Cut(rest, "'")
	switch {
	case ok:
		return label, text
	case charset.Known(label):
		return label, rest
	}
	return "", s
}

func appendPercentDecoded(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && transfer.IsHex(s[i+1]) && transfer.IsHex(s[i+2]) {
			dst = append(dst, transfer.Unhex(s[i+1])<<4|transfer.Unhex(s[i+2]))
			i += 2
			continue
		}
		dst = append(dst, s[i])
	}
	return dst
}
