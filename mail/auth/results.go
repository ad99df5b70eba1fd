package auth

import (
	"strings"
)

// foldAt is the maximum line length, in columns, that RFC 5322 section 2.1.1 recommends.
const foldAt = 78

// maxReason is the maximum length in bytes of a reason in an Authentication-Results field.
const maxReason = 80

// resultsField returns the Authentication-Results field (RFC 8601) of a verdict. id is the
// authserv-id.
func resultsField(id string, v *Verdict) string {
	infos := [][]string{{id}, spfInfo(v)}
	for _, sig := range v.Signatures {
		infos = append(infos, signatureInfo(sig))
	}
	if len(v.Signatures) == 0 {
		infos = append(infos, []string{"dkim=" + string(None)})
	}
	infos = append(infos, dmarcInfo(v))
	if v.ARC.Result == Pass || v.ARC.Result == Fail {
		infos = append(infos, chainInfo(v.ARC))
	}

	f := fieldFolder{}
	f.text.WriteString("Authentication-Results:")
	f.column = f.text.Len()
	for i, words := range infos {
		if i > 0 {
			f.text.WriteString(";")
			f.newLine()
		}
		for _, word := range words {
			f.add(word)
		}
	}
	f.text.WriteString("\r\n")
	return f.text.String()
}

// spfInfo returns the words about SPF in an Authentication-Results field.
func spfInfo(v *Verdict) []string {
	words := []string{"spf=" + string(v.SPF)}
	switch {
	case v.SPFDomain == "":
	case v.SPFHelo:
		words = append(words, "smtp.helo="+v.SPFDomain)
	default:
		words = append(words, "smtp.mailfrom="+v.SPFDomain)
	}
	return words
}

// signatureInfo returns the words about a DKIM signature in an Authentication-Results field.
func signatureInfo(s Signature) []string {
	words := []string{"dkim=" + string(s.Result)}
	if s.Reason != "" {
		words = append(words, "reason="+tokenOrQuoted(s.Reason))
	}
	for _, p := range []struct{ name, value string }{
		{"header.d", s.Domain}, {"header.s", s.Selector}, {"header.a", s.algorithm}, {"header.b", s.hint},
	} {
		if p.value != "" {
			words = append(words, p.name+"="+tokenOrQuoted(p.value))
		}
	}
	return words
}

func dmarcInfo(v *Verdict) []string {
	words := []string{"dmarc=" + string(v.DMARC)}
	if v.Policy != "" {
		words = append(words, "policy.dmarc="+v.Policy)
	}
	if v.FromDomain != "" {
		words = append(words, "header.from="+v.FromDomain)
	}
	return words
}

func chainInfo(c Chain) []string {
	words := []string{"arc=" + string(c.Result)}
	if c.Reason != "" {
		words = append(words, "reason="+tokenOrQuoted(c.Reason))
	}
	return words
}

// fieldFolder writes the words of a field, in lines of at most foldAt columns where possible.
type fieldFolder struct {
	text   strings.Builder
	column int
}

func (f *fieldFolder) newLine() {
	f.text.WriteString("\r\n\t")
	f.column = 0
}

func (f *fieldFolder) add(word string) {
	// A semicolon may follow the word, so one column is left for it.
	if f.column > 0 && f.column+1+len(word)+1 > foldAt {
		f.newLine()
	}
	if f.column > 0 {
		word = " " + word
	} else {
		f.column = 8 // the width of the tab before it
	}
	f.text.WriteString(word)
	f.column += len(word)
}

// tokenOrQuoted returns s unchanged if it is a token (RFC 2045 section 5.1), otherwise in quotes.
func tokenOrQuoted(s string) string {
	if isToken(s) {
		return s
	}
	return `"` + printable(s) + `"`
}

// printable removes non-ASCII and control characters, quotes and backslashes, and shortens s to
// maxReason bytes.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, s)
	return s[:min(len(s), maxReason)]
}

func isToken(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && !strings.ContainsRune("!#$%&'*+-.^_`{|}~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}

func isBase64(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && !strings.ContainsRune("+/=", rune(s[i])) {
			return false
		}
	}
	return true
}
