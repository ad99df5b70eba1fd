package msg

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/visible"
)

// MissingHost is the Host of an address without a domain. An empty Host cannot say that, since in
// IMAP it marks the start or end of a group. Email and String leave MissingHost out.
const MissingHost = "missing-domain.invalid"

// Address is one address of a header field, or the start or end marker of a group, as in IMAP's
// ENVELOPE (RFC 9051 §7.5.2). A group is a start marker (the group's name as Mailbox, no Host), its
// members, and an empty end marker.
type Address struct {
	Name          string // display name, decoded
	Mailbox, Host string // the local part without its quotes; the domain
}

// IsGroupMarker reports whether the value is not an address but the start or end marker of a group.
func (a Address) IsGroupMarker() bool { return a.Host == "" }

// Email returns "local@domain", with the local part quoted where RFC 5322 requires it. It returns
// "" for a group marker and for a display name without an address.
func (a Address) Email() string {
	switch {
	case a.Host == "" || a.Mailbox == "":
		return ""
	case a.Host == MissingHost:
		return a.Mailbox
	}
	return quoteLocalPart(a.Mailbox) + "@" + a.Host
}

// String returns "Name <local@domain>" as it is shown to people, with the name quoted if it has
// special characters. Without a name it returns the bare address.
func (a Address) String() string {
	email := a.Email()
	switch {
	case a.Name == "":
		return email
	case email == "":
		return a.Name
	}
	return quotePhrase(a.Name) + " <" + email + ">"
}

func quoteLocalPart(local string) string {
	if isDotAtom(local) {
		return local
	}
	return quoteString(local)
}

func isDotAtom[S string | []byte](s S) bool {
	atom := 0
	for i := range len(s) {
		switch {
		case s[i] != '.' && isAtomByte(s[i]):
			atom++
		case s[i] != '.' || atom == 0:
			return false
		default:
			atom = 0
		}
	}
	return atom > 0
}

// isAtomByte reports whether c is atext (RFC 5322 §3.2.3), or a byte of UTF-8 (RFC 6532 §3.2).
func isAtomByte(c byte) bool {
	return c > ' ' && c != 0x7f && strings.IndexByte(`()<>[]:;@\,."`, c) < 0
}

func quotePhrase(s string) string {
	if isPlainPhrase(s) {
		return s
	}
	return quoteString(s)
}

func isPlainPhrase[S string | []byte](s S) bool {
	for i := range len(s) {
		if s[i] != ' ' && !isAtomByte(s[i]) {
			return false
		}
	}
	return true
}

func quoteString(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			out.WriteByte('\\')
		}
		out.WriteByte(s[i])
	}
	out.WriteByte('"')
	return out.String()
}

// addressReader parses an address list in one pass. It accepts any input. It sets faulty if the
// input was invalid and the result is a guess.
type addressReader struct {
	s     string
	pos   int
	limit int
	out   []Address

	countOnly bool // only count the addresses in n; store none in out
	n         int

	phrase  strings.Builder // words before the angle bracket, without their quotes
	raw     strings.Builder // phrase with its quotes, for an address without angle brackets
	comment string
	angle   string
	inAngle bool
	hasText bool // phrase is not blank
	hasAt   bool // raw has an @
	group   bool
	faulty  bool

	// What searches of the text after pos have found, so that none is made twice and the time stays
	// linear. noQuote, noComment and noAngle say that the text has no closing quote, parenthesis or
	// angle bracket. oddQuote says that the quotes within angle brackets do not pair.
	noQuote, noComment, noAngle, oddQuote bool
}

// parseAddresses returns at most limit addresses of an address list (RFC 5322 §3.4, §4.4).
func parseAddresses(s string, limit int) []Address {
	r := addressReader{s: s, limit: limit}
	r.run()
	return r.out
}

func (r *addressReader) run() {
	for r.pos < len(r.s) && len(r.out) < r.limit {
		r.readToken()
	}
	r.endAddress()
	if r.group {
		r.emit(Address{})
		r.faulty = true
	}
}

func (r *addressReader) readToken() {
	switch c := r.s[r.pos]; c {
	case '"':
		r.readQuoted()
	case '(':
		r.readComment()
	case '<':
		r.readAngle()
	case ',':
		r.pos++
		r.endAddress()
	case ';':
		r.pos++
		r.endAddress()
		if r.group {
			r.emit(Address{})
			r.group = false
		}
	case ':':
		r.pos++
		r.readColon()
	default:
		end := strings.IndexAny(r.s[r.pos+1:], `"(<,;:`)
		if end < 0 {
			end = len(r.s) - r.pos - 1
		}
		word := r.s[r.pos : r.pos+1+end]
		if i := strings.LastIndex(word, "=?"); i >= 0 {
			word = r.s[r.pos : r.pos+max(len(word), i+encodedWordLength(r.s[r.pos+i:]))]
		}
		r.phrase.WriteString(word)
		r.raw.WriteString(word)
		r.hasText = r.hasText || strings.TrimSpace(word) != ""
		r.hasAt = r.hasAt || strings.Contains(word, "@")
		r.pos += len(word)
	}
}

// encodedWordLength returns the length of the encoded word (RFC 2047) at the start of s, which may
// contain commas and other separators. It returns 0 if s does not begin with one, or if the word
// contains < > " or @.
func encodedWordLength(s string) int {
	s = s[:min(len(s), 512)]
	charset, rest, _ := strings.Cut(s[2:], "?")
	if len(rest) < 2 || rest[1] != '?' || !strings.ContainsRune("bBqQ", rune(rest[0])) {
		return 0
	}
	end := strings.Index(rest[2:], "?=")
	if end < 0 || strings.ContainsAny(charset, " \t") || strings.ContainsAny(s[:len(s)-len(rest)+2+end], `<>"@`) {
		return 0
	}
	return len(s) - len(rest) + 2 + end + 2
}

// readQuoted reads a quoted string. It skips a quote that has no closing quote.
func (r *addressReader) readQuoted() {
	if end := r.indexAfterClosing('"', 0, &r.noQuote); end > 0 {
		r.raw.WriteString(r.s[r.pos:end])
		r.phrase.WriteString(unescape(r.s[r.pos+1 : end-1]))
		r.hasText = true
		r.pos = end
		return
	}
	r.pos++
}

func (r *addressReader) readComment() {
	if end := r.indexAfterClosing(')', '(', &r.noComment); end > 0 {
		r.comment = unescape(r.s[r.pos+1 : end-1])
		r.phrase.WriteByte(' ')
		r.raw.WriteByte(' ')
		r.pos = end
		return
	}
	r.pos++
}

// indexAfterClosing returns the index after mark, the character that closes the quote or
// parenthesis at pos. If there is none, it returns 0 and sets *none. nested is the opening
// parenthesis, since comments nest; it is 0 for a quote.
func (r *addressReader) indexAfterClosing(mark, nested byte, none *bool) int {
	if *none {
		return 0
	}
	depth := 1
	for i := r.pos + 1; i < len(r.s); i++ {
		switch c := r.s[i]; {
		case c == '\\':
			i++
		case c == mark:
			if depth--; depth == 0 {
				return i + 1
			}
		case c == nested:
			depth++
		}
	}
	*none, r.faulty = true, true
	return 0
}

// readAngle reads an address in angle brackets.
func (r *addressReader) readAngle() {
	rest := r.s[r.pos+1:]
	end := r.angleEnd(rest)
	next := end + 1
	if end < 0 {
		r.faulty = true
		end = strings.IndexAny(rest, ",; \t")
		if end < 0 {
			end = len(rest)
		}
		next = end
	}
	if r.inAngle {
		r.faulty = true
	}
	if angle := strings.Trim(rest[:end], " \t<"); !r.inAngle || r.angle == "" {
		r.angle = angle
	}
	r.inAngle = true
	r.pos += 1 + next
}

// angleEnd returns the index of the closing angle bracket, -1 if there is none. If the quotes pair,
// it ignores angle brackets within quotes.
func (r *addressReader) angleEnd(s string) int {
	if r.noAngle {
		return -1
	}
	quoted := false
	for i := 0; i < len(s) && !r.oddQuote; i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			quoted = !quoted
		case '>':
			if !quoted {
				return i
			}
		}
	}
	r.oddQuote = true
	end := strings.IndexByte(s, '>')
	r.noAngle = end < 0
	return end
}

// readColon begins a group if a name precedes the colon. Otherwise the colon is an ordinary
// character.
func (r *addressReader) readColon() {
	if r.group || r.inAngle || r.hasAt || !r.hasText {
		r.phrase.WriteByte(':')
		r.raw.WriteByte(':')
		return
	}
	r.emit(Address{Mailbox: displayName(r.phrase.String())})
	r.group = true
	r.reset()
}

// endAddress emits the address that was read since the last separator.
func (r *addressReader) endAddress() {
	name, spec := r.phrase.String(), r.angle
	if !r.inAngle {
		name, spec = splitBareAddress(r.raw.String(), name)
		if name == "" && spec != "" { // without another name, a comment after an address is the name
			name = r.comment
		}
	}
	a := r.parseAddrSpec(spec)
	a.Name = displayName(name)
	if a.Mailbox != "" || a.Name != "" {
		r.emit(a)
	} else if r.inAngle {
		r.faulty = true
	}
	r.reset()
}

// countAddresses counts the addresses of an address list, without group markers.
func countAddresses(s string) int {
	r := addressReader{s: s, limit: 1, countOnly: true}
	r.run()
	return r.n
}

// emit adds an address to the result, or counts it.
func (r *addressReader) emit(a Address) {
	if r.countOnly {
		if !a.IsGroupMarker() {
			r.n++
		}
		return
	}
	if len(r.out) < r.limit {
		r.out = append(r.out, a)
	}
}

func (r *addressReader) reset() {
	r.phrase.Reset()
	r.raw.Reset()
	r.comment, r.angle = "", ""
	r.inAngle, r.hasText, r.hasAt = false, false, false
}

// splitBareAddress splits text without angle brackets, such as "a@b", "Name a@b" or "a @ b", into a
// display name and an address.
func splitBareAddress(raw, phrase string) (name, spec string) {
	raw = strings.TrimSpace(raw)
	at := strings.LastIndexByte(raw, '@')
	if at < 0 {
		if strings.ContainsAny(raw, " \t\"") {
			return phrase, ""
		}
		return "", raw
	}
	if quote := strings.LastIndexByte(raw, '"'); quote > 0 && raw[0] == '"' {
		rest := strings.TrimSpace(raw[quote+1:])
		switch {
		case rest == "":
			return "", phrase
		case rest[0] != '@':
			return unescape(raw[1:quote]), rest
		}
		return "", raw
	}
	local := strings.TrimRight(raw[:at], " \t")
	if i := strings.LastIndexAny(local, " \t"); i >= 0 {
		return local[:i], local[i+1:] + raw[at:]
	}
	return "", local + raw[at:]
}

// parseAddrSpec splits an address at its last @. It removes the source route, quotes, comments and
// space.
func (r *addressReader) parseAddrSpec(s string) Address {
	if strings.IndexByte(s, '(') >= 0 {
		s, r.faulty = withoutComments(s), true
	}
	s = strings.TrimSpace(s)
	if s == "" {
		return Address{Host: MissingHost}
	}
	if s[0] == '@' { // a source route (RFC 5322 §4.4): <@a,@b:user@c>
		_, s, _ = strings.Cut(s, ":")
	}
	local, host := s, MissingHost
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		local = strings.TrimSpace(s[:at])
		if h := replaceSpaces(s[at+1:], ""); h != "" {
			host = h
			r.faulty = r.faulty || len(h) != len(strings.TrimSpace(s[at+1:]))
		}
	}
	if n := len(local); n >= 2 && local[0] == '"' && local[n-1] == '"' {
		local = unescape(local[1 : n-1])
	} else {
		r.faulty = r.faulty || host != MissingHost && !isDotAtom(local)
	}
	return Address{Mailbox: cleanText(local, 256), Host: cleanText(host, 256)}
}

// withoutComments removes comments from an address (RFC 5322 §3.2.2). A comment without a closing
// parenthesis stays.
func withoutComments(s string) string {
	var out strings.Builder
	quoted, depth, began := false, 0, 0
	for i := 0; i < len(s); i++ {
		c, from := s[i], i
		switch {
		case c == '\\':
			i = min(i+1, len(s)-1)
		case c == '"' && depth == 0:
			quoted = !quoted
		case c == '(' && !quoted:
			if depth++; depth == 1 {
				began = i
			}
		case c == ')' && depth > 0:
			if depth--; depth == 0 {
				continue
			}
		}
		if depth == 0 {
			out.WriteString(s[from : i+1])
		}
	}
	if depth > 0 {
		out.WriteString(s[began:])
	}
	return out.String()
}

func displayName(s string) string {
	s = cleanText(replaceSpaces(decodeWords(s), " "), MaxText)
	if n := len(s); n >= 2 && (s[0] == '\'' && s[n-1] == '\'' || s[0] == '"' && s[n-1] == '"') {
		s = strings.TrimSpace(s[1 : n-1])
	}
	return s
}

// replaceSpaces replaces each run of white space in s by the string between, and trims s. It does
// not copy a text without white space, the common case.
func replaceSpaces(s, between string) string {
	if strings.IndexFunc(s, unicode.IsSpace) < 0 {
		return s
	}
	return strings.Join(strings.Fields(s), between)
}

// unescape removes the backslash of each quoted pair (RFC 5322 §3.2.1).
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// ErrAddress is wrapped by all errors about an address that a person typed. The text of such an
// error quotes the address and says what is wrong.
var ErrAddress = errors.New("invalid email address")

// Limits of RFC 5321 §4.5.3.1, in octets. The RFC's 256 octets for a path include two angle
// brackets.
const (
	maxLocal = 64
	maxEmail = 254
)

// SplitEmail splits an address at its last @. ok is false if there is no @ or if one side is empty.
func SplitEmail(s string) (local, domain string, ok bool) {
	at := strings.LastIndexByte(s, '@')
	if at <= 0 || at == len(s)-1 {
		return "", "", false
	}
	return s[:at], s[at+1:], true
}

// NormalizeEmail returns the canonical form of an address, by which records store and compare
// addresses: lower case, the domain in ASCII (IDNA), Unicode in NFC. Errors wrap ErrAddress.
func NormalizeEmail(s string) (string, error) {
	local, domain, ok := SplitEmail(s)
	if !ok {
		return "", fmt.Errorf("%w %q: it must be of the form name@domain", ErrAddress, cut(s, 80))
	}
	if err := checkLocal(local); err != nil {
		return "", fmt.Errorf("%w %q: %w", ErrAddress, cut(s, 80), err)
	}
	domain, err := NormalizeDomain(domain)
	if err != nil {
		return "", fmt.Errorf("%w %q: %w", ErrAddress, cut(s, 80), err)
	}
	local = norm.NFC.String(strings.ToLower(local))
	if len(local) > maxLocal || len(local)+1+len(domain) > maxEmail {
		return "", fmt.Errorf("%w %q: it is longer than %d bytes, or its part before the @ is longer than %d", ErrAddress, cut(s, 80), maxEmail, maxLocal)
	}
	return local + "@" + domain, nil
}

// checkLocal returns an error unless local is a valid local part.
func checkLocal(local string) error {
	if !utf8.ValidString(local) || strings.ContainsFunc(local, unicode.IsControl) {
		return errors.New("it has control characters or broken UTF-8")
	}
	if n := len(local); n >= 2 && local[0] == '"' && local[n-1] == '"' {
		if inner := local[1 : n-1]; quoteString(unescape(inner)) == local {
			return nil
		}
		return errors.New("a quote before the @ is not closed")
	}
	if !isDotAtom(local) || strings.ContainsFunc(local, unicode.IsSpace) {
		return errors.New("it has characters before the @ that need quotes, or misplaced dots")
	}
	return nil
}

// NormalizeDomain returns the canonical form of a mail domain (see idn.Address). It returns an
// address literal such as [192.0.2.1] unchanged.
func NormalizeDomain(domain string) (string, error) {
	if strings.HasPrefix(domain, "[") {
		text := strings.TrimSuffix(strings.TrimPrefix(domain, "["), "]")
		addr, err := netip.ParseAddr(strings.TrimPrefix(text, "IPv6:"))
		if err != nil || len(text)+2 != len(domain) || addr.Zone() != "" {
			return "", errors.New("the address in brackets is no IP address")
		}
		return domain, nil
	}
	return idn.Address(domain)
}

// ParseAddress parses one address that a person typed: "a@b" or "Name <a@b>". Unlike the parser for
// messages it refuses invalid syntax. Errors wrap ErrAddress.
func ParseAddress(s string) (Address, error) {
	list, err := ParseAddressList(s)
	if err != nil {
		return Address{}, err
	}
	if len(list) != 1 {
		return Address{}, fmt.Errorf("%w %q: %d addresses where one is wanted", ErrAddress, cut(s, 80), len(list))
	}
	return list[0], nil
}

// ParseAddressList parses addresses separated by commas, each as ParseAddress does. It refuses
// groups, and more than MaxAddresses addresses. Errors wrap ErrAddress.
func ParseAddressList(s string) ([]Address, error) {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, visible.IsControl) {
		return nil, fmt.Errorf("%w %q: it has control characters or broken UTF-8", ErrAddress, cut(s, 80))
	}
	r := addressReader{s: s, limit: MaxAddresses + 1}
	r.run()
	switch {
	case len(r.out) == 0:
		return nil, fmt.Errorf("%w %q: it is empty", ErrAddress, cut(s, 80))
	case r.faulty:
		return nil, fmt.Errorf("%w %q: its quotes, brackets or dots are not in order", ErrAddress, cut(s, 80))
	case len(r.out) > MaxAddresses:
		return nil, fmt.Errorf("%w list: more than %d", ErrAddress, MaxAddresses)
	}
	for i := range r.out {
		if err := r.out[i].normalize(); err != nil {
			return nil, err
		}
	}
	return r.out, nil
}

// normalize checks that mail can be sent to the address, and brings its domain into canonical form.
func (a *Address) normalize() error {
	if a.IsGroupMarker() {
		return fmt.Errorf("%w %q: it is a group, not an address", ErrAddress, a.Mailbox)
	}
	shown := a.Mailbox
	if shown == "" {
		shown = a.Name
	}
	if a.Host == MissingHost || a.Mailbox == "" {
		return fmt.Errorf("%w %q: it must be of the form name@domain", ErrAddress, shown)
	}
	email, err := NormalizeEmail(a.Email())
	if err != nil {
		return err
	}
	_, a.Host, _ = SplitEmail(email)
	return nil
}
