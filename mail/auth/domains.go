package auth

import (
	"strings"

	"golang.org/x/net/publicsuffix"
)

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// splitAddress splits an address at its last @, since a quoted local part may contain an @. domain
// is "" if there is no @.
func splitAddress(address string) (local, domain string) {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address, ""
	}
	return address[:at], address[at+1:]
}

// orgDomain returns the organisational domain by the public suffix list (RFC 7489 section 3.2): the
// public suffix and one more label, or the name itself if it is a public suffix. Private suffixes
// such as github.io count as public, so that their tenants are not aligned with each other. RFC
// 9989 does not use this list; a treeWalker has its rules.
func orgDomain(domain string) string {
	org, err := publicsuffix.EffectiveTLDPlusOne(domain)
	if err != nil {
		return domain
	}
	return org
}

// aligned reports whether two domains are aligned by the public suffix list (RFC 7489 section 3.1).
// Both must be in the form of idn.Host.
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
