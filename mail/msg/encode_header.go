package msg

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/mail/charset"
	"github.com/mailstead/mailstead/mail/idn"
)

// EncodeHeader converts a header block to ASCII: text to RFC 2047 encoded words, parameters to RFC
// 2231, domains to A-labels. Fields that are ASCII stay byte for byte. A value that needs SMTPUTF8
// (RFC 6532), such as an address with a non-ASCII local part, is an error. The error wraps
// ErrHeader and names the field.
func EncodeHeader(block []byte) ([]byte, error) {
	var out []byte
	for rest := block; len(rest) > 0; {
		f, n := firstField(rest)
		if n == 0 {
			return append(out, rest...), nil
		}
		whole := rest[:n]
		rest = rest[n:]
		if charset.IsASCII(string(whole)) {
			out = append(out, whole...)
			continue
		}
		if f.name == nil {
			return nil, fmt.Errorf("%w: a line without a field name has letters beyond ASCII", ErrHeader)
		}
		value, err := encodeValue(string(f.name), f.value)
		if err == nil {
			out, err = appendField(out, string(f.name), value)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// encodeValue converts the value of a field to ASCII.
func encodeValue(name string, value []byte) (string, error) {
	lower := strings.ToLower(name)
	text := charset.Guess(unfold(value))
	switch {
	case lower == "content-type" || lower == "content-disposition":
		return encodeParams(text), nil
	case addressFieldNames[lower] || strings.HasPrefix(lower, "list-"):
		return (&valueEncoder{name: name, s: text, hasPhrases: true}).encode()
	case structuredFieldNames[lower] || strings.HasPrefix(lower, "arc-"):
		return (&valueEncoder{name: name, s: text}).encode()
	}
	return encodeWords(cleanText(decodeWords(text), MaxHeader)), nil
}

// addressFieldNames are the fields that hold addresses, or phrases followed by something in angle
// brackets.
var addressFieldNames = map[string]bool{
	"from": true, "to": true, "cc": true, "bcc": true, "reply-to": true, "sender": true, "resent-from": true, "resent-to": true,
	"resent-cc": true, "resent-bcc": true, "resent-sender": true, "resent-reply-to": true, "mail-followup-to": true, "mail-reply-to": true,
	"disposition-notification-to": true, "return-receipt-to": true, "errors-to": true, "delivered-to": true, "return-path": true,
}

// structuredFieldNames are the other fields with a syntax of their own. Only their comments may
// contain encoded words.
var structuredFieldNames = map[string]bool{
	"date": true, "resent-date": true, "message-id": true, "resent-message-id": true, "in-reply-to": true, "references": true,
	"received": true, "mime-version": true, "content-transfer-encoding": true, "content-id": true, "content-location": true,
	"dkim-signature": true, "authentication-results": true, "auto-submitted": true,
}

// encodeParams converts a value with parameters to ASCII. It writes each parameter once, in the
// order of the value.
func encodeParams(text string) string {
	head, rest, _ := strings.Cut(text, ";")
	p := paramReader{s: rest}
	for p.pos < len(p.s) && len(p.raw) < MaxParams {
		p.readParam()
	}
	values := p.decode()
	out := strings.Map(func(r rune) rune {
		if r < 0x80 {
			return r
		}
		return -1
	}, firstWord(head))
	for _, raw := range p.raw {
		name, _, _ := splitParamName(raw.name)
		value, ok := values[name]
		switch {
		case !ok:
			continue
		case name == "boundary" && charset.IsASCII(value): // always quoted, since programs that do not know RFC 2231 must find the boundary
			out += "; " + name + "=" + quoteString(value)
		default:
			out += encodeParam(name, value)
		}
		delete(values, name)
	}
	return out
}

// A valueEncoder converts a structured value to ASCII: its comments and, if hasPhrases is set, also
// its domains and the words before an angle bracket or a colon.
type valueEncoder struct {
	name       string
	s          string
	hasPhrases bool
	pos        int
	out        strings.Builder
	err        error
}

func (e *valueEncoder) encode() (string, error) {
	start := 0 // start of the text that is not yet written
	for e.pos < len(e.s) && e.err == nil {
		switch e.s[e.pos] {
		case '"':
			e.skipQuoted()
		case '(':
			e.writeWords(e.s[start:e.pos], false)
			e.writeComment()
			start = e.pos
		case '<':
			e.writeWords(e.s[start:e.pos], e.hasPhrases)
			e.writeAngle()
			start = e.pos
		case ':', ',', ';':
			e.writeWords(e.s[start:e.pos], e.hasPhrases && e.s[e.pos] == ':')
			e.out.WriteByte(e.s[e.pos])
			e.pos++
			start = e.pos
		default:
			e.pos++
		}
	}
	if e.err == nil {
		e.writeWords(e.s[start:], false)
	}
	return e.out.String(), e.err
}

// skipQuoted moves pos past a quoted string.
func (e *valueEncoder) skipQuoted() {
	for e.pos++; e.pos < len(e.s); e.pos++ {
		switch e.s[e.pos] {
		case '\\':
			e.pos++
		case '"':
			e.pos++
			return
		}
	}
	e.pos = min(e.pos, len(e.s))
}

// writeWords writes the text between two separators. phrase says that the text is a phrase;
// otherwise it is an address.
func (e *valueEncoder) writeWords(s string, phrase bool) {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) { // also a no-break space
			return ' '
		}
		return r
	}, s)
	text := strings.TrimSpace(s)
	switch {
	case e.err != nil:
	case charset.IsASCII(s):
		e.out.WriteString(s)
	case phrase:
		if e.out.Len() > 0 && s[0] == ' ' {
			e.out.WriteByte(' ')
		}
		e.out.WriteString(encodeWords(displayName(unquoted(text))) + " ")
	case strings.Contains(text, "@"):
		e.out.WriteString(strings.Replace(s, text, e.asciiAddress(text), 1))
	default:
		e.fail()
	}
}

// unquoted removes the quotes of quoted strings, and the backslashes of quoted pairs, from a
// phrase.
func unquoted(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			out.WriteByte(s[i])
		case s[i] != '"':
			out.WriteByte(s[i])
		}
	}
	return out.String()
}

// writeComment writes a comment together with the comments inside it.
func (e *valueEncoder) writeComment() {
	start, depth := e.pos+1, 0
	for ; e.pos < len(e.s); e.pos++ {
		switch e.s[e.pos] {
		case '\\':
			e.pos++
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			break
		}
	}
	end := min(e.pos, len(e.s))
	e.pos = min(e.pos+1, len(e.s))
	inside := e.s[start:end]
	if !charset.IsASCII(inside) {
		inside = encodeWords(cleanText(decodeWords(unquoted(inside)), MaxHeader))
	}
	e.out.WriteString("(" + inside + ")")
}

// writeAngle writes a text in angle brackets: an address, an id or a URI.
func (e *valueEncoder) writeAngle() {
	start := e.pos
	for e.pos++; e.pos < len(e.s) && e.s[e.pos] != '>'; {
		if e.s[e.pos] == '"' {
			e.skipQuoted()
		} else {
			e.pos++
		}
	}
	e.pos = min(e.pos+1, len(e.s))
	text := e.s[start:e.pos]
	switch inside := strings.Trim(text, "<>"); {
	case charset.IsASCII(text):
		e.out.WriteString(text)
	case e.hasPhrases && strings.Contains(inside, ":") && strings.HasPrefix(strings.ToLower(e.name), "list-"):
		e.out.WriteString("<" + percentEncodeNonASCII(inside) + ">")
	case e.hasPhrases:
		e.out.WriteString("<" + e.asciiAddress(inside) + ">")
	default:
		e.fail()
	}
}

// percentEncodeNonASCII percent-encodes the non-ASCII bytes of a URI (RFC 3986 section 2.1).
func percentEncodeNonASCII(uri string) string {
	var out bytes.Buffer
	for _, c := range []byte(uri) {
		if c < 0x80 {
			out.WriteByte(c)
		} else {
			out.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return out.String()
}

// asciiAddress converts the domain of an address to ASCII. It fails if the local part is not ASCII.
func (e *valueEncoder) asciiAddress(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 || !charset.IsASCII(s[:at]) {
		e.fail()
		return ""
	}
	host, ok := idn.Host(s[at+1:])
	if !ok {
		e.fail()
	}
	return s[:at+1] + host
}

func (e *valueEncoder) fail() {
	e.err = fmt.Errorf("%w: %s has letters beyond ASCII where only SMTPUTF8 can carry them, such as before the @ of an address", ErrHeader, e.name)
}
