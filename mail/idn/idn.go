// Package idn normalizes domain names to the form in which they are stored, compared and looked up:
// ASCII (A-labels of RFC 5891), lower case, without a final dot. It does no lookups.
//
// There are three functions for names from three sources:
//   - Address is for the domain of an email address. It accepts letters, digits and hyphens, and
//     checks A-labels, since records store and compare the result.
//   - Host is for names that come from other hosts and from DNS. It also accepts underscores, which
//     selectors and return paths have. It accepts any ASCII label, even one that IDNA forbids, such
//     as r3---sn.example. DNS has such names, and to refuse them would refuse good mail. WholeHost
//     is Host for the name of a host that a person enters.
//   - Registrable is for a domain that a person wants to host. It accepts what Address accepts, but
//     only names that somebody can own. Its errors tell the person what is wrong.
package idn

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxName is the maximum length in bytes of a DNS name in text form (RFC 1035 section 2.3.4).
const MaxName = 253

const (
	maxLabel   = 63
	maxAddress = 255 // bytes of a domain in an address (RFC 5321 section 4.5.3.1.2)
)

// Address normalizes the domain of an email address. The domain must not be an address literal. The
// text of an error is for the person who typed the address.
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

// Host normalizes a name that came from another host or from DNS. It returns false unless all
// labels of the name consist of 1 to 63 letters, digits, hyphens and underscores.
func Host(name string) (_ string, ok bool) {
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

// WholeHost is like Host for the name of a host that somebody enters. It also returns false for an
// IP address, and for a name of one label.
func WholeHost(text string) (name string, ok bool) {
	name, ok = Host(strings.TrimSpace(text))
	_, err := netip.ParseAddr(name)
	return name, ok && err != nil && strings.Contains(name, ".")
}

func isLabel(label string) bool {
	for _, c := range []byte(label) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return 0 < len(label) && len(label) <= maxLabel
}
