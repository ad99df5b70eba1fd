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

// MissingHost is the Host of an address without a domain. It is not "", since in IMAP an empty host
// marks a group. Email and String leave it out.
const MissingHost = "missing-domain.invalid"

// Address is one address of a header field. As in IMAP's ENVELOPE (RFC 9051 §7.5.2), a group is a
// start marker (its name as Mailbox, no Host), then its members, then an empty end marker.
type Address struct {
	Name          string // decoded display name
	Mailbox, Host string // the local part without its quotes; the domain
}

// IsGroupMarker reports whether the value is not an address but the start or end marker of a group.
func (a Address) IsGroupMarker() bool { return a.Host == "" }

// Email returns "local@domain", the local part quoted where it must be. It is "" for a
// group marker and for a display name without an address.
func (a Address) Email() string {
	switch {
	case a.Host == "" || a.Mailbox == "":
		return ""
	case a.Host == MissingHost:
		return a.Mailbox
	}
	return quoteLocal(a.Mailbox) + "@" + a.Host
}

// String returns "Name <local@domain>" for people, with the name quoted where it has
// special characters, or the bare address.
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

func quoteLocal(local string) string {
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

// addressReader parses an address list in one pass. It accepts any input; faulty reports that it
// had to guess.
type addressReader struct {
	s     string
	pos   int
	limit int
	out   []Address

	countOnly bool // count the addresses in n instead of storing them in out
	n         int

	phrase  strings.Builder // words before the angle bracket, without quotes
	raw     strings.Builder // the same with quotes, for an address without angle brackets
	comment string
	angle   string
	inAngle bool
	hasText bool // phrase is not blank
	hasAt   bool // raw has an @
	group   bool
	faulty  bool

	// Facts about the unread rest, which keep the time linear: it has no closing quote, parenthesis
	// or angle bracket; its quotes within angle brackets are unbalanced.
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
		r.step()
	}
	r.end()
	if r.group {
		r.emit(Address{})
		r.faulty = true
	}
}

func (r *addressReader) step() {
	switch c := r.s[r.pos]; c {
	case '"':
		r.quoted()
	case '(':
		r.parens()
	case '<':
		r.angled()
	case ',':
		r.pos++
		r.end()
	case ';':
		r.pos++
		r.end()
		if r.group {
			r.emit(Address{})
			r.group = false
		}
	case ':':
		r.pos++
		r.colon()
	default:
		end := strings.IndexAny(r.s[r.pos+1:], `"(<,;:`)
		if end < 0 {
			end = len(r.s) - r.pos - 1
		}
		word := r.s[r.pos : r.pos+1+end]
		if i := strings.LastIndex(word, "=?"); i >= 0 {
			word = r.s[r.pos : r.pos+max(len(word), i+encodedWord(r.s[r.pos+i:]))]
		}
		r.phrase.WriteString(word)
		r.raw.WriteString(word)
		r.hasText = r.hasText || strings.TrimSpace(word) != ""
		r.hasAt = r.hasAt || strings.Contains(word, "@")
		r.pos += len(word)
	}
}

// encodedWord returns the length of the encoded word at the start of s, which may contain commas
// and other separators. It returns 0 if there is no such word, or if it contains one of < > " @.
func encodedWord(s string) int {
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

// quoted reads a quoted string. It skips a quote that is never closed.
func (r *addressReader) quoted() {
	if end := r.closing('"', 0, &r.noQuote); end > 0 {
		r.raw.WriteString(r.s[r.pos:end])
		r.phrase.WriteString(unescape(r.s[r.pos+1 : end-1]))
		r.hasText = true
		r.pos = end
		return
	}
	r.pos++
}

func (r *addressReader) parens() {
	if end := r.closing(')', '(', &r.noComment); end > 0 {
		r.comment = unescape(r.s[r.pos+1 : end-1])
		r.phrase.WriteByte(' ')
		r.raw.WriteByte(' ')
		r.pos = end
		return
	}
	r.pos++
}

// closing returns the index after the mark that closes the one at pos. Without one it returns 0 and
// sets *none.
func (r *addressReader) closing(mark, nested byte, none *bool) int {
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

func (r *addressReader) angled() {
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

// angleEnd returns the index of the closing angle bracket, -1 if there is none. If the quotes are
// balanced, it ignores brackets within quotes.
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

// colon begins a group if a name precedes it. Otherwise the colon is an ordinary character.
func (r *addressReader) colon() {
	if r.group || r.inAngle || r.hasAt || !r.hasText {
		r.phrase.WriteByte(':')
		r.raw.WriteByte(':')
		return
	}
	r.emit(Address{Mailbox: displayName(r.phrase.String())})
	r.group = true
	r.reset()
}

// end emits the address made of the words read so far.
func (r *addressReader) end() {
	name, spec := r.phrase.String(), r.angle
	if !r.inAngle {
		name, spec = splitBare(r.raw.String(), name)
		if name == "" && spec != "" { // a comment without an address names nobody
			name = r.comment
		}
	}
	a := r.addrSpec(spec)
	a.Name = displayName(name)
	if a.Mailbox != "" || a.Name != "" {
		r.emit(a)
	} else if r.inAngle {
		r.faulty = true
	}
	r.reset()
}

// countAddresses counts the addresses of an address list, group markers left out.
func countAddresses(s string) int {
	r := addressReader{s: s, limit: 1, countOnly: true}
	r.run()
	return r.n
}

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

// splitBare finds the address in words without brackets: "a@b", "Name a@b", "a @ b".
func splitBare(raw, phrase string) (name, spec string) {
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

// addrSpec splits an address at its last @ and removes the source route, quotes and space.
func (r *addressReader) addrSpec(s string) Address {
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
		if h := joinFields(s[at+1:], ""); h != "" {
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

// withoutComments removes comments from an address (RFC 5322 §3.2.2). It keeps a comment that is
// not closed.
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
	s = cleanText(joinFields(decodeWords(s), " "), MaxText)
	if n := len(s); n >= 2 && (s[0] == '\'' && s[n-1] == '\'' || s[0] == '"' && s[n-1] == '"') {
		s = strings.TrimSpace(s[1 : n-1])
	}
	return s
}

// joinFields joins the words of s with between. A text without white space, the common case, is
// returned as it is.
func joinFields(s, between string) string {
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

// ErrAddress is wrapped by every error about an address that a person typed. The error text quotes
// the address and says what is wrong.
var ErrAddress = errors.New("invalid email address")

// Limits of RFC 5321 §4.5.3.1, in octets. The limit of 256 for a path includes two angle brackets.
const (
	maxLocal = 64
	maxEmail = 254
)

// SplitEmail splits an address at its last @. ok is false if there is no @ or either side is empty.
func SplitEmail(s string) (local, domain string, ok bool) {
	at := strings.LastIndexByte(s, '@')
	if at <= 0 || at == len(s)-1 {
		return "", "", false
	}
	return s[:at], s[at+1:], true
}

// NormalizeEmail returns the canonical form of an address, in which records store and compare it:
// lower case, the domain in ASCII (IDNA), Unicode in NFC. Errors wrap ErrAddress.
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
		return "", fmt.Errorf("%w %q: longer than %d bytes, or %d before the @", ErrAddress, cut(s, 80), maxEmail, maxLocal)
	}
	return local + "@" + domain, nil
}

func checkLocal(local string) error {
	if !utf8.ValidString(local) || strings.ContainsFunc(local, unicode.IsControl) {
		return errors.New("it has control characters or broken UTF-8")
	}
	if n := len(local); n >= 2 && local[0] == '"' && local[n-1] == '"' {
		if inner := local[1 : n-1]; quoteString(unescape(inner)) == local {
			return nil
		}
		return errors.New("the quotes before the @ do not pair")
	}
	if !isDotAtom(local) || strings.ContainsFunc(local, unicode.IsSpace) {
		return errors.New("it has characters before the @ that need quotes, or a dot too many")
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

// ParseAddressList parses addresses separated by commas, each with the rules of ParseAddress. It
// refuses groups, and more than MaxAddresses addresses.
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
		if err := r.out[i].check(); err != nil {
			return nil, err
		}
	}
	return r.out, nil
}

// check refuses an address to which no mail can be sent, and normalizes its domain.
func (a *Address) check() error {
	if a.IsGroupMarker() {
		return fmt.Errorf("%w %q: groups are not taken", ErrAddress, a.Mailbox)
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
