// Package idn normalizes domain names to the form in which they are stored, compared and looked up:
// ASCII (A-labels of RFC 5891), lower case, without a final dot. It does no look-ups.
//
// There are three profiles for three sources of names:
//   - Address is for the domain of an email address. It takes letters, digits and hyphens, and
//     checks A-labels: what it lets through is kept in records and compared.
//   - Host is for names that other hosts and DNS tell us. It takes underscores too, which selectors
//     and return paths have, and ASCII labels as they are, since DNS carries them whatever IDNA
//     says of them: refusing r3---sn.example would refuse good mail.
//   - Registrable is for a domain that a person wants to host. It takes what Address does, but
//     only names that somebody can hold, and tells the person what is wrong with others.
package idn

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxName is the longest DNS name in text form (RFC 1035 section 2.3.4).
const MaxName = 253

const (
	maxLabel   = 63
	maxAddress = 255 // bytes of a domain as typed (RFC 5321 section 4.5.3.1.2)
)

// Address normalizes the domain of an email address, which must not be an address literal. Errors
// are written for the person who typed it.
func Address(domain string) (string, error) {
	if len(domain) > maxAddress {
		return "", fmt.Errorf("the domain is longer than %d bytes", maxAddress)
	}
	profile := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true), idna.VerifyDNSLength(true))
	ascii, err := profile.ToASCII(strings.TrimSuffix(domain, "."))
	if err != nil || !utf8.ValidString(domain) || ascii == "" || strings.HasSuffix(ascii, ".") || len(ascii) > MaxName {
		return "", errors.New("the part after the @ is not a domain name")
	}
	return ascii, nil
}

// Host normalizes a name received from another host or DNS. It returns false unless the name
// consists of labels of 1 to 63 letters, digits, hyphens and underscores.
func Host(name string) (string, bool) {
	name = strings.TrimSuffix(name, ".")
	if len(name) > 4*MaxName || !utf8.ValidString(name) {
		return "", false
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		profile := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false))
		ascii, err := profile.ToASCII(name)
		if err != nil {
			return "", false
		}
		name = ascii
	}
	if len(name) > MaxName {
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
	for _, c := range []byte(label) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return 0 < len(label) && len(label) <= maxLabel
}
