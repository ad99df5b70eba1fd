package auth

import (
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// maxDomain is the longest DNS name in text form (RFC 1035 section 2.3.4).
const maxDomain = 253

// asciiDomain returns name in lower-case A-labels without a final dot, and whether it is a DNS name
// that mail can use: letters, digits, hyphens and underscores (selectors and return paths have
// those) in labels of 1 to 63 bytes.
func asciiDomain(name string) (string, bool) {
	name = strings.TrimSuffix(name, ".")
	if len(name) > 4*maxDomain {
		return "", false
	}
	if !isASCII(name) {
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", false
		}
		name = ascii
	}
	if len(name) > maxDomain {
		return "", false
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return "", false
		}
	}
	return strings.ToLower(name), true
}

func isLabel(label string) bool {
	for i := range len(label) {
		if !isAlnum(label[i]) && label[i] != '-' && label[i] != '_' {
			return false
		}
	}
	return 0 < len(label) && len(label) <= 63
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// splitAddress cuts an address at its last @, since a quoted local part may hold one.
func splitAddress(address string) (local, domain string) {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address, ""
	}
	return address[:at], address[at+1:]
}

// orgDomain returns the organisational domain (RFC 7489 section 3.2): the public suffix and one
// label, or the name itself when it is a public suffix. Private suffixes such as github.io count,
// so that their tenants do not align.
func orgDomain(domain string) string {
	org, err := publicsuffix.EffectiveTLDPlusOne(domain)
	if err != nil {
		return domain
	}
	return org
}

// aligned compares an authenticated domain with the From domain (RFC 7489 section 3.1), both as
// asciiDomain gives them.
func aligned(authenticated, from string, strict bool) bool {
	if authenticated == "" || from == "" {
		return false
	}
	return authenticated == from || !strict && orgDomain(authenticated) == orgDomain(from)
}
