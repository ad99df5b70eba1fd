package dnsprov

import (
	"strings"

	"golang.org/x/net/publicsuffix"
)

// RegisteredName returns the registered domain of a name: example.co.uk for www.example.co.uk. It
// uses only suffixes of ICANN registries, because nobody can buy names below suffixes of companies,
// such as github.io. The name must have passed idn.Registrable.
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
