// Package spf parses, merges and writes SPF records and expands their macros (RFC 7208). It does
// not evaluate records for a sender, and does not know whose records they are.
package spf

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// MaxLookups is how many terms that need DNS lookups receivers evaluate (RFC 7208 section 4.6.4).
const MaxLookups = 10

// IsRecord reports whether a text is an SPF record, which its version shows (RFC 7208 section 4.5).
func IsRecord(text string) bool {
	version, _, _ := strings.Cut(text, " ")
	return strings.EqualFold(version, "v=spf1")
}

// A Record is a parsed SPF record.
type Record struct {
	Terms      []Term // the well-formed terms, in order
	WellFormed bool   // all terms of the record are well-formed; otherwise receivers treat it as an error
}

// Parse parses a text for which IsRecord is true (RFC 7208 section 12).
func Parse(text string) Record {
	_, terms, _ := strings.Cut(text, " ")
	r := Record{Terms: make([]Term, 0, min(strings.Count(terms, " ")+1, 16)), WellFormed: true}
	seen := map[string]bool{}
	for field := range strings.SplitSeq(terms, " ") {
		if field == "" {
			continue
		}
		t, ok := parseTerm(field)
		if ok && t.IsModifier() && (t.Name == "redirect" || t.Name == "exp") { // at most once in a record (RFC 7208 section 6)
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

// Split returns the terms of a record that have an effect. terms are those that are evaluated, in
// order. end is the term for all other senders: all, redirect, or the zero Term. Modifiers other
// than redirect have an effect at any position.
func (r Record) Split() (terms []Term, end Term) {
	var redirect Term
	for _, t := range r.Terms {
		switch {
		case t.IsModifier() && t.Name == "redirect":
			redirect = t
		case t.IsModifier():
			terms = append(terms, t)
		case end.Name == "all": // mechanisms after all are ignored (RFC 7208 section 5.1)
		case t.Name == "all":
			end = t
		default:
			terms = append(terms, t)
		}
	}
	if end.Name == "" { // redirect is ignored if there is all (RFC 7208 section 5.1)
		end = redirect
	}
	return terms, end
}

// Lookups returns the number of terms in text for which receivers need DNS lookups (RFC 7208
// section 4.6.4), without those in included records. It returns 0 if text is not an SPF record.
func Lookups(text string) int {
	if !IsRecord(text) {
		return 0
	}
	terms, end := Parse(text).Split()
	n := 0
	for _, t := range append(terms, end) {
		if t.NeedsLookup() {
			n++
		}
	}
	return n
}

// String returns the text of the record, with each term in its shortest form.
func (r Record) String() string {
	var b strings.Builder
	b.WriteString("v=spf1")
	for _, t := range r.Terms {
		b.WriteByte(' ')
		b.WriteString(t.String())
	}
	return b.String()
}

// ForHost returns the SPF record for the name of a host. It permits the addresses of that name, and
// those in others. So messages with the null sender pass too, for which SPF checks the name in HELO
// (RFC 7208 section 2.4).
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

// A Term is a mechanism or a modifier of an SPF record (RFC 7208 section 4.6.1).
type Term struct {
	Qualifier byte         // '+', '-', '~' or '?' for a mechanism; 0 for a modifier
	Name      string       // in lower case
	Value     string       // the text after ":" or "=": a name, which may have macros, or a network; may be ""
	Lengths   string       // for a and mx: the prefix lengths, such as /24, //64 or /24//64; may be ""
	Network   netip.Prefix // for ip4 and ip6
}

// IsModifier reports whether the term is a modifier; otherwise it is a mechanism.
func (t Term) IsModifier() bool { return t.Qualifier == 0 }

// NeedsLookup reports whether receivers need DNS lookups to evaluate the term (RFC 7208 section
// 4.6.4).
func (t Term) NeedsLookup() bool {
	if t.IsModifier() {
		return t.Name == "redirect"
	}
	switch t.Name {
	case "include", "a", "mx", "ptr", "exists":
		return true
	}
	return false
}

// Key returns a text that is equal for terms that match the same hosts.
func (t Term) Key() string {
	switch {
	case t.IsModifier():
		return t.Name + "="
	case t.Network.IsValid():
		return t.Name + ":" + t.Network.String()
	}
	return t.Name + ":" + strings.ToLower(t.Value) + t.Lengths
}

// String returns the term in its shortest form.
func (t Term) String() string {
	switch {
	case t.IsModifier():
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

// parseTerm parses a term, which must not be empty. ok is false if it is malformed.
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
	switch t.Name { // the mechanisms of RFC 7208 section 5
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

// cutLengths splits the prefix lengths off the end of a mechanism: /24, //64 or both. ok is false
// if they are invalid.
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

// isLength reports whether s is a prefix length without leading zeros and not greater than most.
func isLength(s string, most int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n <= most && strconv.Itoa(n) == s
}

// parseNetwork parses an IP address with or without a prefix length (RFC 7208 section 5.6).
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
	macroString     = lazyregexp.New(`^(?:` + macroExpand + `|[!-$&-~])*$`)
	domainEnd       = lazyregexp.New(`(?:` + macroExpand + `|\.([A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)\.?)$`)
	explanationOnly = lazyregexp.New(`%\{[cCrRtT]`)
	zeroLabels      = lazyregexp.New(`%\{[a-zA-Z]0+[^0-9]`)
)

// isDomainSpec reports whether s is a valid domain-spec (RFC 7208 section 7.1). That is a name with
// macros, which ends in a macro or in a valid top label. A top label must not consist of digits
// only.
func isDomainSpec(s string) bool {
	if !macroString().MatchString(s) || zeroLabels().MatchString(s) || explanationOnly().MatchString(s) {
		return false
	}
	end := domainEnd().FindStringSubmatch(s)
	return end != nil && (end[1] == "" || strings.Trim(end[1], "0123456789") != "")
}
