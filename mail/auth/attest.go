package auth

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/idn"
)

// AttestsDMARC reports whether the chain passes and its newest sealer says that the message was
// authentic for the From domain when it arrived there: DMARC passed for it, or SPF or DKIM did for
// an aligned domain. What that is worth depends on who the sealer is (RFC 8617 section 7.2):
// anybody can seal an invented result.
func (c Chain) AttestsDMARC(from string) bool {
	if c.Result != Pass || from == "" {
		return false
	}
	bare, ok := withoutComments(c.results)
	if !ok {
		return false
	}
	// The first part is i=, the second the authserv-id.
	parts := strings.Split(bare, ";")
	for _, part := range parts[min(2, len(parts)):] {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		switch method, result, _ := strings.Cut(strings.ToLower(words[0]), "="); {
		case result != string(Pass):
		case method == "dmarc" && alignedProperty(words[1:], from, "header.from"),
			method == "dkim" && alignedProperty(words[1:], from, "header.d", "header.i"),
			method == "spf" && alignedProperty(words[1:], from, "smtp.mailfrom"):
			return true
		}
	}
	return false
}

// alignedProperty reports whether one of the properties names a domain that is aligned with from.
func alignedProperty(words []string, from string, names ...string) bool {
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

// withoutComments drops comments, nested ones too (RFC 5322 section 3.2.2), and what is quoted with
// white space or a semicolon in it, such as reasons; false where one does not end.
func withoutComments(s string) (string, bool) {
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

// Authentic reports whether a message is from the domain in its From field: DMARC passes, or, where
// the domain has no policy, SPF or DKIM does for an aligned domain.
func (v *Verdict) Authentic() bool {
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

// A Proof says how sure it is that the words that readers are shown are the author's.
type Proof struct {
	Domain string // of the author; "": nobody knows
	// Signed says that a signature alone proves it. Whoever has got such a message can send it to
	// others again, as it is.
	Signed bool
	// Lacks says in a few words why nothing is proven although DMARC passes; "" otherwise.
	Lacks string
}

// Proof gives the domain of the author, if DMARC passes for it, all authors are of it, and what
// passes covers what readers are shown: SPF by a host of its own, which has written all of it, or
// one aligned signature of all those fields. What others say that they saw does not count, nor do
// signatures of a part of the body (l=), with SHA-1, or by an RSA key of less than 1024 bits: they
// do not pass. The tree walk takes all names below a public suffix for one organisation where its
// owner has a record without psd=; those are told apart here by the public suffix list.
func (v *Verdict) Proof() Proof {
	spf := v.SPF == Pass && v.SPFAligned
	switch {
	case v.DMARC != Pass || v.severalAuthors:
		return Proof{}
	case spf && v.SPFOwn && aligned(v.SPFDomain, v.FromDomain, false):
		return Proof{Domain: v.FromDomain}
	case slices.ContainsFunc(v.Signatures, func(s Signature) bool {
		return s.Aligned && s.Covers && aligned(s.Domain, v.FromDomain, false)
	}):
		return Proof{Domain: v.FromDomain, Signed: true}
	case v.Repeated != "":
		return Proof{Lacks: "the field " + v.Repeated + " stands more than once"}
	case spf && aligned(v.SPFDomain, v.FromDomain, false):
		return Proof{Lacks: "the sending host is not one of the author's domain alone"}
	}
	return Proof{Lacks: "no signature covers every field that is shown"}
}

// GenuinePath reports whether who sent a message may use its reverse-path, so that a report to it
// reaches nobody else: SPF passes for the path itself, or DMARC does for an author whose domain is
// aligned with the path's. An author's signature alone says nothing about the path that a message
// was sent again with.
func (v *Verdict) GenuinePath(mailFrom string) bool {
	_, name := splitAddress(mailFrom)
	domain, ok := idn.Host(name)
	if !ok {
		return false
	}
	return v.SPF == Pass && !v.SPFHelo && v.SPFDomain == domain ||
		v.DMARC == Pass && aligned(domain, v.FromDomain, false) && (v.org == "" || isWithin(domain, v.org))
}
