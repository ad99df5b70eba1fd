package auth

import (
	"strings"

	"github.com/mailstead/mailstead/mail/idn"
)

// AttestsDMARC reports whether the chain passes and its newest sealer recorded that the message was
// authentic for the domain from: DMARC passed, or SPF or DKIM passed for an aligned domain. The
// caller must decide whether to trust the sealer (RFC 8617 section 7.2), since anybody can seal an
// invented result.
func (c Chain) AttestsDMARC(from string) bool {
	if c.Result != Pass || from == "" {
		return false
	}
	bare, ok := withoutComments(c.results)
	if !ok {
		return false
	}
	// parts[0] is the instance (i=), parts[1] the authserv-id.
	parts := strings.Split(bare, ";")
	for _, part := range parts[min(2, len(parts)):] {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		switch method, result, _ := strings.Cut(strings.ToLower(words[0]), "="); {
		case result != string(Pass):
		case method == "dmarc" && hasAlignedProperty(words[1:], from, "header.from"),
			method == "dkim" && hasAlignedProperty(words[1:], from, "header.d", "header.i"),
			method == "spf" && hasAlignedProperty(words[1:], from, "smtp.mailfrom"):
			return true
		}
	}
	return false
}

// hasAlignedProperty looks for the first word of the form name=value with one of the names. It
// reports whether the domain in that value is aligned with from.
func hasAlignedProperty(words []string, from string, names ...string) bool {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		for _, want := range names {
			if !strings.EqualFold(name, want) {
				continue
			}
			value = strings.Trim(value, `"`)
			domain, ok := idn.Host(value[strings.LastIndexByte(value, '@')+1:])
			return ok && aligned(domain, from, false)
		}
	}
	return false
}

// withoutComments removes comments, including nested ones (RFC 5322 section 3.2.2), and quoted
// strings that have white space or a semicolon, such as reasons. It returns false if a comment or a
// quoted string is not closed.
func withoutComments(s string) (_ string, ok bool) {
	var b strings.Builder
	depth, quoted := 0, -1
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && (depth > 0 || quoted >= 0) && i+1 < len(s):
			i++
		case c == '"' && depth == 0 && quoted < 0:
			quoted = i
		case c == '"' && depth == 0:
			if text := s[quoted+1 : i]; !strings.ContainsAny(text, " \t\r\n;\\()") {
				b.WriteString(text)
			}
			quoted = -1
		case quoted >= 0:
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
			b.WriteByte(' ')
		case depth == 0:
			b.WriteByte(c)
		}
	}
	return b.String(), depth == 0 && quoted < 0
}

// IsAuthentic reports whether the message is proven to be from the domain in its From field: DMARC
// passes, or the domain has no DMARC record and SPF or DKIM passes for an aligned domain.
func (v *Verdict) IsAuthentic() bool {
	switch v.DMARC {
	case Pass:
		return true
	case None:
	default:
		return false
	}
	if v.SPF == Pass && aligned(v.SPFDomain, v.FromDomain, false) {
		return true
	}
	for _, s := range v.Signatures {
		if s.Result == Pass && aligned(s.Domain, v.FromDomain, false) {
			return true
		}
	}
	return false
}

// ProvesReturnPath reports whether the sender of the message may use the reverse-path mailFrom. If
// so, a report to that address does not reach an uninvolved person. Either SPF passes for the
// domain of mailFrom, or DMARC passes for an author domain that is aligned with it. A DKIM
// signature of another domain proves nothing, since anyone can send a signed message again with
// another reverse-path.
func (v *Verdict) ProvesReturnPath(mailFrom string) bool {
	_, name := splitAddress(mailFrom)
	domain, ok := idn.Host(name)
	if !ok {
		return false
	}
	return v.SPF == Pass && !v.SPFHelo && v.SPFDomain == domain ||
		v.DMARC == Pass && aligned(domain, v.FromDomain, false) && (v.org == "" || isWithin(domain, v.org))
}
