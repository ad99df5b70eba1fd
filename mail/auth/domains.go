package auth

import (
	"strings"

	"golang.org/x/net/publicsuffix"
)

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// splitAddress cuts an address at its last @, since a quoted local part may hold one.
func splitAddress(address string) (local, domain string) {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address, ""
	}
	return address[:at], address[at+1:]
}

// orgDomain returns the organisational domain by the public suffix list (RFC 7489 section 3.2):
// the public suffix and one label, or the name itself when it is a public suffix. Private suffixes
// such as github.io count, so that their tenants do not align. What DMARC decides follows the tree
// walk instead; this is for what is decided without it.
func orgDomain(domain string) string {
	org, err := publicsuffix.EffectiveTLDPlusOne(domain)
	if err != nil {
		return domain
	}
	return org
}

// aligned compares two domains by the public suffix list (RFC 7489 section 3.1), both as idn.Host
// gives them.
func aligned(authenticated, from string, strict bool) bool {
	if authenticated == "" || from == "" {
		return false
	}
	return authenticated == from || !strict && orgDomain(authenticated) == orgDomain(from)
}

// isWithin reports whether a domain is another or below it.
func isWithin(domain, above string) bool {
	return domain == above || strings.HasSuffix(domain, "."+above)
}
