package msg

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/transfer"
)

// ErrAuthors is wrapped by all errors about the authors of a message: a field is missing, is
// repeated, or has a form that programs read differently. The text of the error names the field.
var ErrAuthors = errors.New("it is not clear who wrote the message")

const (
	maxAuthors       = 100      // addresses in one From or Resent-From field
	maxAuthorFields  = 200      // From, Sender, Resent-From and Resent-Sender fields of one header
	maxAuthorValue   = 64 << 10 // bytes of one such field, and of all unclear From fields together
	maxAuthorAts     = 1400     // at signs that are examined in unclear From fields; each field is searched in seven forms
	maxAuthorDomains = 64       // domains found in unclear From fields
	maxDomainWords   = 8        // words after an @ that may form one domain together
)

// Authors holds the addresses of those who wrote and sent a message. All programs read these
// addresses alike.
type Authors struct {
	From   []Address // one or more
	Sender []Address // one address, or none if the field is missing
	Resent []Address // addresses of all Resent-From and Resent-Sender fields, in order
}

// ReadAuthors reads From, Sender, Resent-From and Resent-Sender from a whole header, up to its
// empty line. A field that two programs could read differently is an error. Other fields are
// ignored, whatever their number and size. Errors wrap ErrAuthors.
func ReadAuthors(header []byte) (*Authors, error) {
	out := &Authors{}
	fields, ok := authorFields(header)
	if !ok {
		return nil, fmt.Errorf("%w: the fields that name authors are too many or too long", ErrAuthors)
	}
	for _, f := range fields {
		list, err := f.addresses()
		switch {
		case err != nil:
			return nil, err
		case f.name == "From" && out.From != nil, f.name == "Sender" && out.Sender != nil:
			return nil, f.faultError("stands twice")
		case strings.HasSuffix(f.name, "Sender") && len(list) != 1: // RFC 5322 §3.6.2, §3.6.6
			return nil, f.faultError("has more than one address")
		case f.name == "From":
			out.From = list
		case f.name == "Sender":
			out.Sender = list
		default:
			out.Resent = append(out.Resent, list...)
		}
	}
	if out.From == nil {
		return nil, fmt.Errorf("%w: the message has no From field", ErrAuthors)
	}
	return out, nil
}

// PossibleAuthors holds everyone whom some mail program could show as the author of a message.
type PossibleAuthors struct {
	Emails  []string // the addresses of the From field, if all programs read the field alike
	Domains []string // every domain that a program could find in a field that it takes for From; empty if Emails is set
	Unclear bool     // programs may disagree about the author
	TooMany bool     // Domains is incomplete, since a limit was reached
}

// ReadPossibleAuthors reads the From field of a whole header, and every field that some program
// could take for From. It returns the zero value if the header has none.
func ReadPossibleAuthors(header []byte) PossibleAuthors {
	fields, complete := authorFields(header)
	fields = slices.DeleteFunc(fields, func(f authorField) bool { return f.name != "From" })
	if len(fields) == 1 && complete {
		list, err := fields[0].addresses()
		if err != nil {
			list = fields[0].repeatedAddress()
		}
		if list != nil {
			var out PossibleAuthors
			for _, a := range list {
				out.Emails = append(out.Emails, a.Email())
			}
			return out
		}
	}
	d := domainFinder{atsLeft: maxAuthorAts, bytesLeft: maxAuthorValue}
	var values []string
	for _, f := range fields {
		d.findDomains(f.value)
		values = append(values, f.value)
	}
	if len(values) > 1 { // some programs join the fields, so a comment may continue in the next field
		d.findDomains(strings.Join(values, ", "))
	}
	return PossibleAuthors{Domains: d.found, Unclear: len(fields) > 0 || !complete, TooMany: d.incomplete || !complete}
}

// authorField is a field that some program could take for From, Sender, Resent-From or
// Resent-Sender.
type authorField struct {
	name  string // canonical name
	raw   []byte // value, still folded
	value string // raw, unfolded; a bare CR stays
	wrong string // why programs disagree on whether this is an author field; "" if they agree
}

// faultError returns an error about the field. what is the end of a sentence that begins with the
// field's name.
func (f authorField) faultError(what string) error {
	return fmt.Errorf("%w: the %s field %s", ErrAuthors, f.name, what)
}

// authorFields finds the author fields up to the first empty line. Some programs end a line at a
// bare CR, others do not; if the two readings differ, it returns the fields of both. complete is
// false if there are too many fields.
func authorFields(header []byte) (_ []authorField, complete bool) {
	out, ok := splitAuthorFields(header)
	if n := bytes.Count(header, []byte("\r")); n == bytes.Count(header, []byte("\r\n")) || !ok {
		return out, ok
	}
	header = bytes.ReplaceAll(bytes.ReplaceAll(header, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	others, ok := splitAuthorFields(header)
	if slices.EqualFunc(out, others, func(a, b authorField) bool { return a.name == b.name && a.value == b.value && a.wrong == b.wrong }) {
		return out, ok
	}
	out = append(out, others...)
	for i := range out {
		out[i].wrong = "stands by a bare CR"
	}
	return out, ok
}

// splitAuthorFields finds the author fields in lines that end in LF or CRLF. It includes fields
// after a line that ends the header for some programs only, and fields with a name that only some
// programs accept.
func splitAuthorFields(header []byte) (_ []authorField, complete bool) {
	var out []authorField
	open, inField, ended := -1, false, false // open: index of the field to which the next folded line belongs, or -1
	start := 0                               // index in header at which the value of the field out[open] begins
	for pos := 0; pos < len(header); {
		first, begin := pos == 0, pos
		line, _, _ := bytes.Cut(header[pos:], []byte("\n"))
		pos = min(pos+len(line)+1, len(header))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) == 0 {
			break
		}
		if inField && (line[0] == ' ' || line[0] == '\t') {
			if open < 0 {
				continue
			}
			out[open].raw = header[start : begin+len(line)]
			if len(out[open].raw) > maxAuthorValue {
				return out, false
			}
			if len(bytes.TrimSpace(line)) == 0 && out[open].wrong == "" {
				out[open].wrong = "has a blank line in it" // some programs end the header there
			}
			continue
		}
		open = -1
		name, value, colon := bytes.Cut(line, []byte(":"))
		if kind := canonicalAuthorField(name); kind != "" {
			f := authorField{name: kind, raw: value}
			if ended {
				f.wrong = "stands behind a line that is no header field"
			} else if !colon || !strings.EqualFold(string(name), kind) {
				f.wrong = "has something between its name and the colon, or before the name"
			}
			out = append(out, f)
			open, start = len(out)-1, begin+min(len(name)+1, len(line))
		}
		if len(out) > maxAuthorFields || len(value) > maxAuthorValue && open >= 0 {
			return out, false
		}
		inField = colon && fieldNameLength(line) > 0 || open >= 0
		ended = ended || !inField && !(first && isMboxLine(line))
	}
	for i := range out {
		text := string(out[i].raw)
		if strings.Contains(text, "\n") { // folded
			text = removeLineEnds.Replace(text)
		}
		out[i].value = strings.Trim(text, " \t")
	}
	return out, true
}

// Replacers for the different forms in which programs read an unclear From field.
var (
	removeLineEnds = strings.NewReplacer("\r\n", "", "\n", "")
	removeQuotes   = strings.NewReplacer(`"`, "", `\`, "")
	removeWordEnds = strings.NewReplacer(`"`, "", `\`, "", "?=", "") // for text that looks like an encoded word but is none
)

// canonicalAuthorField returns From, Sender, Resent-From or Resent-Sender if some program could
// take name for it, otherwise "".
func canonicalAuthorField(name []byte) string {
	if len(name) < len("from") || len(name) > 64 {
		return ""
	}
	var lower [64]byte
	n := 0
	for _, c := range name {
		if c > ' ' && c < 0x7f {
			lower[n] = lowerByte(c)
			n++
		}
	}
	switch string(lower[:n]) {
	case "from":
		return "From"
	case "sender":
		return "Sender"
	case "resent-from":
		return "Resent-From"
	case "resent-sender":
		return "Resent-Sender"
	}
	return ""
}

// addresses parses the field's addresses strictly: RFC 5322 §3.4, but without groups, domain
// literals, quoted local parts and the obsolete forms of §4, and with comments only after an
// address.
func (f authorField) addresses() ([]Address, error) {
	if f.wrong != "" {
		return nil, f.faultError(f.wrong)
	}
	if !utf8.ValidString(f.value) || strings.ContainsFunc(f.value, isAmbiguousRune) {
		return nil, f.faultError("has control characters or broken UTF-8")
	}
	r := authorReader{s: f.value}
	var out []Address
	for {
		a, ok := r.readMailbox()
		if !ok {
			return nil, f.faultError("is not a plain list of addresses, each name@domain or Name <name@domain>")
		}
		out = append(out, a)
		if len(out) > maxAuthors {
			return nil, f.faultError(fmt.Sprintf("has more than %d addresses", maxAuthors))
		}
		if r.pos == len(r.s) {
			return out, nil
		}
		if r.s[r.pos] != ',' {
			return nil, f.faultError("has text behind an address")
		}
		r.pos++
	}
}

// isAmbiguousRune reports whether programs read r differently: some end a line or a word at r, or
// skip r.
func isAmbiguousRune(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) || r == 0xfeff
}

// repeatedAddress returns the address of a value such as "a@b.example <a@b.example>", nil for other
// values. This form is invalid (RFC 5322 §3.2.5) but common. Both ways to read it give the same
// address.
func (f authorField) repeatedAddress() []Address {
	first, second, ok := strings.Cut(f.value, " <")
	if !ok || f.wrong != "" || !strings.EqualFold(first+">", second) {
		return nil
	}
	r := authorReader{s: first}
	a, ok := r.readAddrSpec()
	if !ok || r.pos < len(first) || !strings.HasPrefix(second, a.Mailbox+"@") {
		return nil
	}
	return []Address{a}
}

// authorReader parses the addresses of one author field.
type authorReader struct {
	s   string
	pos int
}

func (r *authorReader) skipSpace() {
	r.pos += len(r.s[r.pos:]) - len(strings.TrimLeft(r.s[r.pos:], " \t"))
}

func (r *authorReader) at(c byte) bool { return r.pos < len(r.s) && r.s[r.pos] == c }

// readMailbox reads "a@b", "Name <a@b>" or "<a@b>", each optionally followed by a comment, up to
// the next comma or the end (RFC 5322 §3.4).
func (r *authorReader) readMailbox() (a Address, ok bool) {
	r.skipSpace()
	start := r.pos
	a, ok = r.readAddrSpec()
	if !ok {
		r.pos = start
		name, ok := r.readPhrase()
		if !ok || !r.at('<') {
			return a, false
		}
		r.pos++
		a, ok = r.readAddrSpec()
		if !ok || !r.at('>') {
			return a, false
		}
		r.pos++
		a.Name = displayName(name)
	}
	r.skipSpace()
	if !r.at('(') {
		return a, true
	}
	end := strings.IndexByte(r.s[r.pos:], ')')
	if end < 0 || strings.ContainsAny(r.s[r.pos+1:r.pos+end], `(\,"<>`) || !areEncodedWords(r.s[r.pos+1:r.pos+end]) {
		return a, false
	}
	if a.Name == "" {
		a.Name = displayName(r.s[r.pos+1 : r.pos+end])
	}
	r.pos += end + 1
	r.skipSpace()
	return a, true
}

// readPhrase reads a display name: atoms, dots after the first character, and quoted strings (RFC
// 5322 §3.2.5). Encoded words in it must be valid.
func (r *authorReader) readPhrase() (_ string, ok bool) {
	var name strings.Builder
	start, plain := r.pos, r.pos // plain: start of the text since the last quoted string
	for r.pos < len(r.s) {
		switch c := r.s[r.pos]; {
		case c == '"':
			before := r.s[plain:r.pos]
			text, ok := r.readQuoted()
			if !ok || !areEncodedWords(before) || !areEncodedWords(text) {
				return "", false
			}
			name.WriteString(text)
			plain = r.pos
		case c == ' ' || c == '\t' || isAtomByte(c) || c == '.' && r.pos > start && r.s[start] != '.':
			name.WriteByte(c)
			r.pos++
		default: // a dot before the angle bracket is refused: some programs ignore it
			return name.String(), c == '<' && areEncodedWords(r.s[plain:r.pos]) && (r.pos == start || r.s[r.pos-1] != '.')
		}
	}
	return "", false
}

// areEncodedWords reports whether every "=?" in s begins a valid encoded word (RFC 2047 §2), and
// the decoded text has no unsafe characters.
func areEncodedWords(s string) bool {
	if strings.ContainsFunc(decodeWordsLeniently(s), func(r rune) bool { return r != 0xfeff && isAmbiguousRune(r) }) {
		return false
	}
	for {
		_, rest, ok := strings.Cut(s, "=?")
		if !ok {
			return true
		}
		word := strings.SplitN(rest, "?", 4) // charset, encoding, text, rest
		if len(word) < 4 || !isToken(word[0]) || word[2] == "" || !strings.EqualFold(word[1], "q") && !strings.EqualFold(word[1], "b") || !strings.HasPrefix(word[3], "=") {
			return false
		}
		if strings.EqualFold(word[1], "b") && !isBase64(word[2]) {
			return false
		}
		s = word[3][1:]
	}
}

// isBase64 reports whether s is base64, with or without padding at the end (RFC 2045 §6.8).
func isBase64(s string) bool {
	_, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	return err == nil
}

// readQuoted reads a quoted string and returns its content (RFC 5322 §3.2.4).
func (r *authorReader) readQuoted() (_ string, ok bool) {
	for i := r.pos + 1; i < len(r.s); i++ {
		switch r.s[i] {
		case '\\':
			i++
		case '"':
			text := unescape(r.s[r.pos+1 : i])
			r.pos = i + 1
			return text, true
		}
	}
	return "", false
}

// readAddrSpec reads "dot-atom@domain" (RFC 5322 §3.4.1). It refuses anything that looks like an
// encoded word, since some programs decode encoded words here.
func (r *authorReader) readAddrSpec() (_ Address, ok bool) {
	end := strings.IndexAny(r.s[r.pos:], "\t ()<>,:;\"[]\\")
	if end < 0 {
		end = len(r.s) - r.pos
	}
	spec := r.s[r.pos : r.pos+end]
	local, domain, ok := strings.Cut(spec, "@")
	if !ok || strings.Contains(spec, "=?") || strings.Contains(spec, "?=") || !isDotAtom(local) || !isHostname(domain) ||
		strings.ContainsFunc(local, isNonASCIISymbol) || len(local) > 256 || len(domain) > 256 {
		return Address{}, false
	}
	r.pos += end
	return Address{Mailbox: local, Host: domain}, true
}

// isHostname reports whether s consists of labels of letters, digits, hyphens and underscores (RFC
// 5890 §2.3.1).
func isHostname(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.ContainsFunc(label, func(r rune) bool {
			return r < utf8.RuneSelf && r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) || isNonASCIISymbol(r)
		}) {
			return false
		}
	}
	return true
}

// isNonASCIISymbol reports whether r is a non-ASCII character that is not a letter, mark or digit,
// such as an ideographic space.
func isNonASCIISymbol(r rune) bool {
	return r >= utf8.RuneSelf && !unicode.In(r, unicode.L, unicode.M, unicode.Nd)
}

// domainFinder collects every domain, in lower case, that some program could find in unclear
// fields. It searches several forms of a field: the raw text, and forms with encoded words decoded,
// without quotes, or without comments (RFC 5322 §4.4).
type domainFinder struct {
	found              []string
	atsLeft, bytesLeft int // how many more @ and bytes may be examined
	incomplete         bool
}

// findDomains adds the domains that some program could find in value.
func (d *domainFinder) findDomains(value string) {
	d.bytesLeft -= len(value)
	if d.bytesLeft < 0 {
		d.incomplete = true
		return
	}
	decoded := decodeWordsLeniently(value)
	bare, broken := removeQuotes.Replace(decoded), removeWordEnds.Replace(value)
	for _, text := range []string{value, decoded, bare, withoutBracketed(bare, "(", ")"), withoutBracketed(bare, "<", ">"), broken, decodeAnyWords(value)} {
		for {
			_, rest, ok := strings.Cut(text, "@")
			if !ok {
				break
			}
			if d.atsLeft--; d.atsLeft < 0 {
				d.incomplete = true
				return
			}
			text = rest
			for _, domain := range domainsAtStart(rest) {
				d.add(domain)
			}
		}
	}
}

func (d *domainFinder) add(domain string) {
	if slices.Contains(d.found, domain) {
		return
	}
	if len(d.found) == maxAuthorDomains {
		d.incomplete = true
		return
	}
	d.found = append(d.found, domain)
}

// domainsAtStart returns the domains that programs could read at the start of s, the text after an
// @. There can be several, since some programs join words across white space and comments.
func domainsAtStart(s string) []string {
	var out []string
	joined := ""
	for range 2 * maxDomainWords {
		end := strings.IndexFunc(s, isNoDomainRune)
		if end < 0 {
			end = len(s)
		}
		joined += s[:end]
		whole := strings.ToLower(joined)
		ascii := strings.TrimRightFunc(whole, func(r rune) bool { return r >= utf8.RuneSelf || strings.ContainsRune(".-_", r) })
		for _, name := range []string{whole, ascii} { // some programs end a domain at its last ASCII letter or digit
			name = strings.Trim(name, ".-_")
			if end > 0 && name != "" && len(name) <= 1024 && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
		rest := skipCFWS(s[end:])
		if len(rest) == len(s)-end || len(out) >= maxDomainWords {
			break
		}
		s = rest
	}
	return out
}

// isNoDomainRune reports whether r cannot be part of a domain.
func isNoDomainRune(r rune) bool {
	return r < utf8.RuneSelf && r != '-' && r != '_' && r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r) || isNonASCIISymbol(r)
}

// decodeAnyWords decodes everything that some program could take for an encoded word, each word by
// itself. It accepts any charset, and white space within a word (which RFC 2047 §2 forbids).
func decodeAnyWords(s string) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "=?")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		s = rest
		parts := strings.SplitN(rest, "?", 3)
		if len(parts) < 3 {
			continue
		}
		encoded, after, ok := strings.Cut(parts[2], "?=")
		word := s[:len(s)-len(after)]
		if !ok || strings.Contains(strings.TrimSuffix(word, "?="), "=?") {
			continue
		}
		text := decodeWordsLeniently("=?" + word)
		if text == "=?"+word { // the charset is unknown
			var raw []byte
			if strings.EqualFold(parts[1], "b") {
				var state transfer.Base64
				raw = state.Flush(state.Append(raw, []byte(encoded)))
			} else {
				raw = appendQDecoded(raw, encoded)
			}
			text = strings.ToValidUTF8(string(raw), " ")
		}
		out.WriteString("\x00" + text + "\x00") // the NULs keep skipCFWS from joining the words
		// Some programs ignore padding within base64. If the text without the padding decodes to
		// something else, write that as well.
		if raw, err := base64.RawStdEncoding.DecodeString(strings.ReplaceAll(encoded, "=", "")); err == nil && strings.EqualFold(parts[1], "b") && string(raw) != text {
			out.WriteString(strings.ToValidUTF8(string(raw), " ") + "\x00")
		}
		s = after
	}
}

// withoutBracketed removes text in brackets. Like some programs, it does not handle nested
// brackets.
func withoutBracketed(s, opening, closing string) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(s, opening)
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		_, s, ok = strings.Cut(rest, closing)
		if !ok {
			return out.String()
		}
	}
}

// skipCFWS skips comments (RFC 5322 §3.2.2), white space, quotes, and characters that some programs
// treat as white space. It does not skip a comment that is not closed.
func skipCFWS(s string) string {
	for {
		s = strings.TrimLeftFunc(s, func(r rune) bool {
			return strings.ContainsRune("\"\\<>", r) || unicode.IsSpace(r) || isAmbiguousRune(r) || unicode.Is(unicode.Cf, r)
		})
		if s == "" || s[0] != '(' {
			return s
		}
		r := addressReader{s: s}
		end := r.indexAfterClosing(')', '(', &r.noComment)
		if end == 0 {
			return s
		}
		s = s[end:]
	}
}
