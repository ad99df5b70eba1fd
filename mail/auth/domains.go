package auth

import (
	"strings"

	"golang.org/x/net/publicsuffix"
)

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// splitAddress splits an address at its last @, since a quoted local part may contain an @.
func splitAddress(address string) (local, domain string) {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address, ""
	}
	return address[:at], address[at+1:]
}

// orgDomain returns the organisational domain by the public suffix list (RFC 7489 section 3.2): the
// public suffix and one label, or the name itself when it is a public suffix. Private suffixes such
// as github.io count, so that their tenants do not align. RFC 9989 uses the tree walk instead; this
// is for other decisions.
func orgDomain(domain string) string {
	org, err := publicsuffix.EffectiveTLDPlusOne(domain)
	if err != nil {
		return domain
	}
	return org
}

// aligned reports whether two domains, in the form of idn.Host, are aligned by the public suffix
// list (RFC 7489 section 3.1).
func aligned(authenticated, from string, strict bool) bool {
	if authenticated == "" || from == "" {
		return false
	}
	return authenticated == from || !strict && orgDomain(authenticated) == orgDomain(from)
}

// isWithin reports whether domain equals above or is below it.
func isWithin(domain, above string) bool {
	return domain == above || strings.HasSuffix(domain, "."+above)
}
