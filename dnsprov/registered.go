package dnsprov

import (
	"strings"

	"golang.org/x/net/publicsuffix"
)

// RegisteredName returns the name to buy so that a domain, which passed idn.Registrable, exists:
// example.co.uk for www.example.co.uk. Only suffixes of ICANN registries count: below a suffix of a
// company, such as github.io, nothing is for sale.
func RegisteredName(ascii string) string {
	suffix, icann := publicsuffix.PublicSuffix(ascii)
	for !icann && strings.Contains(suffix, ".") {
		_, above, _ := strings.Cut(suffix, ".")
		suffix, icann = publicsuffix.PublicSuffix(above)
	}
	rest, below := strings.CutSuffix(ascii, "."+suffix)
	if !below {
		return ascii
	}
	return rest[strings.LastIndexByte(rest, '.')+1:] + "." + suffix
}
