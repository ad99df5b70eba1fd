// Package spf reads and writes SPF records and expands their macros (RFC 7208). It does not ask
// DNS, and does not know whose records they are.
package spf

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// MaxLookups is how many terms that cost look-ups receivers follow (RFC 7208 section 4.6.4).
const MaxLookups = 10

// IsRecord tells a record from other texts by its version (RFC 7208 section 4.5).
func IsRecord(text string) bool {
	version, _, _ := strings.Cut(text, " ")
	return strings.EqualFold(version, "v=spf1")
}

// A Record is a list of terms.
type Record struct {
	Terms      []Term // those that are well formed, in their order
	WellFormed bool   // all terms are; else receivers take the whole record for an error
}

// Parse reads a text that IsRecord takes for a record (RFC 7208 section 12).
func Parse(text string) Record {
	_, terms, _ := strings.Cut(text, " ")
	r := Record{Terms: make([]Term, 0, min(strings.Count(terms, " ")+1, 16)), WellFormed: true}
	seen := map[string]bool{}
	for field := range strings.SplitSeq(terms, " ") {
		if field == "" {
			continue
		}
		t, ok := parseTerm(field)
		if ok && t.Modifier() && (t.Name == "redirect" || t.Name == "exp") { // section 6: once at most
			ok = !seen[t.Name]
			seen[t.Name] = true
		}
		if !ok {
			r.WellFormed = false
			continue
		}
		r.Terms = append(r.Terms, t)
	}
	return r
}

// Split gives what counts of a record: the terms that are followed, in their order, and what
// becomes of everybody else, which is all, redirect or the zero Term. Modifiers but redirect count
// wherever they stand.
func (r Record) Split() (terms []Term, end Term) {
	var redirect Term
	for _, t := range r.Terms {
		switch {
		case t.Modifier() && t.Name == "redirect":
			redirect = t
		case t.Modifier():
			terms = append(terms, t)
		case end.Name == "all": // section 5.1: nothing after all is looked at
		case t.Name == "all":
			end = t
		default:
			terms = append(terms, t)
		}
	}
	if end.Name == "" { // section 5.1: beside all, redirect is ignored
		end = redirect
	}
	return terms, end
}

// Lookups counts the terms of a text that cost receivers look-ups, of which they follow MaxLookups;
// those behind an include come on top (RFC 7208 section 4.6.4). A text that is no record has none.
func Lookups(text string) int {
	if !IsRecord(text) {
		return 0
	}
	terms, end := Parse(text).Split()
	n := 0
	for _, t := range append(terms, end) {
		if t.Asks() {
			n++
		}
	}
	return n
}

// String is the record with each term in its shortest form.
func (r Record) String() string {
	var b strings.Builder
	b.WriteString("v=spf1")
	for _, t := range r.Terms {
		b.WriteByte(' ')
		b.WriteString(t.String())
	}
	return b.String()
}

// ForHost is the record of the name that a host itself has: mail is sent in that name from the
// addresses that it leads to, and from others. So what has no sender, which is checked by the name
// in HELO, is proven too (RFC 7208 section 2.4).
func ForHost(others []netip.Addr) string {
	r := Record{Terms: []Term{{Qualifier: '+', Name: "a"}}}
	for _, ip := range others {
		t := Term{Qualifier: '+', Name: "ip4", Value: ip.Unmap().String()}
		if ip.Unmap().Is6() {
			t.Name = "ip6"
		}
		r.Terms = append(r.Terms, t)
	}
	r.Terms = append(r.Terms, Term{Qualifier: '-', Name: "all"})
	return r.String()
}

// A Term is a mechanism or a modifier (RFC 7208 section 4.6.1).
type Term struct {
	Qualifier byte         // + - ~ ? of a mechanism; 0: the term is a modifier
	Name      string       // lower-case
	Value     string       // after the colon or equals sign: a name, which may hold macros, or a network; may be empty
	Lengths   string       // of a and mx: the prefix lengths, such as /24, //64 or /24//64; may be empty
	Network   netip.Prefix // of ip4 and ip6
}

// Modifier tells a modifier from a mechanism.
func (t Term) Modifier() bool { return t.Qualifier == 0 }

// Asks reports whether receivers have to ask DNS to follow the term (RFC 7208 section 4.6.4).
func (t Term) Asks() bool {
	if t.Modifier() {
		return t.Name == "redirect"
	}
	switch t.Name {
	case "include", "a", "mx", "ptr", "exists":
		return true
	}
	return false
}

// String is the term in its shortest form.
func (t Term) String() string {
	switch {
	case t.Modifier():
		return t.Name + "=" + t.Value
	case t.Value != "":
		return t.qualifier() + t.Name + ":" + t.Value + t.Lengths
	}
	return t.qualifier() + t.Name + t.Lengths
}

func (t Term) qualifier() string {
	if t.Qualifier == '+' {
		return ""
	}
	return string(t.Qualifier)
}

var modifierName = lazyregexp.New(`^[A-Za-z][A-Za-z0-9._-]*=`)

// parseTerm reads a term that is not empty; ok is false where it is malformed.
func parseTerm(text string) (t Term, ok bool) {
	if name := modifierName().FindString(text); name != "" {
		t.Name, t.Value = strings.ToLower(name[:len(name)-1]), text[len(name):]
		if t.Name == "redirect" || t.Name == "exp" {
			return t, isDomainSpec(t.Value)
		}
		return t, macroString().MatchString(t.Value) && !zeroLabels().MatchString(t.Value)
	}
	t.Qualifier = '+'
	if strings.IndexByte("+-?~", text[0]) >= 0 {
		t.Qualifier, text = text[0], text[1:]
	}
	end := strings.IndexAny(text, ":/")
	if end < 0 {
		end = len(text)
	}
	t.Name = strings.ToLower(text[:end])
	rest := text[end:]
	if t.Name == "a" || t.Name == "mx" {
		rest, t.Lengths, ok = cutLengths(rest)
		if !ok {
			return t, false
		}
	}
	value, given := strings.CutPrefix(rest, ":")
	if !given && rest != "" {
		return t, false
	}
	t.Value = value
	switch t.Name { // RFC 7208 section 5
	case "all":
		return t, !given
	case "include", "exists":
		return t, given && isDomainSpec(value)
	case "a", "mx", "ptr":
		return t, !given || isDomainSpec(value)
	case "ip4", "ip6":
		t.Network, ok = parseNetwork(value)
		return t, ok && t.Network.Addr().Is4() == (t.Name == "ip4")
	}
	return t, false
}

var dualLengths = lazyregexp.New(`(/[0-9]+)?(//[0-9]+)?$`)

// cutLengths cuts the prefix lengths off a mechanism: /24, //64 or both.
func cutLengths(s string) (rest, lengths string, ok bool) {
	at := dualLengths().FindStringSubmatchIndex(s)
	rest, lengths, ok = s[:at[0]], s[at[0]:], true
	if at[2] >= 0 {
		ok = isLength(s[at[2]+1:at[3]], 32)
	}
	if at[4] >= 0 {
		ok = ok && isLength(s[at[4]+2:at[5]], 128)
	}
	return rest, lengths, ok
}

// isLength checks the length of a prefix, which has no zeros before it.
func isLength(s string, most int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n <= most && strconv.Itoa(n) == s
}

// parseNetwork reads an address, with or without a prefix length (RFC 7208 section 5.6).
func parseNetwork(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		ip, err := netip.ParseAddr(s)
		if err != nil || ip.Zone() != "" {
			return netip.Prefix{}, false
		}
		p = netip.PrefixFrom(ip, ip.BitLen())
	}
	return p.Masked(), true
}

const macroExpand = `%\{[sSlLoOdDiIpPhHcCrRtTvV][0-9]*[rR]?[-.+,/_=]*\}|%%|%_|%-`

var (
	macroString = lazyregexp.New(`^(?:` + macroExpand + `|[!-$&-~])*$`)
	domainEnd   = lazyregexp.New(`(?:` + macroExpand + `|\.([A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)\.?)$`)
	forExp      = lazyregexp.New(`%\{[cCrRtT]`)
	zeroLabels  = lazyregexp.New(`%\{[a-zA-Z]0+[^0-9]`)
)

// isDomainSpec checks a name with macros (RFC 7208 section 7.1), which ends in a macro or in a
// label that may be at the top: one with anything but digits.
func isDomainSpec(s string) bool {
	if !macroString().MatchString(s) || zeroLabels().MatchString(s) || forExp().MatchString(s) {
		return false
	}
	end := domainEnd().FindStringSubmatch(s)
	return end != nil && (end[1] == "" || strings.Trim(end[1], "0123456789") != "")
}
