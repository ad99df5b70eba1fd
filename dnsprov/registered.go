package dnsprov

import (
	"strings"

	"golang.org/x/net/publicsuffix"
)

// RegisteredName gives the name that is bought for a domain of idn.Registrable to exist:
// example.co.uk for www.example.co.uk. Only suffixes of the root zone's registries count: below one
// of a company, such as github.io, nothing is for sale.
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
